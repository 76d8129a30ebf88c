"""What the checkpoints read or written last were made of, so that unchanged channels are not serialised again.

Only a hint within LangGraph's own contract: a channel whose version did not change since the parent checkpoint has the
parent's value.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from holdfast.adapters.langgraph.record import Stored
from holdfast.forking import watch

_KEPT_MAX: Final = 64
"""How many threads' newest checkpoints are kept in mind."""


class Parent(NamedTuple):
    """A checkpoint: its id, its channels' versions, and their values as stored."""

    checkpoint_id: str
    versions: Mapping[str, Any]
    values: Mapping[str, Stored]

    def unchanged(self, channel: str, version: Any) -> Stored | None:
        """The channel's value, if it is of this version here."""
        value = self.values.get(channel)
        return value if value is not None and self.versions.get(channel) == version else None


class Recent:
    """The last checkpoint of each of the last threads."""

    def __init__(self) -> None:
        self.after_fork()
        watch(self)

    def after_fork(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[str, str], Parent] = OrderedDict()

    def note(self, thread_id: str, lane: str, parent: Parent) -> None:
        """Keep this in mind."""
        with self._lock:
            self._kept[thread_id, lane] = parent
            self._kept.move_to_end((thread_id, lane))
            while len(self._kept) > _KEPT_MAX:
                self._kept.popitem(last=False)

    def get(self, thread_id: str, lane: str, checkpoint_id: str | None) -> Parent | None:
        """That checkpoint, if it is in mind."""
        found = self._kept.get((thread_id, lane))
        return found if found is not None and found.checkpoint_id == checkpoint_id else None

    def forget(self, thread_id: str) -> None:
        """The thread was deleted."""
        with self._lock:
            for key in [key for key in self._kept if key[0] == thread_id]:
                del self._kept[key]
