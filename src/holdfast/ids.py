"""Validation and generation of ids, and short names of calls and gates.

An id is any text of 1 to 512 bytes without control characters. It is never used as a path or inserted into SQL.

The full name of a call contains its place: `loop#1[2]/approve#1`. People see `approve`, and may type that where it is
unambiguous.
"""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Sequence
from typing import Final, Protocol, TypeVar

from holdfast.errors import InvalidId
from holdfast.fork_safety import reset_after_fork
from holdfast.limits import ID_BYTES_MAX, NUMBER_MAX

_FETCHED: Final = 256


class Ids(Protocol):
    """The source of new ids, which tests replace."""

    def token(self, size: int) -> bytes:
        """Random bytes, unique in practice."""
        ...


class RandomIds:
    """Tokens from the system's random source.

    They are fetched in advance. Each is used once, also with several threads, and a forked process fetches its own.
    """

    def __init__(self) -> None:
        self.after_fork()
        reset_after_fork(self)

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
    """The id that a store gives to a checkpoint: its number, and enough of the commit's id to be unique."""
    return f"{number}.{commit_id[:5].hex()}"


def own_checkpoint_number(checkpoint_id: str) -> int | None:
    """The number in an id of this form, else None."""
    digits, dot, rest = checkpoint_id.partition(".")
    is_own = dot and len(rest) == 10 and digits.isascii() and digits.isdigit() and digits[0] != "0"
    return int(digits) if is_own and int(digits) <= NUMBER_MAX else None


def check_id(what: str, value: object) -> str:
    """Return `value` if it is a valid id, else raise InvalidId; `what` names it in the message."""
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
        raise InvalidId(f"{what} {value!r} has a lone surrogate, which cannot be stored; use valid Unicode") from None
    if size > ID_BYTES_MAX:
        raise InvalidId(f"{what} has {size} bytes, at most {ID_BYTES_MAX} are allowed: {value[:40]!r}…")
    for char in value:
        if ord(char) < 0x20 or 0x7F <= ord(char) < 0xA0:
            raise InvalidId(f"{what} {value!r} has the control character {char!r}; remove it")
    return value


_VIA: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}")


class KeyedItem(Protocol):
    """An inbox item."""

    @property
    def kind(self) -> str: ...
    @property
    def key(self) -> str: ...


def check_via(value: object) -> str:
    """Return `value` if it can name where an action came from: a short word such as `web`, or the empty text."""
    if type(value) is str and (not value or _VIA.fullmatch(value)):
        return value
    raise InvalidId(f"via must be a word of a-z, 0-9, _ and -, as 'web', or empty, not {value!r}")


def item_key(kind: str, via: str, token: bytes) -> str:
    """The key of a new inbox item, with where it came from: `answer/web/…`, or `answer/…` for code."""
    return f"{kind}/{via}/{token.hex()}" if via else f"{kind}/{token.hex()}"


def via_of(item: KeyedItem) -> str:
    """Where an inbox item came from, according to its key; empty for code, and for keys that callers gave."""
    parts = item.key.split("/")
    return parts[1] if len(parts) == 3 and parts[0] == item.kind and _VIA.fullmatch(parts[1]) else ""


_EPOCH: Final = re.compile(r"(?:\?\d+)?(?:@\d+)?\Z")
_NUMBER: Final = re.compile(r"[#%]\d+\Z")
_DIGEST: Final = re.compile(r":(?:[0-9a-f]{16}|\?)(?=#\d+\Z)")


class Gate(Protocol):
    """A gate that can be found by its name."""

    @property
    def gate(self) -> str: ...
    @property
    def state(self) -> str: ...


G = TypeVar("G", bound=Gate)


def local_name(full: str) -> str:
    """A call's or gate's name in its own scope: `approve#1`."""
    return _EPOCH.sub("", full.rpartition("/")[2])


def short_name(full: str) -> str:
    """A call's or gate's name without its number: `approve`."""
    return _NUMBER.sub("", local_name(full))


def full_name(scope: str, call: str) -> str:
    """The name of a call for users: its scope and its identity in it."""
    return f"{scope}/{call}" if scope else call


def display_name(full: str) -> str:
    """How a call, a gate or an effect's key is shown: `approve`, and the second one of a scope `approve#2`."""
    return _DIGEST.sub("", local_name(full)).removesuffix("#1")


def is_named(full: str, name: str) -> bool:
    """Whether `name` may mean this call or gate."""
    return name in (full, local_name(full), short_name(full))


def find_gates(gates: Sequence[G], name: str) -> list[G]:
    """The gates that `name` may mean: the one with that full name, else the open ones, else the newest."""
    exact = [gate for gate in gates if gate.gate == name]
    named = exact or [gate for gate in gates if is_named(gate.gate, name)]
    return [gate for gate in named if gate.state == "open"] or named[-1:]


def gate_labels(gates: Sequence[str]) -> dict[str, str]:
    """The shortest unambiguous name of each of these gates, by its full name."""
    short, local = [short_name(gate) for gate in gates], [local_name(gate) for gate in gates]
    return {
        gate: display_name(gate)
        if short.count(short_name(gate)) == 1
        else local_name(gate)
        if local.count(local_name(gate)) == 1
        else gate
        for gate in gates
    }
