"""A commit that is refused changes nothing, and what was to travel with it travels with the next."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import AsyncRun, InvalidInput, RunFailed
from tests.harness import Stage


def test_what_was_drawn_before_a_known_effect_is_recorded_all_the_same(stage: Stage) -> None:
    seen: list[Any] = []

    def pay() -> str:
        return "paid"

    @stage.flow
    async def flow(run: AsyncRun) -> None:
        async def once(inner: AsyncRun) -> str:
            return await inner.effect(pay, key="k")

        await run.gather(once)
        drawn = await run.uuid()
        await run.log("before the second")
        await run.effect(pay, key="k")
        seen.append(drawn)
        await run.ask("more?", bool)

    stage.start(flow)
    stage.restart()
    assert stage.app.answer(stage.run_id, True).status() == "completed"
    assert seen[0] == seen[1]
    assert len(stage.journal("log")) == 1


def test_a_state_that_cannot_be_saved_is_told_and_the_run_may_go_on(stage: Stage) -> None:
    seen: list[Any] = []

    @stage.flow
    async def flow(run: AsyncRun) -> str:
        drawn = await run.uuid()
        run.state["bad"] = object()
        with pytest.raises(InvalidInput, match="bad"):
            await run.checkpoint()
        with pytest.raises(InvalidInput, match="bad"):
            await run.ask("not asked", bool)
        del run.state["bad"]
        seen.append(drawn)
        return str(await run.ask("asked", str))

    stage.start(flow)
    assert [gate.prompt for gate in stage.app.gates(stage.run_id)] == ["asked"]
    stage.restart()
    assert stage.app.answer(stage.run_id, "on").result(240) == "on"
    assert seen[0] == seen[1]


def test_a_run_whose_state_cannot_be_saved_can_be_paused_and_cancelled(local: Stage) -> None:
    @local.flow
    async def flow(run: AsyncRun) -> None:
        await run.ask("more?", bool)
        run.state["bad"] = object()
        await run.step(ask_to, "pause")
        await run.step(ask_to, "cancel")
        await run.step(len, "x")

    def ask_to(verb: str) -> None:
        getattr(local.app, verb)(local.run_id, enqueue=True)

    local.start(flow)
    assert local.app.answer(local.run_id, True).status() == "paused"
    assert local.app.resume(local.run_id).status() == "cancelled"


def test_an_error_of_the_workflow_is_told_even_if_its_state_cannot_be_saved(local: Stage) -> None:
    @local.flow
    async def flow(run: AsyncRun) -> None:
        run.state["bad"] = object()
        raise KeyError("the real one")

    with pytest.raises(RunFailed, match="KeyError: 'the real one'"):
        local.start(flow).result(240)
