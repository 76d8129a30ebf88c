"""LangGraph's savers in a crowd: the blocking one under threads, the async one under tasks."""

from __future__ import annotations

from collections.abc import Awaitable
from pathlib import Path
from typing import Any

from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from bench.systems.crowds import CROWD, State, Tasks, Threads
from bench.systems.with_langgraph import checkpoint, config, metadata, opened


class Runs:
    """The newest checkpoint of each member."""

    def __init__(self) -> None:
        self._configs: list[Any] = [config(f"run-{member:02d}") for member in range(CROWD)]
        self._saves = [0] * CROWD

    def next(self, member: int, state: State) -> tuple[Any, ...]:
        """What `put` takes for the member's next checkpoint."""
        self._saves[member] += 1
        number = self._saves[member]
        made = checkpoint(number, state, f"{number:032d}.0")
        previous = self._configs[member]
        self._configs[member] = config(f"run-{member:02d}", made["id"])
        return previous, made, metadata(number), made["channel_versions"]


class LangGraphThreads(Threads):
    """One saver for all threads; it has a lock."""

    def __init__(self, directory: Path, total: int, **options: Any) -> None:
        self._connection = opened(directory)
        self._saver: Any = SqliteSaver(self._connection)
        self._runs = Runs()

    def save(self, member: int, state: State) -> None:
        self._saver.put(*self._runs.next(member, state))

    def close(self) -> None:
        self._connection.close()


class LangGraphTasks(Tasks):
    """One async saver for all tasks."""

    def __init__(self, directory: Path, total: int, **options: Any) -> None:
        super().__init__()
        self._runs = Runs()
        self._context: Any = AsyncSqliteSaver.from_conn_string(str(directory / "langgraph.db"))
        self._saver: Any = self.loop.run_until_complete(self._context.__aenter__())
        self.loop.run_until_complete(self._saver.setup())

    def save(self, member: int, state: State) -> Awaitable[Any]:
        put: Awaitable[Any] = self._saver.aput(*self._runs.next(member, state))
        return put

    def close(self) -> None:
        self.loop.run_until_complete(self._context.__aexit__(None, None, None))
