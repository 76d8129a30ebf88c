"""Caches of recently read or written checkpoints and messages.

Unchanged channels are not serialised again, and their messages are not rebuilt. The cache relies on LangGraph's own
contract: a channel whose version has not changed since the parent checkpoint has the parent's value. The root, a hash
over all bytes, shows whether a checkpoint is still the same.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from copy import deepcopy
from typing import Final, NamedTuple, TypeGuard

from langchain_core.messages import BaseMessage
from langgraph.checkpoint.serde.base import SerializerProtocol

from holdfast.adapters.langgraph.record_codec import Record, Stored, load_value
from holdfast.fork_safety import reset_after_fork
from holdfast.limits import MIB

BYTES_MAX: Final = 32 * MIB
"""The size of the cache, measured in stored bytes; in memory they take several times as much."""


class CachedCheckpoint(NamedTuple):
    """A checkpoint that was read or written."""

    checkpoint_id: str
    root: bytes
    versions: Mapping[str, object]
    record: Record
    size: int
    templates: Mapping[str, MessageTemplates]
    """By channel. They may be of another checkpoint, because their items are compared before use."""

    def has(self, channel: str, version: object) -> bool:
        """Return whether the channel has a value of this version."""
        return channel in self.record["values"] and self.versions.get(channel) == version

    def value(self, channel: str) -> Stored:
        """Return the stored value of a channel; None if there is none."""
        found: Stored = self.record["values"].get(channel)
        return found


class CheckpointCache:
    """The last checkpoint of each of the most recently used lanes."""

    def __init__(self) -> None:
        self.after_fork()
        reset_after_fork(self)

    def after_fork(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[str, str], CachedCheckpoint] = OrderedDict()
        self._size = 0

    def note(self, thread_id: str, lane: str, kept: CachedCheckpoint) -> None:
        """Cache this checkpoint."""
        with self._lock:
            self._drop((thread_id, lane))
            self._kept[thread_id, lane] = kept
            self._size += kept.size
            while self._size > BYTES_MAX:
                self._drop(next(iter(self._kept)))

    def get(self, thread_id: str, lane: str) -> CachedCheckpoint | None:
        """Return the cached checkpoint of a lane."""
        return self._kept.get((thread_id, lane))

    def forget(self, thread_id: str) -> None:
        """Drop the checkpoints of a deleted thread."""
        with self._lock:
            for key in [key for key in self._kept if key[0] == thread_id]:
                self._drop(key)

    def _drop(self, key: tuple[str, str]) -> None:
        kept = self._kept.pop(key, None)
        self._size -= kept.size if kept else 0


_FEW: Final = 8
"""Messages of shorter lists are not cached."""
_FLAT: Final = frozenset({str, int, float, bool, type(None)})


class MessageTemplates(NamedTuple):
    """The stored items of a list, and the message built from each item.

    A message is None if it was not built yet, and False if the item is not a plain message.
    """

    items: list[Stored]
    messages: list[BaseMessage | bool | None]


def load_messages(
    serde: SerializerProtocol, value: Stored, before: MessageTemplates | None
) -> tuple[object, MessageTemplates | None]:
    """Load a stored value, and return it with the templates of its messages."""
    if type(value) is not list or len(value) < _FEW:
        return load_value(serde, value), None
    same = _count_equal(value, before.items) if before else 0
    if before is None or not same:
        return load_value(serde, value), MessageTemplates(value, [None] * len(value))
    messages = before.messages[:same]
    found = [_load_known_item(serde, messages, at, item) for at, item in enumerate(value[:same])]
    found += [load_value(serde, item) for item in value[same:]]
    return found, MessageTemplates(value, messages + [None] * (len(value) - same))


def _load_known_item(
    serde: SerializerProtocol, messages: list[BaseMessage | bool | None], at: int, item: Stored
) -> object:
    """Load an item that has a template."""
    message = messages[at]
    if message is None:
        built = load_value(serde, item)
        message = messages[at] = built if _is_plain(built) else False
    return copy_message(message) if isinstance(message, BaseMessage) else load_value(serde, item)


def _count_equal(items: list[Stored], others: list[Stored]) -> int:
    """Return the length of the common beginning of two lists."""
    if items[: len(others)] == others:
        return len(others)
    pairs = enumerate(zip(items, others, strict=False))
    return next((at for at, (mine, other) in pairs if mine != other), min(len(items), len(others)))


def _is_plain(value: object) -> TypeGuard[BaseMessage]:
    """Return whether this is a message of LangChain's own, with plain data. Every serde rebuilds these equally."""
    return (
        isinstance(value, BaseMessage)
        and type(value).__module__.startswith("langchain_core.messages.")
        and _is_data(value.__dict__)
        and _is_data(value.__pydantic_extra__)
    )


def _is_data(value: object) -> bool:
    if type(value) is dict:
        return all(map(_is_data, value.values()))
    return all(map(_is_data, value)) if type(value) is list else type(value) in _FLAT


def copy_message(message: BaseMessage) -> BaseMessage:
    """Copy a message, so that the copy shares no mutable part with it."""
    copy = message.__copy__()
    fields = copy.__dict__
    for name, value in fields.items():
        kind = type(value)
        if kind not in _FLAT:
            fields[name] = kind() if kind in (dict, list) and not value else deepcopy(value)
    if copy.__pydantic_extra__:
        object.__setattr__(copy, "__pydantic_extra__", deepcopy(copy.__pydantic_extra__))
    return copy
