"""Decisions about checkpoints, journal entries, effects and attachments."""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.ids import own_checkpoint_id
from holdfast.limits import NUMBER_MAX
from holdfast.model.commit import Commit, NewAttachment, NewCheckpoint, NewEffect, NewEntry, Reason, Refused
from holdfast.model.rows import AttachmentRow, CheckpointRow, EffectRow, EntryRow, LaneRow
from holdfast.store.checksum import with_checksum
from holdfast.store.decide.draft import Draft


def append_entries(draft: Draft, entries: tuple[NewEntry, ...]) -> None:
    """Add entries at the positions after the journal's last."""
    position, rows = draft.run.position + 1, []
    for new in entries:
        row = EntryRow(position, new.kind, new.created_us or draft.now_us, draft.commit.commit_id, new.body)
        rows.append(draft.seal(row))
        position += new.positions
    draft.entries = rows
    draft.changes["position"] = draft.position


def positions_of(entries: tuple[NewEntry, ...]) -> int:
    """How many positions the entries occupy together."""
    return sum([new.positions for new in entries])


def is_repeated(draft: Draft, commit: Commit) -> bool:
    """Whether the commit only saves checkpoints that are stored already, unchanged. Then it does nothing at all.

    It does not even set the status: it may be a late repetition of a save that newer commits have superseded.
    """
    if commit.entries or commit.effects or commit.attachments or commit.deliver or commit.gates or commit.close_gates:
        return False
    if commit.send or commit.sent or commit.timers or commit.drop_timers or commit.take_items or commit.take:
        return False
    if commit.return_items:
        return False
    if commit.renew_us is not None or commit.release or commit.rearm is not None or draft.reads is None:
        return False
    repeated: list[CheckpointRow] = []
    for new in commit.checkpoints:
        old = _stored(draft, new)
        if draft.verified(old) is None or old is None or _difference(new, old) is not None:
            return False
        repeated.append(old)
    _note(draft, repeated)
    draft.fresh = False
    return True


def _stored(draft: Draft, new: NewCheckpoint) -> CheckpointRow | None:
    """The stored checkpoint with the id that the caller chose, if there is one."""
    if not new.checkpoint_id or draft.reads is None:
        return None
    place = (new.lane, new.checkpoint_id)
    if place not in draft.stored:
        draft.stored[place] = draft.reads.checkpoint(draft.run.run, *place)
    return draft.stored[place]


def _note(draft: Draft, rows: list[CheckpointRow]) -> None:
    last = rows[-1]
    draft.numbers = tuple([row.number for row in rows])
    draft.checkpoint_id, draft.covers, draft.step = last.checkpoint_id, last.covers, last.step


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
            return Refused(Reason.COVERS, run, f"{new.covers} {draft.position}")
        if new.needs_parent and not _has_parent(draft, new):
            return Refused(Reason.NO_PARENT, run, new.parent_id or "")
        old = _stored(draft, new)
        head = heads.get(new.lane) or _head(draft, new.lane)
        if old is None:
            serial += 1
            row = _row(draft, new, serial, head.head_id or None, head.step + 1)
            kept.append(row)
        else:
            differs = _difference(new, old)
            if differs is not None and not new.replace:
                return Refused(Reason.CHECKPOINT_TAKEN, run, differs)
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
    """Whether the parent that it names exists; without a name none is needed."""
    if not new.parent_id:
        return True
    return draft.reads is not None and draft.reads.checkpoint(draft.run.run, new.lane, new.parent_id) is not None


def _add_one(draft: Draft, new: NewCheckpoint) -> Refused | None:
    """Add one checkpoint on the default lane, with an id of the store: the most common commit."""
    run, changes = draft.run, draft.changes
    row = _row(draft, new, run.serial + 1, run.head_id or None, run.step + 1)
    number, name, covers, step = row.number, row.checkpoint_id, row.covers, row.step
    if covers > draft.position:
        return Refused(Reason.COVERS, run, f"{covers} {draft.position}")
    draft.checkpoints, draft.numbers = (row,), (number,)
    draft.checkpoint_id, draft.covers, draft.step = name, covers, step
    changes["serial"] = changes["head"] = number
    changes["head_id"], changes["step"] = name, step
    return None


def _row(
    draft: Draft, new: NewCheckpoint, number: int, parent_id: str | None, step: int, *, named: bool = True
) -> CheckpointRow:
    """The row of a checkpoint; `parent_id` and `step` are used if the caller did not choose them.

    An empty `parent_id` of the caller means that it has none.
    """
    name = new.checkpoint_id
    if not name:
        name, named = own_checkpoint_id(number, draft.commit.commit_id), False
    row = CheckpointRow(
        number=number,
        lane=new.lane,
        checkpoint_id=name,
        named=named,
        parent_id=parent_id if new.parent_id is None else new.parent_id or None,
        step=step if new.step is None else new.step,
        next_node=new.next_node,
        covers=draft.position if new.covers is None else new.covers,
        status=new.status or draft.now("status"),
        metadata=new.metadata or b"",
        created_us=new.created_us or draft.now_us,
        root=new.root,
    )
    return with_checksum(row, draft.run.incarnation)


def _head(draft: Draft, lane: str) -> LaneRow:
    run = draft.run
    if not lane:
        return LaneRow("", run.head, run.head_id, run.step)
    return (draft.reads.lane(run.run, lane) if draft.reads else None) or LaneRow(lane, 0, "", 0)


def _move_heads(draft: Draft, heads: dict[str, LaneRow]) -> None:
    default = heads.pop("", None)
    if default is not None:
        changes = draft.changes
        changes["head"], changes["head_id"], changes["step"] = default.head, default.head_id, default.step
    if heads:
        draft.lanes = list(heads.values())


def _difference(new: NewCheckpoint, old: CheckpointRow) -> str | None:
    """The first field in which a repeated checkpoint differs from the stored one; fields not given are ignored."""
    if new.root != old.root:
        return "state"
    for name in ("step", "next_node", "covers", "status", "metadata"):
        value = getattr(new, name)
        if value is not None and value != getattr(old, name):
            return name
    has_parent = new.parent_id is None or (new.parent_id or None) == old.parent_id
    return None if has_parent else "parent_id"


_replace = msgspec.structs.replace
MAY_BECOME: Final[dict[str | None, tuple[str, ...]]] = {
    None: ("intent", "done", "failed"),
    "intent": ("done", "failed"),
    "failed": ("intent", "done"),
    "done": ("undone",),
    "undone": ("intent", "done"),
}
"""The allowed changes of an effect's state. An effect that is done is not done again."""


def mark_effects(draft: Draft, effects: tuple[NewEffect, ...]) -> Refused | None:
    """Record effects in the ledger."""
    rows: list[EffectRow] = []
    if draft.run.effects + len(effects) > NUMBER_MAX:
        return Refused(Reason.LIMIT, draft.run, f"a run has at most {NUMBER_MAX} effects")
    for new in effects:
        old = draft.verified(draft.reads.effect(draft.run.run, new.key)) if draft.reads else None
        if draft.commit.restore is None and new.state not in MAY_BECOME[old.state if old else None]:
            return Refused(Reason.EFFECT_DONE, draft.run, new.key, old)
        rows.append(draft.seal(_outcome(draft, new, old) if old else _first(draft, new)))
    draft.effects = rows
    return None


def _first(draft: Draft, new: NewEffect) -> EffectRow:
    number = draft.changes["effects"] = draft.now("effects") + 1
    row, now_us = draft.run, draft.now_us
    checkpoint = row.serial if new.after_checkpoint is None else new.after_checkpoint
    position = row.position if new.after_position is None else new.after_position
    return EffectRow(
        number=number,
        key=new.key,
        state=new.state,
        tool=new.tool,
        target=new.target,
        reversible=new.reversible,
        after_checkpoint=checkpoint,
        after_position=position,
        created_us=new.created_us or now_us,
        updated_us=now_us,
        commit_id=draft.commit.commit_id,
        body=new.body,
        call=new.call,
    )


def _outcome(draft: Draft, new: NewEffect, old: EffectRow) -> EffectRow:
    if new.state == "intent":  # it is done again, so it comes after everything stored now
        old = _replace(old, after_checkpoint=draft.run.serial, after_position=draft.run.position)
    return _replace(
        old,
        state=new.state,
        tool=new.tool or old.tool,
        target=old.target if new.target is None else new.target,
        reversible=new.reversible or old.reversible,
        updated_us=draft.now_us,
        commit_id=draft.commit.commit_id,
        body=new.body,
        call=new.call or old.call,
        seal=0,
    )


def attach(draft: Draft, attachments: tuple[NewAttachment, ...]) -> Refused | None:
    """Attach values to checkpoints. The same value again changes nothing; another one needs `replace`.

    An earlier value of the same commit is treated as stored.
    """
    rows: dict[tuple[str, str, str], AttachmentRow] = {}
    number = draft.run.attached
    if number + len(attachments) > NUMBER_MAX:
        return Refused(Reason.LIMIT, draft.run, f"a run has at most {NUMBER_MAX} attachments")
    for new in attachments:
        assert not (new.keep and new.replace), "keep and replace exclude each other"
        place = (new.lane, new.checkpoint_id, new.key)
        old = rows.get(place) or (draft.reads.attachment(draft.run.run, *place) if draft.reads else None)
        if old is not None and (new.keep or old.root == new.root):
            continue
        if old is not None and not new.replace:
            return Refused(Reason.ATTACHMENT_TAKEN, draft.run, new.key)
        number += 1
        created_us = new.created_us or draft.now_us
        rows[place] = draft.seal(AttachmentRow(number, *place, created_us, new.root))
    if rows:
        draft.attachments = list(rows.values())
        draft.changes["attached"] = number
    return None
