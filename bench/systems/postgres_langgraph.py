"""LangGraph's PostgreSQL savers: the blocking one on one connection, the async one on a pool of 16."""

from __future__ import annotations

from collections.abc import Awaitable
from pathlib import Path
from typing import Any, ClassVar

import psycopg
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool

from bench import data
from bench.systems.crowd_langgraph import Runs
from bench.systems.crowds import State, Tasks
from bench.systems.databases import bytes_of, new_database
from bench.systems.langgraph_turns import Conversation, human
from bench.systems.subject import timed
from bench.systems.with_langgraph import checkpoint, config, metadata

_POOL = 16


def connected(url: str) -> tuple[Any, Any]:
    """A connection and its saver, as its documentation opens them."""
    connection = psycopg.connect(url, autocommit=True, prepare_threshold=0, row_factory=dict_row)
    saver: Any = PostgresSaver(connection)  # type: ignore[arg-type, unused-ignore]
    return connection, saver


def opened(url: str) -> tuple[Any, Any]:
    """The same, with the tables made."""
    connection, saver = connected(url)
    saver.setup()
    return connection, saver


class Save:
    """`save`: make a checkpoint and put it."""

    offers: ClassVar[tuple[str, ...]] = ()

    def __init__(self, directory: Path, total: int, **options: Any) -> None:
        self._connection, self._saver = opened(new_database())
        self._version: Any = None
        self._last: Any = config()

    def slice(self, kind: str, first: int, count: int) -> list[float]:
        return timed(self._put, [(n, data.state(n)) for n in range(first, first + count)])

    def _put(self, numbered: tuple[int, dict[str, Any]]) -> None:
        number, state = numbered
        self._version = self._saver.get_next_version(self._version, None)
        made = checkpoint(number, state, self._version)
        self._last = self._saver.put(self._last, made, metadata(number), made["channel_versions"])

    def close(self) -> None:
        self._connection.close()


class Turns:
    """`turns`, through the graph, with DeltaChannel."""

    offers: ClassVar[tuple[str, ...]] = ()

    def __init__(self, directory: Path, total: int, *, delta: bool = True) -> None:
        self._url = new_database()
        self._connection, saver = opened(self._url)
        self._conversation = Conversation(directory, total, delta=delta, saver=saver)
        self._turns = self._conversation.turns({"messages": []})
        self._total = total

    def slice(self, kind: str, first: int, count: int) -> list[float]:
        messages = [human(data.message(n)) for n in range(first, first + count)]
        self._conversation.coming = messages[::-1]
        seconds = timed(lambda _: next(self._turns), range(count))
        if first + count == self._total:  # the last checkpoint is put when the stream ends
            seconds[-1] += timed(lambda _: list(self._turns), [0])[0]
        return seconds

    def size(self) -> int:
        return bytes_of(self._url)

    def close(self) -> None:
        self._connection.close()


class SaverTasks(Tasks):
    """One async saver for all tasks."""

    def __init__(self, directory: Path, total: int, **options: Any) -> None:
        super().__init__()
        self._runs = Runs()
        self.loop.run_until_complete(self._open(new_database()))

    async def _open(self, url: str) -> None:
        settings = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
        self._pool: Any = AsyncConnectionPool(url, min_size=_POOL, max_size=_POOL, kwargs=settings, open=False)
        await self._pool.open(wait=True)
        self._saver: Any = AsyncPostgresSaver(self._pool)
        await self._saver.setup()

    def save(self, member: int, state: State) -> Awaitable[Any]:
        put: Awaitable[Any] = self._saver.aput(*self._runs.next(member, state))
        return put

    def close(self) -> None:
        self.loop.run_until_complete(self._pool.close())
