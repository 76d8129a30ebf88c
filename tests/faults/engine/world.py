"""The world outside a run: what its functions did, in a file that only grows, and a small bank of its own.

The functions of the workflows write here what they do, with a sync, before they return. So what really happened is
known by another road than the store's, whatever became of the process.
"""

from __future__ import annotations

import json
import os
import sqlite3
from pathlib import Path
from typing import Any, NamedTuple

import holdfast


class Line(NamedTuple):
    """Something that was done. `key` is the idempotency key it was done with."""

    kind: str
    name: str
    arg: Any
    key: str
    pid: int


def note(place: str, kind: str, name: str, arg: Any = None, key: str = "") -> None:
    """Write down what is done, so that it is surely known."""
    line = json.dumps([kind, name, arg, key, os.getpid()]).encode() + b"\n"
    file = os.open(place, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, line)
        os.fsync(file)
    finally:
        os.close(file)


def lines(place: str | Path) -> list[Line]:
    """All that was done."""
    path = Path(place)
    return [Line(*json.loads(line)) for line in path.read_text().splitlines()] if path.exists() else []


def done(place: str, kind: str, name: str, arg: Any) -> bool:
    """Whether that was done."""
    return any((line.kind, line.name, line.arg) == (kind, name, arg) for line in lines(place))


# --- steps -----------------------------------------------------------------------------------------------------------


def flaky(place: str) -> str:
    """Fails when it is called for the first time."""
    first = not done(place, "step", "flaky", None)
    note(place, "step", "flaky")
    if first:
        raise OSError("not yet")
    return "steady"


def double(pair: list[Any]) -> int:
    place, number = pair
    note(place, "step", "double", number)
    return int(number) * 2


async def double_async(pair: list[Any]) -> int:
    return double(pair)


# --- effects ---------------------------------------------------------------------------------------------------------


def pay(place: str, amount: int, idempotency_key: str = "") -> str:
    """Nobody can tell whether it happened but a person."""
    note(place, "effect", "pay", amount, idempotency_key)
    return f"paid {amount}"


def mail(place: str, text: str, idempotency_key: str = "") -> str:
    """May be done twice with the same key."""
    note(place, "effect", "mail", text, idempotency_key)
    return f"mailed {text}"


def book(place: str, seat: int, idempotency_key: str = "") -> str:
    """One can look whether it happened."""
    note(place, "effect", "book", seat, idempotency_key)
    return f"booked {seat}"


def booked(place: str, seat: int) -> Any:
    note(place, "check", "book", seat)
    return holdfast.Happened(f"booked {seat}") if done(place, "effect", "book", seat) else holdfast.DidNotHappen


def buy(place: str, thing: str, idempotency_key: str = "") -> str:
    """Can be undone."""
    note(place, "effect", "buy", thing, idempotency_key)
    return f"bought {thing}"


def give_back(result: str, place: str, thing: str, idempotency_key: str = "") -> None:
    """The undo of `buy`."""
    note(place, "undo", "buy", thing, idempotency_key)
    assert result == f"bought {thing}"


def take_back(result: str, place: str, amount: int) -> None:
    """The undo of `pay`."""
    note(place, "undo", "pay", amount)


# --- a database of the user's ----------------------------------------------------------------------------------------


def bank(place: str) -> sqlite3.Connection:
    """The user's own database."""
    return sqlite3.connect(f"{place}.bank", isolation_level=None, timeout=30, check_same_thread=False)


def deposit(connection: sqlite3.Connection, amount: int) -> int:
    """Add to what is there."""
    connection.execute("CREATE TABLE IF NOT EXISTS account (id INTEGER PRIMARY KEY, amount INTEGER)")
    connection.execute("INSERT INTO account (amount) VALUES (?)", (amount,))
    return amount


def deposits(place: str) -> list[int]:
    """What the account has got."""
    connection = bank(place)
    try:
        return [amount for (amount,) in connection.execute("SELECT amount FROM account ORDER BY id")]
    finally:
        connection.close()
