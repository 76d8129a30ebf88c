"""LangGraph as an engine: graphs whose supersteps are the steps, with durability="sync"."""

from __future__ import annotations

import asyncio
from pathlib import Path
from time import perf_counter
from typing import Any, ClassVar, TypedDict

from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool

from bench import data
from bench.systems import postgres_langgraph
from bench.systems.databases import new_database
from bench.systems.engine_runs import Runs, trivial, trivial_async
from bench.systems.subject import timed
from bench.systems.with_langgraph import opened

_POOL = 16


class Counting(TypedDict, total=False):
    """How many steps were taken, and how many there will be."""

    number: int
    until: int
    answer: bool


def _config(thread: str, steps: int = 10) -> Any:
    return {"configurable": {"thread_id": thread}, "recursion_limit": steps + 10}


def _step(state: Counting) -> Counting:
    return {"number": trivial(state["number"]) + 1}


async def _step_async(state: Counting) -> Counting:
    return {"number": await trivial_async(state["number"]) + 1}


def _gate(state: Counting) -> Counting:
    return {"answer": interrupt("Go on?")}


def _steps_graph(saver: Any, *, gate: bool = False, asynchronous: bool = False) -> Any:
    """Takes one step per superstep, `until` times; then it ends, or asks."""
    graph = StateGraph(Counting)
    step: Any = _step_async if asynchronous else _step
    graph.add_node("step", step)
    graph.add_node("gate", _gate)
    graph.add_edge(START, "step")
    after = "gate" if gate else END
    graph.add_conditional_edges("step", lambda state: "step" if state["number"] < state["until"] else after)
    return graph.compile(checkpointer=saver)


class Steps:
    """`steps`: one `stream` takes all steps of a round."""

    offers: ClassVar[tuple[str, ...]] = ()

    def __init__(self, directory: Path, total: int) -> None:
        self._total = total
        self._connection, saver = self.saver(directory)
        beginning: Counting = {"number": 0, "until": total}
        config = _config(data.RUN, total)
        stream = _steps_graph(saver).stream(beginning, config, stream_mode="updates", durability="sync")
        self._steps = iter(stream)

    def saver(self, directory: Path) -> tuple[Any, Any]:
        """The connection and what saves to it."""
        connection = opened(directory)
        return connection, SqliteSaver(connection)

    def slice(self, kind: str, first: int, count: int) -> list[float]:
        seconds = timed(lambda _: next(self._steps), range(count))
        if first + count == self._total:  # the last checkpoint is put when the stream ends
            seconds[-1] += timed(lambda _: list(self._steps), [0])[0]
        return seconds

    def close(self) -> None:
        self._connection.close()


class PostgresSteps(Steps):
    """The same on PostgreSQL."""

    def saver(self, directory: Path) -> tuple[Any, Any]:
        return postgres_langgraph.opened(new_database())


class Pauses:
    """`pauses`: `invoke` until the interrupt, then `invoke` with the answer until the end."""

    offers: ClassVar[tuple[str, ...]] = ("pause", "resume")

    def __init__(self, directory: Path, total: int) -> None:
        self._connection = opened(directory)
        graph = StateGraph(Counting)
        graph.add_node("gate", _gate)
        graph.add_edge(START, "gate")
        graph.add_edge("gate", END)
        self._graph: Any = graph.compile(checkpointer=SqliteSaver(self._connection))
        self._waiting: list[Any] = []

    def slice(self, kind: str, first: int, count: int) -> list[float]:
        if kind == "pause":
            self._waiting = [_config(f"run-{number:06d}") for number in range(first, first + count)]
            return timed(lambda config: self._invoke({"number": 0}, config), self._waiting)
        seconds = timed(lambda config: self._invoke(Command(resume=True), config), self._waiting)
        assert self._graph.get_state(self._waiting[-1]).values["answer"] is True
        return seconds

    def _invoke(self, given: Any, config: Any) -> None:
        self._graph.invoke(given, config, durability="sync")

    def close(self) -> None:
        self._connection.close()


class PostgresRuns(Runs):
    """`pg_runs`: `ainvoke` of one graph, over the async saver with a pool of 16."""

    def __init__(self, directory: Path, total: int) -> None:
        self._loop = asyncio.new_event_loop()
        self._loop.run_until_complete(self._open(new_database()))

    async def _open(self, url: str) -> None:
        settings = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
        self._pool: Any = AsyncConnectionPool(url, min_size=_POOL, max_size=_POOL, kwargs=settings, open=False)
        await self._pool.open(wait=True)
        saver = AsyncPostgresSaver(self._pool)
        await saver.setup()
        self._graph = _steps_graph(saver, asynchronous=True)

    def together(self, names: list[str], each: int) -> float:
        return self._loop.run_until_complete(self._together(names, each))

    async def _together(self, names: list[str], each: int) -> float:
        beginning: Counting = {"number": 0, "until": each}
        start = perf_counter()
        runs = [self._graph.ainvoke(beginning, _config(name, each), durability="sync") for name in names]
        found = await asyncio.gather(*runs)
        seconds = perf_counter() - start
        assert [one["number"] for one in found] == [each] * len(names)
        return seconds

    def close(self) -> None:
        self._loop.run_until_complete(self._pool.close())


class Resumed:
    """`replay` and `loop`: a thread that is interrupted behind so many supersteps is invoked, and interrupts again.

    It replays nothing: it loads its newest checkpoint.
    """

    offers: ClassVar[tuple[str, ...]] = ("replay", "early", "late")

    def __init__(self, directory: Path, total: int, *, early: bool = False) -> None:
        self._connection = opened(directory)
        self._graph = _steps_graph(SqliteSaver(self._connection), gate=True)
        lengths = {"early": total // 100, "late": total} if early else {"replay": total}
        self._configs = {kind: _config(kind, length) for kind, length in lengths.items()}
        for kind, config in self._configs.items():
            self._graph.invoke({"number": 0, "until": lengths[kind]}, config, durability="sync")
            assert self._graph.get_state(config).next == ("gate",)

    def slice(self, kind: str, first: int, count: int) -> list[float]:
        return timed(self._resume, [self._configs[kind]] * count)

    def _resume(self, config: Any) -> None:
        found = self._graph.invoke(None, config, durability="sync")
        assert "__interrupt__" in found

    def close(self) -> None:
        self._connection.close()
