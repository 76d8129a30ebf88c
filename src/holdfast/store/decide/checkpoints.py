"""Checkpoints and journal entries."""

from __future__ import annotations

from holdfast.ids import own_checkpoint_id
from holdfast.model import commit as why
from holdfast.model.commit import Commit, NewCheckpoint, NewEntry, Refused
from holdfast.model.rows import CheckpointRow, EntryRow, LaneRow
from holdfast.store.decide.draft import Draft
from holdfast.store.seal import sealed


def append_entries(draft: Draft, entries: tuple[NewEntry, ...]) -> None:
    """Entries take the positions after the journal's last."""
    position, rows = draft.run.position + 1, []
    for new in entries:
        row = EntryRow(position, new.kind, new.created_us or draft.now_us, draft.commit.commit_id, new.body)
        rows.append(draft.seal(row))
        position += new.positions
    draft.entries = rows
    draft.changes["position"] = draft.position


def positions_of(entries: tuple[NewEntry, ...]) -> int:
    """How many positions the entries take together."""
    return sum([new.positions for new in entries]) if entries else 0


def is_repeated(draft: Draft, commit: Commit) -> bool:
    """Whether the commit only saves checkpoints that are already there, just so. Then it does nothing at all.

    It must not even set its status: it may be the late repetition of a save that others have long gone beyond.
    """
    if commit.entries or commit.effects or commit.attachments or commit.deliver or commit.gates or commit.close_gates:
        return False
    if commit.send or commit.sent or commit.timers or commit.drop_timers or commit.take_items or commit.take:
        return False
    if commit.return_items:
        return False
    if commit.renew_us is not None or commit.release or commit.rearm is not None or draft.look is None:
        return False
    repeated: list[CheckpointRow] = []
    for new in commit.checkpoints:
        old = draft.look.checkpoint(draft.run.run, new.lane, new.checkpoint_id) if new.checkpoint_id else None
        if draft.sound(old) is None or old is None or _difference(new, old) is not None:
            return False
        repeated.append(old)
    _note(draft, repeated)
    draft.fresh = False
    return True


def _note(draft: Draft, rows: list[CheckpointRow]) -> None:
    draft.numbers = tuple(row.number for row in rows)
    draft.checkpoint_id, draft.covers, draft.step = rows[-1].checkpoint_id, rows[-1].covers, rows[-1].step


def add_checkpoints(draft: Draft, checkpoints: tuple[NewCheckpoint, ...]) -> Refused | None:
    """Number the checkpoints and move the heads of their lanes."""
    if len(checkpoints) == 1 and not (
        checkpoints[0].checkpoint_id or checkpoints[0].lane or checkpoints[0].needs_parent
    ):
        return _add_one(draft, checkpoints[0])
    run, serial = draft.run, draft.run.serial
    heads: dict[str, LaneRow] = {}
    kept: list[CheckpointRow] = []
    replaced: list[CheckpointRow] = []
    noted: list[CheckpointRow] = []
    for new in checkpoints:
        if new.covers is not None and new.covers > draft.position:
            return Refused(why.COVERS, run, f"{new.covers} {draft.position}")
        if new.needs_parent and not _has_parent(draft, new):
            return Refused(why.NO_PARENT, run, new.parent_id or "")
        old = draft.look.checkpoint(run.run, new.lane, new.checkpoint_id) if new.checkpoint_id and draft.look else None
        head = heads.get(new.lane) or _head(draft, new.lane)
        if old is None:
            serial += 1
            row = _row(draft, new, serial, head.head_id or None, head.step + 1)
            kept.append(row)
        else:
            differs = _difference(new, old)
            if differs is not None and not new.replace:
                return Refused(why.CHECKPOINT_TAKEN, run, differs)
            row = old
            if differs is not None:
                row = _row(draft, new, old.number, old.parent_id, old.step, named=old.named)
                replaced.append(row)
        noted.append(row)
        if row is not old and row.number >= head.head:
            heads[new.lane] = LaneRow(new.lane, row.number, row.checkpoint_id, row.step)
    _note(draft, noted)
    if kept:
        draft.checkpoints = kept
        draft.changes["serial"] = serial
    if replaced:
        draft.replaced = replaced
        draft.changes["rewrites"] = run.rewrites + len(replaced)
    _move_heads(draft, heads)
    return None


def _has_parent(draft: Draft, new: NewCheckpoint) -> bool:
    """Whether the parent it names is there; one that names none needs none."""
    if not new.parent_id:
        return True
    return draft.look is not None and draft.look.checkpoint(draft.run.run, new.lane, new.parent_id) is not None


def _add_one(draft: Draft, new: NewCheckpoint) -> Refused | None:
    """What most commits do: one checkpoint on the default lane, with an id of the store's own."""
    run, changes = draft.run, draft.changes
    covers = draft.position if new.covers is None else new.covers
    if covers > draft.position:
        return Refused(why.COVERS, run, f"{covers} {draft.position}")
    number, step = run.serial + 1, run.step + 1 if new.step is None else new.step
    name = own_checkpoint_id(number, draft.commit.commit_id)
    row = CheckpointRow(
        number, "", name, False, _parent(new, run.head_id or None), step, new.next_node, covers,
        new.status or draft.now("status"), new.metadata or b"", new.created_us or draft.now_us, new.root,
    )  # fmt: skip
    draft.checkpoints = (sealed(row, run.incarnation),)
    draft.numbers, draft.checkpoint_id, draft.covers, draft.step = (number,), name, covers, step
    changes["serial"] = changes["head"] = number
    changes["head_id"], changes["step"] = name, step
    return None


def _row(
    draft: Draft, new: NewCheckpoint, number: int, parent_id: str | None, step: int, *, named: bool = True
) -> CheckpointRow:
    """The checkpoint as a row; `parent_id` and `step` are what they are if the caller left them open."""
    name = new.checkpoint_id
    if not name:
        name, named = own_checkpoint_id(number, draft.commit.commit_id), False
    return draft.seal(
        CheckpointRow(
            number, new.lane, name, named, _parent(new, parent_id), step if new.step is None else new.step,
            new.next_node, draft.position if new.covers is None else new.covers, new.status or draft.now("status"),
            new.metadata or b"", new.created_us or draft.now_us, new.root,
        )
    )  # fmt: skip


def _parent(new: NewCheckpoint, otherwise: str | None) -> str | None:
    """The parent the caller named, or none if it said so; `otherwise` if it left that open."""
    return otherwise if new.parent_id is None else new.parent_id or None


def _head(draft: Draft, lane: str) -> LaneRow:
    run = draft.run
    if not lane:
        return LaneRow("", run.head, run.head_id, run.step)
    return (draft.look.lane(run.run, lane) if draft.look else None) or LaneRow(lane, 0, "", 0)


def _move_heads(draft: Draft, heads: dict[str, LaneRow]) -> None:
    default = heads.pop("", None)
    if default is not None:
        changes = draft.changes
        changes["head"], changes["head_id"], changes["step"] = default.head, default.head_id, default.step
    if heads:
        draft.lanes = list(heads.values())


def _difference(new: NewCheckpoint, old: CheckpointRow) -> str | None:
    """What a checkpoint saved again has that the stored one has not; what the caller left open does not count."""
    if new.root != old.root:
        return "state"
    for name in ("step", "next_node", "covers", "status", "metadata"):
        value = getattr(new, name)
        if value is not None and value != getattr(old, name):
            return name
    return "parent_id" if _parent(new, old.parent_id) != old.parent_id else None
