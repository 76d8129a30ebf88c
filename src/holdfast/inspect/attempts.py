"""The attempts of a call that was retried: how long each took, how it failed, and the wait after it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from holdfast.inspect.calls import CallRecord, JournalEntry, number_of
from holdfast.inspect.views import AttemptRow
from holdfast.operations.views import moment


def attempts_of(draft: CallRecord) -> tuple[AttemptRow, ...]:
    """All attempts of a step or an effect, in order; empty if it was not retried.

    Entries of earlier versions do not have the duration of a failed attempt.
    """
    tries = [met for met in draft.entries if met.kind == "attempt"]
    if tries and draft.last.kind in ("step", "outcome") and not draft.last.data.get("how"):
        tries.append(draft.last)
    elif not tries:
        return ()
    waits = [two.began_us - one.created_us if _took_us(two) is not None else None for one, two in pairwise(tries)]
    return tuple(
        _attempt_row(met, number, waited_us)
        for number, (met, waited_us) in enumerate(zip(tries, [*waits, None], strict=True), 1)
    )


def _took_us(met: JournalEntry) -> int | None:
    """How long the function took; None if it is not recorded, as of an outcome that a person gave."""
    us = number_of(met.data.get("us"))
    return us if us > 0 or (us == 0 and "us" in met.data and met.kind != "outcome") else None


def _attempt_row(met: JournalEntry, number: int, waited_us: int | None) -> AttemptRow:
    took_us = _took_us(met)
    try:
        started_at = None if took_us is None else moment(met.began_us)
    except OverflowError:
        started_at = took_us = None
    return AttemptRow(
        number=number,
        started_at=started_at,
        ended_at=moment(met.created_us),
        duration_us=took_us,
        error=met.data.get("error"),
        waited_us=None if waited_us is None else max(0, waited_us),
    )


def describe_attempt(one: AttemptRow, text: str, duration: Callable[[int], str]) -> str:
    """An attempt in one line; `text` describes its error.

    Example:
        describe_attempt(one, "ConnectionError: reset", lambda us: f"{us / 1e6:.1f} s")
    """
    took = "time not recorded" if one.duration_us is None else duration(one.duration_us)
    waited = "" if one.waited_us is None else f"; then waited {duration(one.waited_us)}"
    return f"attempt {one.number}: {took}{', ' if text else ''}{text}{waited}"
