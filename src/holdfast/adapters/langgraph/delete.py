"""Removal of threads and of checkpoints of a thread.

A kept checkpoint never loses what its delta channels need of a removed one: it gets a fold first.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from holdfast.adapters.langgraph import delta_channels
from holdfast.adapters.langgraph.get import PAGE_OF_ALL, find
from holdfast.adapters.langgraph.put import attach
from holdfast.adapters.langgraph.thread import WORKFLOW, ThreadRef, access_for, lane_of, require_thread, stored_status
from holdfast.drivers import Plan
from holdfast.errors import InvalidInput, NotFound
from holdfast.ids import check_id
from holdfast.model.commit import Commit, Guard
from holdfast.model.rows import WAITING, AttachmentRow, CheckpointRow, EffectRow, RunRow
from holdfast.operations import fork
from holdfast.operations import prune as prune_operations
from holdfast.operations.checkpoint_needs import FOLD
from holdfast.operations.context import Access, StoreContext
from holdfast.operations.views import metadata_dict, metadata_pairs
from holdfast.store.checksum import verify_run
from holdfast.store.port import CheckpointQuery

Choose = Callable[[list[CheckpointRow]], set[int]]
"""Selects the checkpoints of a thread to remove, by number; they are passed oldest first."""


class Removed(NamedTuple):
    """What was removed, or would be."""

    checkpoints: int = 0
    bytes: int = 0
    """Freed in the store; 0 in a dry run."""


def delete_thread(access: Access, thread_id: str) -> Plan[bool]:
    """Remove a thread. Return False if it does not exist."""
    check_id("thread_id", thread_id)
    run = yield lambda: _thread(access.core, thread_id)
    return (yield from prune_operations.delete(access, thread_id)) if run is not None else False


def copy_thread(access: Access, source: str, target: str) -> Plan[None]:
    """Copy a thread with all its checkpoints and writes. The state is shared, not written again."""
    run = yield lambda: _thread(access.core, check_id("source_thread_id", source))
    if run is None:
        raise NotFound(f"thread {source!r} does not exist")
    yield from fork.copy_with_status(access, source, target, WAITING)  # a worker might take a run that is ready


def prune(access: Access, thread_ids: Iterable[str], strategy: str) -> Plan[None]:
    """Keep only the newest checkpoint of each namespace in use, or with "delete" none at all."""
    if strategy not in ("keep_latest", "delete"):
        raise InvalidInput(f'strategy must be "keep_latest" or "delete", not {strategy!r}')
    for thread_id in check_ids("thread_ids", thread_ids):
        if strategy == "delete":
            yield from delete_thread(access, thread_id)
        else:
            yield from remove(access_for(access.core, thread_id), thread_id, _keep_latest)


def delete_for_runs(access: Access, run_ids: Iterable[str]) -> Plan[None]:
    """Remove the checkpoints that these runs of the graph saved, in all threads."""
    chosen: dict[str, set[tuple[int, str]]] = defaultdict(set)
    for run_id in check_ids("run_ids", run_ids):
        found = yield lambda run_id=run_id: _made_by(access.core, run_id)
        for thread_id, *which in found:
            chosen[thread_id].add(tuple(which))
    for thread_id, which in chosen.items():
        held = access_for(access.core, thread_id)
        yield from remove(held, thread_id, _named(which))
        yield from _set_status(held, thread_id)


def _set_status(access: Access, thread_id: str) -> Plan[None]:
    """Give an unclaimed thread the status of its newest checkpoint, unless a write intervenes."""
    run = yield lambda: _thread(access.core, thread_id)
    if run is None or run.owner:
        return
    status = yield lambda: stored_status(access.core, thread_id)
    if status != run.status:
        guard = Guard(incarnation=run.incarnation, commit_id=run.commit_id)
        yield Commit(thread_id, access.core.ids.token(8), guard, status=status)


def check_ids(what: str, ids: Iterable[str]) -> list[str]:
    """Check a list of ids. A single text is refused, because it would be read as a list of its letters."""
    if isinstance(ids, str):
        raise InvalidInput(f"{what} is a list of ids; write [{ids!r}]")
    return [check_id(what, str(name)) for name in ids]


def _named(which: set[tuple[int, str]]) -> Choose:
    return lambda rows: {row.number for row in rows if (row.number, row.checkpoint_id) in which}


def all_but_newest(rows: Iterable[CheckpointRow], count: int) -> set[int]:
    """Return the checkpoints that are not among the newest `count` of their lane."""
    lanes: dict[str, list[int]] = defaultdict(list)
    for row in rows:
        lanes[row.lane].append(row.number)
    return {number for numbers in lanes.values() for number in numbers[:-count]}


def _keep_latest(rows: list[CheckpointRow]) -> set[int]:
    gone = all_but_newest(rows, 1)
    return gone | finished_calls(rows, gone)


def finished_calls(rows: list[CheckpointRow], gone: set[int]) -> set[int]:
    """Return the checkpoints of subgraph calls to remove with the checkpoints they were called from.

    Every call of a subgraph has its own namespace, named by its task, and its metadata names the checkpoints it was
    called from: that of the graph and those of enclosing subgraphs. Neither numbers nor ids decide, because a call may
    be saved before the checkpoint it was called from, and clocks may go backwards. So a call is kept if the checkpoint
    it was called from is kept, is not saved yet or is unknown. A subgraph with memory across calls has a namespace
    without a task, and is kept.
    """
    removed = {(row.lane, row.checkpoint_id) for row in rows if row.number in gone}
    newest = {row.lane: row for row in rows if ":" in row.lane}
    finished = {lane for lane, row in newest.items() if any(caller in removed for caller in _callers(row))}
    return {row.number for row in rows if _enclosing(row.lane) & finished}


def _callers(row: CheckpointRow) -> Iterator[tuple[str, str]]:
    """Iterate over the lanes and ids of the checkpoints that a subgraph was called from, as its metadata names them."""
    parents = metadata_dict(row.metadata, f"checkpoint {row.checkpoint_id!r}").get("parents")
    for namespace, checkpoint_id in parents.items() if isinstance(parents, dict) else ():
        with suppress(InvalidInput):  # not a valid namespace
            yield lane_of(namespace), str(checkpoint_id)


def _enclosing(lane: str) -> set[str]:
    """Return the lane and those of the enclosing calls."""
    parts = lane.split("|")
    return {"|".join(parts[: end + 1]) for end in range(len(parts))}


def remove(
    access: Access, thread_id: str, choose: Choose, *, dry_run: bool = False, sweep: bool = True
) -> Plan[Removed]:
    """Remove the checkpoints that `choose` picks, with their writes.

    First every kept checkpoint that needs a removed parent gets a fold, so that its delta channels lose nothing. Then
    the checkpoints are removed in one change. If the thread has meanwhile continued from one of them, or a checkpoint
    to keep was removed, the removal starts over. Without `sweep`, the chunks they alone used are freed later.
    """
    core = access.core
    while True:
        run = yield lambda: _thread(core, thread_id)
        if run is None:
            return Removed()
        rows = yield lambda run=run: core.port.rows(CheckpointRow, run.run)
        gone = choose(rows)
        if dry_run or not gone:
            return Removed(len(gone))
        if not (yield from attach_folds(access, run, rows, gone)):
            continue
        attachments = yield lambda run=run: core.port.rows(AttachmentRow, run.run)
        cut = _Cut(rows, gone)
        removed = yield lambda cut=cut: core.port.prune(thread_id, cut.choose, reopen=True)
        if cut.overtaken:
            continue
        freed = sum(map(len, prune_operations.roots_of(removed or [], attachments)))
        if sweep:
            swept = yield lambda run=run: prune_operations.sweep(core, run.family)
            freed += swept.bytes
        return Removed(len(removed or ()), freed)


def attach_folds(access: Access, run: RunRow, rows: list[CheckpointRow], gone: set[int]) -> Plan[bool]:
    """Attach folds where they are needed. Return False if the thread was deleted and created again."""
    for row in orphaned_by(rows, gone):
        read = partial(make_fold, access.core, run, row)
        fold = yield lambda read=read: delta_channels.retry_if_changed(access.core, run.run_id, read)
        if fold is not None:
            ref = ThreadRef(run.run_id, row.lane, row.lane, row.checkpoint_id)
            if not (yield from attach(access, ref, {FOLD: (True, fold)}, run, keep_updated=True)):
                return False
    return True


class _Cut:
    """Selects the chosen checkpoints again within the change that removes them."""

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
    """Identify a checkpoint even if its thread was deleted and created again, which restarts the numbers."""
    return row.number, row.lane, row.checkpoint_id


def orphaned_by(rows: list[CheckpointRow], gone: set[int]) -> list[CheckpointRow]:
    """Return the kept checkpoints whose parents are removed, or were removed before."""
    stay = {(row.lane, row.checkpoint_id) for row in rows if row.number not in gone}
    return [row for row in rows if row.number not in gone and row.parent_id and (row.lane, row.parent_id) not in stay]


def make_fold(core: StoreContext, run: RunRow, row: CheckpointRow) -> object:
    """Return the fold of a checkpoint; None if its delta channels need none, or if it has one already."""
    found = find(core, ThreadRef(run.run_id, row.lane, row.lane, row.checkpoint_id))
    if found is None:
        return None  # it was removed meanwhile; the removal notices that
    channels = found.record.get("delta")
    if FOLD in found.attached or not channels:
        return None
    ref = ThreadRef(run.run_id, row.lane, row.lane, row.checkpoint_id)
    return delta_channels.to_fold(delta_channels.walk(core, ref, channels))


def _thread(core: StoreContext, thread_id: str) -> RunRow | None:
    run = core.port.run(thread_id)
    return None if run is None else require_thread(verify_run(run))


def _made_by(core: StoreContext, run_id: str) -> list[tuple[str, int, str]]:
    query = CheckpointQuery(workflow=WORKFLOW, tags=metadata_pairs({"run_id": run_id}), limit=PAGE_OF_ALL)
    found: list[tuple[str, int, str]] = []
    while True:
        rows = core.port.find_checkpoints(query)
        found += [(run.run_id, row.number, row.checkpoint_id) for run, row in rows]
        if len(rows) < query.limit:
            return found
        run, row = rows[-1]
        query = query._replace(before=(row.created_us, run.run << 32 | row.number))
