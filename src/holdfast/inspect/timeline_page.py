"""Pages of a timeline: the newest part with finished turns folded, and windows of the journal.

A run that loops needs only a few entries to resume: those before its loops and those of the current turns. The newest
page shows exactly these, so a loop of 10,000 turns costs as much as one of ten. What it skips is one row for each loop;
`read_window` reads that range, or any other, page by page.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Final

import msgspec

from holdfast.engine.resume_point import Span, resume_point_from
from holdfast.errors import InvalidCursor
from holdfast.inspect.calls import JournalEntry, fold_stages, has_stages
from holdfast.inspect.rows import time_of
from holdfast.inspect.timeline import StoredRun, build_timeline, fold_turns, is_workflow, journal_entry, timeline
from holdfast.inspect.views import Row, Timeline
from holdfast.limits import NUMBER_MAX
from holdfast.model.rows import CheckpointRow, EffectRow, EntryRow, RunRow
from holdfast.model.views import View
from holdfast.operations.context import StoreContext
from holdfast.operations.read import known_run, retry_if_changed
from holdfast.operations.store import Store
from holdfast.operations.views import checked_checkpoint, moment
from holdfast.runtime.replay_input import resume_of
from holdfast.store.journal_prune import PRUNED, last_of
from holdfast.store.port import CheckpointQuery, Select

ENTRIES: Final = 200
"""How many entries a page has."""
OVERLAP: Final = 100
"""How many entries around a window are read, so that calls that begin or end there are complete."""
_SCANNED_MAX: Final = 20_000
"""How many entries after a window are searched for rollbacks that took back a part of it."""
_BY_HAND_MAX: Final = 50
_ENDLESS: Final = frozenset({"waiting", "running", "stopped"})
_OPEN: Final = frozenset({"waiting", "running", "in_doubt"})
_TURNS: Final = frozenset({"turn", "turns", "stage", "stages"})


class TimelinePage(View, frozen=True, kw_only=True):
    """A part of a timeline."""

    timeline: Timeline
    """Its rows are those of the page. Its status and times describe the run only on the newest page."""
    first: int
    last: int
    """The positions of the page."""
    earlier: int
    """How many entries before it are not shown, also not as a folded row."""
    later: int
    is_folded: bool
    """Whether rows stand for turns, stages or entries that are not shown."""


def read_newest(store: Store, run_id: str, *, limit: int = ENTRIES) -> TimelinePage:
    """The newest page: at most `limit` entries of what the run needs to resume, with finished turns folded.

    Example:
        [row.name for row in read_newest(store, "order-17").timeline.rows]
    """
    core = store.access.core
    return retry_if_changed(core, run_id, lambda: _newest(store, core, run_id, limit))


def read_window(store: Store, run_id: str, *, first: int, limit: int = ENTRIES) -> TimelinePage:
    """The rows of `limit` entries from position `first` on, with everything in finished turns.

    Example:
        read_window(store, "order-17", first=1, limit=50).later
    """
    if type(first) is not int or not 1 <= first <= NUMBER_MAX:
        raise InvalidCursor(f"{first!r} is not a position in a journal")
    core = store.access.core
    return retry_if_changed(core, run_id, lambda: _window(core, run_id, first, limit))


def _newest(store: Store, core: StoreContext, run_id: str, limit: int) -> TimelinePage:
    run = known_run(core, run_id)
    opening = [journal_entry(run, row) for row in core.port.rows(EntryRow, run.run, 0, 1)]
    if not is_workflow(opening):
        seen = timeline(store, run_id, newest=limit)
        return _page(seen, seen.rows, seen.left_out + 1 if seen.left_out else 1, run, earlier=seen.left_out)
    spans = _live_spans(core, run) if run.position > limit else [(1, run.position)]
    chosen = _newest_of(spans, limit)
    earlier = chosen[0][0] - 2 if chosen != spans and chosen[0][0] > 2 else 0
    holes = [(one[1] + 1, two[0] - 1) for one, two in pairwise(chosen)]
    ends = _read_keys(core, run, [at for hole in holes for at in hole])
    entries = {met.position: met for span in chosen for met in _read(core, run, span[0] - 1, span[1] - span[0] + 1)}
    entries |= {hole[1]: ends[hole[1]] for hole in holes if hole[1] in ends} | {opening[0].position: opening[0]}
    if earlier:
        entries |= {met.position: met for met in _read(core, run, max(1, chosen[0][0] - 1 - OVERLAP), OVERLAP)}
    checkpoints = core.port.find_checkpoints(CheckpointQuery(run_id, limit=limit))
    rows = [checked_checkpoint(run, row) for _, row in reversed(checkpoints) if row.covers >= chosen[0][0] - 1]
    past = _stored(core, run, [entries[at] for at in sorted(entries)], rows)
    seen = build_timeline(core, past)
    shown = tuple(row for row in seen.rows if row.first in (0, 1) or row.first >= chosen[0][0] or row.state in _OPEN)
    folded = fold_stages(shown) if has_stages(shown) else fold_turns(shown)
    folded = _with_holes(folded, holes, ends)
    return _page(seen, folded, chosen[0][0], run, earlier=earlier, folded=folded != shown)


def _page(
    seen: Timeline, rows: tuple[Row, ...], first: int, run: RunRow, *, earlier: int, folded: bool = False
) -> TimelinePage:
    shown = msgspec.structs.replace(seen, rows=rows)
    return TimelinePage(
        timeline=shown, first=first, last=run.position, earlier=max(0, earlier), later=0, is_folded=folded
    )


def _live_spans(core: StoreContext, run: RunRow) -> list[Span]:
    """The positions that a resume of the run needs; all, if no checkpoint says which."""
    found = core.port.checkpoint(run.run_id, Select())
    for _ in range(_BY_HAND_MAX):
        if found is None or found.checkpoint is None:
            break
        row = checked_checkpoint(run, found.checkpoint)
        resume = resume_of(run, row)
        if resume is not None:
            spans = resume_point_from(resume, row.covers, row.checkpoint_id).spans_to(run.position)
            return spans if spans and spans[0][0] == 1 else [(1, 1), *spans]
        found = core.port.checkpoint(run.run_id, Select(before=row.number))
    return [(1, run.position)]


def _newest_of(spans: list[Span], limit: int) -> list[Span]:
    """The last `limit` positions of these spans."""
    found: list[Span] = []
    for first, last in reversed(spans):
        if limit <= 0:
            break
        found.append((max(first, last - limit + 1), last))
        limit -= last - first + 1
    return found[::-1]


def _read(core: StoreContext, run: RunRow, after: int, limit: int) -> list[JournalEntry]:
    return [journal_entry(run, row) for row in core.port.rows(EntryRow, run.run, after, limit)]


def _read_keys(core: StoreContext, run: RunRow, positions: list[int]) -> dict[int, JournalEntry]:
    rows = core.port.rows(EntryRow, run.run, keys=positions) if positions else []
    found = [(row, journal_entry(run, row)) for row in rows]
    return {at: met for row, met in found for at in positions if row.position <= at <= last_of(row)}


def _stored(
    core: StoreContext, run: RunRow, entries: list[JournalEntry], checkpoints: list[CheckpointRow]
) -> StoredRun:
    keys = {key for met in entries if type(key := met.data.get("key")) is str and key}
    effects = core.port.rows(EffectRow, run.run, keys=keys) if keys else []
    return StoredRun(run, entries, max(0, run.position - len(entries)), checkpoints, effects)


# --- holes -----------------------------------------------------------------------------------------------------------


def _with_holes(rows: tuple[Row, ...], holes: list[Span], ends: dict[int, JournalEntry]) -> tuple[Row, ...]:
    """The rows with one for each range that was not read."""
    left = list(rows)
    for first, last in holes:
        inside = [row for row in left if first <= row.first <= last and row.kind != "gap"]
        turns = next((row for row in inside if row.kind in _TURNS), None)
        row = _hole_row((first, last), turns, ends)
        left = [other for other in left if other not in inside]
        at = next((at for at, other in enumerate(left) if other.first >= first and other.kind != "loop"), len(left))
        left.insert(at, row)
    return tuple(left)


def _hole_row(hole: Span, turns: Row | None, ends: dict[int, JournalEntry]) -> Row:
    first, last = hole
    begin, end = ends.get(first), ends.get(last)
    started = None if begin is None else time_of(begin.began_us)
    if begin is not None and begin.kind == PRUNED:
        text, count = f"entries {first} to {last} were pruned", last - first + 1
        return Row(kind="pruned", name="pruned", text=text, first=first, last=last, started_at=started, count=count)
    if turns is None:
        name, text = f"entries {first} to {last}", "not needed any more: finished turns, or rolled back"
        ended = None if end is None else moment(end.created_us)
        return Row(kind="skipped", name=name, text=text, first=first, last=last, started_at=started, ended_at=ended)
    kind = "stages" if turns.kind in ("stage", "stages") else "turns"
    loop = turns.call.rpartition("[")[0]
    number = re.match(re.escape(loop) + r"\[([0-9]{1,18})\]", begin.call if begin is not None else "")
    took = None
    if started is not None and turns.ended_at is not None:
        took = int((turns.ended_at - started).total_seconds() * 1_000_000)
    return msgspec.structs.replace(
        turns,
        kind=kind,
        name=f"{kind} {number[1] if number else 1} to {turns.count}",
        first=first,
        started_at=started,
        duration_us=took,
    )


# --- windows ---------------------------------------------------------------------------------------------------------


def _window(core: StoreContext, run_id: str, first: int, limit: int) -> TimelinePage:
    run = known_run(core, run_id)
    opening = _read(core, run, 0, 1)
    if not is_workflow(opening):
        raise InvalidCursor(f"run {run_id!r} has no journal of a workflow; list its entries and checkpoints instead")
    covering = core.port.rows(EntryRow, run.run, keys=[min(first, run.position)])
    start = covering[0].position if covering else first
    rows = core.port.rows(EntryRow, run.run, start - 1, limit)
    last = last_of(rows[-1]) if rows else run.position
    before = _read(core, run, max(1, start - 1 - OVERLAP), OVERLAP) if start > 2 else []
    entries = {met.position: met for met in (*opening, *before, *(journal_entry(run, row) for row in rows))}
    after = core.port.rows(EntryRow, run.run, last, _SCANNED_MAX) if last < run.position else []
    ahead = [row for at, row in enumerate(after) if at < OVERLAP or row.kind in ("rolled_back", "forked")]
    entries |= {row.position: journal_entry(run, row) for row in ahead}
    found = [entries[at] for at in sorted(entries)]
    seen = build_timeline(core, _stored(core, run, found, _checkpoints_of(core, run, start, last, limit)))
    ahead_last = max((row.position for row in after[:OVERLAP]), default=last)
    shown = tuple(
        _continued(row) if ahead_last < run.position else row for row in seen.rows if start <= row.first <= last
    )
    shown = tuple(_count_shown(row, shown) if row.kind == "loop" and last < run.position else row for row in shown)
    return TimelinePage(
        timeline=msgspec.structs.replace(seen, rows=shown),
        first=start,
        last=last,
        earlier=start - 1,
        later=run.position - last,
        is_folded=False,
    )


def _continued(row: Row) -> Row:
    """A call whose end lies behind what was read is not known to wait or to run."""
    if row.state not in _ENDLESS or row.ended_at is not None or row.kind == "gap":
        return row
    return msgspec.structs.replace(row, state="continues")


def _count_shown(loop: Row, rows: tuple[Row, ...]) -> Row:
    """A loop with the number of its last turn in these rows; more of it was read."""
    turns = [row.count for row in rows if row.kind == "turn" and row.call.rpartition("[")[0] == loop.call]
    return msgspec.structs.replace(loop, count=max(turns, default=0))


def _checkpoints_of(core: StoreContext, run: RunRow, first: int, last: int, limit: int) -> list[CheckpointRow]:
    """The checkpoints that were saved with these entries."""
    newest = core.port.checkpoint(run.run_id, Select(at=last)) if last < run.position else None
    before = None if newest is None or newest.checkpoint is None else (0, newest.checkpoint.number + 1)
    if last < run.position and before is None:
        return []
    found = core.port.find_checkpoints(CheckpointQuery(run.run_id, before=before, limit=limit))
    return [checked_checkpoint(run, row) for _, row in reversed(found) if first - 1 <= row.covers <= last]
