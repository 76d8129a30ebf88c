"""New runs from old ones: fork and copy. Both share the source's state, so they cost next to nothing."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from holdfast.errors import CheckpointNotFound, DamagedData, InvalidInput
from holdfast.ids import check_id
from holdfast.model import commit as why
from holdfast.model.commit import Commit, NewAttachment, NewCheckpoint, NewEffect, NewEntry, NewRun, Refused
from holdfast.model.rows import AttachmentRow, CheckpointRow, EffectRow, EntryRow, RunRow
from holdfast.model.status import AT_WORK, READY
from holdfast.model.views import RunInfo
from holdfast.state.values import pack
from holdfast.store.port import Select
from holdfast.store.pruning import PRUNED, last_of, pruned_body
from holdfast.store.seal import check_seal
from holdfast.store.tags import read_metadata
from holdfast.verbs.core import Core, Place
from holdfast.verbs.needed import needed, with_needed
from holdfast.verbs.plans import Plan
from holdfast.verbs.reading import find_checkpoint, in_peace, known_run, selection
from holdfast.verbs.shown import checked_checkpoint, followed, run_info
from holdfast.verbs.writing import committed


class Contents(NamedTuple):
    """What a run is made of, apart from its state's chunks. All of it was checked."""

    run: RunRow
    checkpoints: list[CheckpointRow]
    entries: list[EntryRow]
    effects: list[EffectRow]
    attachments: list[AttachmentRow]


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
    core = place.core
    return (yield from _made(place, run_id, new_run_id, lambda: _forked(core, run_id, select, wanted), origin=True))


def copy(place: Place, run_id: str, new_run_id: str) -> Plan[RunInfo]:
    """Copy a run with all its checkpoints, journal, effects and attachments. The state is shared, not written again.

    Claims, gates, timers and the inbox are not copied: they belong to the one run.

    Example:
        store.copy("run-1", "run-2")
    """
    return (yield from copied(place, run_id, new_run_id, READY))


def copied(place: Place, run_id: str, new_run_id: str, resting: str) -> Plan[RunInfo]:
    """Copy a run. If somebody is at work on it, the copy, on which nobody is, has the status `resting`."""
    core = place.core
    return (yield from _made(place, run_id, new_run_id, lambda: contents(core, run_id), origin=False, resting=resting))


def _made(
    place: Place, run_id: str, new_run_id: str, read: Callable[[], Contents], *, origin: bool, resting: str = READY
) -> Plan[RunInfo]:
    check_id("run_id", run_id)
    check_id("new run_id", new_run_id)
    if run_id == new_run_id:
        raise InvalidInput(f"the new run needs an id of its own, not {run_id!r} again")
    while True:
        parts: Contents = yield lambda: in_peace(place.core, run_id, read)
        run = parts.run
        new = NewRun(
            True, run_id, run.incarnation, run.gc_epoch,
            pack(f"{run_id}@{parts.checkpoints[-1].checkpoint_id}") if origin else run.origin,
        )  # fmt: skip
        commit = recreated(place, parts, new_run_id, new, resting)
        outcome = yield commit
        if type(outcome) is Refused and outcome.why == why.SOURCE:
            continue  # the source was swept or replaced while it was read: read it again
        return run_info(committed(place, commit, outcome).run)


def recreated(place: Place, parts: Contents, run_id: str, new: NewRun, resting: str = READY) -> Commit:
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
        effects=tuple(recorded(row, numbers, end) for row in parts.effects if row.state != "undone"),
        attachments=tuple(
            NewAttachment(row.checkpoint_id, row.key, row.root, row.lane, created_us=row.created_us)
            for row in sorted(parts.attachments, key=lambda row: row.number)
        ),
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


def contents(core: Core, run_id: str) -> Contents:
    """Everything a copy of a run needs, checked."""
    while True:
        run = known_run(core, run_id)
        rows = [checked_checkpoint(run, row) for row in core.port.checkpoints(run.run, 0, -1)]
        entries = _journal(core, run, run.position)
        if _are_there(core, run, rows, entries):
            return Contents(run, rows, entries, *_beside(core, run, core.port.attachments(run.run, None, None)))


def _forked(core: Core, run_id: str, select: Select, wanted: str) -> Contents:
    while True:
        known_run(core, run_id)
        found = find_checkpoint(core, run_id, select)
        if found is None:
            raise CheckpointNotFound(run_id, wanted)
        run, row = found
        rows = [*_needed_by(core, run, row), row]
        entries = _journal(core, run, row.covers, cut=True)
        if not _are_there(core, run, rows, entries):
            continue
        attachments = [a for each in rows for a in core.port.attachments(run.run, each.lane, each.checkpoint_id)]
        effects, beside = _beside(core, run, attachments)
        before = [effect for effect in effects if effect.after_checkpoint < row.number]
        goes_on = msgspec.structs.replace(run, status=READY)  # whatever became of the source
        return Contents(goes_on, rows, entries, before, beside)


def _needed_by(core: Core, run: RunRow, row: CheckpointRow) -> list[CheckpointRow]:
    """The checkpoints without which nobody can go on from this one."""
    if not needed(row).needs:
        return []
    rows = core.port.checkpoints(run.run, 0, -1)
    numbers = with_needed({row.number}, rows) - {row.number}
    return [checked_checkpoint(run, each) for each in rows if each.number in numbers]


def _journal(core: Core, run: RunRow, through: int, *, cut: bool = False) -> list[EntryRow]:
    """The journal at least through a position, checked; with `cut` not beyond it."""
    rows = core.port.entries(run.run, 0, through if cut else -1) if through or not cut else []
    if cut:
        rows = [row for row in rows if row.position <= through]
    end = 0
    for row in rows:
        check_seal(row, run.incarnation, f"entry {row.position} of run {run.run_id!r}")
        end = followed(run.run_id, end, row)
    if end < through:
        raise DamagedData(f"the journal of run {run.run_id!r}", f"it ends at {end}, not at {through}")
    if cut and end > through:  # what stands for pruned entries reaches further
        rows[-1] = msgspec.structs.replace(rows[-1], body=pruned_body(through))
    return rows


def _are_there(core: Core, run: RunRow, rows: list[CheckpointRow], entries: list[EntryRow]) -> bool:
    """Whether the checkpoints are still there, now that the entries were read: then what they need is among them.

    Entries are pruned only after the checkpoints that need them.
    """
    if not any(entry.kind == PRUNED for entry in entries):
        return True
    there = {row.number for row in core.port.checkpoints(run.run, 0, -1)}
    return all(row.number in there for row in rows)


def _beside(core: Core, run: RunRow, attachments: list[AttachmentRow]) -> tuple[list[EffectRow], list[AttachmentRow]]:
    effects = core.port.effects(run.run)
    for row in (*effects, *attachments):
        check_seal(row, run.incarnation, f"a row of run {run.run_id!r} ({type(row).__name__})")
    return effects, attachments


def _chosen(select: Select) -> str:
    given = [(name, getattr(select, name)) for name in ("checkpoint_id", "step", "at", "lane")]
    return ", ".join(f"{name} {value!r}" for name, value in given if value not in (None, ""))
