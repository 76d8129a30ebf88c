"""Taking checkpoints apart without making objects of what is in them.

LangGraph's SQLite saver keeps a checkpoint as one MessagePack map; its PostgreSQL saver keeps JSON, with all but the
simplest values beside it. Either way the bytes of a value are copied as they are: no class is imported, and types that
this process does not know survive. Only what is not MessagePack as a whole (JSON of old versions, an encrypting serde)
has to go through the serde, which decides what it lets through.
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
    typed,
)
from holdfast.adapters.langgraph.serde import cut, joined
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
    """For what is serialised already: values are MessagePack bytes."""

    def dumps_typed(self, obj: Any) -> Typed:
        return USUAL, joined({"m": obj})

    def loads_typed(self, data: Typed) -> Any:
        raise NotImplementedError


class SourceCheckpoint(NamedTuple):
    """A checkpoint as LangGraph's SQLite saver keeps it."""

    checkpoint_id: str
    kind: str | None
    body: bytes | None

    def parts(self, serde: SerializerProtocol) -> Parts:
        if self.kind is None or self.body is None:
            raise Unreadable("it is empty")
        try:
            if self.kind == USUAL:
                return self._sliced(self.body)
            return self._decoded(serde)
        except (HoldfastError, ValueError, TypeError, KeyError, AttributeError, NotImplementedError) as error:
            raise Unreadable(f"it cannot be read as {self.kind!r}: {_said(error)}") from error

    def _sliced(self, body: bytes) -> Parts:
        fields: Record = {key: bytes(raw) for key, raw in _map(body).items()}
        values = {key: (USUAL, bytes(raw)) for key, raw in _map(fields.pop("channel_values")).items()}
        for name in _PLAIN:
            if name in fields:
                fields[name] = ormsgpack.unpackb(fields[name], option=_OPTION)
        return _parts(_Serialised(), self.checkpoint_id, fields, values)

    def _decoded(self, serde: SerializerProtocol) -> Parts:
        assert self.kind is not None
        fields = dict(load_typed(serde, (self.kind, self.body or b"")))
        values = {key: _typed(serde, value) for key, value in fields.pop("channel_values").items()}
        return _parts(serde, self.checkpoint_id, fields, values)

    def difference(self, serde: SerializerProtocol, found: ReadCheckpoint) -> str | None:
        if self.kind != USUAL or self.body is None:
            return _compared(self.parts(serde), found)
        return None if _reassembled(found, _map(self.body)) == self.body else "the checkpoint's bytes"


class Inline(NamedTuple):
    """A checkpoint as LangGraph's PostgreSQL saver keeps it."""

    checkpoint_id: str
    checkpoint: Record
    """JSON, with simple values in it."""
    blobs: Mapping[str, Typed]
    """The other values, by channel."""
    sends: Sequence[Typed]
    """What the parent's tasks sent, if this checkpoint does not record it itself."""

    @staticmethod
    def lacks_sends(checkpoint: Record) -> bool:
        """Whether the checkpoint is so old that its pending sends lie beside its parent."""
        version = checkpoint.get("v")
        return isinstance(version, int | float) and version < _SENDS_UNTIL

    def parts(self, serde: SerializerProtocol) -> Parts:
        try:
            fields = dict(self.checkpoint)
            values = {key: _inline(value) for key, value in (fields.pop("channel_values", None) or {}).items()}
            values.update(self.blobs)
            if self.sends:
                versions = fields["channel_versions"] = dict(fields["channel_versions"])
                versions[TASKS] = max(versions.values()) if versions else _FIRST_VERSION
                values[TASKS] = _together(serde, self.sends)
            return _parts(serde, self.checkpoint_id, fields, values)
        except (HoldfastError, ValueError, TypeError, KeyError, AttributeError, NotImplementedError) as error:
            raise Unreadable(f"it cannot be read: {_said(error)}") from error

    def difference(self, serde: SerializerProtocol, found: ReadCheckpoint) -> str | None:
        return _compared(self.parts(serde), found)


def _parts(serde: SerializerProtocol, checkpoint_id: str, fields: Record, values: dict[str, Typed]) -> Parts:
    """The parts, if this is the checkpoint that the row names."""
    if fields.get("id", checkpoint_id) != checkpoint_id:
        raise Unreadable(f"it contains the checkpoint {fields['id']!r}")
    whole = {"channel_versions": {}, "versions_seen": {}, **fields}
    ts = whole["ts"]
    if type(ts) is not str or type(whole["channel_versions"]) is not dict or type(whole["versions_seen"]) is not dict:
        raise Unreadable("it is not a LangGraph checkpoint")
    return Parts(ts, frame_of(serde, cast(Checkpoint, whole)), whole["channel_versions"], values)


def _inline(value: object) -> Typed:
    """A value that stood in JSON. Numbers too large for MessagePack stay JSON, which the serde reads as well."""
    if value is None:
        return "null", b""
    try:
        return USUAL, ormsgpack.packb(value)
    except (TypeError, ValueError):
        return "json", json.dumps(value).encode()


def _together(serde: SerializerProtocol, values: Sequence[Typed]) -> Typed:
    """These values as a list."""
    if all(kind == USUAL for kind, _ in values):
        return USUAL, joined([body for _, body in values])
    return _typed(serde, [load_typed(serde, value) for value in values])


def _typed(serde: SerializerProtocol, value: object) -> Typed:
    kind, body = dump_typed(serde, value)
    return kind, bytes(body)


def _reassembled(found: ReadCheckpoint, order: Iterable[str]) -> bytes:
    """The MessagePack map that the stored checkpoint was, with its fields in this order."""
    frame, pack = found.frame, ormsgpack.packb
    fields = {
        "v": pack(frame.v),
        "ts": pack(frame.ts),
        "id": pack(found.row.checkpoint_id),
        "channel_values": joined({"m": {key: typed(value)[1] for key, value in found.record["values"].items()}}),
        "channel_versions": pack(frame.versions, option=_OPTION),
        "versions_seen": pack(frame.seen, option=_OPTION),
        "updated_channels": pack(frame.updated),
    }
    if frame.more is not None:
        fields.update({key: bytes(raw) for key, raw in _map(frame.more[1]).items()})
    return joined({"m": {key: fields.get(key, b"") for key in order}})


def _compared(parts: Parts, found: ReadCheckpoint) -> str | None:
    stored = {key: typed(value) for key, value in found.record["values"].items()}
    for channel in {**parts.values, **stored}:
        if parts.values.get(channel) != stored.get(channel):
            return f"the value of channel {channel!r}"
    return None if found.record["frame"] == parts.frame else "the checkpoint's frame"


def _said(error: Exception) -> str:
    return str(error) or type(error).__name__


_UUID6: Final = 6
_UUID_EPOCH: Final = 0x01B21DD213814000
"""1970 in the clock of such ids, which ticks ten times in a microsecond."""


class Beside(NamedTuple):
    """A value to attach to a checkpoint."""

    value: Record
    writes: int
    """How many of a task's writes are in it."""


def kept(value: Typed) -> Stored:
    """Serialised bytes as they are stored."""
    kind, body = value
    if kind == USUAL:
        return cut(body)
    return None if kind == "null" else {"t": kind, "d": body}


def attachments(writes: Iterable[SourceWrite]) -> dict[str, Beside]:
    """Writes as they are attached: a task's together, special ones alone."""
    found: dict[str, Beside] = {}
    groups: dict[tuple[str, str], list[SourceWrite]] = defaultdict(list)
    for write in writes:
        if write.idx < 0:
            name = check_id("task_id", f"s{-write.idx}:{write.task_id}")
            found[name] = _attachment([write])
        else:
            groups[write.task_id, write.task_path].append(write)
    for (task_id, _), group in groups.items():
        count = len(group)
        while (name := f"w{count}:{task_id}") in found:  # a task whose writes have several paths
            count += 1
        found[check_id("task_id", name)] = _attachment(group)
    return found


def _attachment(writes: list[SourceWrite]) -> Beside:
    value: Record = {"w": [writes[0].task_path, *([write.idx, write.channel] for write in writes)]}
    value.update({str(write.idx): kept(write.value) for write in writes})
    return Beside(value, len(writes))


def read_metadata(data: bytes | None) -> Record:
    """A checkpoint's metadata."""
    try:
        found = json.loads(data) if data is not None else {}
    except ValueError as error:
        raise Unreadable(f"its metadata is not JSON: {error}") from error
    if type(found) is not dict:
        raise Unreadable("its metadata is not a JSON object")
    return found


def needs_ancestors(metadata: Record, parts: Parts) -> list[str]:
    """The delta channels whose values lie, in part, with this checkpoint's ancestors."""
    return sorted(channel for channel in delta_channels(metadata, parts.values) if channel in parts.versions)


def created_us(checkpoint_id: str, ts: str) -> int | None:
    """When the checkpoint was made: the time in its id, which LangGraph sorts by, or else its date."""
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
"""The mark's name in the run's metadata."""


class Mark(msgspec.Struct, frozen=True):
    """What the last commit of a migration records about a thread."""

    thread: str
    serial: int
    attached: int
    rewrites: int
    last: tuple[str, str]
    """Namespace and id of the last checkpoint moved."""
    source: str
    """The thread's fingerprint in the source; empty until it is copied whole and, if asked for, verified."""

    def fits(self, run: RunRow) -> bool:
        """Whether the run has nothing that this migration did not put there."""
        return (self.serial, self.attached, self.rewrites) == (run.serial, run.attached, run.rewrites)


def mark_of(run: RunRow) -> Mark | None:
    """The mark that a migration left, if this run is the one it was left on."""
    found = metadata_dict(run.metadata, f"run {run.run_id!r}").get(MARK)
    try:
        mark = msgspec.convert(found, Mark)
    except msgspec.ValidationError:
        return None
    return mark if mark.thread == run.run_id else None
