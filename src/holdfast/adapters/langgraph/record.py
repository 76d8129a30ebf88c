"""Checkpoints as records: what is stored of a LangGraph checkpoint, and back.

    record := {"langgraph": 1, "frame": bytes, "values": {channel: value, …},
               "ns": namespace, "more": {key: value, …}, "delta": [channel, …]}
    frame  := deflated MessagePack of [v, ts, channel versions, versions seen, updated channels, all else]
    value  := nothing | piece (see cutting.py) | {"t": the serde's name of another format, "d": its bytes}
    writes := {"w": [task path, [idx, channel], …], idx: value, …}

"ns" is there if the lane is not named like the namespace. The frame is small, says much the same at every checkpoint,
and interests nobody in between, so it is kept short: a third of a checkpoint without it.

Writes are attached to their checkpoint. Those that LangGraph numbers from 0 on lie together as "w" count ":" task id,
one attachment for each call; if a task's writes are put again, of each number the first counts. Special ones (errors,
interrupts, …) lie alone, as "s" number ":" task id, and the last counts.

Metadata lies beside the record, where it can be searched, and as JSON gives it back, as in LangGraph's databases. What
of it is too long for that, or nothing a store keeps as it is, goes through the serde and lies in the record as "more".
"delta" names the channels whose values follow from the checkpoint's ancestors, if there are any. The frame's updated
channels are false if the checkpoint does not have the field.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple, cast

import ormsgpack
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    Checkpoint,
    CheckpointMetadata,
    PendingWrite,
    writes_sort_key,
)
from langgraph.checkpoint.serde.base import SerializerProtocol

from holdfast.adapters.langgraph.cutting import Piece, cut, joined
from holdfast.adapters.langgraph.errors import ValueUnreadable
from holdfast.adapters.langgraph.serde import StrictSerializer
from holdfast.errors import DamagedData, InvalidInput, LimitExceeded, Unstorable, UnsupportedFormat
from holdfast.ids import check_id
from holdfast.limits import METADATA_BYTES_MAX, MIB
from holdfast.store.tags import write_metadata
from holdfast.verbs.values import metadata_dict, metadata_pairs

Stored = None | bytes | list[Any] | dict[str, Any]
"""A value as it is stored."""

VERSION: Final = 1
USUAL: Final = "msgpack"
"""The format of nearly all values."""
DELTA: Final = "counters_since_delta_snapshot"
"""The metadata by which LangGraph tells which channels are delta channels without a value here."""
_TOGETHER: Final = "w"
_SPECIAL: Final = "s"
_WRITES: Final = re.compile(r"[ws]\d+:(.+)", re.DOTALL)
_SEARCHED_MAX: Final = 1024
"""Metadata values above this size, encoded, are not searched."""
_JSON_ATOMS: Final = frozenset({str, int, bool, float, type(None)})
_OWN: Final = frozenset({"v", "id", "ts", "channel_values", "channel_versions", "versions_seen", "updated_channels"})
_FRAME_MAX: Final = 16 * MIB
_EXPECTED: Final = (
    b"__pregel_tasks__error____interrupt____resume__toolstool_node:task|supervisor__root__structured_response"
    b"\xd9 2026-11-16T00:00:00.000000+00:00\x83\xa9__start__\xa8messages\xaabranch:to:\xa5agent\x83\xa9__input__\x80"
    b"\xa9__start__\x81\xa9__start__\xa5agent\x81\xaabranch:to:agent\x91\xa8messages"
)
"""What frames are likely to say. It is part of the format: without it no frame can be read."""


class Frame(NamedTuple):
    """What a checkpoint says beside its values."""

    v: int
    ts: str
    versions: dict[str, Any]
    seen: dict[str, dict[str, Any]]
    updated: list[str] | bool | None
    """False if the checkpoint does not have the field."""
    more: list[Any] | None
    """Format and bytes of all else, as the serde made them."""


class Write(NamedTuple):
    """A write of a task."""

    task_path: str
    task_id: str
    idx: int
    channel: str
    value: Stored

    def pending(self, serde: SerializerProtocol) -> PendingWrite:
        """As LangGraph knows it."""
        return (self.task_id, self.channel, loaded(serde, self.value))


def stored(serde: SerializerProtocol, value: object, before: Stored = None) -> Stored:
    """A value as it is stored. `before` is what was stored in its place: the parts they share were checked then."""
    kind, body = dump_typed(serde, value)
    if kind == USUAL:
        piece = cut(body)
        if isinstance(serde, StrictSerializer):
            for part in _new_parts(piece, before):
                serde.check(part)
        return piece
    return None if kind == "null" else {"t": kind, "d": bytes(body)}


def dump_typed(serde: SerializerProtocol, value: object) -> tuple[str, bytes]:
    """What the serde makes of a value; pickle is refused."""
    kind, body = serde.dumps_typed(value)
    if is_pickle(kind):
        raise InvalidInput(
            f"the serde pickled a value of the type {type(value).__name__}; pickle is never stored, because loading it "
            "runs code from the store: use a serde without pickle_fallback, or put a type into the state that it knows"
        )
    return kind, body


def typed(value: Stored) -> tuple[str, bytes]:
    """The format and the bytes of a stored value."""
    if value is None:
        return "null", b""
    if isinstance(value, dict) and "t" in value:
        return value["t"], value["d"]
    return USUAL, joined(value)


def loaded(serde: SerializerProtocol, value: Stored) -> Any:
    """The value that was stored."""
    return load_typed(serde, typed(value))


def load_typed(serde: SerializerProtocol, data: tuple[str, bytes]) -> Any:
    """What the serde makes of these bytes. Pickle is not given to it, whatever it would do with it."""
    if is_pickle(data[0]):
        raise ValueUnreadable("a value was stored with pickle, which runs whatever the data says; it is not read")
    return serde.loads_typed(data)


def is_pickle(kind: str) -> bool:
    """Whether this is LangGraph's name for pickle, encrypted or not."""
    return kind.partition("+")[0] == "pickle"


def _new_parts(piece: Piece, before: Stored) -> Iterable[bytes]:
    """The bytes of a piece, but not items that stand at the same place in the one before."""
    if not isinstance(piece, list):
        return () if piece == before else (joined(piece),)
    same = 0
    for mine, other in zip(piece, before if isinstance(before, list) else (), strict=False):
        if mine != other:
            break
        same += 1
    return [joined(item) for item in piece[same:]]


def frame_of(serde: SerializerProtocol, checkpoint: Checkpoint) -> bytes:
    """The frame of a checkpoint."""
    more = {key: value for key, value in checkpoint.items() if key not in _OWN}
    updated: Any = checkpoint.get("updated_channels", False)
    frame = Frame(
        checkpoint["v"], checkpoint["ts"], checkpoint["channel_versions"], checkpoint["versions_seen"],
        updated if updated is None or updated is False else list(updated),
        list(typed(stored(serde, more))) if more else None,
    )  # fmt: skip
    plain = ormsgpack.packb(tuple(frame))
    if len(plain) > _FRAME_MAX:
        raise LimitExceeded(f"a checkpoint beside its values has {len(plain)} bytes, at most {_FRAME_MAX} are allowed")
    deflate = zlib.compressobj(6, zlib.DEFLATED, -11, 3, zdict=_EXPECTED)  # small windows are made faster
    return deflate.compress(plain) + deflate.flush()


def read_frame(body: bytes, place: str) -> Frame:
    """The frame that was stored."""
    inflate = zlib.decompressobj(-15, zdict=_EXPECTED)
    try:
        return Frame(*ormsgpack.unpackb(inflate.decompress(body, 2 * _FRAME_MAX)))
    except (zlib.error, ValueError, TypeError) as error:
        raise DamagedData(place, f"its frame cannot be read ({error})") from error


def checked_record(record: Any, place: str) -> dict[str, Any]:
    """The record, if it is one and this version can read it."""
    version = record.get("langgraph") if isinstance(record, dict) else None
    if type(version) is not int:
        raise DamagedData(place, "it is no checkpoint of LangGraph")
    if version > VERSION:
        raise UnsupportedFormat(place, f"its LangGraph record has version {version}")
    return cast(dict[str, Any], record)


def checkpoint_of(serde: SerializerProtocol, checkpoint_id: str, frame: Frame, values: dict[str, Any]) -> Checkpoint:
    """The checkpoint of this frame, with these values."""
    checkpoint: dict[str, Any] = {
        "v": frame.v,
        "ts": frame.ts,
        "id": checkpoint_id,
        "channel_values": values,
        "channel_versions": frame.versions,
        "versions_seen": frame.seen,
    }
    if frame.updated is not False:
        checkpoint["updated_channels"] = frame.updated
    if frame.more is not None:
        checkpoint.update(load_typed(serde, (frame.more[0], frame.more[1])))
    return cast(Checkpoint, checkpoint)


def writes_of(
    serde: SerializerProtocol, writes: Iterable[tuple[str, Any]], task_id: str, task_path: str
) -> dict[str, tuple[bool, dict[str, Any]]]:
    """The attachments for a task's writes, by name, each with whether it takes the place of an older one."""
    found: dict[str, tuple[bool, dict[str, Any]]] = {}
    together: dict[str, Any] = {"w": [task_path]}
    for position, (channel, value) in enumerate(writes):
        idx = WRITES_IDX_MAP.get(channel, position)
        if idx < 0:
            entry = {"w": [task_path, [idx, channel]], str(idx): stored(serde, value)}
            found[check_id("task_id", f"{_SPECIAL}{-idx}:{task_id}")] = (True, entry)
        else:
            together["w"].append([idx, channel])
            together[str(idx)] = stored(serde, value)
    if len(together) > 1:
        found[check_id("task_id", f"{_TOGETHER}{len(together) - 1}:{task_id}")] = (False, together)
    return found


def sorted_writes(attached: Mapping[str, Any]) -> list[Write]:
    """The writes among attachments, which come in the order of their arrival, in the order LangGraph applies them."""
    found: dict[tuple[str, int], Write] = {}
    for key, value in attached.items():
        named = _WRITES.fullmatch(key)
        if named is not None and isinstance(value, dict) and "w" in value:
            task_id, (task_path, *numbered) = named[1], value["w"]
            for idx, channel in numbered:
                found.setdefault((task_id, idx), Write(task_path, task_id, idx, channel, value[str(idx)]))
    return sorted(found.values(), key=lambda write: writes_sort_key(write.task_path, write.task_id, write.idx))


def delta_channels(metadata: Mapping[str, Any], values: Mapping[str, Any]) -> list[str]:
    """The channels of a checkpoint whose values follow from its ancestors."""
    counted = metadata.get(DELTA)
    return [channel for channel in counted if channel not in values] if isinstance(counted, Mapping) else []


def split_metadata(serde: SerializerProtocol, metadata: Mapping[str, Any]) -> tuple[bytes, dict[str, Stored]]:
    """Metadata as the store keeps and searches it, and the rest, which lies in the record."""
    searched: list[tuple[str, bytes]] = []
    more: dict[str, Stored] = {}
    room = METADATA_BYTES_MAX
    for key, given in metadata.items():
        value = to_json_value(given)
        try:
            packed = _packed_atom(key, value) if type(value) in (str, int, bool) else _packed(key, value)
        except (Unstorable, LimitExceeded):
            packed = b""
        room -= 4 * len(key) + len(packed)
        if packed and len(packed) <= _SEARCHED_MAX and room >= 0:
            searched.append((key, packed))
        else:
            more[key] = stored(serde, value)
    return write_metadata(searched), more


def searched_for(wanted: Mapping[str, Any]) -> tuple[tuple[str, bytes], ...]:
    """A metadata filter as keys and encoded values."""
    found = []
    for key, value in wanted.items():
        packed = _packed(key, to_json_value(value))
        if len(packed) > _SEARCHED_MAX:
            raise LimitExceeded(
                f"metadata values above {_SEARCHED_MAX} bytes are kept but not searched, as for {key!r}"
            )
        found.append((key, packed))
    return tuple(found)


def to_json_value(value: Any) -> Any:
    """A metadata value as JSON gives it back (lists, not tuples); a value that is not JSON is left as it is."""
    if type(value) in _JSON_ATOMS:
        return value
    try:
        return json.loads(json.dumps(value))
    except (TypeError, ValueError, RecursionError):
        return value


def _packed(key: str, value: object) -> bytes:
    """A metadata value as it is searched for."""
    ((_, packed),) = metadata_pairs({key: value})
    return packed


_packed_atom = lru_cache(1024, typed=True)(_packed)


def metadata_of(serde: SerializerProtocol, data: bytes, more: Mapping[str, Stored], place: str) -> CheckpointMetadata:
    """Metadata as LangGraph's savers give it; tuples that earlier versions stored are lists as well."""
    found = {key: to_json_value(value) for key, value in metadata_dict(data, place).items()}
    for key, value in more.items():
        found[key] = loaded(serde, value)
    return cast(CheckpointMetadata, found)
