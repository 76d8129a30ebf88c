"""Checkpoints as records: what is stored of a LangGraph checkpoint, and back.

    record := {"langgraph": 1, "v", "ts", "versions", "seen", "updated",
               "values": {channel: value},
               "ns": the namespace, if the lane is named otherwise,
               "more": value of what else the checkpoint had}
    value  := {"t": the serde's name of the format, if it is not "msgpack", "d": its bytes in pieces (see cutting.py)}
    writes := {"p": task path, idx: value with "c": channel, …}

Writes are attached to their checkpoint. Those that LangGraph numbers from 0 on lie together as "w" count ":" task id,
one attachment for each call; if a task's writes are put again, of each number the first counts. Special ones (errors,
interrupts, …) lie alone, as "s" number ":" task id, and the last counts.

Metadata lies beside the record, where it can be searched. What of it no store can keep as it is (an object, say) goes
through the serde, under one key of ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple, cast

from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    Checkpoint,
    CheckpointMetadata,
    PendingWrite,
    writes_sort_key,
)
from langgraph.checkpoint.serde.base import SerializerProtocol

from holdfast.adapters.langgraph.cutting import Piece, cut, joined
from holdfast.adapters.langgraph.serde import StrictSerializer
from holdfast.errors import DamagedData, InvalidInput, Unstorable, UnsupportedFormat
from holdfast.ids import check_id
from holdfast.store.tags import write_metadata
from holdfast.verbs.values import metadata_dict, metadata_pairs

Stored = dict[str, Any]
"""A value as it is stored."""

VERSION: Final = 1
FOLD: Final = "delta"
"""The attachment that stands for ancestors which were removed; see delta.py."""
_TOGETHER: Final = "w"
_SPECIAL: Final = "s"
_USUAL: Final = "msgpack"
_SERIALISED: Final = "holdfast.serialised"
_OWN: Final = frozenset({"v", "id", "ts", "channel_values", "channel_versions", "versions_seen", "updated_channels"})


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


def stored(serde: SerializerProtocol, value: object, before: Stored | None = None) -> Stored:
    """A value as it is stored. `before` is what was stored in its place: the parts they share were checked then."""
    kind, body = serde.dumps_typed(value)
    if kind != _USUAL:
        return {"t": kind, "d": bytes(body)}
    piece = cut(body)
    if isinstance(serde, StrictSerializer):
        for part in _new_parts(piece, before["d"] if before else None):
            serde.check(part)
    return {"d": piece}


def loaded(serde: SerializerProtocol, value: Stored) -> Any:
    """The value that was stored."""
    return serde.loads_typed((value.get("t", _USUAL), joined(value["d"])))


def _new_parts(piece: Piece, before: Piece | None) -> Iterable[bytes]:
    """The bytes of a piece, but not items that stand at the same place in the one before."""
    if isinstance(piece, bytes) or "a" not in piece:
        return () if piece == before else (joined(piece),)
    old = before.get("a", ()) if isinstance(before, dict) else ()
    same = 0
    for mine, other in zip(piece["a"], old, strict=False):
        if mine is not other and mine != other:
            break
        same += 1
    return [joined(item) for item in piece["a"][same:]]


def record_of(
    serde: SerializerProtocol, checkpoint: Checkpoint, values: dict[str, Stored], namespace: str, lane: str
) -> dict[str, Any]:
    """What is stored of a checkpoint."""
    record: dict[str, Any] = {
        "langgraph": VERSION,
        "v": checkpoint["v"],
        "ts": checkpoint["ts"],
        "versions": dict(checkpoint["channel_versions"]),
        "seen": {node: dict(versions) for node, versions in checkpoint["versions_seen"].items()},
        "updated": None if (updated := checkpoint.get("updated_channels")) is None else list(updated),
        "values": values,
    }
    if lane != namespace:
        record["ns"] = namespace
    more = {key: value for key, value in checkpoint.items() if key not in _OWN}
    if more:
        record["more"] = stored(serde, more)
    return record


def checked_record(record: Any, place: str) -> dict[str, Any]:
    """The record, if it is one and this version can read it."""
    version = record.get("langgraph") if isinstance(record, dict) else None
    if type(version) is not int:
        raise DamagedData(place, "it is no checkpoint of LangGraph")
    if version > VERSION:
        raise UnsupportedFormat(place, f"its LangGraph record has version {version}")
    return cast(dict[str, Any], record)


def checkpoint_of(serde: SerializerProtocol, checkpoint_id: str, record: Mapping[str, Any]) -> Checkpoint:
    """The checkpoint that was stored as this record."""
    checkpoint: dict[str, Any] = {
        "v": record["v"],
        "ts": record["ts"],
        "id": checkpoint_id,
        "channel_values": {channel: loaded(serde, value) for channel, value in record["values"].items()},
        "channel_versions": record["versions"],
        "versions_seen": record["seen"],
        "updated_channels": record["updated"],
    }
    if "more" in record:
        checkpoint.update(loaded(serde, record["more"]))
    return cast(Checkpoint, checkpoint)


def writes_of(
    serde: SerializerProtocol, writes: Iterable[tuple[str, Any]], task_id: str, task_path: str
) -> dict[str, tuple[bool, dict[str, Any]]]:
    """The attachments for a task's writes, by name, each with whether it takes the place of an older one."""
    found: dict[str, tuple[bool, dict[str, Any]]] = {}
    together: dict[str, Any] = {"p": task_path}
    for position, (channel, value) in enumerate(writes):
        idx = WRITES_IDX_MAP.get(channel, position)
        entry = {"c": channel, **stored(serde, value)}
        if idx < 0:
            found[check_id("task_id", f"{_SPECIAL}{-idx}:{task_id}")] = (True, {"p": task_path, str(idx): entry})
        else:
            together[str(idx)] = entry
    if len(together) > 1:
        found[check_id("task_id", f"{_TOGETHER}{len(together) - 1}:{task_id}")] = (False, together)
    return found


def sorted_writes(attached: Mapping[str, Any]) -> list[Write]:
    """The writes among a checkpoint's attachments, which are in the order of their arrival, as LangGraph applies them."""
    found: dict[tuple[str, str], Write] = {}
    for key, value in attached.items():
        task_id = key.partition(":")[2]
        if key[0] not in (_TOGETHER, _SPECIAL) or not task_id:
            continue
        for idx, entry in value.items():
            if idx != "p":
                found.setdefault((task_id, idx), Write(value["p"], task_id, int(idx), entry["c"], entry))
    return sorted(found.values(), key=lambda write: writes_sort_key(write.task_path, write.task_id, write.idx))


def metadata_body(serde: SerializerProtocol, metadata: Mapping[str, Any]) -> bytes:
    """Metadata as the store keeps it."""
    plain: dict[str, Any] = {}
    others: dict[str, Stored] = {}
    for key, value in metadata.items():
        if not isinstance(key, str):
            raise InvalidInput(f"metadata keys must be text; {key!r} is {type(key).__name__}")
        try:
            metadata_pairs({key: value})
            plain[key] = value
        except Unstorable:
            others[key] = stored(serde, value)
    if others:
        plain[_SERIALISED] = others
    return write_metadata(metadata_pairs(plain))


def metadata_of(serde: SerializerProtocol, data: bytes, place: str) -> CheckpointMetadata:
    """Metadata as LangGraph gave it."""
    found = metadata_dict(data, place)
    for key, value in found.pop(_SERIALISED, {}).items():
        found[key] = loaded(serde, value)
    return cast(CheckpointMetadata, found)
