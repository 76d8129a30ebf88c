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

from holdfast.inspect.calls import JournalEntry, number_of, text_of
from holdfast.inspect.rows import time_of
from holdfast.inspect.views import Row
from holdfast.store.journal_prune import PRUNED

GAP_US: Final = 1_000_000
"""Shorter gaps are not worth a row: the engine itself waits so long without releasing a run."""
_WORK: Final = frozenset({"step", "outcome", "attempt"})
"""Entries that record how long the work took that they end."""
_TEXTS: Final = {
    "person": "waited for an answer",
    "event": "waited for an event",
    "timer": "slept",
    "retry": "waited for the next attempt",
    "child": "waited for a child run",
    "paused": "was paused",
    "unclaimed": "nothing was recorded",
}
"""By reason. Of several waits, the first in this order counts as the reason of a gap."""


class _OpenWait(NamedTuple):
    """Something the run waits for."""

    reason: str
    what: str
    due_us: int = 0
    """When it comes, or an answer came; 0 if that is not known."""
    scope: str = ""

    @property
    def is_answered(self) -> bool:
        """Whether the answer of a person came, although no entry says so."""
        return self.reason == "person" and self.due_us > 0


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


def without_holes(entries: list[JournalEntry]) -> list[list[JournalEntry]]:
    """The entries in parts, each without entries left out in it. A pruned entry stands for several."""
    parts: list[list[JournalEntry]] = []
    following = 0
    for met in entries:
        if met.position == following:
            parts[-1].append(met)
        else:
            parts.append([met])
        following = max(met.position, number_of(met.data.get("through")) if met.kind == PRUNED else 0) + 1
    return parts


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
            wait = _reason_of(waits)
            over_us = min(max(_over_us(wait, together, start_us), busy_us), start_us)
            found += _split_gap(Gap(after, wait.reason, wait.what, busy_us, start_us), over_us, least_us)
        busy_us, after = max(busy_us, created_us), together[-1].position
        waits.pop("", None)
        for met in together:
            _note(waits, met, answered or {})
    if busy_us and not ended and not held and now_us - busy_us >= least_us:
        wait = _reason_of(waits)
        gap = Gap(after, wait.reason, wait.what, busy_us, None)
        found += _split_gap(gap, wait.due_us, least_us) if busy_us <= wait.due_us < now_us else [gap]
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

    Earlier versions did not record it for a failed attempt, which counts as begun when its delay, or a sleep before it,
    was over.
    """
    attempts = [met for met in together if met.kind == "attempt" and "us" not in met.data]
    if attempts:
        calls, scopes = {met.call for met in attempts}, {met.scope for met in attempts}
        over = [one for call, one in waits.items() if call in calls or (one.reason == "timer" and one.scope in scopes)]
        return max(busy_us, *(one.due_us for one in over), 0)
    return together[0].created_us - max(number_of(met.data.get("us")) for met in together)


def _reason_of(waits: dict[str, _OpenWait]) -> _OpenWait:
    """The wait that counts as the reason of a gap: gates without an answer come first."""
    order = list(_TEXTS)
    return min(
        [*waits.values(), _OpenWait("unclaimed", "")], key=lambda one: (order.index(one.reason), one.is_answered)
    )


def _over_us(wait: _OpenWait, together: list[JournalEntry], end_us: int) -> int:
    """When a wait was over. The time of an answer is in the journal, or in the inbox if the run has not read it."""
    answered = [number_of(met.data.get("at_us")) for met in together if met.kind == "answered"]
    return min([us for us in answered if us and wait.reason == "person"], default=wait.due_us or end_us)


def _split_gap(gap: Gap, over_us: int, least_us: int) -> list[Gap]:
    """The wait itself, and the time after it in which no process took the run."""
    parts = [gap._replace(end_us=over_us), Gap(gap.after, "unclaimed", "", over_us, gap.end_us)]
    return [part for part in parts if part.end_us is None or part.end_us - part.start_us >= least_us]


def _note(waits: dict[str, _OpenWait], met: JournalEntry, answered: Mapping[str, int]) -> None:
    """Update what the run waits for after this entry."""
    data, call = met.data, met.call
    match met.kind:
        case "asked":
            gate = text_of(data.get("gate"))
            waits[call] = _OpenWait("person", gate, answered.get(gate, 0))
        case "wait":
            waits[call] = _OpenWait("event", text_of(data.get("event")), number_of(data.get("due_us")))
        case "sleep":
            waits[call] = _OpenWait("timer", call, number_of(data.get("due_us")), met.scope)
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
    for name, one in list(waits.items()):  # of these two, no entry says that they are over
        if (one.reason == "timer" or one.is_answered) and one.due_us <= met.created_us:
            del waits[name]


def gap_row(gap: Gap, now_us: int) -> Row:
    """The row of a gap."""
    return Row(
        kind="gap",
        name=gap.what,
        reason=gap.reason,
        text=_TEXTS[gap.reason],
        first=gap.after,
        last=gap.after,
        state="done" if gap.end_us is not None else "waiting",
        started_at=time_of(gap.start_us),
        ended_at=time_of(gap.end_us),
        duration_us=max(0, (now_us if gap.end_us is None else gap.end_us) - gap.start_us),
    )
