"""The stored format of LangGraph checkpoints, writes and metadata.

    record := {"langgraph": 1, "frame": bytes, "values": {channel: value, …},
               "ns": namespace, "more": {key: value, …}, "delta": [channel, …]}
    frame  := deflated MessagePack of [v, ts, channel versions, versions seen, updated channels, all else]
    value  := nothing | piece (see `serde.cut`) | {"t": the serde's name of another format, "d": its bytes}
    writes := {"w": [task path, [idx, channel], …], idx: value, …}

"ns" is present if the name of the lane is not the namespace. The frame is small and changes little between checkpoints,
so it is compressed with a dictionary; without one it would be a third of a checkpoint.

Writes are attached to their checkpoint. Those that LangGraph numbers from 0 on share the attachment "w" count ":" task
id, one for each call; if the writes of a task are put again, the first of each number counts. Special writes (errors,
interrupts, …) have an attachment each, "s" number ":" task id, and the last counts.

Metadata is stored outside the record, where it can be searched, in the form that JSON returns, as in LangGraph's
databases. Metadata that is too long, or that a store cannot represent, is serialised into the record as "more". "delta"
names the channels whose values follow from ancestors, if there are any. The updated channels of the frame are false if
the checkpoint does not have the field.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeVar, cast

import ormsgpack
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    Checkpoint,
    CheckpointMetadata,
    writes_sort_key,
)
from langgraph.checkpoint.serde.base import SerializerProtocol

from holdfast.adapters.langgraph.serde import Piece, StrictSerializer, ValueUnreadable, cut, join
from holdfast.errors import DamagedData, InvalidInput, LimitExceeded, Unstorable, UnsupportedFormat
from holdfast.ids import check_id
from holdfast.limits import METADATA_BYTES_MAX, MIB
from holdfast.operations.views import metadata_dict, metadata_pairs
from holdfast.store.search import write_metadata

Value = TypeVar("Value")
Record = dict[str, Any]
"""A record, or another mapping of stored values."""
Stored = Piece | None
"""A stored value."""

VERSION: Final = 1
USUAL: Final = "msgpack"
"""LangGraph's name of the format that nearly all values have."""
DELTA: Final = "counters_since_delta_snapshot"
"""The metadata key that lists delta channels without a value at this checkpoint."""
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
"""The compression dictionary of frames. It is part of the format and must not change."""


class Frame(NamedTuple):
    """The parts of a checkpoint beside its values."""

    v: int
    ts: str
    versions: Record
    seen: dict[str, Record]
    updated: list[str] | bool | None
    """False if the checkpoint does not have the field."""
    more: tuple[str, bytes] | None
    """Format and bytes of all other fields, from the serde."""


class Write(NamedTuple):
    """A write of a task."""

    task_path: str
    task_id: str
    idx: int
    channel: str
    value: Stored


def store_value(serde: SerializerProtocol, value: object, before: Stored = None) -> Stored:
    """Convert a value to its stored form. `before`: the stored form it replaces, whose parts are checked already."""
    return store_typed(serde, dump_typed(serde, value), before)


def store_typed(serde: SerializerProtocol, data: tuple[str, bytes], before: Stored = None) -> Stored:
    """Convert what the serde made of a value to its stored form; see `store_value`."""
    kind, body = data
    if kind == USUAL:
        piece = cut(body)
        if isinstance(serde, StrictSerializer):
            for part in _new_parts(piece, before):
                serde.check(part)
        return piece
    return None if kind == "null" else {"t": kind, "d": bytes(body)}


def dump_typed(serde: SerializerProtocol, value: object) -> tuple[str, bytes]:
    """Serialise a value; pickle is refused."""
    kind, body = serde.dumps_typed(value)
    if is_pickle(kind):
        raise InvalidInput(
            f"the serde pickled a value of the type {type(value).__name__}; pickle is never stored, because loading it "
            "runs code from the store: use a serde without pickle_fallback, or use a type that the serde supports"
        )
    return kind, body


def to_typed(value: Stored) -> tuple[str, bytes]:
    """Return the format and the bytes of a stored value."""
    if value is None:
        return "null", b""
    if isinstance(value, dict) and "t" in value:
        return value["t"], value["d"]
    return USUAL, join(value)


def load_value(serde: SerializerProtocol, value: Stored) -> Any:
    """Load a stored value."""
    return load_typed(serde, to_typed(value))


def load_typed(serde: SerializerProtocol, data: tuple[str, bytes]) -> Any:
    """Deserialise bytes. Pickle is never passed to the serde."""
    if is_pickle(data[0]):
        raise ValueUnreadable("a value was stored with pickle, which can run any code; it is not read")
    return serde.loads_typed(data)


def is_pickle(kind: str) -> bool:
    """Return whether this is LangGraph's name for pickle, encrypted or not."""
    return kind.partition("+")[0] == "pickle"


def _new_parts(piece: Piece, before: Stored) -> Iterable[bytes]:
    """Return the bytes of a piece, without the leading items that `before` has as well."""
    if not isinstance(piece, list):
        return () if piece == before else (join(piece),)
    same = 0
    for mine, other in zip(piece, before if isinstance(before, list) else (), strict=False):
        if mine != other:
            break
        same += 1
    return [join(item) for item in piece[same:]]


def frame_of(serde: SerializerProtocol, checkpoint: Checkpoint) -> bytes:
    """Encode the frame of a checkpoint."""
    more = {key: value for key, value in checkpoint.items() if key not in _OWN}
    updated = checkpoint.get("updated_channels")
    frame = Frame(
        v=checkpoint["v"],
        ts=checkpoint["ts"],
        versions=checkpoint["channel_versions"],
        seen=checkpoint["versions_seen"],
        updated=False if "updated_channels" not in checkpoint else None if updated is None else list(updated),
        more=to_typed(store_value(serde, more)) if more else None,
    )
    plain = ormsgpack.packb(tuple(frame))
    if len(plain) > _FRAME_MAX:
        raise LimitExceeded(f"a checkpoint without its values has {len(plain)} bytes; at most {_FRAME_MAX} are allowed")
    deflate = zlib.compressobj(6, zlib.DEFLATED, -11, 3, zdict=_EXPECTED)  # a small window is faster to set up
    return deflate.compress(plain) + deflate.flush()


def read_frame(body: bytes, place: str) -> Frame:
    """Decode a stored frame."""
    inflate = zlib.decompressobj(-15, zdict=_EXPECTED)
    try:
        return Frame(*ormsgpack.unpackb(inflate.decompress(body, 2 * _FRAME_MAX)))
    except (zlib.error, ValueError, TypeError) as error:
        raise DamagedData(place, f"its frame cannot be read ({error})") from error


def check_record(record: object, place: str) -> Record:
    """Return the record, if it is one and this version can read it."""
    version = record.get("langgraph") if isinstance(record, dict) else None
    if not isinstance(record, dict) or type(version) is not int:
        raise DamagedData(place, "it is not a LangGraph checkpoint")
    if version > VERSION:
        raise UnsupportedFormat(place, f"its LangGraph record has version {version}")
    return record


def checkpoint_of(serde: SerializerProtocol, checkpoint_id: str, frame: Frame, values: Record) -> Checkpoint:
    """Build the checkpoint of a frame and its values."""
    checkpoint: Record = {
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
    store: Callable[[Value], Stored], writes: Iterable[tuple[str, Value]], task_id: str, task_path: str
) -> dict[str, tuple[bool, Record]]:
    """Return the attachments for a task's writes, by key, each with whether it replaces another."""
    found: dict[str, tuple[bool, Record]] = {}
    together: Record = {"w": [task_path]}
    for position, (channel, value) in enumerate(writes):
        idx = WRITES_IDX_MAP.get(channel, position)
        if idx < 0:
            entry = {"w": [task_path, [idx, channel]], str(idx): store(value)}
            found[check_id("task_id", f"{_SPECIAL}{-idx}:{task_id}")] = (True, entry)
        else:
            together["w"].append([idx, channel])
            together[str(idx)] = store(value)
    if len(together) > 1:
        found[check_id("task_id", f"{_TOGETHER}{len(together) - 1}:{task_id}")] = (False, together)
    return found


def sorted_writes(attached: Mapping[str, object]) -> list[Write]:
    """Return the writes in the order in which LangGraph applies them. Attachments are given in order of arrival."""
    found: dict[tuple[str, int], Write] = {}
    for key, value in attached.items():
        named = _WRITES.fullmatch(key)
        if named is not None and isinstance(value, dict) and "w" in value:
            task_id, (task_path, *numbered) = named[1], value["w"]
            for idx, channel in numbered:
                found.setdefault((task_id, idx), Write(task_path, task_id, idx, channel, value[str(idx)]))
    return sorted(found.values(), key=lambda write: writes_sort_key(write.task_path, write.task_id, write.idx))


def delta_channels(metadata: Mapping[str, object], values: Mapping[str, object]) -> list[str]:
    """Return the channels of a checkpoint whose values follow from its ancestors."""
    counted = metadata.get(DELTA)
    return [channel for channel in counted if channel not in values] if isinstance(counted, Mapping) else []


def split_metadata(serde: SerializerProtocol, metadata: Mapping[str, object]) -> tuple[bytes, dict[str, Stored]]:
    """Split metadata into the searchable part and the rest, which is stored in the record."""
    searched: list[tuple[str, bytes]] = []
    more: dict[str, Stored] = {}
    left = METADATA_BYTES_MAX
    for key, given in metadata.items():
        value = given if type(given) is dict and not given else to_json_value(given)
        try:
            if type(value) in (str, int, bool):
                packed = _pack_atom(key, value)
            else:
                packed = _pack_empty(key) if type(value) is dict and not value else _pack(key, value)
        except (Unstorable, LimitExceeded):
            packed = b""
        left -= 4 * len(key) + len(packed)
        if packed and len(packed) <= _SEARCHED_MAX and left >= 0:
            searched.append((key, packed))
        else:
            more[key] = store_value(serde, value)
    return write_metadata(searched), more


def encode_filter(wanted: Mapping[str, object]) -> tuple[tuple[str, bytes], ...]:
    """Convert a metadata filter to keys and encoded values."""
    found = []
    for key, value in wanted.items():
        packed = _pack(key, to_json_value(value))
        if len(packed) > _SEARCHED_MAX:
            raise LimitExceeded(
                f"the filter for {key!r} has {len(packed)} bytes; metadata values above {_SEARCHED_MAX} bytes are "
                "stored but not searched"
            )
        found.append((key, packed))
    return tuple(found)


def to_json_value(value: object) -> object:
    """Convert a metadata value as JSON would, tuples to lists. Other values are returned unchanged."""
    if type(value) in _JSON_ATOMS:
        return value
    if type(value) is dict:  # the counters of delta channels, in the metadata of each of their checkpoints
        counters = {key: list(pair) for key, pair in value.items() if type(key) is str and type(pair) is tuple}
        if len(counters) == len(value) and all(type(n) is int for pair in counters.values() for n in pair):
            return counters
    try:
        return json.loads(json.dumps(value))
    except (TypeError, ValueError, RecursionError):
        return value


def _pack(key: str, value: object) -> bytes:
    """Encode a metadata value for the search."""
    ((_, packed),) = metadata_pairs({key: value})
    return packed


_pack_atom = lru_cache(1024, typed=True)(_pack)


@lru_cache(64)
def _pack_empty(key: str) -> bytes:
    return _pack(key, {})


def metadata_of(serde: SerializerProtocol, data: bytes, more: Mapping[str, Stored], place: str) -> CheckpointMetadata:
    """Return metadata as LangGraph's savers do; tuples that earlier versions stored become lists as well."""
    found = {key: to_json_value(value) for key, value in metadata_dict(data, place).items()}
    for key, value in more.items():
        found[key] = load_value(serde, value)
    return cast(CheckpointMetadata, found)
