"""Removing: whole threads, or checkpoints of a thread, without taking from the others what they need."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import NamedTuple

from holdfast.adapters.langgraph import delta
from holdfast.adapters.langgraph.reading import PAGE_OF_ALL, Reader
from holdfast.adapters.langgraph.record import FOLD
from holdfast.adapters.langgraph.threads import WORKFLOW, Spot, thread_row
from holdfast.adapters.langgraph.writing import attach
from holdfast.errors import InvalidInput, NotFound
from holdfast.ids import check_id
from holdfast.model.rows import CheckpointRow, EffectRow, RunRow
from holdfast.store.port import CheckpointQuery
from holdfast.store.seal import check_run
from holdfast.verbs import keeping, moving
from holdfast.verbs.core import Core, Place
from holdfast.verbs.plans import Plan
from holdfast.verbs.values import metadata_pairs

Choose = Callable[[list[CheckpointRow]], set[int]]
"""Says which of a thread's checkpoints, by number, are to go; they are given oldest first."""


class Removed(NamedTuple):
    """What was removed, or would be."""

    checkpoints: int = 0
    bytes: int = 0
    """Freed in the store; 0 in a dry run."""


def delete_thread(place: Place, thread_id: str) -> Plan[bool]:
    """Remove a thread. False if it was not there."""
    check_id("thread_id", thread_id)
    run = yield lambda: _thread(place.core, thread_id)
    return (yield from keeping.delete(place, thread_id)) if run is not None else False


def copy_thread(place: Place, source: str, target: str) -> Plan[None]:
    """Copy a thread with all its checkpoints and writes. The state is shared, not written again."""
    run = yield lambda: _thread(place.core, check_id("source_thread_id", source))
    if run is None:
        raise NotFound(f"there is no thread {source!r} to copy")
    yield from moving.copy(place, source, target)


def prune(place: Place, thread_ids: Iterable[str], strategy: str) -> Plan[None]:
    """Keep only the newest checkpoint of each namespace, or none at all."""
    if strategy not in ("keep_latest", "delete"):
        raise InvalidInput(f'strategy must be "keep_latest" or "delete", not {strategy!r}')
    for thread_id in [check_id("thread_id", str(thread_id)) for thread_id in thread_ids]:
        if strategy == "delete":
            yield from delete_thread(place, thread_id)
        else:
            yield from remove(place, thread_id, lambda rows: all_but_newest(rows, 1))


def delete_for_runs(place: Place, run_ids: Iterable[str]) -> Plan[None]:
    """Remove the checkpoints that these runs of the graph made, in whatever thread."""
    chosen: dict[str, set[int]] = defaultdict(set)
    for run_id in run_ids:
        found = yield lambda run_id=run_id: _made_by(place.core, str(run_id))  # type: ignore[misc]
        for thread_id, number in found:
            chosen[thread_id].add(number)
    for thread_id, numbers in chosen.items():
        yield from remove(place, thread_id, lambda rows, numbers=numbers: numbers & {row.number for row in rows})  # type: ignore[misc]


def all_but_newest(rows: Iterable[CheckpointRow], count: int) -> set[int]:
    """The checkpoints that are not among the newest `count` of their lane."""
    lanes: dict[str, list[int]] = defaultdict(list)
    for row in rows:
        lanes[row.lane].append(row.number)
    return {number for numbers in lanes.values() for number in numbers[:-count]}


def remove(place: Place, thread_id: str, choose: Choose, *, dry_run: bool = False) -> Plan[Removed]:
    """Remove the checkpoints that `choose` picks, with their writes.

    First every checkpoint that stays and whose parent goes gets a fold, so that its delta channels lose nothing; then
    they are removed in one change, unless in the meantime somebody went on from one of them: then it begins anew.
    """
    core = place.core
    while True:
        run = yield lambda: _thread(core, thread_id)
        if run is None:
            return Removed()
        rows = yield lambda run=run: core.port.checkpoints(run.run, 0, -1)  # type: ignore[misc]
        gone = choose(rows)
        if dry_run or not gone:
            return Removed(len(gone))
        for row in _left_alone(rows, gone):
            fold = yield lambda run=run, row=row: _fold(core, run, row)  # type: ignore[misc]
            if fold is not None:
                spot = Spot(thread_id, row.lane, row.lane, row.checkpoint_id)
                yield from attach(place, spot, {FOLD: (True, fold)})
        cut = _Cut(rows, gone)
        removed = yield lambda cut=cut: core.port.prune(thread_id, cut.choose)  # type: ignore[misc]
        if cut.overtaken:
            continue
        swept = yield lambda run=run: keeping.sweep(core, run.family)  # type: ignore[misc]
        return Removed(len(removed or ()), swept.bytes + sum(len(row.root) for row in removed or ()))


class _Cut:
    """Picks what was chosen, inside the very change that removes it."""

    def __init__(self, rows: list[CheckpointRow], gone: set[int]) -> None:
        self._seen = {row.number for row in rows}
        self._gone = gone
        self._parents = {(row.lane, row.checkpoint_id) for row in rows if row.number in gone}
        self.overtaken = False

    def choose(self, rows: list[CheckpointRow], effects: list[EffectRow]) -> list[int]:  # noqa: ARG002
        new = [row for row in rows if row.number not in self._seen]
        self.overtaken = any((row.lane, row.parent_id) in self._parents for row in new)
        return [] if self.overtaken else [row.number for row in rows if row.number in self._gone]


def _left_alone(rows: list[CheckpointRow], gone: set[int]) -> list[CheckpointRow]:
    """The checkpoints that stay and whose parents go."""
    parents = {(row.lane, row.checkpoint_id) for row in rows if row.number in gone}
    return [row for row in rows if row.number not in gone and (row.lane, row.parent_id) in parents]


def _fold(core: Core, run: RunRow, row: CheckpointRow) -> object:
    """What the checkpoint's channels without a value owe to its ancestors; None if that is attached already."""
    found = Reader(core, run).found(row)
    if FOLD in found.attached:
        return None
    missing = [channel for channel in found.frame.versions if channel not in found.record["values"]]
    spot = Spot(run.run_id, row.lane, row.lane, row.checkpoint_id)
    return delta.folded(delta.walk(core, spot, missing))


def _thread(core: Core, thread_id: str) -> RunRow | None:
    run = core.port.run(thread_id)
    return None if run is None else thread_row(check_run(run))


def _made_by(core: Core, run_id: str) -> list[tuple[str, int]]:
    query = CheckpointQuery(workflow=WORKFLOW, tags=metadata_pairs({"run_id": run_id}), limit=PAGE_OF_ALL)
    found: list[tuple[str, int]] = []
    while True:
        rows = core.port.find_checkpoints(query)
        found += [(run.run_id, row.number) for run, row in rows]
        if len(rows) < query.limit:
            return found
        run, row = rows[-1]
        query = query._replace(before=(row.created_us, run.run << 32 | row.number))
