"""Retry of runs with children, and of processes that die in the middle of a retry."""

from __future__ import annotations

import contextlib
from typing import Any

import holdfast
from holdfast import AsyncRun
from holdfast.model.commit import Commit
from tests.engine.shop import Shop, fail, shop
from tests.harness import Stage

__all__ = ["shop"]


def test_a_failed_child_is_retried_and_then_its_parent_goes_on(stage: Stage, shop: Shop) -> None:
    @stage.flow
    async def grandchild(run: AsyncRun) -> str:
        return await run.step(shop.work, "x") + await run.step(shop.work, "bad")

    @stage.flow
    async def child(run: AsyncRun) -> str:
        return str(await run.child("grandchild"))

    @stage.flow
    async def flow(run: AsyncRun) -> str:
        await run.step(shop.work, "first")
        return f"child says {await run.child('child')}"

    fail(stage, flow)
    shop.broken = False
    assert stage.app.retry(stage.run_id).result(240) == "child says XBAD"
    assert shop.calls == ["first", "x", "bad", "bad"]


def test_a_crash_between_child_and_parent_is_repaired_by_another_retry(stage: Stage, shop: Shop) -> None:
    @stage.flow
    async def child(run: AsyncRun) -> str:
        return await run.step(shop.work, "bad")

    @stage.flow
    async def flow(run: AsyncRun) -> str:
        return f"child says {await run.child('child')}"

    fail(stage, flow)
    shop.broken = False
    _retry_through_crashes(stage)
    assert stage.app.handle(stage.run_id).result(240) == "child says BAD"


def test_a_cancelled_child_is_started_again(stage: Stage, shop: Shop) -> None:
    @stage.flow
    async def child(run: AsyncRun) -> Any:
        return await run.wait_for("go", timeout=0.01 if not shop.broken else None, default="went")

    @stage.flow
    async def flow(run: AsyncRun) -> Any:
        return await run.child("child")

    stage.start(flow)
    (name,) = [info.run_id for info in stage.app.runs(prefix=f"{stage.run_id}/")]
    stage.app.cancel(name)
    assert stage.status() == "failed"
    shop.broken = False
    assert stage.app.retry(stage.run_id).result(240) == "went"


def test_a_crash_anywhere_in_a_retry_is_followed_by_one_that_ends_it(stage: Stage, shop: Shop) -> None:
    @stage.flow
    async def flow(run: AsyncRun) -> str:
        first = await run.effect(shop.pay, "a")
        return first + await run.effect(shop.pay, "bad")

    fail(stage, flow)
    shop.broken = False
    _retry_through_crashes(stage)
    while stage.app.gates(stage.run_id):  # it died while it paid: in doubt
        stage.app.answer(stage.run_id, {"outcome": "did not happen"})
    assert stage.app.handle(stage.run_id).result(240) == "ABAD"
    assert shop.calls[:2] == ["a", "bad"]
    assert "a" not in shop.calls[1:]
    assert len(set(shop.keys[1:])) == 1


def _retry_through_crashes(stage: Stage) -> None:
    """Retry the run in processes that die: the first before its first commit, the next before its second, and so on."""
    for survived in range(40):
        left = [survived]

        def die(commit: Commit, left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] < 0:
                stage.die()

        stage.wire.before = die
        with contextlib.suppress(holdfast.StorageError):
            if stage.status() in ("failed", "rolling_back"):
                stage.app.retry(stage.run_id)
            else:
                stage.app.resume(stage.run_id)
        stage.restart()
        if stage.status() in ("completed", "waiting"):
            return
    raise AssertionError("it never came to its end")
