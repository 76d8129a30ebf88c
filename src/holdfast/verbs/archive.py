"""Export and import: a run as one piece of bytes that needs nothing else.

    archive := "holdfast run 1\n" content hash

`content` is the MessagePack encoding of `Archive` below, compressed with zstd; `hash` is the BLAKE3 hash, 32 bytes, of
everything before it. Chunks are kept as they are stored, under their hashes, and are checked one by one. An importer
makes a new run of it: numbers and seals are made anew; ids, contents, and the dates of its parts stay.
"""

from __future__ import annotations

from typing import Final

import msgspec
from blake3 import blake3

from holdfast.errors import DamagedData, InvalidInput, UnsupportedFormat
from holdfast.ids import check_id, check_lane
from holdfast.limits import STATE_READ_BYTES_MAX
from holdfast.model.commit import NewRun
from holdfast.model.rows import AttachmentRow, CheckpointRow, ChunkRow, EffectRow, EntryRow, RunRow
from holdfast.model.status import check_status
from holdfast.model.views import RunInfo
from holdfast.state import body, rope
from holdfast.state.decoder import decode
from holdfast.verbs.core import Core, Place
from holdfast.verbs.keeping import marked
from holdfast.verbs.moving import Contents, contents, recreated
from holdfast.verbs.plans import Plan
from holdfast.verbs.reading import in_peace
from holdfast.verbs.shown import followed, run_info
from holdfast.verbs.values import body_value, metadata_dict
from holdfast.verbs.writing import committed

_START: Final = b"holdfast run 1\n"
_ANY: Final = b"holdfast run "
_HASH: Final = 32
_SIZE_MAX: Final = 16 * STATE_READ_BYTES_MAX


class Archive(msgspec.Struct, frozen=True, array_like=True):
    """The content of an archive."""

    run: RunRow
    checkpoints: list[CheckpointRow]
    entries: list[EntryRow]
    effects: list[EffectRow]
    attachments: list[AttachmentRow]
    chunks: list[ChunkRow]


def export_run(place: Place, run_id: str) -> Plan[bytes]:
    """The run as bytes that any store can import: checkpoints, journal, effects, attachments and their state.

    Example:
        data = store.export_run("run-1")
    """
    check_id("run_id", run_id)
    core = place.core
    data: bytes = yield lambda: in_peace(core, run_id, lambda: _exported(core, run_id))
    return data


def _exported(core: Core, run_id: str) -> bytes:
    parts = contents(core, run_id)
    family = parts.run.family
    roots = [row.root for row in parts.checkpoints] + [row.root for row in parts.attachments]
    names = sorted(marked(core, family, roots))
    found = core.port.chunks(family, names)
    for name in names:
        if name not in found:
            raise DamagedData(f"run {run_id!r}", f"the chunk {name.hex()} it needs is missing")
    content = msgspec.msgpack.encode(Archive(*parts, [ChunkRow(name, found[name]) for name in names]))
    data = _START + core.body(content)
    return data + blake3(data).digest()


def import_run(place: Place, data: bytes, *, run_id: str | None = None) -> Plan[RunInfo]:
    """Make a run of what `export_run` gave, under its old id or a new one. Everything is checked before it is written.

    Example:
        store.import_run(data, run_id="run-3")
    """
    parts, chunks = _read(data)
    name = check_id("run_id", parts.run.run_id if run_id is None else run_id)
    new = NewRun(True, origin=parts.run.origin)
    commit = msgspec.structs.replace(recreated(place, parts, name, new), chunks=tuple(chunks))
    return run_info(committed(place, commit, (yield commit)).run)


def _read(data: object) -> tuple[Contents, list[ChunkRow]]:
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise InvalidInput(f"import_run takes the bytes that export_run gave, not {type(data).__name__}")
    data = bytes(data)
    if not data.startswith(_START):
        if data.startswith(_ANY):
            raise UnsupportedFormat("the archive", "it has another version")
        raise DamagedData("the archive", "it does not start like one")
    if blake3(data[:-_HASH]).digest() != data[-_HASH:]:
        raise DamagedData("the archive", "it is cut off or altered")
    content = body.plain(data[len(_START) : -_HASH], _SIZE_MAX, "the archive")
    try:
        archive = msgspec.msgpack.decode(content, type=Archive)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise DamagedData("the archive", f"its content cannot be read ({error})") from error
    parts = Contents(archive.run, archive.checkpoints, archive.entries, archive.effects, archive.attachments)
    _check(parts, archive.chunks)
    return parts, archive.chunks


def _check(parts: Contents, chunks: list[ChunkRow]) -> None:
    """An archive may come from anywhere: its hash proves that it arrived whole, not that it makes sense."""
    check_status(parts.run.status)
    bodies = [entry.body for entry in parts.entries]
    end = 0
    for entry in parts.entries:
        check_id("an entry's kind", entry.kind)
        end = followed(parts.run.run_id, end, entry)
    stored = {chunk.hash: chunk.body for chunk in chunks}
    rows: list[CheckpointRow | AttachmentRow] = [*parts.checkpoints, *parts.attachments]
    for row in rows:
        check_id("checkpoint_id", row.checkpoint_id)
        check_lane(row.lane)
        decode(
            row.root, lambda names: {n: stored[n] for n in names if n in stored}, f"checkpoint {row.checkpoint_id!r}"
        )
    for checkpoint in parts.checkpoints:
        check_status(checkpoint.status)
    for effect in parts.effects:
        check_id("effect key", effect.key)
        bodies += [effect.body, effect.call]
    for data in bodies:
        body_value(data, "a value of the archive")
    if parts.run.workflow:
        check_id("workflow", parts.run.workflow)
    for metadata in (parts.run.metadata, *(row.metadata for row in parts.checkpoints)):
        metadata_dict(metadata, "the archive's metadata")
    for chunk in chunks:
        if rope.chunk_hash(body.plain(chunk.body, STATE_READ_BYTES_MAX, "a chunk of the archive")) != chunk.hash:
            raise DamagedData("the archive", f"the chunk {chunk.hash.hex()} has other content than its name says")
