"""Code that runs although its run only waits: `finally` blocks, context managers, swallowed waits, cancelled tasks."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from holdfast import AsyncRun, RunFailed
from holdfast.testing import replay
from tests.harness import Stage


async def wait(run: AsyncRun, what: str) -> Any:
    if what == "ask":
        return await run.ask("Well?", {"yes": bool}, key="w")
    if what == "event":
        return await run.wait_for("go", key="w")
    return await run.sleep(3600, key="w")


@pytest.mark.parametrize("what", ["ask", "event", "sleep"])
def test_a_finally_block_does_nothing_because_the_run_waits_with_a_key(stage: Stage, what: str) -> None:
    @stage.flow
    async def flow(run: AsyncRun) -> str:
        done = False
        try:
            await wait(run, what)
            done = True
        finally:
            if not done:
                await run.effect(stage.calls.append, "released", key="release")
        return "booked"

    stage.start(flow)
    assert stage.status() == "waiting"
    assert stage.calls == []
    if what == "ask":
        assert stage.app.answer(stage.run_id, {"yes": True}).result(240) == "booked"
        assert stage.calls == []


def test_code_that_swallows_a_wait_with_a_key_performs_nothing_after_it(awaiting: Stage) -> None:
    @awaiting.flow
    async def flow(run: AsyncRun) -> Any:
        asked = [run.ask("Well?", {"yes": bool}, key=key) for key in "ab"]
        answers: list[Any] = await asyncio.gather(*asked, return_exceptions=True)
        if all(answers):
            await run.effect(awaiting.calls.append, "paid", key="pay")
        return [answer["yes"] for answer in answers]

    awaiting.start(flow)
    assert awaiting.calls == []
    for gate in awaiting.app.gates(awaiting.run_id):
        awaiting.app.answer(awaiting.run_id, {"yes": False}, gate=gate.gate)
    assert awaiting.app.handle(awaiting.run_id).result(240) == [False, False]


def test_a_suppressed_wait_in_a_def_workflow_performs_nothing_after_it(local: Stage) -> None:
    @local.flow
    async def flow(run: AsyncRun) -> None:
        with contextlib.suppress(BaseException):
            await run.ask("Well?", {"yes": bool}, key="q")
        await run.effect(local.calls.append, "paid", key="pay")

    local.start(flow)
    assert local.status() == "waiting"
    assert local.calls == []


def test_cleaning_up_after_a_cancellation_happens_beside_a_wait_with_a_key(awaiting: Stage) -> None:
    began, go_on = asyncio.Event(), asyncio.Event()

    async def pay() -> str:
        began.set()
        await go_on.wait()
        return "paid"

    @awaiting.flow
    async def flow(run: AsyncRun) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(run.effect(pay, key="p"))
                group.create_task(run.ask("Well?", bool, key="q"))
        finally:
            await run.effect(awaiting.calls.append, "refunded", key="refund")

    async def main() -> None:
        task = asyncio.create_task(awaiting.app.aio.start("flow", run_id=awaiting.run_id))
        await began.wait()
        await awaiting.app.aio.cancel(awaiting.run_id, enqueue=True)
        go_on.set()
        await task

    asyncio.run(main())
    awaiting.app.worker().run(until_idle=True)
    assert awaiting.status() == "cancelled"
    assert awaiting.calls == ["refunded"]


def test_a_time_limit_of_asyncio_around_an_effect_does_not_make_live_differ_from_replay(awaiting: Stage) -> None:
    limit = asyncio.Event()

    async def pay() -> str:
        limit.set()
        await asyncio.sleep(0.05)
        return "paid"

    @awaiting.flow
    async def flow(run: AsyncRun) -> Any:
        async def expire(task: asyncio.Task[Any]) -> None:
            await limit.wait()
            task.cancel()

        task = asyncio.ensure_future(run.effect(pay, key="pay"))
        expiring = asyncio.ensure_future(expire(task))
        try:
            result = await task
        except asyncio.CancelledError:
            result = "not paid"
        await expiring
        await run.ask("Well?", {"yes": bool}, show=result)
        return result

    awaiting.start(flow)
    awaiting.app.resume(awaiting.run_id)
    (gate,) = awaiting.app.gates(awaiting.run_id)
    assert gate.show == "paid"
    assert awaiting.app.answer(awaiting.run_id, {"yes": True}).result(240) == "paid"
    assert replay(awaiting.app, awaiting.run_id).status == "completed"


def test_two_calls_at_once_without_a_key_fail_the_run_even_in_a_task_that_no_code_looks_at(awaiting: Stage) -> None:
    @awaiting.flow
    async def flow(run: AsyncRun) -> str:
        tasks = [asyncio.ensure_future(run.wait_for(name)) for name in ("yes", "no")]
        done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
        return "yes" if tasks[0] in done else "no"

    awaiting.start(flow)
    with pytest.raises(RunFailed, match="has not finished"):
        awaiting.app.send(awaiting.run_id, "yes").result(240)
