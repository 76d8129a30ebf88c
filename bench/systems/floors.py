"""Floors: the least that any program must do for the same durability, in WAL mode with synchronous=FULL.

They keep no run, no parent, no seal and no history of anything, so they are limits and not competitors.
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Final

import apsw
import ormsgpack
from blake3 import blake3

from bench import data
from bench.systems.subject import timed

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

_TABLE: Final = "CREATE TABLE saved (thread TEXT, id TEXT, body BLOB, PRIMARY KEY (thread, id))"
INSERT: Final = "INSERT INTO saved VALUES (?, ?, ?)"


def opened(directory: Path, table: str = _TABLE) -> apsw.Connection:
    """A durable connection through apsw, to a new database with one table."""
    connection = apsw.Connection(str(directory / "floor.db"))
    connection.pragma("journal_mode", "wal")
    connection.pragma("synchronous", "FULL")
    assert connection.pragma("synchronous") == 2
    connection.execute(table)
    return connection


def packed(number: int) -> tuple[str, str, bytes]:
    """The row of a state."""
    return data.RUN, f"checkpoint-{number:012d}", ormsgpack.packb(data.state(number))


class RawInsert:
    """`save`: one INSERT and its COMMIT, through apsw."""

    offers: ClassVar[tuple[str, ...]] = ()

    def __init__(self, directory: Path, total: int, **options: Any) -> None:
        self._connection = opened(directory)

    def slice(self, kind: str, first: int, count: int) -> list[float]:
        execute = self._connection.cursor().execute
        return timed(lambda row: execute(INSERT, row), [packed(n) for n in range(first, first + count)])

    def close(self) -> None:
        self._connection.close()


class RawInsertStdlib:
    """The same through the sqlite3 module of the standard library."""

    offers: ClassVar[tuple[str, ...]] = ()

    def __init__(self, directory: Path, total: int, **options: Any) -> None:
        self._connection = sqlite3.connect(directory / "floor.db", isolation_level=None)
        self._connection.execute("PRAGMA journal_mode = wal")
        self._connection.execute("PRAGMA synchronous = FULL")
        self._connection.execute(_TABLE)

    def slice(self, kind: str, first: int, count: int) -> list[float]:
        execute = self._connection.cursor().execute
        return timed(lambda row: execute(INSERT, row), [packed(n) for n in range(first, first + count)])

    def close(self) -> None:
        self._connection.close()


class Append:
    """`turns`, `edit` and `blob`: only the message that is new is inserted and committed.

    An edit is a new version of one message. The blob is inserted once, before anything is measured.
    """

    offers: ClassVar[tuple[str, ...]] = ()

    def __init__(self, directory: Path, total: int, *, blob: bool = False, **script: Any) -> None:
        self._connection = opened(directory)
        self._script = data.Script(total, **script)
        with self._connection:
            for number, message in enumerate(self._script.beginning()):
                self._connection.execute(INSERT, (data.RUN, f"{number:012d}", ormsgpack.packb(message)))
            if blob:
                self._connection.execute(INSERT, (data.RUN, "blob", data.blob()))

    def slice(self, kind: str, first: int, count: int) -> list[float]:
        messages = [message for _, message in self._script.changes(first, count)]
        numbers = range(self._script.start + first, self._script.start + first + count)
        rows = [(data.RUN, f"{n:012d}", ormsgpack.packb(m)) for n, m in zip(numbers, messages, strict=True)]
        execute = self._connection.cursor().execute
        return timed(lambda row: execute(INSERT, row), rows)

    def close(self) -> None:
        self._connection.close()


class AppendLong:
    """`tracked`: only the new message is inserted and committed, beside as many others as each conversation has."""

    offers: ClassVar[tuple[str, ...]] = ("short", "middle", "long")

    def __init__(self, directory: Path, total: int, *, lengths: Sequence[int]) -> None:
        self._connection = opened(directory)
        with self._connection:
            for kind, length in zip(self.offers, lengths, strict=True):
                rows = ((kind, f"old {n:012d}", ormsgpack.packb(one)) for n, one in enumerate(data.messages(length)))
                self._connection.executemany(INSERT, rows)

    def slice(self, kind: str, first: int, count: int) -> list[float]:
        rows = [(kind, f"{n:012d}", ormsgpack.packb(data.message(n))) for n in range(first, first + count)]
        execute = self._connection.cursor().execute
        return timed(lambda row: execute(INSERT, row), rows)

    def close(self) -> None:
        self._connection.close()


class OneBlob:
    """`load`: the whole state as one compressed blob; read, decompress, verify and decode it.

    History is a SELECT of the head rows, which hold no state.
    """

    offers: ClassVar[tuple[str, ...]] = ("latest", "halfway", "history")

    def __init__(self, directory: Path, total: int, **options: Any) -> None:
        self._connection = opened(directory)
        self._connection.execute(
            "CREATE TABLE heads (thread TEXT, id TEXT, parent TEXT, step INTEGER, status TEXT, created_us INTEGER, "
            "metadata BLOB, PRIMARY KEY (thread, id))"
        )
        self._digests: dict[str, bytes] = {}
        messages = [data.message(number) for number in range(total)]
        with self._connection:
            for kind, length in (("latest", total), ("halfway", total // 2)):
                plain = ormsgpack.packb({"messages": messages[:length]})
                self._digests[kind] = blake3(plain).digest()
                self._connection.execute(INSERT, (data.RUN, kind, zstd.compress(plain, 3)))
            for n in range(total):
                row = (data.RUN, f"{n:012d}", f"{n - 1:012d}", n, "ready", 1_700_000_000_000_000 + n, b"\x80")
                self._connection.execute("INSERT INTO heads VALUES (?, ?, ?, ?, ?, ?, ?)", row)
        self._lengths = {"latest": total, "halfway": total // 2, "history": total}

    def slice(self, kind: str, first: int, count: int) -> list[float]:
        do = self._history if kind == "history" else self._load
        assert len(do(kind)) == self._lengths[kind]
        return timed(do, [kind] * count)

    def _load(self, kind: str) -> list[Any]:
        found = self._connection.execute("SELECT body FROM saved WHERE thread = ? AND id = ?", (data.RUN, kind))
        plain = zstd.decompress(found.get)
        assert blake3(plain).digest() == self._digests[kind]
        messages: list[Any] = ormsgpack.unpackb(plain)["messages"]
        return messages

    def _history(self, kind: str) -> list[Any]:
        sql = "SELECT id, parent, step, status, created_us, metadata FROM heads WHERE thread = ? ORDER BY id"
        return self._connection.execute(sql, (data.RUN,)).fetchall()

    def close(self) -> None:
        self._connection.close()
