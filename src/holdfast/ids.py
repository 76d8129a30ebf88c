"""Ids: which ones are accepted, and where new ones come from.

An id is any text of 1 to 512 bytes without control characters. It is data everywhere: never a path, never SQL.
"""

from __future__ import annotations

import os
import time
from typing import Final, Protocol

from holdfast.errors import InvalidId
from holdfast.limits import ID_BYTES_MAX

_ALPHABET: Final = "0123456789abcdefghjkmnpqrstvwxyz"
_PAIRS: Final = [a + b for a in _ALPHABET for b in _ALPHABET]


class Ids(Protocol):
    """Where new ids come from; tests put in a source of their own."""

    def name(self) -> str:
        """A new readable id; ids made later sort later, to within a few microseconds."""
        ...

    def token(self, size: int) -> bytes:
        """Random bytes that nobody else has."""
        ...


class RandomIds:
    """Ids from the clock and the system's random source: 20 characters, 50 bits of time and 50 of chance."""

    def name(self) -> str:
        bits = ((time.time_ns() >> 13) & (1 << 50) - 1) << 50 | int.from_bytes(os.urandom(7), "big") >> 6
        return "".join([_PAIRS[bits >> shift & 1023] for shift in (90, 80, 70, 60, 50, 40, 30, 20, 10, 0)])

    def token(self, size: int) -> bytes:
        return os.urandom(size)


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
