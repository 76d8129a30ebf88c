"""What of a source's row goes into the store: record, attachments and metadata, as record.py describes them."""

from __future__ import annotations

import datetime as dt
import json
from collections import defaultdict
from collections.abc import Iterable
from typing import Any, Final, NamedTuple
from uuid import UUID

from langgraph.checkpoint.serde.base import SerializerProtocol

from holdfast.adapters.langgraph.cutting import cut
from holdfast.adapters.langgraph.migrating.source import Parts, SourceWrite, Typed, Unreadable
from holdfast.adapters.langgraph.record import USUAL, Stored, metadata_body
from holdfast.errors import LimitExceeded
from holdfast.ids import check_id
from holdfast.state.values import pack_sorted
from holdfast.store.tags import write_metadata

PICKLE: Final = "pickle"
_COUNTERS: Final = "counters_since_delta_snapshot"
"""Metadata that LangGraph writes when a graph has delta channels: by channel, how long ago its value was stored."""
_UUID6: Final = 6
_UUID_EPOCH: Final = 0x01B21DD213814000
"""1970 in the clock of such ids, which ticks ten times in a microsecond."""


class Beside(NamedTuple):
    """A value to attach to a checkpoint."""

    value: dict[str, Any]
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
    value: dict[str, Any] = {"w": [writes[0].task_path, *([write.idx, write.channel] for write in writes)]}
    value.update({str(write.idx): kept(write.value) for write in writes})
    return Beside(value, len(writes))


def read_metadata(data: bytes | None) -> dict[str, Any]:
    """A checkpoint's metadata."""
    try:
        found = json.loads(data) if data is not None else {}
    except ValueError as error:
        raise Unreadable(f"its metadata is no JSON: {error}") from error
    if type(found) is not dict:
        raise Unreadable("its metadata is no JSON object")
    return found


def metadata_stored(serde: SerializerProtocol, metadata: dict[str, Any]) -> bytes:
    """Metadata as the store keeps it.

    Old versions of LangGraph repeated in it what every node wrote. So much could not be saved anew, but it can be
    read, and it is not lost here.
    """
    try:
        return metadata_body(serde, metadata)
    except LimitExceeded:
        return write_metadata([(key, pack_sorted(value)) for key, value in metadata.items()])


def needs_ancestors(metadata: dict[str, Any], parts: Parts) -> list[str]:
    """The delta channels whose values lie, in part, with this checkpoint's ancestors."""
    counters = metadata.get(_COUNTERS)
    if not isinstance(counters, dict):
        return []
    return sorted(channel for channel in counters if channel in parts.versions and channel not in parts.values)


def created_us(checkpoint_id: str, ts: str) -> int | None:
    """When the checkpoint was made: as its id says, which is what LangGraph sorts by, or else its date."""
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
