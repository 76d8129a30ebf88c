"""Retry: a failed run goes on from what failed, and nothing that was finished is done again or undone."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import holdfast
from holdfast import App, AsyncRun, Conflict, RunFailed, StepFailed
from holdfast.errors import UnknownWorkflow
from tests.engine.shop import Shop, fail, shop
from tests.harness import Stage

__all__ = ["shop"]


def test_a_failed_step_is_executed_again_and_what_came_before_is_kept(stage: Stage, shop: Shop) -> None:
    @stage.flow
    async def flow(run: AsyncRun) -> list[str]:
        return [await run.step(shop.work, "a"), await run.effect(shop.pay, "b"), await run.step(shop.work, "bad")]

    fail(stage, flow)
    shop.broken = False
    assert stage.app.retry(stage.run_id, by="ana").result(240) == ["A", "B", "BAD"]
    assert shop.calls == ["a", "b", "bad", "bad"]
    assert stage.restart().handle(stage.run_id).result(240) == ["A", "B", "BAD"]


def test_a_failed_effect_is_performed_again_under_its_idempotency_key(stage: Stage, shop: Shop) -> None:
    @stage.flow
    async def flow(run: AsyncRun) -> str:
        first = await run.effect(shop.pay, "bad")
        return first + await run.effect(shop.pay, "next")

    fail(stage, flow)
    stage.app.retry(stage.run_id)
    assert stage.status() == "failed", "it is still broken"
    shop.broken = False
    assert stage.app.retry(stage.run_id).result(240) == "BADNEXT"
    assert shop.calls == ["bad", "bad", "bad", "next"]
    assert shop.keys[0] == shop.keys[1] == shop.keys[2] != shop.keys[3]
    assert [effect.state for effect in stage.onlooker.effects(stage.run_id)] == ["done", "done"]


@pytest.mark.parametrize("policy", ["ask", "fail", "check"])
def test_a_failed_effect_that_may_have_happened_is_in_doubt(stage: Stage, policy: str) -> None:
    def pay(amount: int) -> None:
        stage.calls.append(amount)
        raise KeyError("receipt_id")  # the bank has paid, and its answer could not be read

    how: Any = {"check": lambda amount: holdfast.Happened("found")} if policy == "check" else {"in_doubt": policy}

    @stage.flow
    async def flow(run: AsyncRun) -> Any:
        return await run.effect(pay, 7, **how)

    fail(stage, flow)
    stage.app.retry(stage.run_id)
    if policy == "check":
        assert stage.app.handle(stage.run_id).result(240) == "found"
    else:
        (gate,) = stage.app.gates(stage.run_id)
        assert "It raised KeyError: 'receipt_id'" in gate.prompt
        assert [effect.state for effect in stage.onlooker.effects(stage.run_id)] == ["in_doubt"]
        stage.restart()
        stage.app.resume(stage.run_id)
        assert stage.app.answer(stage.run_id, {"outcome": "happened", "result": "paid"}).result(240) == "paid"
    assert stage.calls == [7]


@pytest.mark.parametrize("proof", ["not_done", "retry"])
def test_a_failed_effect_that_did_nothing_or_may_be_repeated_is_performed_again(stage: Stage, proof: str) -> None:
    def pay(amount: int) -> str:
        stage.calls.append(amount)
        if len(stage.calls) == 1:
            raise KeyError("declined")
        return "paid"

    how: Any = {"not_done": KeyError} if proof == "not_done" else {"in_doubt": "retry"}

    @stage.flow
    async def flow(run: AsyncRun) -> Any:
        return await run.effect(pay, 7, **how)

    fail(stage, flow)
    assert stage.app.retry(stage.run_id).result(240) == "paid"
    assert stage.calls == [7, 7]


def test_an_effect_with_other_arguments_after_the_repair_has_another_key(stage: Stage, shop: Shop) -> None:
    what = ["bad 1"]

    @stage.flow
    async def flow(run: AsyncRun) -> str:
        return await run.effect(shop.pay, what[0], key="pay")

    fail(stage, flow)
    what[0] = "good"
    assert stage.app.retry(stage.run_id).result(240) == "GOOD"
    assert shop.keys[0] != shop.keys[1]


def test_plain_code_that_failed_is_executed_again_with_what_is_recorded(stage: Stage, shop: Shop) -> None:
    @stage.flow
    async def flow(run: AsyncRun) -> str:
        done = await run.step(shop.work, "a")
        answer = await run.ask("go on?", str)
        if shop.broken:
            raise KeyError("a mistake")
        return f"{done}{answer}"

    stage.start(flow)
    assert stage.app.answer(stage.run_id, "yes").status() == "failed"
    shop.broken = False
    assert stage.app.retry(stage.run_id).result(240) == "Ayes"
    assert shop.calls == ["a"]


def test_a_failed_effect_that_was_dealt_with_is_not_performed_again(stage: Stage, shop: Shop) -> None:
    mistake = [True]

    @stage.flow
    async def flow(run: AsyncRun) -> str:
        try:
            await run.effect(shop.pay, "bad")
        except holdfast.EffectFailed:
            declined = True
        if mistake[0]:
            raise KeyError("in code that has nothing to do with it")
        return f"declined: {declined}"

    fail(stage, flow)
    mistake.clear()
    mistake.append(False)
    assert stage.app.retry(stage.run_id).result(240) == "declined: True"
    assert shop.calls == ["bad"]


def test_what_code_did_after_the_failed_step_is_taken_back_with_it(stage: Stage, shop: Shop) -> None:
    @stage.flow
    async def flow(run: AsyncRun) -> str:
        try:
            return await run.step(shop.work, "bad")
        except StepFailed as error:
            await run.step(shop.work, "note")
            raise RuntimeError("it failed") from error

    fail(stage, flow)
    shop.broken = False
    assert stage.app.retry(stage.run_id).result(240) == "BAD"
    assert shop.calls == ["bad", "note", "bad"]


def test_a_retry_that_would_undo_an_effect_is_refused_and_changes_nothing(stage: Stage, shop: Shop) -> None:
    @stage.flow
    async def flow(run: AsyncRun) -> str:
        try:
            return await run.step(shop.work, "bad")
        except StepFailed as error:
            await run.effect(shop.pay, "apology")
            raise RuntimeError("it failed") from error

    fail(stage, flow)
    before = stage.journal()
    with pytest.raises(Conflict, match=r"was performed.*rollback_plan"):
        stage.app.retry(stage.run_id)
    assert (stage.status(), stage.journal()) == ("failed", before)


def test_items_and_branches_that_were_done_stay_done(stage: Stage, shop: Shop) -> None:
    @stage.flow
    async def flow(run: AsyncRun) -> Any:
        items = await run.map(shop.work, ["bad 1", "x", "bad 2", "y"], limit=1)

        async def paying(inner: AsyncRun) -> str:
            return await inner.effect(shop.pay, "pay")

        async def failing(inner: AsyncRun) -> str:
            return await inner.step(shop.work, "bad 3")

        return items, await run.gather(failing, paying, limit=1)

    fail(stage, flow)
    shop.broken = False
    stage.app.retry(stage.run_id)
    assert shop.calls == ["bad 1", "x", "bad 2", "y", "bad 1", "bad 2", "bad 3", "pay"]
    assert stage.app.handle(stage.run_id).result(240) == (["BAD 1", "X", "BAD 2", "Y"], ["BAD 3", "PAY"])


def test_a_branch_that_paid_does_not_pay_again(stage: Stage, shop: Shop) -> None:
    @stage.flow
    async def flow(run: AsyncRun) -> Any:
        async def paying(inner: AsyncRun) -> str:
            return await inner.effect(shop.pay, "pay")

        async def failing(inner: AsyncRun) -> str:
            return await inner.step(shop.work, "bad")

        return await run.gather(failing, paying, limit=1)

    fail(stage, flow)
    shop.broken = False
    assert stage.app.retry(stage.run_id).result(240) == ["BAD", "PAY"]
    assert shop.calls == ["bad", "pay", "bad"]


@pytest.mark.parametrize("policy", ["retry", "fail", "ask"])
def test_an_effect_in_doubt_stays_in_doubt(stage: Stage, shop: Shop, policy: Any) -> None:
    def pay(what: str) -> str:
        stage.calls.append(what)
        if len(stage.calls) == 1:
            stage.die()
        return "paid"

    doubt = ["fail"]

    @stage.flow
    async def flow(run: AsyncRun) -> str:
        return await run.effect(pay, "x", in_doubt=doubt[0])

    stage.start_and_die(flow)
    assert stage.resume().status() == "failed"
    doubt[0] = policy
    stage.app.retry(stage.run_id)
    if policy in ("ask", "fail"):  # to fail again would help nobody
        assert (stage.status(), stage.calls) == ("waiting", ["x"])
        answer = {"outcome": "happened", "result": "it was"}
        assert stage.app.answer(stage.run_id, answer).result(240) == "it was"
    else:
        assert stage.app.handle(stage.run_id).result(240) == "paid"
        assert stage.calls == ["x", "x"]


def test_a_person_who_called_it_failed_is_asked_again(stage: Stage) -> None:
    def pay() -> str:
        stage.calls.append("pay")
        stage.die()
        return "paid"

    @stage.flow
    async def flow(run: AsyncRun) -> str:
        return await run.effect(pay)

    stage.start_and_die(flow)
    stage.resume()
    assert stage.app.answer(stage.run_id, {"outcome": "fail"}).status() == "failed"
    assert stage.app.retry(stage.run_id).status() == "waiting"
    answer = {"outcome": "happened", "result": "yes"}
    assert stage.app.answer(stage.run_id, answer).result(240) == "yes"
    assert stage.calls == ["pay"]


def test_an_effect_that_happened_and_whose_result_was_lost_is_not_repeated(stage: Stage) -> None:
    def pay() -> object:
        stage.calls.append("pay")
        return object()

    @stage.flow
    async def flow(run: AsyncRun) -> Any:
        return await run.effect(pay)

    fail(stage, flow)
    with pytest.raises(Conflict, match="was performed"):
        stage.app.retry(stage.run_id)
    assert stage.calls == ["pay"]


def test_a_refused_call_and_an_expired_gate_are_made_again(stage: Stage, shop: Shop) -> None:
    @stage.flow
    async def flow(run: AsyncRun) -> str:
        await run.step(shop.work, "a", retry="often" if shop.broken else 2)
        return str(await run.ask("ok?", str, expires=50, expired="fail"))

    fail(stage, flow)
    shop.broken = False
    stage.app.retry(stage.run_id)
    assert stage.status() == "waiting"
    stage.clock.advance(51)
    assert stage.app.resume(stage.run_id).status() == "failed"
    assert stage.app.retry(stage.run_id).status() == "waiting"
    assert stage.app.answer(stage.run_id, "yes").result(240) == "yes"
    assert shop.calls == ["a"]


def test_a_failure_in_a_turn_of_a_loop_keeps_the_finished_turns(stage: Stage, shop: Shop) -> None:
    @stage.flow
    async def flow(run: AsyncRun) -> list[str]:
        run.state.setdefault("done", [])
        async for turn in run.loop():
            run.state["done"].append(await run.step(shop.work, "bad" if turn == 3 else f"t{turn}"))
            if turn == 4:
                break
        return list(run.state["done"])

    fail(stage, flow)
    shop.broken = False
    assert stage.app.retry(stage.run_id).result(240) == ["T1", "T2", "BAD", "T4"]
    assert shop.calls == ["t1", "t2", "bad", "bad", "t4"]


@pytest.mark.parametrize("ends", ["completed", "cancelled", "waiting"])
def test_only_a_failed_run_is_retried(stage: Stage, ends: str) -> None:
    @stage.flow
    async def flow(run: AsyncRun) -> None:
        if ends != "completed":
            await run.wait_for("go")

    stage.start(flow)
    if ends == "cancelled":
        stage.app.cancel(stage.run_id)
    with pytest.raises(Conflict, match=rf"is {ends}, and only a failed run can be retried"):
        stage.app.retry(stage.run_id)


def test_a_retry_is_enqueued_for_a_worker_and_may_be_awaited(stage: Stage, shop: Shop) -> None:
    @stage.flow
    async def flow(run: AsyncRun) -> str:
        return await run.step(shop.work, "bad")

    fail(stage, flow)
    shop.broken = False
    with App(stage.onlooker) as other:
        with pytest.raises(UnknownWorkflow):
            other.retry(stage.run_id)
        handle = asyncio.run(_retry_awaiting(other, stage.run_id))
    assert shop.calls == ["bad"]
    stage.app.worker().run(until_idle=True)
    assert stage.app.handle(handle).result(240) == "BAD"


async def _retry_awaiting(app: App, run_id: str) -> str:
    return (await app.aio.retry(run_id, enqueue=True)).run_id


def test_the_failure_says_that_it_can_be_retried(stage: Stage, shop: Shop) -> None:
    @stage.flow
    async def flow(run: AsyncRun) -> str:
        return await run.step(shop.work, "bad")

    fail(stage, flow)
    with pytest.raises(RunFailed, match=r"app\.retry"):
        stage.app.handle(stage.run_id).result(240)
    with pytest.raises(holdfast.errors.RunEnded, match=r"app\.retry"):
        stage.app.resume(stage.run_id)


def test_a_kept_idempotency_key_outlives_a_failure_before_its_effect(stage: Stage, shop: Shop) -> None:
    mistakes: list[str] = []

    @stage.flow
    async def flow(run: AsyncRun) -> str:
        if mistakes:
            raise KeyError(mistakes.pop())
        return await run.effect(shop.pay, "bad")

    fail(stage, flow)
    shop.broken = False
    mistakes.append("a new mistake")
    assert stage.app.retry(stage.run_id).status() == "failed"
    assert stage.app.retry(stage.run_id).result(240) == "BAD"
    assert shop.keys[0] == shop.keys[1]
    stage.app.rollback(stage.run_id, to=1, force=True)
    assert shop.keys[2] != shop.keys[1], "a rollback begins something new"
