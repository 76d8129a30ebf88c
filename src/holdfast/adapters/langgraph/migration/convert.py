"""Conversion of source checkpoints to stored records, without building their objects.

LangGraph's SQLite saver stores a checkpoint as one MessagePack map; its PostgreSQL saver stores JSON, with all but the
simplest values in rows of their own. In both cases the bytes of a value are copied unchanged: no class is imported, and
types that this process does not have survive. Only checkpoints in other formats (JSON of old versions, an encrypting
serde) are decoded by the serde, which decides which types it allows.
"""

from __future__ import annotations

import datetime as dt
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, cast
from uuid import UUID

import msgspec
import ormsgpack
from langgraph.checkpoint.base import Checkpoint
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.types import TASKS

from holdfast.adapters.langgraph.get import ReadCheckpoint
from holdfast.adapters.langgraph.migration.source import Parts, SourceWrite, Typed, Unreadable
from holdfast.adapters.langgraph.record_codec import (
    USUAL,
    Record,
    Stored,
    delta_channels,
    dump_typed,
    frame_of,
    load_typed,
    to_typed,
)
from holdfast.adapters.langgraph.serde import cut, join
from holdfast.errors import HoldfastError
from holdfast.ids import check_id
from holdfast.model.rows import RunRow
from holdfast.operations.views import metadata_dict

_map = msgspec.msgpack.Decoder(dict[str, msgspec.Raw]).decode
_OPTION: Final = ormsgpack.OPT_NON_STR_KEYS
_PLAIN: Final = ("v", "id", "ts", "channel_versions", "versions_seen", "updated_channels")
_SENDS_UNTIL: Final = 4
"""Checkpoints before this version have their pending sends among their parent's writes."""
_FIRST_VERSION: Final = f"{1:032}.{0:016}"


class _Serialised(SerializerProtocol):
    """A serde for values that are MessagePack bytes already."""

    def dumps_typed(self, obj: Any) -> Typed:
        return USUAL, join({"m": obj})

    def loads_typed(self, data: Typed) -> Any:
        raise NotImplementedError


class SourceCheckpoint(NamedTuple):
    """A checkpoint as LangGraph's SQLite saver stores it."""

    checkpoint_id: str
    kind: str | None
    body: bytes | None

    def parts(self, serde: SerializerProtocol) -> Parts:
        if self.kind is None or self.body is None:
            raise Unreadable("it is empty")
        try:
            if self.kind == USUAL:
                return self._slice(self.body)
            return self._decode(serde)
        except (HoldfastError, ValueError, TypeError, KeyError, AttributeError, NotImplementedError) as error:
            raise Unreadable(f"it cannot be read as {self.kind!r}: {_describe(error)}") from error

    def _slice(self, body: bytes) -> Parts:
        fields: Record = {key: bytes(raw) for key, raw in _map(body).items()}
        values = {key: (USUAL, bytes(raw)) for key, raw in _map(fields.pop("channel_values")).items()}
        for name in _PLAIN:
            if name in fields:
                fields[name] = ormsgpack.unpackb(fields[name], option=_OPTION)
        return _check_parts(_Serialised(), self.checkpoint_id, fields, values)

    def _decode(self, serde: SerializerProtocol) -> Parts:
        assert self.kind is not None
        fields = dict(load_typed(serde, (self.kind, self.body or b"")))
        values = {key: _dump(serde, value) for key, value in fields.pop("channel_values").items()}
        return _check_parts(serde, self.checkpoint_id, fields, values)

    def difference(self, serde: SerializerProtocol, found: ReadCheckpoint) -> str | None:
        if self.kind != USUAL or self.body is None:
            return _compare(self.parts(serde), found)
        return None if _reassemble(found, _map(self.body)) == self.body else "the checkpoint's bytes"


class Inline(NamedTuple):
    """A checkpoint as LangGraph's PostgreSQL saver stores it."""

    checkpoint_id: str
    checkpoint: Record
    """JSON that contains the simple values."""
    blobs: Mapping[str, Typed]
    """The other values, by channel."""
    sends: Sequence[Typed]
    """Pending sends of the parent's tasks, if this checkpoint does not record them itself."""

    @staticmethod
    def lacks_sends(checkpoint: Record) -> bool:
        """Return whether the checkpoint is so old that its parent's writes contain its sends."""
        version = checkpoint.get("v")
        return isinstance(version, int | float) and version < _SENDS_UNTIL

    def parts(self, serde: SerializerProtocol) -> Parts:
        try:
            fields = dict(self.checkpoint)
            values = {key: _type_json(value) for key, value in (fields.pop("channel_values", None) or {}).items()}
            values.update(self.blobs)
            if self.sends:
                versions = fields["channel_versions"] = dict(fields["channel_versions"])
                versions[TASKS] = max(versions.values()) if versions else _FIRST_VERSION
                values[TASKS] = _join_values(serde, self.sends)
            return _check_parts(serde, self.checkpoint_id, fields, values)
        except (HoldfastError, ValueError, TypeError, KeyError, AttributeError, NotImplementedError) as error:
            raise Unreadable(f"it cannot be read: {_describe(error)}") from error

    def difference(self, serde: SerializerProtocol, found: ReadCheckpoint) -> str | None:
        return _compare(self.parts(serde), found)


def _check_parts(serde: SerializerProtocol, checkpoint_id: str, fields: Record, values: dict[str, Typed]) -> Parts:
    """Return the parts; Unreadable if they are not of the checkpoint that the row names."""
    if fields.get("id", checkpoint_id) != checkpoint_id:
        raise Unreadable(f"it contains the checkpoint {fields['id']!r}")
    whole = {"channel_versions": {}, "versions_seen": {}, **fields}
    ts = whole["ts"]
    if type(ts) is not str or type(whole["channel_versions"]) is not dict or type(whole["versions_seen"]) is not dict:
        raise Unreadable("it is not a LangGraph checkpoint")
    return Parts(ts, frame_of(serde, cast(Checkpoint, whole)), whole["channel_versions"], values)


def _type_json(value: object) -> Typed:
    """Convert a value of the JSON. Numbers too large for MessagePack stay JSON, which the serde reads as well."""
    if value is None:
        return "null", b""
    try:
        return USUAL, ormsgpack.packb(value)
    except (TypeError, ValueError):
        return "json", json.dumps(value).encode()


def _join_values(serde: SerializerProtocol, values: Sequence[Typed]) -> Typed:
    """Join serialised values to one serialised list."""
    if all(kind == USUAL for kind, _ in values):
        return USUAL, join([body for _, body in values])
    return _dump(serde, [load_typed(serde, value) for value in values])


def _dump(serde: SerializerProtocol, value: object) -> Typed:
    kind, body = dump_typed(serde, value)
    return kind, bytes(body)


def _reassemble(found: ReadCheckpoint, order: Iterable[str]) -> bytes:
    """Build the MessagePack map of a stored checkpoint, with its fields in this order."""
    frame, pack = found.frame(), ormsgpack.packb
    fields = {
        "v": pack(frame.v),
        "ts": pack(frame.ts),
        "id": pack(found.row.checkpoint_id),
        "channel_values": join({"m": {key: to_typed(value)[1] for key, value in found.record["values"].items()}}),
        "channel_versions": pack(frame.versions, option=_OPTION),
        "versions_seen": pack(frame.seen, option=_OPTION),
        "updated_channels": pack(frame.updated),
    }
    if frame.more is not None:
        fields.update({key: bytes(raw) for key, raw in _map(frame.more[1]).items()})
    return join({"m": {key: fields.get(key, b"") for key in order}})


def _compare(parts: Parts, found: ReadCheckpoint) -> str | None:
    stored = {key: to_typed(value) for key, value in found.record["values"].items()}
    for channel in {**parts.values, **stored}:
        if parts.values.get(channel) != stored.get(channel):
            return f"the value of channel {channel!r}"
    return None if found.record["frame"] == parts.frame else "the checkpoint's frame"


def _describe(error: Exception) -> str:
    return str(error) or type(error).__name__


_UUID6: Final = 6
_UUID_EPOCH: Final = 0x01B21DD213814000
"""1970 in the clock of these ids, which counts tenths of a microsecond."""


class AttachmentValue(NamedTuple):
    """A value to attach to a checkpoint."""

    value: Record
    writes: int
    """The number of writes in it."""


def to_stored(value: Typed) -> Stored:
    """Convert a serialised value to its stored form."""
    kind, body = value
    if kind == USUAL:
        return cut(body)
    return None if kind == "null" else {"t": kind, "d": body}


def attachments(writes: Iterable[SourceWrite]) -> dict[str, AttachmentValue]:
    """Return the attachments of these writes by key, one per task or special write."""
    found: dict[str, AttachmentValue] = {}
    groups: dict[tuple[str, str], list[SourceWrite]] = defaultdict(list)
    for write in writes:
        if write.idx < 0:
            name = check_id("task_id", f"s{-write.idx}:{write.task_id}")
            found[name] = _pack_writes([write])
        else:
            groups[write.task_id, write.task_path].append(write)
    for (task_id, _), group in groups.items():
        count = len(group)
        while (name := f"w{count}:{task_id}") in found:  # the writes of one task have several paths
            count += 1
        found[check_id("task_id", name)] = _pack_writes(group)
    return found


def _pack_writes(writes: list[SourceWrite]) -> AttachmentValue:
    value: Record = {"w": [writes[0].task_path, *([write.idx, write.channel] for write in writes)]}
    value.update({str(write.idx): to_stored(write.value) for write in writes})
    return AttachmentValue(value, len(writes))


def read_metadata(data: bytes | None) -> Record:
    """Decode the metadata of a checkpoint."""
    try:
        found = json.loads(data) if data is not None else {}
    except ValueError as error:
        raise Unreadable(f"its metadata is not JSON: {error}") from error
    if type(found) is not dict:
        raise Unreadable("its metadata is not a JSON object")
    return found


def needs_ancestors(metadata: Record, parts: Parts) -> list[str]:
    """Return the delta channels whose values are computed from ancestors of this checkpoint."""
    return sorted(channel for channel in delta_channels(metadata, parts.values) if channel in parts.versions)


def created_us(checkpoint_id: str, ts: str) -> int | None:
    """Return when the checkpoint was created. The time in its id, which LangGraph sorts by, precedes its `ts`."""
    try:
        found = UUID(checkpoint_id)
        if found.version == _UUID6:
            ticks = (found.int >> 80) << 12 | (found.int >> 64) & 0xFFF
            return max(1, (ticks - _UUID_EPOCH) // 10)
    except ValueError:
        pass
    try:
        moment = dt.datetime.fromisoformat(ts)
    except ValueError:
        return None
    return max(1, int((moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)).timestamp() * 1_000_000))


MARK: Final = "langgraph.migrated"
"""The key of the mark in the run's metadata."""


class Mark(msgspec.Struct, frozen=True):
    """The progress of a migration, as its last commit recorded it in the run."""

    thread: str
    serial: int
    attached: int
    rewrites: int
    last: tuple[str, str]
    """Namespace and id of the last checkpoint moved."""
    source: str
    """The fingerprint of the thread in the source; empty until it is completely copied and, if requested, verified."""

    def fits(self, run: RunRow) -> bool:
        """Return whether everything in the run came from this migration."""
        return (self.serial, self.attached, self.rewrites) == (run.serial, run.attached, run.rewrites)


def mark_of(run: RunRow) -> Mark | None:
    """Return the mark of a migration, if it was written for this run."""
    found = metadata_dict(run.metadata, f"run {run.run_id!r}").get(MARK)
    try:
        mark = msgspec.convert(found, Mark)
    except msgspec.ValidationError:
        return None
    return mark if mark.thread == run.run_id else None
