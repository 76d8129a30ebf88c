"""Holdfast's engine: workflows through the app's public surface."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from queue import SimpleQueue
from time import perf_counter
from typing import Any, ClassVar

import holdfast
from bench import data
from bench.systems.databases import new_database
from bench.systems.engine_runs import Runs, trivial, trivial_async
from bench.systems.subject import timed
from holdfast.model.rows import EntryRow


def opened(directory: Path, url: str | None = None) -> holdfast.App:
    """An app on a new file, or at `url`."""
    return holdfast.App(url or f"sqlite:{directory / 'runs.db'}")


class Steps:
    """`steps`: one run on a thread of its own takes steps as they are asked for."""

    offers: ClassVar[tuple[str, ...]] = ()

    def __init__(self, directory: Path, total: int, *, url: str | None = None) -> None:
        self._app = opened(directory, url)
        self._todo: SimpleQueue[range | None] = SimpleQueue()
        self._done: SimpleQueue[list[float]] = SimpleQueue()

        @self._app.workflow
        def steps(run: holdfast.Run) -> None:
            while (numbers := self._todo.get()) is not None:
                self._done.put(timed(lambda number: run.step(trivial, number), numbers))

        self._thread = threading.Thread(target=self._app.start, args=(steps,), kwargs={"run_id": data.RUN})
        self._thread.start()

    def slice(self, kind: str, first: int, count: int) -> list[float]:
        self._todo.put(range(first, first + count))
        return self._done.get(timeout=120)

    def close(self) -> None:
        self._todo.put(None)
        self._thread.join()
        assert self._app.handle(data.RUN).status() == "completed"
        self._app.close()


class PostgresSteps(Steps):
    """The same on PostgreSQL."""

    def __init__(self, directory: Path, total: int) -> None:
        super().__init__(directory, total, url=new_database())


class Pauses:
    """`pauses`: `start` until the run waits, then `answer` until it has completed."""

    offers: ClassVar[tuple[str, ...]] = ("pause", "resume")

    def __init__(self, directory: Path, total: int) -> None:
        self._app = opened(directory)
        self._waiting: list[str] = []

        @self._app.workflow
        def gated(run: holdfast.Run, order: str) -> str:
            answer = run.ask("Go on?", {"approve": bool})
            return f"{order}: {answer['approve']}"

        self._gated = gated

    def slice(self, kind: str, first: int, count: int) -> list[float]:
        if kind == "pause":
            self._waiting = [f"run-{number:06d}" for number in range(first, first + count)]
            return timed(lambda run_id: self._app.start(self._gated, run_id, run_id=run_id), self._waiting)
        seconds = timed(lambda run_id: self._app.answer(run_id, {"approve": True}, by="bench"), self._waiting)
        assert self._app.handle(self._waiting[-1]).result() == f"{self._waiting[-1]}: True"
        return seconds

    def close(self) -> None:
        self._app.close()


class PostgresRuns(Runs):
    """`pg_runs`: async workflows of one app, in one event loop."""

    def __init__(self, directory: Path, total: int) -> None:
        self._app = opened(directory, new_database())
        self._loop = asyncio.new_event_loop()

        @self._app.workflow
        async def steps(run: holdfast.AsyncRun, count: int) -> int:
            for number in range(count):
                await run.step(trivial_async, number)
            return count

        self._steps = steps

    def together(self, names: list[str], each: int) -> float:
        return self._loop.run_until_complete(self._together(names, each))

    async def _together(self, names: list[str], each: int) -> float:
        start = perf_counter()
        handles = await asyncio.gather(*[self._app.aio.start(self._steps, each, run_id=name) for name in names])
        seconds = perf_counter() - start
        assert [await handle.result() for handle in handles] == [each] * len(names)
        return seconds

    def close(self) -> None:
        self._app.close()


class _Resumed:
    """Runs that wait at a gate behind what they have done; they are taken up, come to the gate again and wait."""

    def __init__(self, directory: Path, total: int) -> None:
        self.app = opened(directory)
        self.names = self.prepare(total)
        for name in self.names.values():
            assert self.app.handle(name).status() == "waiting"

    def prepare(self, total: int) -> dict[str, str]:
        """Start the runs; which of them belongs to which kind."""
        raise NotImplementedError

    def slice(self, kind: str, first: int, count: int) -> list[float]:
        return timed(self._resume, [self.names[kind]] * count)

    def _resume(self, run_id: str) -> None:
        self.app.resume(run_id)

    def close(self) -> None:
        self.app.close()


class Replay(_Resumed):
    """`replay`: a journal of so many steps is read, and the workflow runs through it."""

    offers: ClassVar[tuple[str, ...]] = ("replay",)

    def prepare(self, total: int) -> dict[str, str]:
        @self.app.workflow
        def steps(run: holdfast.Run, count: int) -> None:
            for number in range(count):
                run.step(trivial, number)
            run.ask("Go on?", bool)

        self.app.start(steps, total, run_id=data.RUN)
        return {"replay": data.RUN}


class ReadJournal(Replay):
    """The floor of `replay`: the same journal, read through the store and decoded: its rows, or as users see it."""

    def __init__(self, directory: Path, total: int, *, public: bool = False) -> None:
        super().__init__(directory, total)
        self._read = self._journal if public else self._rows
        assert len(self._read()) > total

    def slice(self, kind: str, first: int, count: int) -> list[float]:
        return timed(lambda _: self._read(), range(count))

    def _journal(self) -> list[Any]:
        return list(self.app.store.journal(data.RUN))

    def _rows(self) -> list[Any]:
        from holdfast.operations.views import decode_body

        port = self.app.store.access.core.port
        run = port.run(data.RUN)
        assert run is not None
        return [decode_body(row.body, "an entry") for row in port.rows(EntryRow, run.run)]


class Loop(_Resumed):
    """`loop`: a durable loop at its turn `total // 100`, and another at its turn `total`."""

    offers: ClassVar[tuple[str, ...]] = ("early", "late")

    def prepare(self, total: int) -> dict[str, str]:
        @self.app.workflow
        def turns(run: holdfast.Run, count: int) -> None:
            for turn in run.loop():
                run.state["turn"] = turn
                run.state["note"] = f"turn {turn}"
                if turn == count:
                    run.ask("Go on?", bool)
                    break

        for kind, count in (("early", total // 100), ("late", total)):
            self.app.start(turns, count, run_id=kind)
        return {"early": "early", "late": "late"}
