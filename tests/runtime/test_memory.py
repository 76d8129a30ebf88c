"""What a run uses in memory is freed once its execution has ended, however it ended."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from holdfast import App, AsyncRun, Run
from holdfast.errors import StepFailed


class Marker:
    """Something large that a workflow's functions hold, together with their run."""

    def __init__(self, run: Run | AsyncRun) -> None:
        self.run = run

    def __call__(self, value: int = 0) -> int:
        return value


def _step(run: Run, call: Marker) -> None:
    run.step(lambda: call(1), name="step")


def _step_that_fails(run: Run, call: Marker) -> None:
    def fail() -> int:
        raise ValueError(str(call(1)))

    with pytest.raises(StepFailed):
        run.step(fail)


def _effect_in_doubt(run: Run, call: Marker) -> None:
    def pay() -> int:
        raise TimeoutError(str(call(1)))

    run.effect(pay)


def _ask(run: Run, call: Marker) -> None:
    run.ask("How many?", int, show={"number": call(1)})


def _map(run: Run, call: Marker) -> None:
    run.map(call, [1, 2])


def _child(run: Run, call: Marker) -> None:
    run.child("child", call(1))


SYNC = (_step, _step_that_fails, _effect_in_doubt, _ask, _map, _child)


async def _step_that_fails_async(run: AsyncRun, call: Marker) -> None:
    async def fail() -> int:
        raise ValueError(str(call(1)))

    with pytest.raises(StepFailed):
        await run.step(fail)


async def _effect_in_doubt_async(run: AsyncRun, call: Marker) -> None:
    async def pay() -> int:
        raise TimeoutError(str(call(1)))

    await run.effect(pay)


async def _gather_async(run: AsyncRun, call: Marker) -> None:
    async def branch(inner: AsyncRun) -> int:
        return await inner.step(lambda: call(1), name="step")

    await run.gather(branch, branch)


async def _child_async(run: AsyncRun, call: Marker) -> None:
    await run.child("child", call(1))


ASYNC = (_step_that_fails_async, _effect_in_doubt_async, _gather_async, _child_async)


def _child_flow(run: Run, number: int) -> None:
    run.ask("Go on?", int)


@pytest.mark.parametrize("part", SYNC, ids=lambda part: part.__name__.strip("_"))
def test_a_waiting_run_keeps_nothing(part: Callable[[Run, Marker], None]) -> None:
    alive: list[weakref.ref[Marker]] = []

    def flow(run: Run) -> None:
        call = Marker(run)
        alive.append(weakref.ref(call))
        part(run, call)
        run.ask("Done?")

    _start_and_collect(flow)
    assert [found() for found in alive] == [None] * len(alive)


@pytest.mark.parametrize("part", ASYNC, ids=lambda part: part.__name__.strip("_"))
def test_a_waiting_async_run_keeps_nothing(part: Callable[[AsyncRun, Marker], Any]) -> None:
    alive: list[weakref.ref[Marker]] = []

    async def flow(run: AsyncRun) -> None:
        call = Marker(run)
        alive.append(weakref.ref(call))
        await part(run, call)
        await run.ask("Done?")

    _start_and_collect(flow)
    assert [found() for found in alive] == [None] * len(alive)


def _start_and_collect(flow: Callable[..., Any]) -> None:
    with App("memory:") as app:
        app.workflow(name="child")(_child_flow)
        handle = app.start(app.workflow(name="flow")(flow))
        assert handle.status() == "waiting"
    del app, handle
    gc.collect()
