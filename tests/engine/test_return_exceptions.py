"""`return_exceptions=True`: each item or branch has an outcome of its own, live and after replay."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import AsyncRun, RunFailed, StepFailed
from holdfast.errors import Diverged
from tests.harness import Stage


def told(found: list[Any]) -> list[Any]:
    return [str(one) if isinstance(one, Exception) else one for one in found]


def test_a_map_gives_results_and_errors_in_order_live_and_after_replay(stage: Stage) -> None:
    seen: list[list[Any]] = []

    def half(number: int) -> int:
        stage.calls.append(number)
        if number % 2:
            raise ValueError(f"{number} is odd")
        return number // 2

    @stage.flow
    async def flow(run: AsyncRun) -> Any:
        found = await run.map(half, [2, 3, 4], return_exceptions=True)
        assert isinstance(found[1], StepFailed)
        seen.append(told(found))
        await run.ask("ok?", bool)
        return told(found)

    stage.start(flow)
    stage.restart()
    stage.app.answer(stage.run_id, True)
    found = stage.app.handle(stage.run_id).result(240)
    assert found == [1, "step 'map#1[1]/half#1' failed: ValueError: 3 is odd", 2]
    assert seen == [found, found]
    assert sorted(stage.calls) == [2, 3, 4]


def test_a_gather_gives_what_its_branches_raised(stage: Stage) -> None:
    async def fine(run: AsyncRun) -> int:
        return await run.step(len, "abc")

    async def broken(run: AsyncRun) -> int:
        raise KeyError("none")

    @stage.flow
    async def flow(run: AsyncRun) -> Any:
        found = await run.gather(fine, broken, return_exceptions=True)
        return [type(one).__name__ if isinstance(one, Exception) else one for one in found]

    assert stage.start(flow).result() == [3, "KeyError"]


def test_without_it_the_first_error_is_raised(local: Stage) -> None:
    def broken(number: int) -> None:
        raise ValueError(number)

    @local.flow
    async def flow(run: AsyncRun) -> Any:
        return await run.map(broken, [1, 2])

    with pytest.raises(RunFailed, match="ValueError: 1"):
        local.start(flow).result()


def test_a_branch_that_waits_suspends_the_run_although_another_failed(stage: Stage) -> None:
    async def asks(run: AsyncRun) -> bool:
        return await run.ask("ok?", bool)

    async def broken(run: AsyncRun) -> bool:
        raise ValueError("no")

    @stage.flow
    async def flow(run: AsyncRun) -> Any:
        return told(await run.gather(asks, broken, return_exceptions=True))

    assert stage.start(flow).status() == "waiting"
    stage.restart()
    stage.app.answer(stage.run_id, True)
    assert stage.app.handle(stage.run_id).result(240) == [True, "no"]


def test_a_cancellation_is_not_an_outcome(stage: Stage) -> None:
    async def asks(run: AsyncRun) -> bool:
        return await run.ask("ok?", bool)

    @stage.flow
    async def flow(run: AsyncRun) -> Any:
        found = await run.gather(asks, asks, return_exceptions=True)
        stage.calls.append(found)

    stage.start(flow)
    assert stage.app.cancel(stage.run_id).status() == "cancelled"
    assert stage.calls == []


def test_diverging_code_is_not_an_outcome(local: Stage) -> None:
    async def flow(run: AsyncRun) -> Any:
        found = await run.gather(lambda r: r.step(len, "a"), return_exceptions=True)
        await run.ask("ok?", bool)
        return found

    local.flow(flow)
    local.start(flow)

    async def changed(run: AsyncRun) -> Any:
        found = await run.gather(lambda r: r.step(str.upper, "a"), return_exceptions=True)
        local.calls.append(found)

    local.change(changed, name="flow")
    with pytest.raises(Diverged):
        local.app.answer(local.run_id, True)
    assert local.calls == []
    assert local.status() == "paused"


def test_errors_among_results_cannot_be_returned_and_the_hint_names_their_text(local: Stage) -> None:
    @local.flow
    async def flow(run: AsyncRun) -> Any:
        return await run.map(int, "1x", return_exceptions=True)

    with pytest.raises(RunFailed, match=r"store str\(error\) instead"):
        local.start(flow).result(240)
