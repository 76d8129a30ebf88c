"""Taking checkpoints apart without making objects of what is in them.

LangGraph's SQLite saver keeps a checkpoint as one MessagePack map; its PostgreSQL saver keeps JSON, with all but the
simplest values beside it. Either way the bytes of a value are copied as they are: no class is imported, and types that
this process does not know survive. Only what is not MessagePack as a whole (JSON of old versions, an encrypting serde)
has to go through the serde, which decides what it lets through.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, cast

import msgspec
import ormsgpack
from langgraph.checkpoint.base import Checkpoint
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.types import TASKS

from holdfast.adapters.langgraph.cutting import joined
from holdfast.adapters.langgraph.migrating.source import Parts, Typed, Unreadable
from holdfast.adapters.langgraph.reading import Found
from holdfast.adapters.langgraph.record import USUAL, dump_typed, frame_of, load_typed, typed
from holdfast.errors import HoldfastError

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


class Whole(NamedTuple):
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
        fields: dict[str, Any] = {key: bytes(raw) for key, raw in _map(body).items()}
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

    def difference(self, serde: SerializerProtocol, found: Found) -> str | None:
        if self.kind != USUAL or self.body is None:
            return _compared(self.parts(serde), found)
        return None if _reassembled(found, _map(self.body)) == self.body else "the checkpoint's bytes"


class Inline(NamedTuple):
    """A checkpoint as LangGraph's PostgreSQL saver keeps it."""

    checkpoint_id: str
    checkpoint: Mapping[str, Any]
    """JSON, with simple values in it."""
    blobs: Mapping[str, Typed]
    """The other values, by channel."""
    sends: Sequence[Typed]
    """What the parent's tasks sent, if this is a checkpoint that does not say so itself."""

    @staticmethod
    def lacks_sends(checkpoint: Mapping[str, Any]) -> bool:
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

    def difference(self, serde: SerializerProtocol, found: Found) -> str | None:
        return _compared(self.parts(serde), found)


def _parts(serde: SerializerProtocol, checkpoint_id: str, fields: Mapping[str, Any], values: dict[str, Typed]) -> Parts:
    """The parts, if this is the checkpoint that the row says it is."""
    if fields.get("id", checkpoint_id) != checkpoint_id:
        raise Unreadable(f"it says that it is the checkpoint {fields['id']!r}")
    whole = {"channel_versions": {}, "versions_seen": {}, **fields}
    ts = whole["ts"]
    if type(ts) is not str or type(whole["channel_versions"]) is not dict or type(whole["versions_seen"]) is not dict:
        raise Unreadable("it is no checkpoint of LangGraph")
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


def _reassembled(found: Found, order: Iterable[str]) -> bytes:
    """The MessagePack map that the stored checkpoint was, with its fields in this order."""
    frame, pack = found.frame, ormsgpack.packb
    fields = {
        "v": pack(frame.v), "ts": pack(frame.ts), "id": pack(found.row.checkpoint_id),
        "channel_values": joined({"m": {key: typed(value)[1] for key, value in found.record["values"].items()}}),
        "channel_versions": pack(frame.versions, option=_OPTION), "versions_seen": pack(frame.seen, option=_OPTION),
        "updated_channels": pack(frame.updated),
    }  # fmt: skip
    if frame.more is not None:
        fields.update({key: bytes(raw) for key, raw in _map(frame.more[1]).items()})
    return joined({"m": {key: fields.get(key, b"") for key in order}})


def _compared(parts: Parts, found: Found) -> str | None:
    stored = {key: typed(value) for key, value in found.record["values"].items()}
    for channel in {**parts.values, **stored}:
        if parts.values.get(channel) != stored.get(channel):
            return f"the value of channel {channel!r}"
    return None if found.record["frame"] == parts.frame else "the checkpoint's frame"


def _said(error: Exception) -> str:
    return str(error) or type(error).__name__
