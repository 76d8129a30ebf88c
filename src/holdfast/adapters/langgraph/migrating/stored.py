"""What of a source's row goes into the store: record, attachments and metadata, as record.py describes them."""

from __future__ import annotations

import datetime as dt
import json
from collections import defaultdict
from collections.abc import Iterable
from typing import Any, Final, NamedTuple
from uuid import UUID

from holdfast.adapters.langgraph.cutting import cut
from holdfast.adapters.langgraph.migrating.source import Parts, SourceWrite, Typed, Unreadable
from holdfast.adapters.langgraph.record import USUAL, Stored, delta_channels
from holdfast.ids import check_id

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


def needs_ancestors(metadata: dict[str, Any], parts: Parts) -> list[str]:
    """The delta channels whose values lie, in part, with this checkpoint's ancestors."""
    return sorted(channel for channel in delta_channels(metadata, parts.values) if channel in parts.versions)


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
