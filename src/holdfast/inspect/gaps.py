"""Idle time: the stretches in which a run recorded nothing, and what it waited for in them.

An entry tells when it was written and, of a step or an effect, how long that took; so from one entry to where the work
for the next began nothing was done. Where the journal tells when the waiting was over (an answer's time, a timer's) the
rest of the stretch is one of its own: the run could have gone on, and nobody took it.

Time in which a step or an effect was under way is never part of a gap, also if another branch waited meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Final, NamedTuple

from holdfast.engine.record import full_name
from holdfast.inspect.calls import Met, number_of, text_of
from holdfast.inspect.rows import time_of
from holdfast.inspect.shapes import Row

GAP_US: Final = 1_000_000
"""Shorter stretches are not worth a row; the engine itself waits so long without giving a run back."""
_WORK: Final = frozenset({"step", "outcome"})
"""Entries that tell how long the work took which they end."""
_ORDER: Final = ("person", "event", "timer", "retry", "child", "paused")
_TEXTS: Final = {
    "person": "waited for an answer", "event": "waited for an event", "timer": "slept",
    "child": "waited for a child run", "retry": "waited for the next attempt",
    "paused": "was paused", "nobody": "nothing was recorded",
}  # fmt: skip


class _Open(NamedTuple):
    """Something that is waited for."""

    reason: str
    what: str
    due_us: int = 0
    """When it comes, or an answer came; 0 if that is not known."""
    scope: str = ""

    def is_over(self, now_us: int) -> bool:
        """Whether it is not waited for any more at this time, without an entry that says so."""
        return (self.reason == "timer" or (self.reason == "person" and self.due_us > 0)) and self.due_us <= now_us


class Gap(NamedTuple):
    """A stretch of idle time behind the entry at `after`. `end_us` None: it has not ended."""

    after: int
    reason: str
    what: str
    start_us: int
    end_us: int | None


class Span(NamedTuple):
    """A stretch of time."""

    start_us: int
    end_us: int


def work_in(entries: Iterable[Met]) -> list[Span]:
    """When steps and effects were under way, as far as it is recorded; in order, and none overlaps another."""
    took = [(met.created_us, number_of(met.data.get("us"))) for met in entries if met.kind in _WORK]
    found: list[Span] = []
    for start_us, end_us in sorted((created_us - us, created_us) for created_us, us in took if us > 0):
        if found and start_us <= found[-1].end_us:
            found[-1] = Span(found[-1].start_us, max(found[-1].end_us, end_us))
        else:
            found.append(Span(start_us, end_us))
    return found


def gaps_in(
    entries: Iterable[Met], now_us: int, *, ended: bool, held: bool, least_us: int = GAP_US,
    answered: Mapping[str, int] | None = None,
) -> list[Gap]:  # fmt: skip
    """All stretches, in order; if the run has not ended and nobody holds it, also the one up to now.

    `answered`: when gates were answered, of those whose answers the journal does not have yet.
    """
    entries = list(entries)
    found: list[Gap] = []
    waits: dict[str, _Open] = {}
    busy_us = after = 0
    for created_us, group in groupby(entries, key=lambda met: met.created_us):
        together = list(group)
        start_us = min(_began_us(together, waits, busy_us), created_us)
        if busy_us and start_us - busy_us >= least_us:
            found += _split(after, busy_us, start_us, waits, together, least_us)
        busy_us, after = max(busy_us, created_us), together[-1].position
        waits.pop("", None)
        for met in together:
            _note(waits, met, answered or {})
    if busy_us and not ended and not held and now_us - busy_us >= least_us:
        found += _still(after, busy_us, now_us, waits, least_us)
    work = work_in(entries)
    return [part for gap in found for part in _without(gap, work, now_us, least_us)]


def _without(gap: Gap, work: list[Span], now_us: int, least_us: int) -> list[Gap]:
    """What is left of a gap outside of all work."""
    end_us = now_us if gap.end_us is None else gap.end_us
    inside = [span for span in work if span.start_us < end_us and span.end_us > gap.start_us]
    if not inside:
        return [gap]
    starts = [gap.start_us, *(span.end_us for span in inside)]
    ends = [*(span.start_us for span in inside), end_us]
    parts = [gap._replace(start_us=start, end_us=end) for start, end in zip(starts, ends, strict=True)]
    parts[-1] = parts[-1]._replace(end_us=gap.end_us)
    return [part for part, end in zip(parts, ends, strict=True) if end - part.start_us >= least_us]


def _began_us(together: list[Met], waits: dict[str, _Open], busy_us: int) -> int:
    """When the work for these entries began.

    A failed attempt does not tell, so it is taken to have begun when its delay, or a sleep before it, was over.
    """
    attempts = [met for met in together if met.kind == "attempt"]
    if attempts:
        calls, scopes = {_call(met) for met in attempts}, {text_of(met.data.get("in")) for met in attempts}
        over = [one for call, one in waits.items() if call in calls or (one.reason == "timer" and one.scope in scopes)]
        return max(busy_us, *(one.due_us for one in over), 0)
    return together[0].created_us - max(number_of(met.data.get("us")) for met in together)


def _call(met: Met) -> str:
    return full_name(text_of(met.data.get("in")), text_of(met.data.get("call")))


def _first(waits: dict[str, _Open]) -> _Open:
    """What counts as the reason, of all that is waited for."""
    return min(waits.values(), key=_rank, default=_Open("nobody", ""))


def _rank(one: _Open) -> tuple[int, bool]:
    """Persons come first, and of them those who have not answered."""
    return _ORDER.index(one.reason), one.reason == "person" and one.due_us > 0


def _split(
    after: int, start_us: int, end_us: int, waits: dict[str, _Open], together: list[Met], least_us: int
) -> list[Gap]:
    reason = _first(waits)
    over_us = end_us
    if reason.reason == "person":  # answered: the journal has the answer's time, or the inbox, if it was not taken up
        told = [number_of(met.data.get("at_us")) for met in together if met.kind == "answered"]
        over_us = min([us for us in told if us], default=reason.due_us or end_us)
    elif reason.due_us:
        over_us = reason.due_us
    over_us = min(max(over_us, start_us), end_us)
    parts = [Gap(after, reason.reason, reason.what, start_us, over_us), Gap(after, "nobody", "", over_us, end_us)]
    return [gap for gap in parts if gap.end_us is not None and gap.end_us - gap.start_us >= least_us]


def _still(after: int, start_us: int, now_us: int, waits: dict[str, _Open], least_us: int) -> list[Gap]:
    reason = _first(waits)
    if reason.due_us and start_us <= reason.due_us < now_us:
        parts = [Gap(after, reason.reason, reason.what, start_us, reason.due_us)]
        parts = [gap for gap in parts if reason.due_us - start_us >= least_us]
        return [*parts, Gap(after, "nobody", "", reason.due_us, None)]
    return [Gap(after, reason.reason, reason.what, start_us, None)]


def _note(waits: dict[str, _Open], met: Met, answered: Mapping[str, int]) -> None:
    """Keep account of what is waited for after this entry."""
    data, call = met.data, _call(met)
    match met.kind:
        case "asked":
            gate = text_of(data.get("gate"))
            waits[call] = _Open("person", gate, answered.get(gate, 0))
        case "wait":
            waits[call] = _Open("event", text_of(data.get("event")), number_of(data.get("due_us")))
        case "sleep":
            waits[call] = _Open("timer", call, number_of(data.get("due_us")), text_of(data.get("in")))
        case "attempt":
            waits[call] = _Open("retry", call, number_of(data.get("due_us")))
        case "child" if not data.get("detached"):
            waits[call] = _Open("child", text_of(data.get("child")))
        case "paused" | "diverged" | "breakpoint":
            waits[""] = _Open("paused", text_of(data.get("by")))
        case "rolled_back" | "forked":
            waits.clear()
        case _:
            waits.pop(call, None)
    for name in [name for name, one in waits.items() if one.is_over(met.created_us)]:
        del waits[name]


def gap_row(gap: Gap, now_us: int, depth: int) -> Row:
    """The row of a gap."""
    end_us = now_us if gap.end_us is None else gap.end_us
    return Row(
        kind="gap", name=gap.what, reason=gap.reason, text=_TEXTS[gap.reason], first=gap.after, last=gap.after,
        state="done" if gap.end_us is not None else "waiting", depth=depth, started_at=time_of(gap.start_us),
        ended_at=None if gap.end_us is None else time_of(gap.end_us), duration_us=max(0, end_us - gap.start_us),
    )  # fmt: skip
