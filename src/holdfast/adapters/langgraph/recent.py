"""What the checkpoints read or written last were made of.

Their channels need not be serialised again as long as they do not change, and their messages not be made anew. Only a
hint, and within LangGraph's own contract: a channel whose version did not change since the parent checkpoint has the
parent's value. Whether a checkpoint still is what it was is told by its root, which vouches for all its bytes.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from holdfast.adapters.langgraph.record import Stored
from holdfast.adapters.langgraph.thawing import Patterns
from holdfast.forking import watch
from holdfast.limits import MIB

BYTES_MAX: Final = 32 * MIB
"""How much is kept in mind, measured as it is stored; in memory it is several times as much."""


class Kept(NamedTuple):
    """A checkpoint that was read or written."""

    checkpoint_id: str
    root: bytes
    versions: Mapping[str, Any]
    record: dict[str, Any]
    size: int
    patterns: Mapping[str, Patterns]
    """By channel; not necessarily of this checkpoint, for what they are worth is seen by comparing."""

    def has(self, channel: str, version: Any) -> bool:
        """Whether the channel has a value here, of this version."""
        return channel in self.record["values"] and self.versions.get(channel) == version

    def value(self, channel: str) -> Stored:
        """The channel's value as stored; nothing if there is none."""
        found: Stored = self.record["values"].get(channel)
        return found


class Recent:
    """The last checkpoint of each of the last threads."""

    def __init__(self) -> None:
        self.after_fork()
        watch(self)

    def after_fork(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[str, str], Kept] = OrderedDict()
        self._size = 0

    def note(self, thread_id: str, lane: str, kept: Kept) -> None:
        """Keep this in mind."""
        with self._lock:
            self._drop((thread_id, lane))
            self._kept[thread_id, lane] = kept
            self._size += kept.size
            while self._size > BYTES_MAX:
                self._drop(next(iter(self._kept)))

    def get(self, thread_id: str, lane: str) -> Kept | None:
        """The checkpoint of this lane that is in mind."""
        return self._kept.get((thread_id, lane))

    def forget(self, thread_id: str) -> None:
        """The thread was deleted."""
        with self._lock:
            for key in [key for key in self._kept if key[0] == thread_id]:
                self._drop(key)

    def _drop(self, key: tuple[str, str]) -> None:
        kept = self._kept.pop(key, None)
        self._size -= kept.size if kept else 0
