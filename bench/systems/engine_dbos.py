"""DBOS as an engine: workflows and their steps, `recv` as the gate."""

from __future__ import annotations

import asyncio
from pathlib import Path
from queue import SimpleQueue
from time import perf_counter
from typing import Any, ClassVar, Final

from dbos import DBOS, SetWorkflowID

from bench import data
from bench.systems.databases import new_database
from bench.systems.engine_runs import Runs, trivial, trivial_async
from bench.systems.with_dbos import Running, launch

_RUN_S: Final = 600
_paused: SimpleQueue[str] = SimpleQueue()
_replayed: SimpleQueue[float] = SimpleQueue()
_step = DBOS.step(name="trivial")(trivial)
_step_async = DBOS.step(name="trivial_async")(trivial_async)


@DBOS.workflow()  # type: ignore[untyped-decorator, unused-ignore]
def gated(name: str) -> str:
    """Waits for an answer."""
    _paused.put(name)
    return f"{name}: {DBOS.recv('answer', timeout_seconds=_RUN_S)}"


@DBOS.workflow()  # type: ignore[untyped-decorator, unused-ignore]
async def steps_async(count: int) -> int:
    """Takes so many steps."""
    for number in range(count):
        await _step_async(number)
    return count


@DBOS.workflow()  # type: ignore[untyped-decorator, unused-ignore]
def replayed(count: int) -> None:
    """Takes so many steps, and tells how long they took."""
    start = perf_counter()
    for number in range(count):
        _step(number)
    _replayed.put(perf_counter() - start)


class Steps:
    """`steps`: one workflow takes steps as they are asked for."""

    offers: ClassVar[tuple[str, ...]] = ()

    def __init__(self, directory: Path, total: int, *, url: str | None = None) -> None:
        self._running = Running(directory, [data.RUN], url)

    def slice(self, kind: str, first: int, count: int) -> list[float]:
        return self._running.submit(data.RUN, list(range(first, first + count)))()

    def close(self) -> None:
        self._running.close()


class PostgresSteps(Steps):
    """The same on PostgreSQL."""

    def __init__(self, directory: Path, total: int) -> None:
        super().__init__(directory, total, url=new_database())


class Pauses:
    """`pauses`: start until `recv` is called, then `send` until the end.

    Its runs stay alive in the process, and it looks for messages now and then, so all of a slice wait and go on side
    by side and share the time.
    """

    offers: ClassVar[tuple[str, ...]] = ("pause", "resume")

    def __init__(self, directory: Path, total: int) -> None:
        launch(directory)
        self._waiting: dict[str, Any] = {}

    def slice(self, kind: str, first: int, count: int) -> list[float]:
        start = perf_counter()
        if kind == "pause":
            self._waiting = {f"run-{number:06d}": None for number in range(first, first + count)}
            for name in self._waiting:
                with SetWorkflowID(name):
                    self._waiting[name] = DBOS.start_workflow(gated, name)
            for _ in self._waiting:
                _paused.get(timeout=120)
        else:
            for name in self._waiting:
                DBOS.send(name, True, "answer")
            for name, handle in self._waiting.items():
                assert handle.get_result() == f"{name}: True"
        return [(perf_counter() - start) / count] * count

    def close(self) -> None:
        DBOS.destroy()


class PostgresRuns(Runs):
    """`pg_runs`: async workflows in one event loop."""

    def __init__(self, directory: Path, total: int) -> None:
        self._loop = asyncio.new_event_loop()
        launch(directory, new_database())

    def together(self, names: list[str], each: int) -> float:
        return self._loop.run_until_complete(self._together(names, each))

    async def _together(self, names: list[str], each: int) -> float:
        start = perf_counter()
        found = await asyncio.gather(*[self._run(name, each) for name in names])
        seconds = perf_counter() - start
        assert found == [each] * len(names)
        return seconds

    async def _run(self, name: str, each: int) -> int:
        with SetWorkflowID(name):
            handle = await DBOS.start_workflow_async(steps_async, each)
        result: int = await handle.get_result()
        return result

    def close(self) -> None:
        DBOS.destroy()


class Replay:
    """`replay`: the workflow is forked behind its last step, so that all steps are found done.

    Only the workflow's own time counts, not that of copying its steps nor the wait until it is taken up.
    """

    offers: ClassVar[tuple[str, ...]] = ("replay",)

    def __init__(self, directory: Path, total: int) -> None:
        launch(directory)
        self._total = total
        with SetWorkflowID(data.RUN):
            DBOS.start_workflow(replayed, total).get_result()
        self._built = _replayed.get()

    def slice(self, kind: str, first: int, count: int) -> list[float]:
        return [self._replay() for _ in range(count)]

    def _replay(self) -> float:
        DBOS.fork_workflow(data.RUN, self._total + 1)
        seconds = _replayed.get(timeout=240)
        assert seconds < self._built, "nothing was replayed"
        return seconds

    def close(self) -> None:
        DBOS.destroy()
