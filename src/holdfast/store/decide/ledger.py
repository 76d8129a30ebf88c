"""The ledger of side effects, and attachments."""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.limits import NUMBER_MAX
from holdfast.model import commit as why
from holdfast.model.commit import NewAttachment, NewEffect, Refused
from holdfast.model.rows import AttachmentRow, EffectRow
from holdfast.store.decide.draft import Draft

_replace = msgspec.structs.replace

MAY_BECOME: Final[dict[str | None, tuple[str, ...]]] = {
    None: ("intent", "done", "failed"),
    "intent": ("done", "failed"),
    "failed": ("intent", "done"),
    "done": ("undone",),
    "undone": ("intent", "done"),
}
"""What a line of the ledger may become. In particular: done once is done."""


def mark_effects(draft: Draft, effects: tuple[NewEffect, ...]) -> Refused | None:
    """Write lines of the ledger."""
    rows: list[EffectRow] = []
    if draft.run.effects + len(effects) > NUMBER_MAX:
        return Refused(why.LIMIT, draft.run, f"a run has at most {NUMBER_MAX} effects")
    for new in effects:
        old = draft.sound(draft.look.effect(draft.run.run, new.key)) if draft.look else None
        if draft.commit.restore is None and new.state not in MAY_BECOME[old.state if old else None]:
            return Refused(why.EFFECT_DONE, draft.run, new.key, old)
        rows.append(draft.seal(_outcome(draft, new, old) if old else _first(draft, new)))
    draft.effects = rows
    return None


def _first(draft: Draft, new: NewEffect) -> EffectRow:
    number = draft.changes["effects"] = draft.now("effects") + 1
    row, now_us = draft.run, draft.now_us
    checkpoint = row.serial if new.after_checkpoint is None else new.after_checkpoint
    position = row.position if new.after_position is None else new.after_position
    return EffectRow(
        number, new.key, new.state, new.tool, new.target, new.reversible, checkpoint, position,
        new.created_us or now_us, now_us, draft.commit.commit_id, new.body, new.call,
    )  # fmt: skip


def _outcome(draft: Draft, new: NewEffect, old: EffectRow) -> EffectRow:
    if new.state == "intent":  # it is to be done anew, so it comes after what is there now
        old = _replace(old, after_checkpoint=draft.run.serial, after_position=draft.run.position)
    return _replace(
        old, state=new.state, tool=new.tool or old.tool, target=old.target if new.target is None else new.target,
        reversible=new.reversible or old.reversible, updated_us=draft.now_us, commit_id=draft.commit.commit_id,
        body=new.body, call=new.call or old.call, seal=0,
    )  # fmt: skip


def attach(draft: Draft, attachments: tuple[NewAttachment, ...]) -> Refused | None:
    """Keep values beside checkpoints. The same value again is nothing new; another one needs `replace`.

    What the commit itself has said before about a key counts as if it were there.
    """
    rows: dict[tuple[str, str, str], AttachmentRow] = {}
    number = draft.run.attached
    if number + len(attachments) > NUMBER_MAX:
        return Refused(why.LIMIT, draft.run, f"a run has at most {NUMBER_MAX} attachments")
    for new in attachments:
        assert not (new.keep and new.replace), "one or the other"
        place = (new.lane, new.checkpoint_id, new.key)
        old = rows.get(place) or (draft.look.attachment(draft.run.run, *place) if draft.look else None)
        if old is not None and (new.keep or old.root == new.root):
            continue
        if old is not None and not new.replace:
            return Refused(why.ATTACHMENT_TAKEN, draft.run, new.key)
        number += 1
        created_us = new.created_us or draft.now_us
        rows[place] = draft.seal(AttachmentRow(number, *place, created_us, new.root))
    if rows:
        draft.attachments = list(rows.values())
        draft.changes["attached"] = number
    return None
