"""`concurrent`: 64 threads or 64 asyncio tasks, each saving a run of its own, each waiting for its own commit."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from queue import Empty, SimpleQueue
from time import perf_counter
from typing import Any, ClassVar, Final

from bench import data

CROWD: Final = 64

State = dict[str, Any]


def states_for(member: int, first: int, count: int) -> list[State]:
    """What one member of the crowd saves."""
    return [data.state(1000 * member + number) for number in range(first, first + count)]


class Crowd:
    """Common to threads and tasks: a slice is `count` saves by each member, and is measured from start to end."""

    offers: ClassVar[tuple[str, ...]] = ()
    saved = 0

    def slice(self, kind: str, first: int, count: int) -> list[float]:
        """All saves share the slice's time equally, because they overlap."""
        each = max(1, count // CROWD)
        work = [states_for(member, self.saved, each) for member in range(CROWD)]
        self.saved += each
        return self.shared(work)

    def shared(self, work: list[list[State]]) -> list[float]:
        """Do the work; an equal part of the time for each save."""
        saves = sum(map(len, work))
        return [self.together(work) / saves] * saves

    def together(self, work: list[list[State]]) -> float:
        raise NotImplementedError


class Threads(Crowd):
    """One thread for each member."""

    def save(self, member: int, state: State) -> None:
        raise NotImplementedError

    def together(self, work: list[list[State]]) -> float:
        barrier = threading.Barrier(CROWD + 1)
        failures: list[BaseException] = []

        def run(member: int) -> None:
            barrier.wait()
            try:
                for state in work[member]:
                    self.save(member, state)
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=run, args=(member,)) for member in range(CROWD)]
        for thread in threads:
            thread.start()
        barrier.wait()
        start = perf_counter()
        for thread in threads:
            thread.join()
        seconds = perf_counter() - start
        if failures:
            raise failures[0]
        return seconds


class Tasks(Crowd):
    """One task for each member, in an event loop that lives as long as the subject."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()

    def save(self, member: int, state: State) -> Awaitable[Any]:
        raise NotImplementedError

    def together(self, work: list[list[State]]) -> float:
        return self.loop.run_until_complete(self._together(work))

    async def _together(self, work: list[list[State]]) -> float:
        async def run(member: int) -> None:
            for state in work[member]:
                await self.save(member, state)

        start = perf_counter()
        await asyncio.gather(*(run(member) for member in range(CROWD)))
        return perf_counter() - start


class Drain:
    """The floor: a queue that one thread drains, putting all that waits into one transaction."""

    def __init__(self, insert: Callable[[list[Any]], None], finish: Callable[[list[Any]], None]) -> None:
        self._insert, self._finish = insert, finish
        self.queue: SimpleQueue[Any] = SimpleQueue()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while (first := self.queue.get()) is not None:
            batch = [first]
            try:
                while True:
                    batch.append(self.queue.get_nowait())
            except Empty:
                pass
            ends = batch[-1] is None
            batch = batch[:-1] if ends else batch
            self._insert([row for row, _ in batch])
            self._finish([waiting for _, waiting in batch])
            if ends:
                return

    def close(self) -> None:
        self.queue.put(None)
        self._thread.join()


def directory_of(directory: Path, member: int) -> Path:
    """A directory for one member."""
    own = directory / f"member-{member:02d}"
    own.mkdir()
    return own
