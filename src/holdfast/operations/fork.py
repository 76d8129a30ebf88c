"""Fork and copy: new runs that share the state of their source."""

from __future__ import annotations

from bisect import bisect_right
from functools import partial
from typing import NamedTuple

import msgspec

from holdfast.drivers import Plan
from holdfast.errors import CheckpointNotFound, DamagedData, InvalidInput, RunExists
from holdfast.ids import check_id
from holdfast.model.commit import (
    Commit,
    NewAttachment,
    NewCheckpoint,
    NewEffect,
    NewEntry,
    NewRun,
    Reason,
    Refused,
    Restored,
    Timer,
)
from holdfast.model.rows import AT_WORK, READY, AttachmentRow, CheckpointRow, ChunkRow, EffectRow, EntryRow, RunRow
from holdfast.model.views import RunInfo
from holdfast.operations.checkpoint_needs import Lineage, may_need_ancestors, needed, with_needed
from holdfast.operations.context import Access, StoreContext, require_committed
from holdfast.operations.read import find_checkpoint, known_run, retry_if_changed, selection
from holdfast.operations.run_tree import RunTree, read_tree, rename
from holdfast.operations.views import checked_checkpoint, next_position, run_info
from holdfast.state.values import pack
from holdfast.store.checksum import verify_checksum
from holdfast.store.journal_prune import last_of, pruned_body
from holdfast.store.port import RunRows, Select
from holdfast.store.search import read_metadata


def fork(
    access: Access,
    run_id: str,
    new_run_id: str,
    *,
    step: int | None = None,
    at: int | str | None = None,
    checkpoint_id: str | None = None,
    lane: str = "",
) -> Plan[RunInfo]:
    """Start a new run from a checkpoint, chosen as in `load`.

    It has that checkpoint and those it needs, with their attachments, the journal up to what the checkpoint covers, and
    the effects recorded before it. The source does not change, and the state is shared.

    Example:
        store.fork("run-1", "run-1b", step=2)
    """
    select = selection(step, at, checkpoint_id, lane)
    wanted = f"with {_chosen(select)}" if _chosen(select) else "at all"
    _check_ids(run_id, new_run_id)
    core = access.core
    while True:
        rows: RunRows = yield lambda: retry_if_changed(core, run_id, lambda: _read_fork(core, run_id, select, wanted))
        run, origin = rows.run, pack(f"{run_id}@{rows.checkpoints[-1].checkpoint_id}")
        new = NewRun(True, run_id, run.incarnation, run.gc_epoch, origin)
        made = yield from create_runs(access, [NewCopy(new_run_id, rows, new)])
        if made is not None:
            return run_info(made)


def copy(access: Access, run_id: str, new_run_id: str) -> Plan[RunInfo]:
    """Copy a run, so that the copy continues where the run is. The state is shared, not written again.

    Everything is copied except the claim: checkpoints, journal, effects, attachments, gates, timers, inbox and outbox.
    Children that the run waits for are copied with it, as `new_run_id/…`. The copy never acts on the source: it does
    not wake the parent of the source, and a rollback of the copy does not undo effects of the source.

    Example:
        store.copy("run-1", "run-2")
    """
    return (yield from copy_with_status(access, run_id, new_run_id, READY))


def copy_with_status(access: Access, run_id: str, new_run_id: str, resting: str) -> Plan[RunInfo]:
    """Copy a run. The copy of a run that is being executed gets the status `resting`."""
    _check_ids(run_id, new_run_id)
    core = access.core
    while True:
        tree: RunTree = yield lambda: retry_if_changed(core, run_id, lambda: read_tree(core, run_id))
        sources = [node.rows.run for node in tree.children_first()]
        plan = [
            NewCopy(name, rows, NewRun(True, source.run_id, source.incarnation, source.gc_epoch, source.origin))
            for (name, rows), source in zip(rename(core, tree, new_run_id), sources, strict=True)
        ]
        made = yield from create_runs(access, plan, resting)
        if made is not None:
            return run_info(made)


class NewCopy(NamedTuple):
    """A run to create from the rows of another."""

    run_id: str
    rows: RunRows
    create: NewRun
    chunks: tuple[ChunkRow, ...] = ()


def create_runs(access: Access, plan: list[NewCopy], resting: str = READY) -> Plan[RunRow | None]:
    """Create the runs in their order; the last is the parent of all. None: a source changed and must be read again.

    If the process dies in between, there are children without a parent. Another attempt finds and keeps them.
    """
    port, last = access.core.port, plan[-1]
    if len(plan) > 1 and (yield lambda: port.run(last.run_id)) is not None:
        raise RunExists(last.run_id)
    for new in plan:
        commit = recreate(access, new.rows, new.run_id, new.create, resting)
        commit = msgspec.structs.replace(commit, chunks=new.chunks)
        outcome = yield commit
        if type(outcome) is Refused and outcome.reason == Reason.SOURCE:
            return None
        if type(outcome) is Refused and outcome.reason == Reason.RUN_EXISTS and new is not last:
            there: RunRows | None = yield partial(port.run_rows, new.run_id)
            if there is not None and _is_copy(there, commit):
                continue
        row = require_committed(access, commit, outcome).run
    return row


def _is_copy(there: RunRows, commit: Commit) -> bool:
    """Whether an existing run is the one to be created, which may have progressed since."""
    entries = [(row.kind, row.body) for row in there.entries[: len(commit.entries)]]
    items = {item.key for item in commit.restore.items} if commit.restore is not None else set()
    return entries == [(new.kind, new.body) for new in commit.entries] and items <= {item.key for item in there.items}


def _check_ids(run_id: str, new_run_id: str) -> None:
    check_id("run_id", run_id)
    check_id("new run_id", new_run_id)
    if run_id == new_run_id:
        raise InvalidInput(f"the new run cannot have the id {run_id!r} of its source; choose another id")


def recreate(access: Access, parts: RunRows, run_id: str, new: NewRun, resting: str = READY) -> Commit:
    """The commit that creates a run from these rows."""
    run = parts.run
    numbers = sorted(row.number for row in parts.checkpoints)
    end = last_of(parts.entries[-1]) if parts.entries else 0
    return Commit(
        run_id,
        access.core.ids.token(8),
        create=new,
        workflow=run.workflow or None,
        status=resting if run.status in AT_WORK else run.status,
        metadata=tuple(read_metadata(run.metadata).items()),
        entries=tuple(to_new_entry(row) for row in parts.entries),
        checkpoints=tuple(to_new_checkpoint(row) for row in parts.checkpoints),
        effects=tuple(to_new_effect(row, numbers, end) for row in parts.effects),
        attachments=tuple(
            NewAttachment(row.checkpoint_id, row.key, row.root, row.lane, created_us=row.created_us)
            for row in sorted(parts.attachments, key=lambda row: row.number)
        ),
        timers=tuple(Timer(row.timer, row.due_us) for row in parts.timers),
        restore=Restored(tuple(parts.gates), tuple(parts.items), tuple(parts.messages)),
    )


def to_new_entry(row: EntryRow) -> NewEntry:
    """The same entry for another run. One that replaces pruned entries occupies as many positions as before."""
    return NewEntry(row.kind, row.body, row.created_us, last_of(row) - row.position + 1)


def to_new_checkpoint(row: CheckpointRow) -> NewCheckpoint:
    """The same checkpoint for another run."""
    return NewCheckpoint(
        checkpoint_id=row.checkpoint_id,
        root=row.root,
        lane=row.lane,
        parent_id=row.parent_id or "",
        step=row.step,
        next_node=row.next_node,
        covers=row.covers,
        status=row.status,
        metadata=row.metadata,
        created_us=row.created_us,
    )


def to_new_effect(row: EffectRow, numbers: list[int], end: int) -> NewEffect:
    """The same effect for another run, in which the checkpoint before it has another number."""
    after = bisect_right(numbers, row.after_checkpoint)
    return NewEffect(
        key=row.key,
        state=row.state,  # type: ignore[arg-type]
        tool=row.tool,
        target=row.target,
        reversible=row.reversible,
        body=row.body,
        call=row.call,
        created_us=row.created_us,
        after_checkpoint=after,
        after_position=min(row.after_position, end),
    )


def _read_fork(core: StoreContext, run_id: str, select: Select, wanted: str) -> RunRows:
    while True:
        known_run(core, run_id)
        found = find_checkpoint(core, run_id, select)
        if found is None:
            raise CheckpointNotFound(run_id, wanted)
        run, row = found
        rows = [*_needed_by(core, run, row), row]
        entries = _journal(core, run, row.covers)
        attachments = [
            a for each in rows for a in core.port.rows(AttachmentRow, run.run, keys=[(each.lane, each.checkpoint_id)])
        ]
        if not _still_exist(core, run, rows):
            continue
        effects, beside = _beside(core, run, attachments)
        before = [effect for effect in effects if effect.after_checkpoint < row.number and effect.state != "undone"]
        goes_on = msgspec.structs.replace(run, status=READY)  # whatever the status of the source is
        return RunRows(goes_on, rows, entries, before, beside)


def _needed_by(core: StoreContext, run: RunRow, row: CheckpointRow) -> list[CheckpointRow]:
    """The checkpoints without which the run cannot be resumed from this one."""
    if not needed(row).needs and not may_need_ancestors(row):
        return []
    rows = core.port.rows(CheckpointRow, run.run)
    numbers = Lineage(core, run).add_needed(with_needed({row.number}, rows), rows) - {row.number}
    return [checked_checkpoint(run, each) for each in rows if each.number in numbers]


def _journal(core: StoreContext, run: RunRow, through: int) -> list[EntryRow]:
    """The journal up to a position, checked."""
    rows = core.port.rows(EntryRow, run.run, 0, through) if through else []
    rows = [row for row in rows if row.position <= through]
    end = 0
    for row in rows:
        verify_checksum(row, run.incarnation, f"entry {row.position} of run {run.run_id!r}")
        end = next_position(run.run_id, end, row)
    if end < through:
        raise DamagedData(f"the journal of run {run.run_id!r}", f"it ends at {end}, not at {through}")
    if end > through:  # a row for pruned entries ends later
        rows[-1] = msgspec.structs.replace(rows[-1], body=pruned_body(through))
    return rows


def _still_exist(core: StoreContext, run: RunRow, rows: list[CheckpointRow]) -> bool:
    """Whether the checkpoints still exist after everything else was read; then what they need was read, too.

    Entries are pruned only after the checkpoints that need them, and attachments together with their checkpoint.
    """
    found = [core.port.checkpoint(run.run_id, Select(row.lane, row.checkpoint_id)) for row in rows]
    return all(each is not None and each[1] == row for each, row in zip(found, rows, strict=True))


def _beside(
    core: StoreContext, run: RunRow, attachments: list[AttachmentRow]
) -> tuple[list[EffectRow], list[AttachmentRow]]:
    effects = core.port.rows(EffectRow, run.run)
    for row in (*effects, *attachments):
        verify_checksum(row, run.incarnation, f"a row of run {run.run_id!r} ({type(row).__name__})")
    return effects, attachments


def _chosen(select: Select) -> str:
    given = [(name, getattr(select, name)) for name in ("checkpoint_id", "step", "at", "lane")]
    return ", ".join(f"{name} {value!r}" for name, value in given if value not in (None, ""))
