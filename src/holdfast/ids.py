"""Ids: which ones are accepted, and where new ones come from.

An id is any text of 1 to 512 bytes without control characters. It is data everywhere: never a path, never SQL.
"""

from __future__ import annotations

import os
from collections import deque
from typing import Final, Protocol

from holdfast.errors import InvalidId
from holdfast.forking import watch
from holdfast.limits import ID_BYTES_MAX, NUMBER_MAX

_FETCHED: Final = 256


class Ids(Protocol):
    """Where new ids come from; tests put in a source of their own."""

    def token(self, size: int) -> bytes:
        """Random bytes that nobody else has."""
        ...


class RandomIds:
    """Tokens from the system's random source.

    They are fetched in advance, handed out once even to threads that ask at the same moment, and a forked process
    fetches its own.
    """

    def __init__(self) -> None:
        self.after_fork()
        watch(self)

    def after_fork(self) -> None:
        self._tokens: dict[int, deque[bytes]] = {}

    def token(self, size: int) -> bytes:
        try:
            return self._tokens[size].pop()
        except (KeyError, IndexError):
            fresh = os.urandom(size * _FETCHED)
            self._tokens.setdefault(size, deque()).extend(
                [fresh[at : at + size] for at in range(size, len(fresh), size)]
            )
            return fresh[:size]


def own_checkpoint_id(number: int, commit_id: bytes) -> str:
    """The id a store gives to a checkpoint: its number, and enough of the commit's id to be nobody else's."""
    return f"{number}.{commit_id[:5].hex()}"


def own_checkpoint_number(checkpoint_id: str) -> int | None:
    """The number in an id of this form, else None."""
    digits, dot, rest = checkpoint_id.partition(".")
    is_own = dot and len(rest) == 10 and digits.isascii() and digits.isdigit() and digits[0] != "0"
    return int(digits) if is_own and int(digits) <= NUMBER_MAX else None


def check_id(what: str, value: object) -> str:
    """Return `value` if it is an acceptable id, else raise InvalidId naming `what` it was meant for."""
    if type(value) is not str:
        raise InvalidId(f"{what} must be text, not {type(value).__name__}")
    if value.isprintable() and 0 < len(value) <= ID_BYTES_MAX // 4:
        return value
    return _check_rare_id(what, value)


def check_lane(value: object) -> str:
    """A lane is an id or the empty text, which names the default lane."""
    return "" if type(value) is str and not value else check_id("lane", value)


def _check_rare_id(what: str, value: str) -> str:
    if not value:
        raise InvalidId(f"{what} must not be empty")
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise InvalidId(f"{what} {value!r} has a lone surrogate, which no store can keep") from None
    if size > ID_BYTES_MAX:
        raise InvalidId(f"{what} has {size} bytes, at most {ID_BYTES_MAX} are allowed: {value[:40]!r}…")
    for char in value:
        if ord(char) < 0x20 or 0x7F <= ord(char) < 0xA0:
            raise InvalidId(f"{what} {value!r} has the control character {char!r}")
    return value
