"""An effect under way is not broken off by the cancellation of its task."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import Any

import pytest

from holdfast import AsyncRun, Retry
from holdfast.model.commit import Commit
from tests.harness import Stage, until


def states(stage: Stage) -> list[str]:
    return [line.state for line in stage.onlooker.effects(stage.run_id)]


@pytest.mark.parametrize("kind", ["async", "plain", "timeout"])
def test_an_effect_beside_a_question_in_a_task_group_ends_done(awaiting: Stage, kind: str) -> None:
    asked = threading.Event()

    async def pay_async() -> str:
        awaiting.calls.append("begun")
        while not asked.is_set():
            await asyncio.sleep(0.001)
        for _ in range(20):  # the group cancels its tasks in the meantime
            await asyncio.sleep(0)
        awaiting.calls.append("paid")
        return "paid"

    def pay_plain() -> str:
        awaiting.calls.append("begun")
        asked.wait(10)
        awaiting.calls.append("paid")
        return "paid"

    async def ask(run: AsyncRun) -> Any:
        try:
            return await run.ask("ok?", bool, key="ok")
        finally:
            asked.set()

    @awaiting.flow
    async def flow(run: AsyncRun) -> Any:
        pay = pay_plain if kind == "plain" else pay_async
        async with asyncio.TaskGroup() as group:
            answer = group.create_task(ask(run))
            paid = group.create_task(run.effect(pay, key="pay", timeout=60 if kind == "timeout" else None))
        return [answer.result(), paid.result()]

    assert awaiting.start(flow).status() == "waiting"
    assert states(awaiting) == ["done"]
    assert awaiting.calls == ["begun", "paid"]
    assert [gate.gate for gate in awaiting.app.gates(awaiting.run_id)] == ["ok"], "nobody is asked about the effect"
    awaiting.restart()
    awaiting.app.answer(awaiting.run_id, True)
    assert awaiting.app.handle(awaiting.run_id).result(240) == [True, "paid"]
    assert awaiting.calls == ["begun", "paid"]


@pytest.mark.parametrize("entry", ["intent", "outcome"])
def test_a_task_cancelled_during_a_commit_of_an_effect_leaves_nothing_in_doubt(awaiting: Stage, entry: str) -> None:
    tasks: list[asyncio.Task[Any]] = []

    async def pay() -> str:
        awaiting.calls.append("paid")
        return "paid"

    @awaiting.flow
    async def flow(run: AsyncRun) -> Any:
        loop = asyncio.get_running_loop()
        cancelled = threading.Event()

        def cancel() -> None:
            tasks[0].cancel()
            cancelled.set()

        def before(commit: Commit) -> None:
            if entry in [new.kind for new in commit.entries]:
                loop.call_soon_threadsafe(cancel)
                assert cancelled.wait(10)

        awaiting.wire.before = before
        tasks.append(asyncio.create_task(run.effect(pay, key="pay")))
        await asyncio.wait(tasks)
        awaiting.wire.before = None
        return await run.effect(pay, key="pay")

    assert awaiting.start(flow).result() == "paid"
    assert awaiting.calls == ["paid"]
    assert states(awaiting) == ["done"]


def test_an_effect_that_fails_in_a_cancelled_task_is_recorded_as_failed_and_not_tried_again(awaiting: Stage) -> None:
    begun, go = asyncio.Event(), asyncio.Event()

    async def pay() -> str:
        awaiting.calls.append("tried")
        begun.set()
        await go.wait()
        raise ValueError("no")

    @awaiting.flow
    async def flow(run: AsyncRun) -> None:
        task = asyncio.create_task(run.effect(pay, key="pay"))
        if not begun.is_set():
            await begun.wait()
            task.cancel()
            asyncio.get_running_loop().call_soon(go.set)
        await asyncio.wait([task])

    awaiting.start(flow).result()
    assert awaiting.calls == ["tried"]
    assert states(awaiting) == ["failed"]
    assert awaiting.journal("outcome")[0]["error"]["type"] == "ValueError"


@pytest.mark.parametrize("error", [ConnectionRefusedError, ConnectionResetError])
def test_a_cancelled_task_does_not_try_its_effect_again(awaiting: Stage, error: type[Exception]) -> None:
    """The first proves that nothing happened, the second leaves it open, and both would be tried again."""
    begun, go = asyncio.Event(), asyncio.Event()

    async def pay() -> str:
        awaiting.calls.append("tried")
        begun.set()
        await go.wait()
        raise error("no")

    @awaiting.flow
    async def flow(run: AsyncRun) -> Any:
        retry = Retry(attempts=3, initial_delay=0)
        task = asyncio.create_task(run.effect(pay, key="pay", retry=retry, in_doubt="retry"))
        if not begun.is_set():
            await begun.wait()
            task.cancel()
            go.set()
        await asyncio.wait([task])
        return awaiting.calls.count("tried")

    assert awaiting.start(flow).result(240) == 3, "the others came when the run was executed again"
    assert awaiting.calls == ["tried"] * 3


def test_the_end_of_the_app_breaks_an_effect_off(awaiting: Stage) -> None:
    begun = threading.Event()
    ended: list[str] = []

    async def pay() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("broken off")

    @awaiting.flow
    async def flow(run: AsyncRun) -> None:
        await run.effect(pay, in_doubt="fail")

    def start() -> None:
        with contextlib.suppress(BaseException):
            awaiting.start(flow)

    thread = threading.Thread(target=start)
    thread.start()
    assert begun.wait(10)
    awaiting.app._core.loop.close()
    until(lambda: ended == ["broken off"], "the effect was broken off")
    thread.join(240)
    assert states(awaiting) == ["in_doubt"]
