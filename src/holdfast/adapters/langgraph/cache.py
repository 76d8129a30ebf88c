"""Caches by lane: recently read or written checkpoints, and histories of delta channels.

Unchanged channels are not serialised again. The cache relies on LangGraph's own contract: a channel whose version has
not changed since the parent checkpoint has the parent's value. The root, a hash over all bytes, shows whether a
checkpoint is still the same.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import Generic, NamedTuple, Protocol, TypeVar

from holdfast.adapters.langgraph.messages import Image
from holdfast.adapters.langgraph.recent_values import BYTES_MAX, ENTRY
from holdfast.adapters.langgraph.record_codec import Record, Stored
from holdfast.fork_safety import reset_after_fork


class CachedCheckpoint(NamedTuple):
    """A checkpoint that was read or written."""

    checkpoint_id: str
    root: bytes
    versions: Mapping[str, object]
    record: Record
    size: int
    images: Mapping[str, Image]
    """By channel. They may be of another checkpoint, because their contents are compared before use."""

    def has(self, channel: str, version: object) -> bool:
        """Return whether the channel has a value of this version."""
        return channel in self.record["values"] and self.versions.get(channel) == version

    def value(self, channel: str) -> Stored:
        """Return the stored value of a channel; None if there is none."""
        found: Stored = self.record["values"].get(channel)
        return found


class _Sized(Protocol):
    @property
    def size(self) -> int: ...


Kept = TypeVar("Kept", bound=_Sized)


class LaneCache(Generic[Kept]):
    """One value for each of the most recently used lanes."""

    def __init__(self) -> None:
        self.after_fork()
        reset_after_fork(self)

    def after_fork(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[str, str], Kept] = OrderedDict()
        self._size = 0

    def note(self, thread_id: str, lane: str, kept: Kept) -> None:
        """Cache this value in place of the lane's last one."""
        with self._lock:
            self._drop((thread_id, lane))
            self._kept[thread_id, lane] = kept
            self._size += kept.size + ENTRY
            while self._size > BYTES_MAX:
                self._drop(next(iter(self._kept)))

    def get(self, thread_id: str, lane: str) -> Kept | None:
        """Return the cached value of a lane."""
        return self._kept.get((thread_id, lane))

    def forget(self, thread_id: str) -> None:
        """Drop the values of a deleted thread."""
        with self._lock:
            for key in [key for key in self._kept if key[0] == thread_id]:
                self._drop(key)

    def _drop(self, key: tuple[str, str]) -> None:
        kept = self._kept.pop(key, None)
        self._size -= kept.size + ENTRY if kept else 0


class CheckpointCache(LaneCache[CachedCheckpoint]):
    """The last checkpoint of each of the most recently used lanes."""
