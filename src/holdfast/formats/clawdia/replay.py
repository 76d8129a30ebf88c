"""Replay: what a journal says of its run, and whether the run may go on.

A run that has ended may have records behind its end (its last turn is closed after its result); that is no damage. An
effect whose result is not known stands in the way, unless it has a key by which doing it again is harmless. An effect
that a recovery declared unsafe stands in the way as it does in the original: whatever key it has, and for good.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Literal

from holdfast.errors import DamagedFile
from holdfast.formats.clawdia.effects import EffectLine, effects_of, kind_of
from holdfast.formats.clawdia.shape import Record, RunCheckpoint, order
from holdfast.formats.shapes import checked, has_shape
from holdfast.model.views import View

_ENDS: Final = ("completed", "failed", "cancelled", "run_completed", "run_failed", "run_cancelled")
"""The statuses in a run's lifecycle that end it."""


class Replay(View, frozen=True, kw_only=True):
    """What came out of a replay."""

    status: Literal["complete", "repair_needed"]
    resume_allowed: bool
    """Whether the run has not ended, and nothing it did is in doubt."""
    latest_journal_seq: int
    terminal_status: str | None
    retry: tuple[str, ...]
    """Pending effects that may be done again under their key."""
    unsafe: tuple[str, ...]
    """Effects of which a person must find out what became of them: pending, or declared unsafe by a recovery."""
    latest_checkpoint: dict[str, Any] | None


def replay(records: Iterable[dict[str, Any]]) -> Replay:
    """Read a journal from beginning to end.

    Example:
        clawdia.replay(runs.records("run.a")).resume_allowed
    """
    live = _in_order(records)
    terminal = [_terminal_status(record) for record in live]
    ended = [status for status in terminal if status is not None]
    lines: list[EffectLine] = [line for line in effects_of(live).values() if line.is_pending or line.unsafe]
    unsafe = tuple(line.effect_id for line in lines if not line.may_be_retried)
    saved = [_payload(record) for record in live if kind_of(record) == "checkpoint"]
    checkpoints = [payload for payload in saved if has_shape(payload, RunCheckpoint)]
    return Replay(
        status="repair_needed" if unsafe else "complete",
        resume_allowed=not unsafe and not ended,
        latest_journal_seq=live[-1]["journal_seq"] if live else 0,
        terminal_status=ended[-1] if ended else None,
        retry=tuple(line.effect_id for line in lines if line.may_be_retried),
        unsafe=unsafe,
        latest_checkpoint=max(checkpoints, key=order) if checkpoints else None,
    )


def _in_order(records: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The records, each once, if their numbers only grow."""
    live: list[dict[str, Any]] = []
    for record in records:
        checked(record, Record, "a journal record")
        if live and record["journal_seq"] <= live[-1]["journal_seq"]:
            if record in live:
                continue
            raise DamagedFile(
                f"record {record['record_id']!r} of run {record['run_id']!r}",
                f"its number {record['journal_seq']} is not above {live[-1]['journal_seq']}, which stands before it",
            )
        live.append(record)
    return live


def _payload(record: dict[str, Any]) -> dict[str, Any]:
    payload = record.get("payload")
    return payload if isinstance(payload, dict) else {}


def _terminal_status(record: dict[str, Any]) -> str | None:
    payload = _payload(record)
    if payload.get("type") == "terminal_result":
        return str(payload.get("terminal_status", "unknown"))
    status = payload.get("status") if payload.get("type") == "run_lifecycle" else None
    return str(status).removeprefix("run_") if status in _ENDS else None
