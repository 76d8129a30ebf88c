"""Ends that are easily forgotten: odd exceptions, rehearsals of every end, kept checkpoints, claims that are let go."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass
from typing import Any

import pytest

from holdfast import AsyncRun, InvalidInput, Keep, NotFinished
from holdfast.testing import replay
from tests.harness import Stage


class Odd(BaseException):
    """No Exception, and nothing that ends a process."""


def test_an_odd_exception_fails_the_run_and_is_not_tried_for_ever(alone: Stage) -> None:
    def odd() -> None:
        alone.calls.append("odd")
        raise Odd

    @alone.flow
    async def flow(run: AsyncRun) -> None:
        await run.step(odd)

    alone.start(flow, enqueue=True)
    alone.app.worker().run(until_idle=True)
    assert alone.status() == "failed"
    assert alone.calls == ["odd"]


def test_runs_that_were_cancelled_or_exited_can_be_rehearsed(local: Stage) -> None:
    @local.flow
    async def waits(run: AsyncRun) -> Any:
        return await run.ask("?", bool)

    @local.flow
    async def exits(run: AsyncRun) -> Any:
        await run.step(len, "a")
        sys.exit(3)

    local.start(waits, run_id=f"{local.run_id}-a")
    local.app.cancel(f"{local.run_id}-a")
    assert replay(local.app, f"{local.run_id}-a").status == "cancelled"
    local.start(exits, run_id=f"{local.run_id}-b")
    assert replay(local.app, f"{local.run_id}-b").status == "failed"


def test_every_checkpoint_that_prune_has_kept_can_be_gone_back_to(stage: Stage) -> None:
    @stage.flow
    async def flow(run: AsyncRun) -> Any:
        run.state["n"] = 0
        async for turn in run.loop():
            run.state["n"] += await run.step(int, turn)
            if turn == 6:
                return await run.ask("?", bool)
        return None

    stage.start(flow)
    stage.onlooker.prune(stage.run_id, Keep(last=3, journal=True))
    for checkpoint in list(stage.onlooker.history(stage.run_id)):
        stage.app.rollback_plan(stage.run_id, to=checkpoint.checkpoint_id)
        fork = stage.app.fork(stage.run_id, f"{stage.run_id}-{checkpoint.number}", at=checkpoint.checkpoint_id)
        assert fork.status() == "waiting"


@dataclass
class Sized:
    """Not what the step below gives."""

    size: int


def test_a_misfit_of_a_recorded_result_leaves_no_refusal_behind_it(stage: Stage) -> None:
    def made(text: str) -> Sized:
        return {"text": text}  # type: ignore[return-value]

    @stage.flow
    async def flow(run: AsyncRun) -> Any:
        with pytest.raises(InvalidInput):
            await run.step(made, "a")
        return await run.ask("?", bool)

    stage.start(flow)
    assert [entry["kind"] for entry in stage.journal()] == ["started", "step", "asked"]


def test_result_does_not_move_a_detached_child_on(alone: Stage) -> None:
    @alone.flow
    async def slow(run: AsyncRun) -> int:
        alone.calls.append("child")
        return await run.step(len, "a")

    @alone.flow
    async def parent(run: AsyncRun) -> Any:
        await run.child("slow", detached=True)
        return await run.ask("?", bool)

    handle = alone.start(parent)
    with pytest.raises(NotFinished):
        handle.result(timeout=0.1)
    assert alone.calls == []


def test_calls_of_one_name_in_two_scopes_are_told_apart_while_they_are_under_way(awaiting: Stage) -> None:
    @awaiting.flow
    async def flow(run: AsyncRun) -> Any:
        gate = asyncio.Event()

        async def bg() -> str:
            await gate.wait()
            return "done"

        task = asyncio.ensure_future(run.effect(bg, key="bg"))
        await asyncio.sleep(0.02)
        async for _ in run.loop():
            await run.step(len, "a", key="bg")
            asyncio.get_running_loop().call_later(0.1, gate.set)
            try:
                return await run.ask("?", bool)
            finally:
                await asyncio.wait([task])
        return None

    awaiting.start(flow)
    assert [effect.state for effect in awaiting.onlooker.effects(awaiting.run_id)] == ["done"]
