"""Export and import of a run as one self-contained archive.

    archive := "holdfast run 3\n" content hash

`content` is the MessagePack encoding of `Archive` below, compressed with zstd; `hash` is the BLAKE3 hash, 32 bytes, of
everything before it. Chunks are kept as they are stored, under their hashes, and are checked one by one. An import
creates a new run: numbers and checksums are new; ids, contents and dates stay. Version 1 ends
with the chunks; the run's row of versions 1 and 2 ends with `seal`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any, Final

import msgspec
from blake3 import blake3

from holdfast.drivers import Plan
from holdfast.errors import DamagedData, HoldfastError, InvalidInput, LimitExceeded, UnsupportedFormat
from holdfast.ids import check_id, check_lane
from holdfast.limits import ARCHIVE_BYTES_MAX, CHILDREN_DEPTH_MAX, NUMBER_MAX, STATE_READ_BYTES_MAX, STEP_MAX
from holdfast.model.commit import NewRun
from holdfast.model.rows import (
    AttachmentRow,
    CheckpointRow,
    ChunkRow,
    EffectRow,
    EntryRow,
    GateRow,
    ItemRow,
    MessageRow,
    Row,
    RunRow,
    TimerRow,
    check_status,
)
from holdfast.model.views import RunInfo
from holdfast.operations.context import Access, StoreContext
from holdfast.operations.fork import NewCopy, create_runs
from holdfast.operations.prune import reachable_chunks
from holdfast.operations.read import retry_if_changed
from holdfast.operations.run_tree import RunTree, is_child_of, read_journal, read_tree, rename, waited_for
from holdfast.operations.views import decode_body, metadata_dict, next_position, run_info
from holdfast.state import compression, rope
from holdfast.state.rope import decode
from holdfast.state.values import unpack
from holdfast.store.port import RunRows

_START: Final = b"holdfast run 3\n"
_STARTS: Final = (b"holdfast run 1\n", b"holdfast run 2\n", _START)
_ANY: Final = b"holdfast run "
_HASH: Final = 32


class Archive(msgspec.Struct, frozen=True, array_like=True):
    """The content of an archive."""

    run: RunRow
    checkpoints: list[CheckpointRow]
    entries: list[EntryRow]
    effects: list[EffectRow]
    attachments: list[AttachmentRow]
    chunks: list[ChunkRow]
    gates: list[GateRow] = []
    items: list[ItemRow] = []
    timers: list[TimerRow] = []
    messages: list[MessageRow] = []
    children: list[Archive] = []
    """The children for which the run waits."""

    def rows(self) -> RunRows:
        return RunRows(**{name: getattr(self, name) for name in RunRows._fields})


def export_run(access: Access, run_id: str) -> Plan[bytes]:
    """The run as bytes that any store can import, so that it continues there.

    Everything is included except the claim: checkpoints and their state, journal, effects, attachments, gates, timers,
    inbox and outbox, and the children for which it waits.

    Example:
        data = store.export_run("run-1")
    """
    check_id("run_id", run_id)
    core = access.core
    data: bytes = yield lambda: retry_if_changed(core, run_id, lambda: _export(core, run_id))
    return data


def _export(core: StoreContext, run_id: str) -> bytes:
    content = msgspec.msgpack.encode(_archive(core, read_tree(core, run_id)))
    if len(content) > ARCHIVE_BYTES_MAX:
        raise LimitExceeded(
            f"the archive of run {run_id!r} would have {len(content)} bytes, but at most "
            f"{ARCHIVE_BYTES_MAX} can be imported; prune the run first"
        )
    data = _START + core.body(content)
    return data + blake3(data).digest()


def _archive(core: StoreContext, tree: RunTree) -> Archive:
    rows = tree.rows
    family = rows.run.family
    roots = [row.root for row in rows.checkpoints] + [row.root for row in rows.attachments]
    names = sorted(reachable_chunks(core, family, roots))
    found = core.fetch(family)(names)
    for name in names:
        if name not in found:
            raise DamagedData(f"run {tree.run_id!r}", f"the chunk {name.hex()}, which it needs, is missing")
    chunks = [ChunkRow(name, found[name]) for name in names]
    children = [_archive(core, child) for child in tree.children]
    return Archive(**rows._asdict(), chunks=chunks, children=children)


def import_run(access: Access, data: bytes, *, run_id: str | None = None) -> Plan[RunInfo]:
    """Create a run from an archive of `export_run`, under its old id or a new one. The archive is checked first.

    Under its own id the run is moved: it still has its parent, and a rollback undoes its effects. Under another id it
    is a copy, like one of `copy`. Existing children, left by an import that was interrupted, are kept.

    Example:
        store.import_run(data, run_id="run-3")
    """
    archive = _decode(data)
    tree = _tree(archive)
    name = check_id("run_id", tree.run_id if run_id is None else run_id)
    chunks = _chunks(archive)
    plan = [
        NewCopy(new_id, rows, NewRun(True, origin=rows.run.origin), tuple(chunks[rows.run.run_id]))
        for new_id, rows in rename(access.core, tree, name)
    ]
    made = yield from create_runs(access, plan)
    assert made is not None, "an archive has no source that could change"
    return run_info(made)


def _decode(data: object) -> Archive:
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise InvalidInput(f"import_run needs the bytes that export_run returned, not {type(data).__name__}")
    data = bytes(data)
    if not data.startswith(_STARTS):
        if data.startswith(_ANY):
            raise UnsupportedFormat("the archive", "it has an unknown version")
        raise DamagedData("the archive", "it does not start like an archive")
    if blake3(data[:-_HASH]).digest() != data[-_HASH:]:
        raise DamagedData("the archive", "it is truncated or altered")
    content = compression.plain(data[len(_START) : -_HASH], ARCHIVE_BYTES_MAX, "the archive")
    try:
        return msgspec.msgpack.decode(content, type=Archive)
    except (msgspec.DecodeError, msgspec.ValidationError, RecursionError) as error:
        raise DamagedData("the archive", f"its content cannot be read ({error})") from error


def _tree(archive: Archive, depth: int = 0) -> RunTree:
    """The runs of the archive, checked: its hash proves that it is complete, not that its content is valid."""
    rows = archive.rows()
    check_archive(rows, archive.chunks, depth)
    journal = read_journal(rows)
    children = [_tree(child, depth + 1) for child in archive.children]
    expected = waited_for(rows, journal)
    for child in children:
        if child.run_id not in expected or not is_child_of(child.journal, rows.run.run_id):
            raise DamagedData("the archive", f"run {rows.run.run_id!r} does not wait for a child {child.run_id!r}")
    return RunTree(rows, journal, children)


def _chunks(archive: Archive) -> dict[str, list[ChunkRow]]:
    """The chunks of each run."""
    found = {archive.run.run_id: archive.chunks}
    for child in archive.children:
        found |= _chunks(child)
    return found


_TIME_US_MAX: Final = 253_402_300_799_999_999
"""The end of the year 9999, the last year of datetime."""
_TIMES: Final = ("created_us", "updated_us", "opened_us", "expires_us", "answered_us", "due_us")
_EFFECT_STATES: Final = ("intent", "done", "failed", "undone")
_GATE_STATES: Final = ("open", "answered", "expired", "closed")
_ITEM_KINDS: Final = ("answer", "event", "pause", "cancel", "timer", "expiry")
_MESSAGE_KINDS: Final = ("event", "pause", "cancel")


def check_archive(rows: RunRows, chunks: list[ChunkRow], depth: int) -> None:
    """Raise a HoldfastError if a store could not have had these rows."""
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
        raise DamagedData("the archive", f"it contains rows that no store writes ({error!r})") from error


def _refuse(reason: str) -> DamagedData:
    return DamagedData("the archive", reason)


def _check_run(rows: RunRows) -> None:
    run = rows.run
    check_id("run_id", run.run_id)
    check_status(run.status)
    if run.workflow:
        check_id("workflow", run.workflow)
    if run.origin and not isinstance(unpack(run.origin, "the archive"), str):
        raise _refuse("the source of its run cannot be read")
    metadata_dict(run.metadata, "the archive's metadata")
    _check_times(run)
    for part in rows[1:]:
        for row in part:
            _check_times(row)


def _check_times(row: Row) -> None:
    for name in _TIMES:
        time_us = getattr(row, name, None)
        if time_us is not None and not 0 <= time_us <= _TIME_US_MAX:
            raise _refuse(f"{time_us} is not a valid time")


def _check_history(rows: RunRows, chunks: list[ChunkRow]) -> None:
    """Journal, checkpoints, attachments and their state."""
    end = 0
    for entry in rows.entries:
        check_id("an entry's kind", entry.kind)
        decode_body(entry.body, "an entry of the archive")
        end = next_position(rows.run.run_id, end, entry)
    _check_numbers([end])
    for chunk in chunks:
        if rope.chunk_hash(compression.plain(chunk.body, STATE_READ_BYTES_MAX, "a chunk of the archive")) != chunk.hash:
            raise _refuse(f"the content of chunk {chunk.hash.hex()} does not match its hash")
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
            raise _refuse(f"the step or the covered position of checkpoint {checkpoint.checkpoint_id!r} is invalid")
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
        decode_body(effect.body, "a result in the archive")
        decode_body(effect.call, "a call in the archive")
        _check_numbers([effect.after_checkpoint, effect.after_position])
    _check_unique("effect", [row.key for row in effects])


def _check_gates(gates: list[GateRow]) -> None:
    from holdfast.forms import Form  # loaded only to import runs

    for gate in gates:
        check_id("gate", gate.gate)
        _check_one_of("gate", gate.state, _GATE_STATES)
        _check_ids(answered_by=gate.answered_by)
        if gate.state == "answered" and gate.answered_us is None:
            raise _refuse(f"the time of the answer to gate {gate.gate!r} is missing")
        content = msgspec.convert(decode_body(gate.body, "a gate of the archive"), dict[str, Any])
        msgspec.convert(content, _GateBody)
        try:
            Form.from_data(content["form"])
        except InvalidInput as error:
            raise _refuse(f"the form of gate {gate.gate!r} is invalid ({error})") from error
    _check_unique("gate", [row.gate for row in gates])


class _GateBody(msgspec.Struct):
    """The parts of a gate that are read."""

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
        raise _refuse("its inbox items are not numbered consecutively")
    _check_unique("inbox item", [item.key for item in rows.items])
    for message in rows.messages:
        _check_one_of("message", message.kind, _MESSAGE_KINDS)
        _check_post(message)
        check_id("a message's target", message.target)
    _check_numbers([message.number for message in rows.messages])
    if any(message.number < 1 for message in rows.messages):
        raise _refuse("its messages are not numbered from 1")
    _check_unique("message", [message.number for message in rows.messages])
    for timer in rows.timers:
        check_id("timer", timer.timer)
    _check_unique("timer", [timer.timer for timer in rows.timers])


def _check_post(row: ItemRow | MessageRow) -> None:
    check_id("the name of an inbox item", row.name)
    check_id("the key of an inbox item", row.key)
    decode_body(row.body, "a message of the archive")


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
            raise _refuse(f"{number} is not a valid number of a row")


def _check_unique(what: str, names: Iterable[Hashable]) -> None:
    found: set[Hashable] = set()
    for name in names:
        if name in found:
            raise _refuse(f"the {what} {name!r} is in it twice")
        found.add(name)
