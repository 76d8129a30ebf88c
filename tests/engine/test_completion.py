"""How runs end: cancelled if that was said, failed if their code breaks, and never over and over again."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from holdfast import AsyncRun, RunCancelled, RunFailed, StepFailed
from tests.harness import Stage


def test_a_cancellation_swallowed_in_a_turn_is_not_forgotten_after_a_crash(stage: Stage) -> None:
    swallowed: list[int] = []

    def dies() -> None:
        stage.calls.append("called")
        if len(stage.calls) == 1:
            stage.die()

    @stage.flow
    async def flow(run: AsyncRun) -> None:
        async for turn in run.loop():
            try:
                await run.wait_for("x", timeout=60)
            except BaseException:
                swallowed.append(turn)
            if turn == 2:
                await run.step(dies)
            if turn == 3:
                return

    stage.start(flow)
    with pytest.raises(Exception, match="the wire was cut"):
        stage.app.cancel(stage.run_id, by="ana")
    kinds = [entry["kind"] for entry in stage.journal()]
    assert kinds.index("cancelling") < kinds.index("turn"), "it was swallowed in the first turn, which has ended"
    assert stage.resume().status() == "cancelled"
    with pytest.raises(RunCancelled, match="by ana"):
        stage.app.handle(stage.run_id).result(240)


@pytest.mark.parametrize("depth", [1, 2])
def test_cancelling_a_parent_reaches_the_child_that_runs_inside_it_and_cancels_both(stage: Stage, depth: int) -> None:
    inside, go = threading.Event(), threading.Event()

    def slow() -> None:
        stage.calls.append("slow")
        inside.set()
        assert go.wait(10)

    @stage.flow
    async def deep(run: AsyncRun, depth: int) -> Any:
        if depth:
            return await run.child("deep", depth - 1)
        for _ in range(5):
            await run.step(slow)
        return "not cancelled"

    thread = threading.Thread(target=lambda: stage.app.start("deep", depth, run_id=stage.run_id))
    thread.start()
    assert inside.wait(10)
    stage.app.cancel(stage.run_id, by="ana")
    go.set()
    thread.join(240)
    assert stage.calls == ["slow"], "it was cancelled at its next call"
    ids = [stage.run_id + "/child:deep#1" * level for level in range(depth + 1)]
    assert [stage.status(run_id) for run_id in ids] == ["cancelled"] * (depth + 1)
    assert stage.journal("cancelled")[0]["by"] == "ana"


@pytest.mark.timeout(30)
def test_a_workflow_that_calls_exit_fails_and_is_not_executed_again_and_again(alone: Stage) -> None:
    @alone.flow
    async def flow(run: AsyncRun) -> None:
        alone.calls.append("executed")
        raise SystemExit("usage: …")

    alone.start(flow, enqueue=True)
    alone.app.worker().run(until_idle=True)
    assert alone.status() == "failed"
    assert alone.calls == ["executed"]
    with pytest.raises(RunFailed, match="SystemExit"):
        alone.app.handle(alone.run_id).result(240)


@pytest.mark.timeout(30)
@pytest.mark.parametrize("effect", [False, True])
def test_a_step_that_calls_exit_in_a_worker_is_executed_once(alone: Stage, effect: bool) -> None:
    def leaves() -> None:
        alone.calls.append("executed")
        raise SystemExit(2)

    @alone.flow
    async def flow(run: AsyncRun) -> None:
        await (run.effect(leaves) if effect else run.step(leaves))

    alone.start(flow, enqueue=True)
    alone.app.worker().run(until_idle=True)
    assert alone.status() == ("waiting" if effect else "failed"), "an effect that was broken off is in doubt"
    assert alone.calls == ["executed"]


async def cancelled_inside() -> None:
    """Await something that was cancelled; nobody cancelled the task that awaits it."""
    inner = asyncio.ensure_future(asyncio.sleep(9))
    inner.cancel()
    await inner


@pytest.mark.timeout(30)
@pytest.mark.parametrize("alone", ["async"], indirect=True)
@pytest.mark.parametrize("worker", [False, True])
def test_a_workflow_that_awaits_something_cancelled_fails_and_is_executed_once(alone: Stage, worker: bool) -> None:
    @alone.flow
    async def flow(run: AsyncRun) -> None:
        alone.calls.append("executed")
        await cancelled_inside()

    alone.start(flow, enqueue=worker)
    if worker:
        alone.app.worker().run(until_idle=True)
    with pytest.raises(RunFailed, match="awaited was cancelled"):
        alone.app.handle(alone.run_id).result(240)
    assert alone.calls == ["executed"]


@pytest.mark.timeout(30)
@pytest.mark.parametrize("timeout", [None, 5])
def test_a_step_that_awaits_something_cancelled_has_failed(alone: Stage, timeout: float | None) -> None:
    @alone.flow
    async def flow(run: AsyncRun) -> str:
        try:
            await run.step(cancelled_inside, timeout=timeout)
        except StepFailed as failed:
            return failed.error_type
        return "nothing was raised"

    alone.start(flow, enqueue=True)
    alone.app.worker().run(until_idle=True)
    assert alone.status() == "completed"
    assert "Error" in alone.app.handle(alone.run_id).result(240)
