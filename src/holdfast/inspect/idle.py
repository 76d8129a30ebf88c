"""Idle time: the gaps in which a run recorded nothing, and what it waited for in them.

An entry has the time it was written and, for a step or an effect, how long that took. So between one entry and the
beginning of the work for the next nothing was done. If the journal says when the wait was over (the time of an answer
or a timer), the rest is a gap of its own: the run could have continued, but no process took it.

Time in which a step or an effect was in flight is never part of a gap, even if another branch waited meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Final, NamedTuple

from holdfast.engine.record import full_name
from holdfast.inspect.calls import JournalEntry, number_of, text_of
from holdfast.inspect.rows import time_of
from holdfast.inspect.views import Row

GAP_US: Final = 1_000_000
"""Shorter gaps are not worth a row: the engine itself waits so long without releasing a run."""
_WORK: Final = frozenset({"step", "outcome"})
"""Entries that record how long the work took that they end."""
_ORDER: Final = ("person", "event", "timer", "retry", "child", "paused")
_TEXTS: Final = {
    "person": "waited for an answer",
    "event": "waited for an event",
    "timer": "slept",
    "child": "waited for a child run",
    "retry": "waited for the next attempt",
    "paused": "was paused",
    "nobody": "nothing was recorded",
}


class _OpenWait(NamedTuple):
    """Something the run waits for."""

    reason: str
    what: str
    due_us: int = 0
    """When it comes, or an answer came; 0 if that is not known."""
    scope: str = ""

    def is_over(self, now_us: int) -> bool:
        """Whether the wait is over at this time although no entry says so."""
        return (self.reason == "timer" or (self.reason == "person" and self.due_us > 0)) and self.due_us <= now_us


class Gap(NamedTuple):
    """Idle time after the entry at `after`. `end_us` None: it has not ended."""

    after: int
    reason: str
    what: str
    start_us: int
    end_us: int | None


class Span(NamedTuple):
    """An interval of time."""

    start_us: int
    end_us: int


def find_work(entries: Iterable[JournalEntry]) -> list[Span]:
    """When steps and effects were in flight, as far as it is recorded: in order, without overlaps."""
    took = [(met.created_us, number_of(met.data.get("us"))) for met in entries if met.kind in _WORK]
    found: list[Span] = []
    for start_us, end_us in sorted((created_us - us, created_us) for created_us, us in took if us > 0):
        if found and start_us <= found[-1].end_us:
            found[-1] = Span(found[-1].start_us, max(found[-1].end_us, end_us))
        else:
            found.append(Span(start_us, end_us))
    return found


def find_gaps(
    entries: Iterable[JournalEntry],
    now_us: int,
    *,
    ended: bool,
    held: bool,
    least_us: int = GAP_US,
    answered: Mapping[str, int] | None = None,
) -> list[Gap]:
    """All gaps, in order; if the run has not ended and is not claimed, also the one up to now.

    `answered`: when gates were answered, of those whose answers the journal does not have yet.
    """
    entries = list(entries)
    found: list[Gap] = []
    waits: dict[str, _OpenWait] = {}
    busy_us = after = 0
    for created_us, group in groupby(entries, key=lambda met: met.created_us):
        together = list(group)
        start_us = min(_began_us(together, waits, busy_us), created_us)
        if busy_us and start_us - busy_us >= least_us:
            found += _split_gap(after, busy_us, start_us, waits, together, least_us)
        busy_us, after = max(busy_us, created_us), together[-1].position
        waits.pop("", None)
        for met in together:
            _note(waits, met, answered or {})
    if busy_us and not ended and not held and now_us - busy_us >= least_us:
        found += _open_gap(after, busy_us, now_us, waits, least_us)
    work = find_work(entries)
    return [part for gap in found for part in _cut_out_work(gap, work, now_us, least_us)]


def _cut_out_work(gap: Gap, work: list[Span], now_us: int, least_us: int) -> list[Gap]:
    """The parts of a gap that lie outside of all work."""
    end_us = now_us if gap.end_us is None else gap.end_us
    inside = [span for span in work if span.start_us < end_us and span.end_us > gap.start_us]
    if not inside:
        return [gap]
    starts = [gap.start_us, *(span.end_us for span in inside)]
    ends = [*(span.start_us for span in inside), end_us]
    parts = [gap._replace(start_us=start, end_us=end) for start, end in zip(starts, ends, strict=True)]
    parts[-1] = parts[-1]._replace(end_us=gap.end_us)
    return [part for part, end in zip(parts, ends, strict=True) if end - part.start_us >= least_us]


def _began_us(together: list[JournalEntry], waits: dict[str, _OpenWait], busy_us: int) -> int:
    """When the work for these entries began.

    A failed attempt does not record it, so it counts as begun when its delay, or a sleep before it, was over.
    """
    attempts = [met for met in together if met.kind == "attempt"]
    if attempts:
        calls, scopes = {_call(met) for met in attempts}, {text_of(met.data.get("in")) for met in attempts}
        over = [one for call, one in waits.items() if call in calls or (one.reason == "timer" and one.scope in scopes)]
        return max(busy_us, *(one.due_us for one in over), 0)
    return together[0].created_us - max(number_of(met.data.get("us")) for met in together)


def _call(met: JournalEntry) -> str:
    return full_name(text_of(met.data.get("in")), text_of(met.data.get("call")))


def _first(waits: dict[str, _OpenWait]) -> _OpenWait:
    """The wait that counts as the reason of a gap."""
    return min(waits.values(), key=_rank, default=_OpenWait("nobody", ""))


def _rank(one: _OpenWait) -> tuple[int, bool]:
    """People come first, and of them those who have not answered."""
    return _ORDER.index(one.reason), one.reason == "person" and one.due_us > 0


def _split_gap(
    after: int, start_us: int, end_us: int, waits: dict[str, _OpenWait], together: list[JournalEntry], least_us: int
) -> list[Gap]:
    reason = _first(waits)
    over_us = end_us
    if (
        reason.reason == "person"
    ):  # answered: the journal has the answer's time, or the inbox, if the run has not read it
        answer_times = [number_of(met.data.get("at_us")) for met in together if met.kind == "answered"]
        over_us = min([us for us in answer_times if us], default=reason.due_us or end_us)
    elif reason.due_us:
        over_us = reason.due_us
    over_us = min(max(over_us, start_us), end_us)
    parts = [Gap(after, reason.reason, reason.what, start_us, over_us), Gap(after, "nobody", "", over_us, end_us)]
    return [gap for gap in parts if gap.end_us is not None and gap.end_us - gap.start_us >= least_us]


def _open_gap(after: int, start_us: int, now_us: int, waits: dict[str, _OpenWait], least_us: int) -> list[Gap]:
    reason = _first(waits)
    if reason.due_us and start_us <= reason.due_us < now_us:
        parts = [Gap(after, reason.reason, reason.what, start_us, reason.due_us)]
        parts = [gap for gap in parts if reason.due_us - start_us >= least_us]
        return [*parts, Gap(after, "nobody", "", reason.due_us, None)]
    return [Gap(after, reason.reason, reason.what, start_us, None)]


def _note(waits: dict[str, _OpenWait], met: JournalEntry, answered: Mapping[str, int]) -> None:
    """Update what the run waits for after this entry."""
    data, call = met.data, _call(met)
    match met.kind:
        case "asked":
            gate = text_of(data.get("gate"))
            waits[call] = _OpenWait("person", gate, answered.get(gate, 0))
        case "wait":
            waits[call] = _OpenWait("event", text_of(data.get("event")), number_of(data.get("due_us")))
        case "sleep":
            waits[call] = _OpenWait("timer", call, number_of(data.get("due_us")), text_of(data.get("in")))
        case "attempt":
            waits[call] = _OpenWait("retry", call, number_of(data.get("due_us")))
        case "child" if not data.get("detached"):
            waits[call] = _OpenWait("child", text_of(data.get("child")))
        case "paused" | "diverged" | "breakpoint":
            waits[""] = _OpenWait("paused", text_of(data.get("by")))
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
        kind="gap",
        name=gap.what,
        reason=gap.reason,
        text=_TEXTS[gap.reason],
        first=gap.after,
        last=gap.after,
        state="done" if gap.end_us is not None else "waiting",
        depth=depth,
        started_at=time_of(gap.start_us),
        ended_at=None if gap.end_us is None else time_of(gap.end_us),
        duration_us=max(0, end_us - gap.start_us),
    )
