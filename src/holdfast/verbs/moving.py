"""New runs from old ones: fork and copy. Both share the source's state, so they cost next to nothing."""

from __future__ import annotations

from bisect import bisect_right
from functools import partial
from typing import NamedTuple

import msgspec

from holdfast.errors import CheckpointNotFound, DamagedData, InvalidInput, RunExists
from holdfast.ids import check_id
from holdfast.model import commit as why
from holdfast.model.commit import (
    Commit,
    NewAttachment,
    NewCheckpoint,
    NewEffect,
    NewEntry,
    NewRun,
    Refused,
    Restored,
    Timer,
)
from holdfast.model.rows import AttachmentRow, CheckpointRow, ChunkRow, EffectRow, EntryRow, RunRow
from holdfast.model.status import AT_WORK, READY
from holdfast.model.views import RunInfo
from holdfast.state.values import pack
from holdfast.store.port import RunRows, Select
from holdfast.store.pruning import last_of, pruned_body
from holdfast.store.seal import check_seal
from holdfast.store.tags import read_metadata
from holdfast.verbs.core import Core, Place
from holdfast.verbs.lineage import Lineage, may_need_ancestors
from holdfast.verbs.needed import needed, with_needed
from holdfast.verbs.plans import Plan
from holdfast.verbs.reading import find_checkpoint, in_peace, known_run, selection
from holdfast.verbs.run_tree import RunTree, read_tree, rename
from holdfast.verbs.shown import checked_checkpoint, followed, run_info
from holdfast.verbs.writing import committed


def fork(
    place: Place,
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
    the effects recorded before it. The source is not touched, and the state is shared.

    Example:
        store.fork("run-1", "run-1b", step=2)
    """
    select = selection(step, at, checkpoint_id, lane)
    wanted = f"with {_chosen(select)}" if _chosen(select) else "at all"
    _check_ids(run_id, new_run_id)
    core = place.core
    while True:
        rows: RunRows = yield lambda: in_peace(core, run_id, lambda: _forked(core, run_id, select, wanted))
        run, origin = rows.run, pack(f"{run_id}@{rows.checkpoints[-1].checkpoint_id}")
        new = NewRun(True, run_id, run.incarnation, run.gc_epoch, origin)
        made = yield from create_runs(place, [NewCopy(new_run_id, rows, new)])
        if made is not None:
            return run_info(made)


def copy(place: Place, run_id: str, new_run_id: str) -> Plan[RunInfo]:
    """Copy a run, so that the copy goes on where the run stands. The state is shared, not written again.

    Everything is copied but the claim: checkpoints, journal, effects, attachments, gates, timers, inbox and outbox.
    Children the run waits for are copied with it, as `new_run_id/…`. Nothing in the copy acts on the source: it wakes
    no parent of the source, and what the source performed is not the copy's to undo.

    Example:
        store.copy("run-1", "run-2")
    """
    return (yield from copied(place, run_id, new_run_id, READY))


def copied(place: Place, run_id: str, new_run_id: str, resting: str) -> Plan[RunInfo]:
    """Copy a run. If somebody is at work on it, the copy, on which nobody is, has the status `resting`."""
    _check_ids(run_id, new_run_id)
    core = place.core
    while True:
        tree: RunTree = yield lambda: in_peace(core, run_id, lambda: read_tree(core, run_id))
        sources = [node.rows.run for node in tree.children_first()]
        plan = [
            NewCopy(name, rows, NewRun(True, source.run_id, source.incarnation, source.gc_epoch, source.origin))
            for (name, rows), source in zip(rename(core, tree, new_run_id), sources, strict=True)
        ]
        made = yield from create_runs(place, plan, resting)
        if made is not None:
            return run_info(made)


class NewCopy(NamedTuple):
    """A run to create of rows it has elsewhere."""

    run_id: str
    rows: RunRows
    create: NewRun
    chunks: tuple[ChunkRow, ...] = ()


def create_runs(place: Place, plan: list[NewCopy], resting: str = READY) -> Plan[RunRow | None]:
    """Create the runs in their order, the last of which is the parent of all. None: a source changed, read it again.

    If this is killed half-way there are children without a parent. The same again finds them and goes on.
    """
    port, last = place.core.port, plan[-1]
    if len(plan) > 1 and (yield lambda: port.run(last.run_id)) is not None:
        raise RunExists(last.run_id)
    for new in plan:
        commit = recreated(place, new.rows, new.run_id, new.create, resting)
        commit = msgspec.structs.replace(commit, chunks=new.chunks)
        outcome = yield commit
        if type(outcome) is Refused and outcome.why == why.SOURCE:
            return None
        if type(outcome) is Refused and outcome.why == why.RUN_EXISTS and new is not last:
            there: RunRows | None = yield partial(port.run_rows, new.run_id)
            if there is not None and _goes_on_from(there, commit):
                continue
        row = committed(place, commit, outcome).run
    return row


def _goes_on_from(there: RunRows, commit: Commit) -> bool:
    """Whether a run that is there is the one to be created, and has perhaps gone on since."""
    entries = [(row.kind, row.body) for row in there.entries[: len(commit.entries)]]
    items = {item.key for item in commit.restore.items} if commit.restore is not None else set()
    return entries == [(new.kind, new.body) for new in commit.entries] and items <= {item.key for item in there.items}


def _check_ids(run_id: str, new_run_id: str) -> None:
    check_id("run_id", run_id)
    check_id("new run_id", new_run_id)
    if run_id == new_run_id:
        raise InvalidInput(f"the new run needs an id of its own, not {run_id!r} again")


def recreated(place: Place, parts: RunRows, run_id: str, new: NewRun, resting: str = READY) -> Commit:
    """The commit that makes a run of these parts."""
    run = parts.run
    numbers = sorted(row.number for row in parts.checkpoints)
    end = last_of(parts.entries[-1]) if parts.entries else 0
    return Commit(
        run_id,
        place.core.ids.token(8),
        create=new,
        workflow=run.workflow or None,
        status=resting if run.status in AT_WORK else run.status,
        metadata=tuple(read_metadata(run.metadata).items()),
        entries=tuple(appended(row) for row in parts.entries),
        checkpoints=tuple(
            NewCheckpoint(
                row.checkpoint_id, row.root, row.lane, row.parent_id or "", row.step, row.next_node, row.covers,
                row.status, row.metadata, row.created_us,
            )
            for row in parts.checkpoints
        ),
        effects=tuple(recorded(row, numbers, end) for row in parts.effects),
        attachments=tuple(
            NewAttachment(row.checkpoint_id, row.key, row.root, row.lane, created_us=row.created_us)
            for row in sorted(parts.attachments, key=lambda row: row.number)
        ),
        timers=tuple(Timer(row.timer, row.due_us) for row in parts.timers),
        restore=Restored(tuple(parts.gates), tuple(parts.items), tuple(parts.messages)),
    )  # fmt: skip


def appended(row: EntryRow) -> NewEntry:
    """An entry as it was. One that stands for several takes as many positions, so all keep theirs."""
    return NewEntry(row.kind, row.body, row.created_us, last_of(row) - row.position + 1)


def recorded(row: EffectRow, numbers: list[int], end: int) -> NewEffect:
    """A line of the ledger as it was, after the checkpoint it came after, which has another number in the new run."""
    after = bisect_right(numbers, row.after_checkpoint)
    return NewEffect(
        row.key, row.state, row.tool, row.target, row.reversible, row.body, row.call, row.created_us,  # type: ignore[arg-type]
        after, min(row.after_position, end),
    )  # fmt: skip


def _forked(core: Core, run_id: str, select: Select, wanted: str) -> RunRows:
    while True:
        known_run(core, run_id)
        found = find_checkpoint(core, run_id, select)
        if found is None:
            raise CheckpointNotFound(run_id, wanted)
        run, row = found
        rows = [*_needed_by(core, run, row), row]
        entries = _journal(core, run, row.covers)
        attachments = [a for each in rows for a in core.port.attachments(run.run, each.lane, each.checkpoint_id)]
        if not _are_there(core, run, rows):
            continue
        effects, beside = _beside(core, run, attachments)
        before = [effect for effect in effects if effect.after_checkpoint < row.number and effect.state != "undone"]
        goes_on = msgspec.structs.replace(run, status=READY)  # whatever became of the source
        return RunRows(goes_on, rows, entries, before, beside)


def _needed_by(core: Core, run: RunRow, row: CheckpointRow) -> list[CheckpointRow]:
    """The checkpoints without which nobody can go on from this one."""
    if not needed(row).needs and not may_need_ancestors(row):
        return []
    rows = core.port.checkpoints(run.run, 0, -1)
    numbers = Lineage(core, run).add_needed(with_needed({row.number}, rows), rows) - {row.number}
    return [checked_checkpoint(run, each) for each in rows if each.number in numbers]


def _journal(core: Core, run: RunRow, through: int) -> list[EntryRow]:
    """The journal up to a position, checked."""
    rows = core.port.entries(run.run, 0, through) if through else []
    rows = [row for row in rows if row.position <= through]
    end = 0
    for row in rows:
        check_seal(row, run.incarnation, f"entry {row.position} of run {run.run_id!r}")
        end = followed(run.run_id, end, row)
    if end < through:
        raise DamagedData(f"the journal of run {run.run_id!r}", f"it ends at {end}, not at {through}")
    if end > through:  # what stands for pruned entries reaches further
        rows[-1] = msgspec.structs.replace(rows[-1], body=pruned_body(through))
    return rows


def _are_there(core: Core, run: RunRow, rows: list[CheckpointRow]) -> bool:
    """Whether the checkpoints are still there, now that all else was read: then what they need is among it.

    Entries are pruned only after the checkpoints that need them, and attachments go together with their checkpoint.
    """
    found = [core.port.checkpoint(run.run_id, Select(row.lane, row.checkpoint_id)) for row in rows]
    return all(each is not None and each[1] == row for each, row in zip(found, rows, strict=True))


def _beside(core: Core, run: RunRow, attachments: list[AttachmentRow]) -> tuple[list[EffectRow], list[AttachmentRow]]:
    effects = core.port.effects(run.run)
    for row in (*effects, *attachments):
        check_seal(row, run.incarnation, f"a row of run {run.run_id!r} ({type(row).__name__})")
    return effects, attachments


def _chosen(select: Select) -> str:
    given = [(name, getattr(select, name)) for name in ("checkpoint_id", "step", "at", "lane")]
    return ", ".join(f"{name} {value!r}" for name, value in given if value not in (None, ""))
