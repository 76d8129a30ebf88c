"""Bounded caches: values that were used recently, and messages that do not change."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any, Final, Generic, NamedTuple, TypeVar

from langchain_core.messages import BaseMessage

from holdfast.adapters.langgraph.serde import EXT_CUT_MIN, Piece
from holdfast.limits import MIB

BYTES_MAX: Final = 32 * MIB
"""The size of a cache, measured in stored bytes; in memory they take several times as much."""
ENTRY: Final = 1024
"""Added to the size of each value, for its Python objects."""

Key = TypeVar("Key")
Value = TypeVar("Value")


class Recent(Generic[Key, Value]):
    """A mapping that forgets what was not used for long, once it has become too large."""

    def __init__(self, size_max: int) -> None:
        self._half = size_max // 2
        self._lock = threading.Lock()
        self.newest: dict[Key, Value] = {}
        self.older: dict[Key, Value] = {}
        self._size = 0

    def get(self, key: Key, size: int) -> Value | None:
        """Return the value. `size` is what it adds to the newest ones, if it was not among them."""
        found = self.newest.get(key)
        if found is None:
            found = self.older.get(key)
            if found is not None:
                self.add(key, found, size)
        return found

    def add(self, key: Key, value: Value, size: int) -> None:
        with self._lock:
            if key not in self.newest:
                self._size += size
            self.newest[key] = value
            if self._size > self._half:
                self.older, self.newest, self._size = self.newest, {}, 0


class Seen(NamedTuple):
    """A message, its id when it was seen, and its stored form."""

    message: Any
    message_id: object
    item: Piece


class ImmutableMessages:
    """The stored forms of message objects that the user promises not to change.

    The objects are kept alive, so that no other object has the address of one. Their ids may change: LangGraph gives
    one to messages without an id after it has stored them.
    """

    def __init__(self) -> None:
        self._seen: Recent[int, Seen] = Recent(BYTES_MAX)

    def get(self, message: Any) -> Piece | None:
        """Return the stored form of this object."""
        found = self._seen.newest.get(id(message))
        if found is None:
            found = self._seen.older.get(id(message))
            if found is None or found.message is not message:
                return None
            self.add(message, found.message_id, found.item)
        return found.item if found.message is message and found.message_id == found.message.id else None

    def add(self, message: object, message_id: object, item: Piece) -> None:
        """Note the stored form of a message; other objects are not noted."""
        if isinstance(message, BaseMessage):
            self._seen.add(id(message), Seen(message, message_id, item), size_of(item) + ENTRY)

    def add_all(self, messages: Iterable[Any], items: Iterable[Piece]) -> None:
        """Note messages that were loaded."""
        for message, item in zip(messages, items, strict=True):
            self.add(message, getattr(message, "id", None), item)


def size_of(item: Piece) -> int:
    """The size of the stored form of a message; one that is cut is larger."""
    return len(item) if type(item) is bytes else EXT_CUT_MIN
