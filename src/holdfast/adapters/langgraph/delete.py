"""Removal of threads, and of checkpoints of a thread.

A kept checkpoint whose delta channels need a removed ancestor first gets a fold, so its state does not change.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from functools import partial
from typing import NamedTuple

from holdfast.adapters.langgraph import delta_channels
from holdfast.adapters.langgraph.get import PAGE_OF_ALL, find
from holdfast.adapters.langgraph.put import attach
from holdfast.adapters.langgraph.retention_policy import Choose, keep_latest, remove_named
from holdfast.adapters.langgraph.thread import WORKFLOW, ThreadRef, require_thread, stored_status
from holdfast.adapters.shared.run_claim import access_for
from holdfast.drivers import Plan
from holdfast.errors import InvalidInput, NotFound
from holdfast.ids import check_id
from holdfast.model.commit import Commit, Guard
from holdfast.model.rows import WAITING, AttachmentRow, CheckpointRow, EffectRow, RunRow
from holdfast.operations import fork
from holdfast.operations import prune as prune_operations
from holdfast.operations.checkpoint_needs import FOLD
from holdfast.operations.context import Access, StoreContext
from holdfast.operations.views import metadata_pairs
from holdfast.store.checksum import verify_run
from holdfast.store.port import CheckpointQuery


class Removed(NamedTuple):
    """The result of a removal; in a dry run, what it would remove."""

    checkpoints: int = 0
    bytes: int = 0
    """Bytes freed in the store; 0 in a dry run."""


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
    yield from fork.copy_with_status(access, source, target, WAITING)  # a worker would claim a ready run


def prune(access: Access, thread_ids: Iterable[str], strategy: str) -> Plan[None]:
    """Keep only the newest checkpoint of each namespace in use, or with "delete" none."""
    if strategy not in ("keep_latest", "delete"):
        raise InvalidInput(f'strategy must be "keep_latest" or "delete", not {strategy!r}')
    for thread_id in check_ids("thread_ids", thread_ids):
        if strategy == "delete":
            yield from delete_thread(access, thread_id)
        else:
            yield from remove(access_for(access.core, thread_id), thread_id, keep_latest)


def delete_for_runs(access: Access, run_ids: Iterable[str]) -> Plan[None]:
    """Remove the checkpoints that these runs of the graph saved, in all threads."""
    chosen: dict[str, set[tuple[int, str]]] = defaultdict(set)
    for run_id in check_ids("run_ids", run_ids):
        found = yield lambda run_id=run_id: _find_saved_by(access.core, run_id)
        for thread_id, *which in found:
            chosen[thread_id].add(tuple(which))
    for thread_id, which in chosen.items():
        held = access_for(access.core, thread_id)
        yield from remove(held, thread_id, remove_named(which))
        yield from _set_status(held, thread_id)


def _set_status(access: Access, thread_id: str) -> Plan[None]:
    """Set the status of an unclaimed thread to that of its newest checkpoint. Another write takes precedence."""
    run = yield lambda: _thread(access.core, thread_id)
    if run is None or run.owner:
        return
    status = yield lambda: stored_status(access.core, thread_id)
    if status != run.status:
        guard = Guard(incarnation=run.incarnation, commit_id=run.commit_id)
        yield Commit(thread_id, access.core.ids.token(8), guard, status=status)


def check_ids(what: str, ids: Iterable[str]) -> list[str]:
    """Check a list of ids. A single text is refused, because it would be treated as a list of its letters."""
    if isinstance(ids, str):
        raise InvalidInput(f"{what} is a list of ids; write [{ids!r}]")
    return [check_id(what, str(name)) for name in ids]


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
        removal = _Removal(rows, gone)
        removed = yield lambda removal=removal: core.port.prune(thread_id, removal.choose, reopen=True)
        if removal.overtaken:
            continue
        freed = sum(map(len, prune_operations.roots_of(removed or [], attachments)))
        if sweep:
            swept = yield lambda run=run: prune_operations.sweep(core, run.family)
            freed += swept.bytes
        return Removed(len(removed or ()), freed)


def attach_folds(access: Access, run: RunRow, rows: list[CheckpointRow], gone: set[int]) -> Plan[bool]:
    """Attach folds where they are needed. Return False if the thread was deleted and created again."""
    for row in find_orphans(rows, gone):
        read = partial(make_fold, access.core, run, row)
        fold = yield lambda read=read: delta_channels.retry_if_changed(access.core, run.run_id, read)
        if fold is not None:
            ref = ThreadRef(run.run_id, row.lane, row.lane, row.checkpoint_id)
            if not (yield from attach(access, ref, {FOLD: (True, fold)}, run, keep_updated=True)):
                return False
    return True


class _Removal:
    """Selects the chosen checkpoints again, inside the transaction that removes them."""

    def __init__(self, rows: list[CheckpointRow], gone: set[int]) -> None:
        self._seen = {row.number for row in rows}
        self._gone = {_identity(row) for row in rows if row.number in gone}
        self._kept = {_identity(row) for row in rows if row.number not in gone}
        self._parents = {(row.lane, row.checkpoint_id) for row in rows if row.number in gone}
        self.overtaken = False

    def choose(self, rows: list[CheckpointRow], effects: list[EffectRow]) -> list[int]:  # noqa: ARG002
        now = {_identity(row) for row in rows}
        new = [row for row in rows if row.number not in self._seen]
        self.overtaken = not self._kept <= now or any((row.lane, row.parent_id) in self._parents for row in new)
        return [] if self.overtaken else [row.number for row in rows if _identity(row) in self._gone]


def _identity(row: CheckpointRow) -> tuple[int, str, str]:
    """Identify a checkpoint. Its number alone does not: a thread that is created again restarts the numbers."""
    return row.number, row.lane, row.checkpoint_id


def find_orphans(rows: list[CheckpointRow], gone: set[int]) -> list[CheckpointRow]:
    """Return the kept checkpoints whose parents are removed, or were removed before."""
    stay = {(row.lane, row.checkpoint_id) for row in rows if row.number not in gone}
    return [row for row in rows if row.number not in gone and row.parent_id and (row.lane, row.parent_id) not in stay]


def make_fold(core: StoreContext, run: RunRow, row: CheckpointRow) -> object:
    """Return the fold of a checkpoint. None if its delta channels need none, or if it has one already."""
    found = find(core, ThreadRef(run.run_id, row.lane, row.lane, row.checkpoint_id))
    if found is None:
        return None  # it was removed meanwhile, which `_Removal` detects
    channels = found.record.get("delta")
    if FOLD in found.attached or not channels:
        return None
    ref = ThreadRef(run.run_id, row.lane, row.lane, row.checkpoint_id)
    return delta_channels.to_fold(delta_channels.walk(core, ref, channels))


def _thread(core: StoreContext, thread_id: str) -> RunRow | None:
    run = core.port.run(thread_id)
    return None if run is None else require_thread(verify_run(run))


def _find_saved_by(core: StoreContext, run_id: str) -> list[tuple[str, int, str]]:
    """Return thread id, number and id of the checkpoints of a graph's run."""
    query = CheckpointQuery(workflow=WORKFLOW, tags=metadata_pairs({"run_id": run_id}), limit=PAGE_OF_ALL)
    found: list[tuple[str, int, str]] = []
    while True:
        rows = core.port.find_checkpoints(query)
        found += [(run.run_id, row.number, row.checkpoint_id) for run, row in rows]
        if len(rows) < query.limit:
            return found
        run, row = rows[-1]
        query = query._replace(before=(row.created_us, run.run << 32 | row.number))
