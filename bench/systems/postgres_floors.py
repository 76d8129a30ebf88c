"""Floors on PostgreSQL, with its own defaults (fsync and synchronous_commit on)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from pathlib import Path
from typing import Any, ClassVar

import ormsgpack
import psycopg

from bench import data
from bench.systems.crowds import CROWD, Drain, State, Tasks
from bench.systems.databases import bytes_of, new_database
from bench.systems.floors import packed
from bench.systems.subject import timed

TABLE = "CREATE TABLE saved (thread text, id text, body bytea, PRIMARY KEY (thread, id))"
INSERT = "INSERT INTO saved VALUES (%b, %b, %b)"
POOL = 16


class RawInsert:
    """`save`: one prepared INSERT, which commits by itself: one round trip."""

    offers: ClassVar[tuple[str, ...]] = ()

    def __init__(self, directory: Path, total: int, **options: Any) -> None:
        self._connection = psycopg.connect(new_database(), autocommit=True)
        self._connection.execute(TABLE)

    def slice(self, kind: str, first: int, count: int) -> list[float]:
        execute = self._connection.cursor().execute
        return timed(lambda row: execute(INSERT, row, prepare=True), [packed(n) for n in range(first, first + count)])

    def close(self) -> None:
        self._connection.close()


class Append:
    """`turns`: only the message that is new is inserted."""

    offers: ClassVar[tuple[str, ...]] = ()

    def __init__(self, directory: Path, total: int, **options: Any) -> None:
        self._url = new_database()
        self._connection = psycopg.connect(self._url, autocommit=True)
        self._connection.execute(TABLE)

    def slice(self, kind: str, first: int, count: int) -> list[float]:
        rows = [(data.RUN, f"{n:012d}", ormsgpack.packb(data.message(n))) for n in range(first, first + count)]
        execute = self._connection.cursor().execute
        return timed(lambda row: execute(INSERT, row, prepare=True), rows)

    def size(self) -> int:
        return bytes_of(self._url)

    def close(self) -> None:
        self._connection.close()


class _Rows:
    """Rows with ids that never repeat."""

    def __init__(self) -> None:
        self._saves = [0] * CROWD

    def row(self, member: int, state: State) -> tuple[str, str, bytes]:
        self._saves[member] += 1
        return f"run-{member:02d}", f"checkpoint-{self._saves[member]:012d}", ormsgpack.packb(state)


class PoolTasks(Tasks):
    """64 tasks share 16 connections; every insert commits by itself."""

    def __init__(self, directory: Path, total: int, **options: Any) -> None:
        super().__init__()
        url = new_database()
        self._rows = _Rows()
        self._free: asyncio.LifoQueue[psycopg.AsyncConnection[Any]] = asyncio.LifoQueue()
        self._all = self.loop.run_until_complete(self._opened(url))

    async def _opened(self, url: str) -> list[psycopg.AsyncConnection[Any]]:
        found = [await psycopg.AsyncConnection.connect(url, autocommit=True) for _ in range(POOL)]
        await found[0].execute(TABLE)
        for connection in found:
            self._free.put_nowait(connection)
        return found

    async def save(self, member: int, state: State) -> None:
        connection = await self._free.get()
        try:
            await connection.execute(INSERT, self._rows.row(member, state), prepare=True)
        finally:
            self._free.put_nowait(connection)

    def close(self) -> None:
        for connection in self._all:
            self.loop.run_until_complete(connection.close())


class GroupTasks(Tasks):
    """Group commit over one connection: a thread puts all that waits into one transaction."""

    def __init__(self, directory: Path, total: int, **options: Any) -> None:
        super().__init__()
        self._connection = psycopg.connect(new_database())
        self._connection.execute(TABLE)
        self._connection.commit()
        self._rows = _Rows()
        self._drain = Drain(self._insert, self._wake)

    def _insert(self, rows: list[Any]) -> None:
        with self._connection.pipeline():
            self._connection.cursor().executemany(INSERT, rows)
            self._connection.commit()

    def save(self, member: int, state: State) -> Awaitable[Any]:
        future = self.loop.create_future()
        self._drain.queue.put((self._rows.row(member, state), future))
        return future

    def _wake(self, waiting: list[asyncio.Future[None]]) -> None:
        def finish() -> None:
            for future in waiting:
                future.set_result(None)

        self.loop.call_soon_threadsafe(finish)

    def close(self) -> None:
        self._drain.close()
        self._connection.close()
