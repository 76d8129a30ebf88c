"""Thawing: stored values as objects again, without making the same messages anew at every read.

Every call of a graph begins with reading its thread, and of a long conversation nearly all messages are those of the
call before. So the messages made last are kept as patterns, each beside the bytes it was made of, and a reader who
meets the same bytes gets a copy of the pattern: a fifth of the work. Nobody ever gets a pattern itself, so what a node
does to a message it was given stays its own.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any, Final, NamedTuple

from langchain_core.messages import BaseMessage
from langgraph.checkpoint.serde.base import SerializerProtocol

from holdfast.adapters.langgraph.record import Stored, loaded

_FEW: Final = 8
"""Shorter lists are read as they are."""
_FLAT: Final = frozenset({str, int, float, bool, type(None)})


class Patterns(NamedTuple):
    """A list's items as stored, and for each the message made of it.

    None if none was made yet: the first reader gets the message itself. False if it is no message.
    """

    items: list[Any]
    messages: list[BaseMessage | bool | None]


def thawed(serde: SerializerProtocol, value: Stored, before: Patterns | None) -> tuple[Any, Patterns | None]:
    """The value that was stored, and the patterns of its messages."""
    if type(value) is not list or len(value) < _FEW:
        return loaded(serde, value), None
    same = _same(value, before.items) if before else 0
    if before is None or not same:
        return loaded(serde, value), Patterns(value, [None] * len(value))
    messages = before.messages[:same]
    found = [_met(serde, messages, at, item) for at, item in enumerate(value[:same])]
    found += [loaded(serde, item) for item in value[same:]]
    return found, Patterns(value, messages + [None] * (len(value) - same))


def _met(serde: SerializerProtocol, messages: list[BaseMessage | bool | None], at: int, item: Stored) -> Any:
    """An item that was met before."""
    message = messages[at]
    if message is None:
        made = loaded(serde, item)
        message = messages[at] = made if _is_plain(made) else False
    return copied(message) if isinstance(message, BaseMessage) else loaded(serde, item)


def _same(items: list[Any], others: list[Any]) -> int:
    """How many items at the beginning are the same."""
    if items[: len(others)] == others:
        return len(others)
    pairs = enumerate(zip(items, others, strict=False))
    return next((at for at, (mine, other) in pairs if mine != other), min(len(items), len(others)))


def _is_plain(value: object) -> bool:
    """Whether it is one of LangChain's own messages and holds only data, so that every serde makes the same of it."""
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


def copied(message: BaseMessage) -> BaseMessage:
    """A message that shares nothing with this one that could be changed."""
    copy = message.__copy__()
    fields = copy.__dict__
    for name, value in fields.items():
        kind = type(value)
        if kind not in _FLAT:
            fields[name] = kind() if kind in (dict, list) and not value else deepcopy(value)
    if copy.__pydantic_extra__:
        object.__setattr__(copy, "__pydantic_extra__", deepcopy(copy.__pydantic_extra__))
    return copy
