"""Explicit keys and families: what a key names is done once, whoever calls it again, goes back or forks."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast import AsyncRun, DidNotHappen, InDoubt, Keep
from holdfast.errors import ClaimLost, KeyReused
from holdfast.model.commit import Commit, Guard, TakeClaim
from tests.harness import Stage


def paying(stage: Stage) -> Any:
    def pay(amount: int) -> int:
        stage.calls.append(("pay", amount))
        return amount

    def take_back(result: Any, amount: int) -> None:
        stage.calls.append(("undo", amount))

    stage.undo(take_back)
    return pay


def test_a_key_called_again_behind_the_target_does_not_take_back_its_first_performance(stage: Stage) -> None:
    pay = paying(stage)

    @stage.flow
    async def flow(run: AsyncRun) -> Any:
        await run.effect(pay, 10, key="setup", undo="take_back")
        await run.step(len, "a", name="a")
        await run.effect(pay, 10, key="setup", undo="take_back")
        return await run.ask("?", bool)

    stage.start(flow)
    assert stage.app.rollback_plan(stage.run_id, to="a#1").undo == ()
    stage.app.rollback(stage.run_id, to="a#1")
    assert stage.calls == [("pay", 10)]
    assert stage.app.answer(stage.run_id, True).result(240) is True


def test_a_key_of_every_turn_survives_going_back_a_turn_and_pruning(stage: Stage) -> None:
    pay = paying(stage)

    @stage.flow
    async def flow(run: AsyncRun) -> Any:
        run.state["n"] = 0
        async for turn in run.loop():
            await run.effect(pay, 10, key="setup", undo="take_back")
            run.state["n"] = turn
            if turn == 5:
                return await run.ask("?", bool)

        return None

    stage.start(flow)
    stage.onlooker.prune(stage.run_id, Keep(last=2, journal=True))
    checkpoint = next(iter(stage.onlooker.history(stage.run_id)))
    assert stage.app.rollback_plan(stage.run_id, to=checkpoint.checkpoint_id).undo == ()
    stage.app.rollback(stage.run_id, to=checkpoint.checkpoint_id)
    assert stage.app.answer(stage.run_id, True).result(240) is True
    assert stage.calls == [("pay", 10)]


def test_what_was_left_by_force_and_done_anew_is_not_done_a_third_time(stage: Stage) -> None:
    pay = paying(stage)

    @stage.flow
    async def flow(run: AsyncRun) -> Any:
        await run.effect(pay, 10, key="p")
        await run.step(len, "b", name="b")
        await run.effect(pay, 10, key="p")
        return await run.ask("?", bool)

    stage.start(flow)
    stage.app.rollback(stage.run_id, to=1, force=True)
    assert stage.calls == [("pay", 10)] * 2
    stage.app.rollback(stage.run_id, to="b#1")
    assert stage.calls == [("pay", 10)] * 2


def test_a_fork_that_is_told_to_ask_keeps_to_the_answer(stage: Stage) -> None:
    pay = paying(stage)

    @stage.flow
    async def flow(run: AsyncRun) -> Any:
        return await run.effect(pay, 10, in_doubt="retry")

    stage.start(flow)
    fork = stage.app.fork(stage.run_id, f"{stage.run_id}-b", at=1, effects="ask")
    assert stage.app.answer(fork.run_id, {"outcome": "happened", "result": 77}).result(240) == 77
    assert stage.calls == [("pay", 10)]


def test_what_a_fork_performs_itself_is_its_own_to_undo(stage: Stage) -> None:
    pay = paying(stage)

    @stage.flow
    async def flow(run: AsyncRun) -> Any:
        await run.effect(pay, 10, undo="take_back", check=lambda amount: DidNotHappen)
        return await run.ask("?", bool)

    stage.start(flow)
    fork = stage.app.fork(stage.run_id, f"{stage.run_id}-b", at=1, effects="ask")
    assert stage.calls == [("pay", 10)] * 2  # the world was asked, and knew of nothing
    stage.app.rollback(fork.run_id, to=1, enqueue=True)
    assert stage.calls[2:] == [("undo", 10)]


@pytest.mark.parametrize("how", ["fork", "copy"])
@pytest.mark.parametrize("first", ["source", "other"])
def test_an_effect_in_doubt_that_did_not_happen_is_performed_by_each_run_as_its_own(
    stage: Stage, how: str, first: str
) -> None:
    bank: dict[str, int] = {}
    is_up: list[bool] = []

    def charge(amount: int, *, idempotency_key: str) -> str:
        if not is_up:
            raise InDoubt("the bank did not answer")
        bank.setdefault(idempotency_key, amount)
        return idempotency_key

    def refund(result: str, amount: int) -> None:
        del bank[result]

    stage.undo(refund)

    @stage.flow
    async def flow(run: AsyncRun) -> Any:
        receipt = await run.effect(charge, 5, undo="refund")
        await run.ask("ship?", bool)
        return receipt

    stage.start(flow)
    source, other = stage.run_id, f"{stage.run_id}-b"
    if how == "fork":
        stage.app.fork(source, other)
    else:
        stage.app.store.copy(source, other)
    is_up.append(True)
    for run_id in (other, source) if first == "other" else (source, other):
        stage.app.answer(run_id, {"outcome": "did not happen"})
    assert len(bank) == (2 if first == "other" else 1), "what the source has done meanwhile is reused"
    stage.app.rollback(other, to=1, enqueue=True)
    assert stage.app.answer(source, True, gate="ask#1").result(240) in bank
    assert len(bank) == 1


def test_a_fork_finds_the_relative_that_has_done_the_very_same(stage: Stage) -> None:
    pay, amounts = paying(stage), [10]

    @stage.flow
    async def flow(run: AsyncRun) -> Any:
        await run.step(len, "a")
        return await run.effect(pay, amounts[0], key="pay")

    stage.start(flow)
    amounts[0] = 20
    stage.app.fork(stage.run_id, f"{stage.run_id}-b", at="len#1")
    amounts[0] = 10
    assert stage.app.fork(stage.run_id, f"{stage.run_id}-c", at="len#1").result(240) == 10
    assert stage.calls == [("pay", 10), ("pay", 20)]


def test_a_refusal_that_was_caught_has_its_facts_on_replay_too(stage: Stage) -> None:
    pay = paying(stage)

    @stage.flow
    async def flow(run: AsyncRun) -> Any:
        await run.effect(pay, 10, key="p")
        try:
            await run.effect(pay, 20, key="p")
        except KeyReused as error:
            told = [error.key, error.run_id, str(error)]
        await run.ask("?", bool)
        return told

    stage.start(flow)
    stage.restart()
    assert stage.app.answer(stage.run_id, True).result(240)[:2] == ["p", stage.run_id]


def test_two_keyed_questions_are_open_at_once(awaiting: Stage) -> None:
    @awaiting.flow
    async def flow(run: AsyncRun) -> Any:
        return await asyncio.gather(run.ask("A?", bool, key="a"), run.ask("B?", bool, key="b"))

    handle = awaiting.start(flow)
    assert sorted(gate.gate for gate in handle.gates()) == ["a", "b"]
    awaiting.app.answer(awaiting.run_id, False, gate="b")
    assert awaiting.app.answer(awaiting.run_id, True, gate="a").result(240) == [True, False]


def test_a_claim_lost_while_the_run_begins_to_wait_is_told_as_such(local: Stage) -> None:
    @local.flow
    async def flow(run: AsyncRun) -> Any:
        await run.step(len, "a")
        return await run.ask("?", bool)

    def steal(commit: Any) -> None:
        if commit.release:
            local.wire.before = None
            row = local.onlooker.port.run(local.run_id)
            assert row is not None
            guard = Guard(incarnation=row.incarnation, gone=row.fence)
            taken = TakeClaim("thief", b"n" * 16, 60_000_000)
            local.onlooker.port.commit([Commit(local.run_id, b"c" * 8, guard, take=taken)])

    local.wire.before = steal
    with pytest.raises(ClaimLost, match="thief"):
        local.start(flow)


def test_a_worker_can_run_again(alone: Stage) -> None:
    @alone.flow
    async def flow(run: AsyncRun) -> int:
        return await run.step(len, "abc")

    worker = alone.app.worker(concurrency=1)
    for number in range(2):
        alone.start(flow, run_id=f"{alone.run_id}-{number}", enqueue=True)
        worker.run(until_idle=True)
        assert alone.status(f"{alone.run_id}-{number}") == "completed"
