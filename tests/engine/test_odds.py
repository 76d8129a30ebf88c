"""Odd functions, odd errors, and several things at once."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import threading
import time
from typing import Any

import pytest

from holdfast import AlreadyAnswered, AsyncRun, NotFound, RunClaimed, RunFailed, StepFailed
from holdfast.errors import RunEnded
from holdfast.limits import BRANCHES_MAX
from tests.harness import Stage


class Doubler:
    def __call__(self, number: int) -> int:
        return number * 2

    def method(self, number: int) -> int:
        return number * 3

    async def later(self, number: int) -> int:
        return number * 4


def test_whatever_can_be_called_can_be_a_step(stage: Stage) -> None:
    @stage.flow
    async def flow(run: AsyncRun) -> list[Any]:
        doubler = Doubler()
        found = [
            await run.step(doubler, 1), await run.step(doubler.method, 1), await run.step(doubler.later, 1),
            await run.step(functools.partial(doubler.method, 2)), await run.step(lambda: 5), await run.step(lambda: 6),
            await run.step(int, "7"), await run.step(dict, a=8), await run.step("x".join, ["a", "b"]),
        ]  # fmt: skip
        await run.ask("more?", bool)
        return found

    stage.start(flow)
    stage.restart()
    assert stage.app.answer(stage.run_id, True).result(240) == [2, 3, 4, 6, 5, 6, 7, {"a": 8}, "axb"]
    calls = [entry["call"] for entry in stage.journal("step")]
    assert calls == ["call#1", "method#1", "later#1", "method#2", "lambda#1", "lambda#2", "int#1", "dict#1", "join#1"]


@pytest.mark.parametrize("error", [StopIteration("x"), StopAsyncIteration("x"), TimeoutError("x")])
@pytest.mark.timeout(20)
def test_errors_that_mean_something_to_python_are_errors_like_others(local: Stage, error: Exception) -> None:
    def raises() -> None:
        raise error

    @local.flow
    async def flow(run: AsyncRun) -> list[str]:
        found = []
        for options in ({}, {"in_doubt": "fail"}):
            try:
                await (run.effect(raises, **options) if options else run.step(raises))
            except StepFailed as failed:
                found.append(failed.error_message)
        return found

    for message in local.start(flow).result(240):
        assert "x" in message or "StopIteration" in message


@pytest.mark.timeout(20)
def test_an_async_step_that_raises_stop_iteration_does_not_hang(local: Stage) -> None:
    async def raises() -> None:
        raise StopIteration("x")

    @local.flow
    async def flow(run: AsyncRun) -> None:
        await run.step(raises)

    with pytest.raises(RunFailed, match="StopIteration"):
        local.start(flow).result(240)


@pytest.mark.parametrize("timeout", [None, 5])
@pytest.mark.parametrize("awaited", [False, True])
@pytest.mark.timeout(20)
def test_a_step_that_calls_exit_is_a_step_that_failed(local: Stage, awaited: bool, timeout: float | None) -> None:
    def leaves() -> None:
        raise SystemExit(3)

    async def leaves_later() -> None:
        raise SystemExit(3)

    @local.flow
    async def flow(run: AsyncRun) -> list[str]:
        try:
            await run.step(leaves_later if awaited else leaves, timeout=timeout)
        except StepFailed as failed:
            return [failed.error_type, await run.step(str, "and the next one runs")]
        return []

    assert local.start(flow).result(240) == ["SystemExit", "and the next one runs"]


def test_more_branches_than_allowed_are_refused(local: Stage) -> None:
    @local.flow
    async def flow(run: AsyncRun) -> None:
        await run.map(len, ["x"] * (BRANCHES_MAX + 1))

    with pytest.raises(RunFailed, match=r"use run\.loop or child runs"):
        local.start(flow).result(240)
    assert [entry["kind"] for entry in local.journal()] == ["started", "failed"]


def test_branches_sleep_each_for_its_own_time(stage: Stage) -> None:
    def note(text: str) -> str:
        stage.calls.append(text)
        return text

    @stage.flow
    async def flow(run: AsyncRun) -> Any:
        async def short(inner: AsyncRun) -> str:
            await inner.sleep(100)
            return await inner.step(note, "short")

        async def long(inner: AsyncRun) -> str:
            await inner.sleep(200)
            return await inner.step(note, "long")

        async def asks(inner: AsyncRun) -> bool:
            return bool(await inner.ask("ok?", bool, expires=300))

        return await run.gather(long, short, asks)

    stage.start(flow)
    for passed, seen in ((50, []), (51, ["short"]), (50, ["short"]), (51, ["short", "long"])):
        stage.clock.advance(passed)
        stage.restart()
        assert stage.app.resume(stage.run_id).status() == "waiting"
        assert stage.calls == seen
    stage.clock.advance(100)
    assert stage.app.resume(stage.run_id).result(240) == ["long", "short", False]


def test_a_run_is_taken_up_when_the_lease_of_its_dead_owner_ends(stage: Stage) -> None:
    """Even where nothing tells that the owner is dead, and no worker looks after the store."""
    stage.restart()
    stage.open(lease_s=0.3)

    def work() -> str:
        stage.calls.append("work")
        if len(stage.calls) == 1:
            stage.die()
        return "done"

    @stage.flow
    async def flow(run: AsyncRun) -> str:
        return await run.step(work)

    stage.start_and_die(flow)
    stage.open()
    assert stage.app.handle(stage.run_id).result(240) == "done"


def test_two_apps_that_move_the_same_run_do_nothing_twice(stage: Stage) -> None:
    lock = threading.Lock()

    def note(number: int) -> int:
        with lock:
            stage.calls.append(number)
        return number

    @stage.flow
    async def flow(run: AsyncRun) -> list[int]:
        found = []
        for number in range(5):
            await run.ask(f"{number}?", bool)
            found.append(await run.effect(note, number))
        return found

    first = stage.app
    second = stage.open()
    stage.start(flow, enqueue=True)

    def push(app: Any) -> None:
        end = time.monotonic() + 20
        while time.monotonic() < end and app.handle(stage.run_id).status() != "completed":
            for verb in (app.resume, lambda run_id: app.answer(run_id, True)):
                with contextlib.suppress(RunClaimed, RunEnded, AlreadyAnswered, NotFound):  # the other was faster
                    verb(stage.run_id)

    threads = [threading.Thread(target=push, args=(app,)) for app in (first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(240)
    assert stage.app.handle(stage.run_id).result(240) == [0, 1, 2, 3, 4]
    assert stage.calls == [0, 1, 2, 3, 4]
    assert len(stage.journal("answered")) == 5


def test_keyed_calls_side_by_side_in_one_scope_do_not_bring_each_other_into_doubt(awaiting: Stage) -> None:
    @awaiting.flow
    async def flow(run: AsyncRun) -> Any:
        async def pay() -> str:
            await asyncio.sleep(0.05)
            return "paid"

        return await asyncio.gather(run.effect(pay, key="pay"), run.ask("ok?", bool, key="ask"))

    awaiting.start(flow)
    time.sleep(0.1)
    assert awaiting.app.answer(awaiting.run_id, True, gate="ask").result(240) == ["paid", True]
