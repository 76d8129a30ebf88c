"""Removing: whole threads, or checkpoints of a thread, without taking from the others what they need."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from holdfast.adapters.langgraph import delta
from holdfast.adapters.langgraph.claims import place_for
from holdfast.adapters.langgraph.reading import PAGE_OF_ALL, find
from holdfast.adapters.langgraph.thread_status import stored_status
from holdfast.adapters.langgraph.threads import WORKFLOW, Spot, lane_of, thread_row
from holdfast.adapters.langgraph.writing import attach
from holdfast.errors import InvalidInput, NotFound
from holdfast.ids import check_id
from holdfast.model.commit import Commit, Guard
from holdfast.model.rows import CheckpointRow, EffectRow, RunRow
from holdfast.model.status import WAITING
from holdfast.store.port import CheckpointQuery
from holdfast.store.seal import check_run
from holdfast.verbs import keeping, moving
from holdfast.verbs.core import Core, Place
from holdfast.verbs.lineage import FOLD
from holdfast.verbs.plans import Plan
from holdfast.verbs.values import metadata_dict, metadata_pairs

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
    yield from moving.copied(place, source, target, WAITING)  # if it were ready, a worker might take it


def prune(place: Place, thread_ids: Iterable[str], strategy: str) -> Plan[None]:
    """Keep only the newest checkpoint of each namespace that is still of use, or none at all."""
    if strategy not in ("keep_latest", "delete"):
        raise InvalidInput(f'strategy must be "keep_latest" or "delete", not {strategy!r}')
    for thread_id in listed("thread_ids", thread_ids):
        if strategy == "delete":
            yield from delete_thread(place, thread_id)
        else:
            yield from remove(place_for(place.core, thread_id), thread_id, _keep_latest)


def delete_for_runs(place: Place, run_ids: Iterable[str]) -> Plan[None]:
    """Remove the checkpoints that these runs of the graph made, in whatever thread."""
    chosen: dict[str, set[tuple[int, str]]] = defaultdict(set)
    for run_id in listed("run_ids", run_ids):
        found = yield lambda run_id=run_id: _made_by(place.core, run_id)  # type: ignore[misc]
        for thread_id, *which in found:
            chosen[thread_id].add(tuple(which))
    for thread_id, which in chosen.items():
        held = place_for(place.core, thread_id)
        yield from remove(held, thread_id, _named(which))
        yield from _set_status(held, thread_id)


def _set_status(place: Place, thread_id: str) -> Plan[None]:
    """Give a thread that nobody holds the status of its newest checkpoint, unless it is written to meanwhile."""
    run = yield lambda: _thread(place.core, thread_id)
    if run is None or run.owner:
        return
    status = yield lambda: stored_status(place.core, thread_id)
    if status != run.status:
        guard = Guard(incarnation=run.incarnation, commit_id=run.commit_id)
        yield Commit(thread_id, place.core.ids.token(8), guard, status=status)


def listed(what: str, ids: Iterable[str]) -> list[str]:
    """Ids given as a list. A single text would be taken for a list of its letters."""
    if isinstance(ids, str):
        raise InvalidInput(f"{what} is a list of ids; write [{ids!r}]")
    return [check_id(what, str(name)) for name in ids]


def _named(which: set[tuple[int, str]]) -> Choose:
    return lambda rows: {row.number for row in rows if (row.number, row.checkpoint_id) in which}


def all_but_newest(rows: Iterable[CheckpointRow], count: int) -> set[int]:
    """The checkpoints that are not among the newest `count` of their lane."""
    lanes: dict[str, list[int]] = defaultdict(list)
    for row in rows:
        lanes[row.lane].append(row.number)
    return {number for numbers in lanes.values() for number in numbers[:-count]}


def _keep_latest(rows: list[CheckpointRow]) -> set[int]:
    gone = all_but_newest(rows, 1)
    return gone | finished_calls(rows, gone)


def finished_calls(rows: list[CheckpointRow], gone: set[int]) -> set[int]:
    """The checkpoints of subgraph calls that go because a checkpoint they were called from goes.

    Every call of a subgraph has a namespace of its own, named by its task, and its metadata names the checkpoints it
    was called from: the graph's and those of the subgraphs around it. Neither numbers nor ids decide, because a call
    may be saved before the checkpoint it was called from, and clocks may go back. So a call stays if the checkpoint it
    was called from stays, is not saved yet or is not known. A subgraph that remembers from call to call has a namespace
    that names no task, and stays.
    """
    removed = {(row.lane, row.checkpoint_id) for row in rows if row.number in gone}
    newest = {row.lane: row for row in rows if ":" in row.lane}
    finished = {lane for lane, row in newest.items() if any(caller in removed for caller in _callers(row))}
    return {row.number for row in rows if _enclosing(row.lane) & finished}


def _callers(row: CheckpointRow) -> Iterator[tuple[str, str]]:
    """The lanes and ids of the checkpoints that a subgraph was called from, as far as its metadata names them."""
    parents = metadata_dict(row.metadata, f"checkpoint {row.checkpoint_id!r}").get("parents")
    for namespace, checkpoint_id in parents.items() if isinstance(parents, dict) else ():
        with suppress(InvalidInput):  # a name that no namespace can have
            yield lane_of(namespace), str(checkpoint_id)


def _enclosing(lane: str) -> set[str]:
    """The lane and those of the calls around it."""
    parts = lane.split("|")
    return {"|".join(parts[: end + 1]) for end in range(len(parts))}


def remove(place: Place, thread_id: str, choose: Choose, *, dry_run: bool = False, sweep: bool = True) -> Plan[Removed]:
    """Remove the checkpoints that `choose` picks, with their writes.

    First every checkpoint that stays and needs something of a parent that goes gets a fold, so that its delta channels
    lose nothing; then they are removed in one change, unless in the meantime somebody went on from one of them, or one
    that was to stay is gone: then it begins anew. With `sweep` off, what they alone needed is freed another time.
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
        if not (yield from _folded(place, run, rows, gone)):
            continue
        attachments = yield lambda run=run: core.port.attachments(run.run, None, None)  # type: ignore[misc]
        cut = _Cut(rows, gone)
        removed = yield lambda cut=cut: core.port.prune(thread_id, cut.choose, reopen=True)  # type: ignore[misc]
        if cut.overtaken:
            continue
        freed = sum(map(len, keeping.roots_of(removed or [], attachments)))
        if sweep:
            swept = yield lambda run=run: keeping.sweep(core, run.family)  # type: ignore[misc]
            freed += swept.bytes
        return Removed(len(removed or ()), freed)


def _folded(place: Place, run: RunRow, rows: list[CheckpointRow], gone: set[int]) -> Plan[bool]:
    """Attach folds where they are needed. False if the thread is another one by now."""
    for row in _left_alone(rows, gone):
        read = partial(_fold, place.core, run, row)
        fold = yield lambda read=read: delta.in_peace(place.core, run.run_id, read)  # type: ignore[misc]
        if fold is not None:
            spot = Spot(run.run_id, row.lane, row.lane, row.checkpoint_id)
            if not (yield from attach(place, spot, {FOLD: (True, fold)}, run, keep_updated=True)):
                return False
    return True


class _Cut:
    """Picks what was chosen, inside the very change that removes it."""

    def __init__(self, rows: list[CheckpointRow], gone: set[int]) -> None:
        self._seen = {row.number for row in rows}
        self._gone = {_which(row) for row in rows if row.number in gone}
        self._kept = {_which(row) for row in rows if row.number not in gone}
        self._parents = {(row.lane, row.checkpoint_id) for row in rows if row.number in gone}
        self.overtaken = False

    def choose(self, rows: list[CheckpointRow], effects: list[EffectRow]) -> list[int]:  # noqa: ARG002
        now = {_which(row) for row in rows}
        new = [row for row in rows if row.number not in self._seen]
        self.overtaken = not self._kept <= now or any((row.lane, row.parent_id) in self._parents for row in new)
        return [] if self.overtaken else [row.number for row in rows if _which(row) in self._gone]


def _which(row: CheckpointRow) -> tuple[int, str, str]:
    """A checkpoint, also if its thread was deleted and begun anew, where numbers begin anew."""
    return row.number, row.lane, row.checkpoint_id


def _left_alone(rows: list[CheckpointRow], gone: set[int]) -> list[CheckpointRow]:
    """The checkpoints that stay and whose parents go, or have gone."""
    stay = {(row.lane, row.checkpoint_id) for row in rows if row.number not in gone}
    return [row for row in rows if row.number not in gone and row.parent_id and (row.lane, row.parent_id) not in stay]


def _fold(core: Core, run: RunRow, row: CheckpointRow) -> object:
    """What the checkpoint's delta channels owe to its ancestors; None if nothing, or if that is attached already."""
    found = find(core, Spot(run.run_id, row.lane, row.lane, row.checkpoint_id))
    if found is None:
        return None  # it went meanwhile, which the removal itself will notice
    channels = found.record.get("delta")
    if FOLD in found.attached or not channels:
        return None
    spot = Spot(run.run_id, row.lane, row.lane, row.checkpoint_id)
    return delta.folded(delta.walk(core, spot, channels))


def _thread(core: Core, thread_id: str) -> RunRow | None:
    run = core.port.run(thread_id)
    return None if run is None else thread_row(check_run(run))


def _made_by(core: Core, run_id: str) -> list[tuple[str, int, str]]:
    query = CheckpointQuery(workflow=WORKFLOW, tags=metadata_pairs({"run_id": run_id}), limit=PAGE_OF_ALL)
    found: list[tuple[str, int, str]] = []
    while True:
        rows = core.port.find_checkpoints(query)
        found += [(run.run_id, row.number, row.checkpoint_id) for run, row in rows]
        if len(rows) < query.limit:
            return found
        run, row = rows[-1]
        query = query._replace(before=(row.created_us, run.run << 32 | row.number))
