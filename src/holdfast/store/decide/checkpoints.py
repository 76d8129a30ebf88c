"""Checkpoints and journal entries."""

from __future__ import annotations

from holdfast.model import commit as why
from holdfast.model.commit import NewCheckpoint, NewEntry, Refused
from holdfast.model.rows import CheckpointRow, EntryRow, LaneRow
from holdfast.store.decide.draft import Draft


def append_entries(draft: Draft, entries: tuple[NewEntry, ...]) -> None:
    """Entries take the positions after the journal's last."""
    draft.out.entries = [
        draft.seal(EntryRow(position, new.kind, new.created_us or draft.now_us, draft.commit.commit_id, new.body))
        for position, new in enumerate(entries, start=draft.row.position + 1)
    ]
    draft.change(position=draft.position)


def add_checkpoints(draft: Draft, checkpoints: tuple[NewCheckpoint, ...]) -> Refused | None:
    """Number the checkpoints and move the heads of their lanes."""
    heads: dict[str, LaneRow] = {}
    kept: list[CheckpointRow] = []
    replaced: list[CheckpointRow] = []
    for new in checkpoints:
        covers = draft.position if new.covers is None else new.covers
        if covers > draft.position:
            return Refused(why.COVERS, draft.row, f"{covers} {draft.position}")
        old = draft.look.checkpoint(draft.row.run, new.lane, new.checkpoint_id) if new.named and draft.look else None
        if old is not None:
            differs = _difference(new, old)
            if differs is None:
                _note(draft, old)
                continue
            if not new.replace:
                return Refused(why.CHECKPOINT_TAKEN, draft.row, differs)
        head = heads.get(new.lane) or _head(draft, new.lane)
        row = draft.seal(_row(draft, new, old, head, covers))
        _note(draft, row)
        if old is None:
            kept.append(row)
            draft.change(serial=row.number)
        else:
            replaced.append(row)
            draft.change(rewrites=draft.now("rewrites") + 1)
        if row.number >= head.head:
            heads[new.lane] = LaneRow(new.lane, row.number, row.checkpoint_id, row.step)
    draft.out.checkpoints, draft.out.replaced = kept, replaced
    _move_heads(draft, heads)
    return None


def _row(draft: Draft, new: NewCheckpoint, old: CheckpointRow | None, head: LaneRow, covers: int) -> CheckpointRow:
    """The checkpoint as a row. What the caller left open follows from the run, or stays as it was."""
    if old is not None:
        number, parent_id, step = old.number, old.parent_id, old.step
    else:
        number, parent_id, step = draft.now("serial") + 1, head.head_id or None, head.step + 1
    return CheckpointRow(
        number, new.lane, new.checkpoint_id, new.parent_id or parent_id, step if new.step is None else new.step,
        new.next_node, covers, new.status or draft.now("status"), new.metadata or b"",
        new.created_us or draft.now_us, new.root,
    )  # fmt: skip


def _head(draft: Draft, lane: str) -> LaneRow:
    row = draft.row
    if not lane:
        return LaneRow("", row.head, row.head_id, row.step)
    return (draft.look.lane(row.run, lane) if draft.look else None) or LaneRow(lane, 0, "", 0)


def _move_heads(draft: Draft, heads: dict[str, LaneRow]) -> None:
    default = heads.pop("", None)
    if default is not None:
        draft.change(head=default.head, head_id=default.head_id, step=default.step)
    if heads:
        draft.out.lanes = list(heads.values())


def _note(draft: Draft, row: CheckpointRow) -> None:
    out = draft.out
    out.numbers, out.covers, out.step = (*out.numbers, row.number), row.covers, row.step


def _difference(new: NewCheckpoint, old: CheckpointRow) -> str | None:
    """What a checkpoint saved again has that the stored one has not; what the caller left open does not count."""
    if new.root != old.root:
        return "state"
    for name in ("step", "next_node", "covers", "status", "parent_id", "metadata"):
        value = getattr(new, name)
        if value is not None and value != getattr(old, name):
            return name
    return None
