"""The floors, Holdfast and the JSON file in a crowd."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import ormsgpack

from bench.systems import floors, with_holdfast, with_json
from bench.systems.crowds import CROWD, Drain, State, Tasks, Threads, directory_of


class _Rows:
    """Rows of the floor's table, with ids that never repeat."""

    def __init__(self, directory: Path) -> None:
        self.connection = floors.opened(directory)
        self._saves = [0] * CROWD

    def row(self, member: int, state: State) -> tuple[str, str, bytes]:
        self._saves[member] += 1
        return f"run-{member:02d}", f"checkpoint-{self._saves[member]:012d}", ormsgpack.packb(state)

    def insert(self, rows: list[Any]) -> None:
        self.connection.execute("BEGIN IMMEDIATE")
        self.connection.executemany(floors.INSERT, rows)
        self.connection.execute("COMMIT")


class FloorThreads(Threads):
    """Group commit for threads, each woken by a lock of its own."""

    def __init__(self, directory: Path, total: int, **options: Any) -> None:
        self._rows = _Rows(directory)
        self._drain = Drain(self._rows.insert, self._wake)

    def save(self, member: int, state: State) -> None:
        woken = threading.Lock()
        woken.acquire()
        self._drain.queue.put((self._rows.row(member, state), woken))
        woken.acquire()

    def _wake(self, waiting: list[Any]) -> None:
        for lock in waiting:
            lock.release()

    def close(self) -> None:
        self._drain.close()
        self._rows.connection.close()


class FloorTasks(Tasks):
    """Group commit for tasks, all of a batch woken by one call into the loop."""

    def __init__(self, directory: Path, total: int, **options: Any) -> None:
        super().__init__()
        self._rows = _Rows(directory)
        self._drain = Drain(self._rows.insert, self._wake)

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
        self._rows.connection.close()


class HoldfastThreads(Threads):
    """One store for all threads."""

    def __init__(self, directory: Path, total: int, *, url: str | None = None) -> None:
        self._store = with_holdfast.opened(directory, url)

    def save(self, member: int, state: State) -> None:
        self._store.save(f"run-{member:02d}", state)

    def close(self) -> None:
        self._store.close()


class HoldfastTasks(Tasks):
    """One store for all tasks."""

    def __init__(self, directory: Path, total: int, *, url: str | None = None) -> None:
        super().__init__()
        self._store = with_holdfast.opened(directory, url)

    def save(self, member: int, state: State) -> Awaitable[Any]:
        return self._store.aio.save(f"run-{member:02d}", state)

    def close(self) -> None:
        self._store.close()


class JsonThreads(Threads):
    """One file, in a directory of its own, for each thread."""

    def __init__(self, directory: Path, total: int, **options: Any) -> None:
        self._files = [with_json.JsonFile(directory_of(directory, member)) for member in range(CROWD)]

    def save(self, member: int, state: State) -> None:
        self._files[member].write(state)

    def close(self) -> None:
        for file in self._files:
            file.close()
