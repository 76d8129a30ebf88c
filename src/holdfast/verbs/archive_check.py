"""Checks of an archive, which may come from anywhere, before anything of it is written."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any, Final

import msgspec

from holdfast.errors import DamagedData, HoldfastError, InvalidInput, LimitExceeded
from holdfast.ids import check_id, check_lane
from holdfast.limits import CHILDREN_DEPTH_MAX, NUMBER_MAX, STATE_READ_BYTES_MAX, STEP_MAX
from holdfast.model.rows import AttachmentRow, CheckpointRow, ChunkRow, EffectRow, GateRow, ItemRow, MessageRow, Row
from holdfast.model.status import check_status
from holdfast.state import body, rope
from holdfast.state.decoder import decode
from holdfast.state.values import unpack
from holdfast.store.port import RunRows
from holdfast.verbs.shown import followed
from holdfast.verbs.values import body_value, metadata_dict

_TIME_US_MAX: Final = 253_402_300_799_999_999
"""The end of the year 9999, the last moment a calendar has."""
_TIMES: Final = ("created_us", "updated_us", "opened_us", "expires_us", "answered_us", "due_us")
_EFFECT_STATES: Final = ("intent", "done", "failed", "undone")
_GATE_STATES: Final = ("open", "answered", "expired", "closed")
_ITEM_KINDS: Final = ("answer", "event", "pause", "cancel", "timer", "expiry")
_MESSAGE_KINDS: Final = ("event", "pause", "cancel")


def check_archived(rows: RunRows, chunks: list[ChunkRow], depth: int) -> None:
    """Raise a HoldfastError if these are not rows that a store could have had."""
    if depth > CHILDREN_DEPTH_MAX:
        raise LimitExceeded(f"the archive has children {depth} levels deep, at most {CHILDREN_DEPTH_MAX} are allowed")
    try:
        _check_run(rows)
        _check_history(rows, chunks)
        _check_effects(rows.effects)
        _check_gates(rows.gates)
        _check_messages(rows)
    except HoldfastError:
        raise
    except (msgspec.MsgspecError, LookupError, TypeError, AttributeError, ValueError) as error:
        raise DamagedData("the archive", f"it has something in it that was never stored ({error!r})") from error


def _refuse(reason: str) -> DamagedData:
    return DamagedData("the archive", reason)


def _check_run(rows: RunRows) -> None:
    run = rows.run
    check_id("run_id", run.run_id)
    check_status(run.status)
    if run.workflow:
        check_id("workflow", run.workflow)
    if run.origin and not isinstance(unpack(run.origin, "the archive"), str):
        raise _refuse("it does not say where its run came from")
    metadata_dict(run.metadata, "the archive's metadata")
    parts: list[list[Any]] = [
        [run], rows.checkpoints, rows.entries, rows.effects, rows.attachments, rows.gates, rows.items, rows.timers,
        rows.messages,
    ]  # fmt: skip
    for row in (row for part in parts for row in part):
        _check_times(row)


def _check_times(row: Row) -> None:
    for name in _TIMES:
        time_us = getattr(row, name, None)
        if time_us is not None and not 0 <= time_us <= _TIME_US_MAX:
            raise _refuse(f"{time_us} is not a time that a calendar has")


def _check_history(rows: RunRows, chunks: list[ChunkRow]) -> None:
    """Journal, checkpoints, attachments and their state."""
    end = 0
    for entry in rows.entries:
        check_id("an entry's kind", entry.kind)
        body_value(entry.body, "an entry of the archive")
        end = followed(rows.run.run_id, end, entry)
    _check_numbers([end])
    for chunk in chunks:
        if rope.chunk_hash(body.plain(chunk.body, STATE_READ_BYTES_MAX, "a chunk of the archive")) != chunk.hash:
            raise _refuse(f"the chunk {chunk.hash.hex()} has other content than its name says")
    stored = {chunk.hash: chunk.body for chunk in chunks}
    states: list[CheckpointRow | AttachmentRow] = [*rows.checkpoints, *rows.attachments]
    for row in states:
        check_id("checkpoint_id", row.checkpoint_id)
        check_lane(row.lane)
        place = f"checkpoint {row.checkpoint_id!r}"
        decode(row.root, lambda names: {n: stored[n] for n in names if n in stored}, place)
    for checkpoint in rows.checkpoints:
        check_status(checkpoint.status)
        metadata_dict(checkpoint.metadata, "the archive's metadata")
        _check_ids(parent_id=checkpoint.parent_id, next_node=checkpoint.next_node)
        if not 0 <= checkpoint.step <= 2 * STEP_MAX or not 0 <= checkpoint.covers <= end:
            raise _refuse(f"the step or the cover of checkpoint {checkpoint.checkpoint_id!r} cannot be")
    _check_unique("checkpoint", [(row.lane, row.checkpoint_id) for row in rows.checkpoints])
    _check_numbers([row.number for row in rows.checkpoints])
    for attachment in rows.attachments:
        check_id("attachment key", attachment.key)
    _check_unique("attachment", [(row.lane, row.checkpoint_id, row.key) for row in rows.attachments])


def _check_effects(effects: list[EffectRow]) -> None:
    for effect in effects:
        check_id("effect key", effect.key)
        _check_ids(tool=effect.tool or None, target=effect.target)
        _check_one_of("effect", effect.state, _EFFECT_STATES)
        body_value(effect.body, "a result in the archive")
        body_value(effect.call, "a call in the archive")
        _check_numbers([effect.after_checkpoint, effect.after_position])
    _check_unique("effect", [row.key for row in effects])


def _check_gates(gates: list[GateRow]) -> None:
    from holdfast.engine.forms import Form  # loaded by those who import runs

    for gate in gates:
        check_id("gate", gate.gate)
        _check_one_of("gate", gate.state, _GATE_STATES)
        _check_ids(answered_by=gate.answered_by)
        if gate.state == "answered" and gate.answered_us is None:
            raise _refuse(f"it does not say when gate {gate.gate!r} was answered")
        content = msgspec.convert(body_value(gate.body, "a gate of the archive"), dict[str, Any])
        msgspec.convert(content, _GateBody)
        try:
            Form.from_data(content["form"])
        except InvalidInput as error:
            raise _refuse(f"gate {gate.gate!r} has no form that can be filled in ({error})") from error
    _check_unique("gate", [row.gate for row in gates])


class _GateBody(msgspec.Struct):
    """What is read of a gate."""

    v: int
    prompt: str
    form: Any
    show: Any
    who: list[str]
    purpose: str


def _check_messages(rows: RunRows) -> None:
    """Inbox, outbox and timers."""
    for item in rows.items:
        _check_one_of("inbox item", item.kind, _ITEM_KINDS)
        _check_post(item)
        _check_ids(by=item.by or None)
    if [item.number for item in rows.items] != list(range(1, len(rows.items) + 1)):
        raise _refuse("its inbox items are not numbered one after the other")
    _check_unique("inbox item", [item.key for item in rows.items])
    for message in rows.messages:
        _check_one_of("message", message.kind, _MESSAGE_KINDS)
        _check_post(message)
        check_id("a message's target", message.target)
    _check_numbers([message.number for message in rows.messages])
    _check_unique("message", [message.number for message in rows.messages])
    for timer in rows.timers:
        check_id("timer", timer.timer)
    _check_unique("timer", [timer.timer for timer in rows.timers])


def _check_post(row: ItemRow | MessageRow) -> None:
    check_id("the name of an inbox item", row.name)
    check_id("the key of an inbox item", row.key)
    body_value(row.body, "a message of the archive")


def _check_ids(**ids: str | None) -> None:
    for what, name in ids.items():
        if name is not None:
            check_id(what, name)


def _check_one_of(what: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise _refuse(f"{what} {value!r} is not one of {', '.join(allowed)}")


def _check_numbers(numbers: Iterable[int]) -> None:
    for number in numbers:
        if not 0 <= number <= NUMBER_MAX:
            raise _refuse(f"{number} is not a number that a row has")


def _check_unique(what: str, names: list[Any]) -> None:
    found: set[Hashable] = set()
    for name in names:
        if name in found:
            raise _refuse(f"the {what} {name!r} is in it twice")
        found.add(name)
