"""One ledger for a run and its forks: what one of them has done is neither repeated nor undone by another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from holdfast import App, AsyncRun, InvalidInput, StepFailed
from holdfast.errors import RollbackFailed, UnknownWorkflow
from holdfast.runtime import replay_input
from holdfast.testing import replay
from tests.harness import Stage


class Bank:
    """Pays, and takes payments back. It notes both, and the idempotency keys it was given."""

    def __init__(self, stage: Stage) -> None:
        self.keys: list[str] = []
        self.closed = False

        def refund(receipt: Any, order: str) -> None:
            if self.closed:
                raise OSError("the bank is closed")
            stage.calls.append(("refund", receipt))

        def pay(order: str, idempotency_key: str) -> str:
            self.keys.append(idempotency_key)
            stage.calls.append(("pay", order))
            return f"receipt {len(self.keys)}"

        stage.undo(refund)
        self.pay: Callable[..., str] = pay
        self.refund = refund


def paying(stage: Stage) -> Any:
    """A run that pays, which can be undone, and asks."""
    bank = Bank(stage)

    @stage.flow
    async def flow(run: AsyncRun) -> Any:
        await run.step(len, "x")
        receipt = await run.effect(bank.pay, "A", undo=bank.refund)
        await run.ask("ok?", bool)
        return receipt

    return flow


@pytest.mark.parametrize("at", [None, "pay#1"], ids=["behind", "before"])
def test_rolling_back_a_fork_does_not_undo_what_its_source_has_done(stage: Stage, at: str | None) -> None:
    stage.start(paying(stage))
    fork = stage.app.fork(stage.run_id, f"{stage.run_id}-b", at=at)
    assert stage.app.rollback_plan(fork.run_id, to="pay#1").undo == ()
    stage.app.rollback(fork.run_id, to="pay#1")
    assert fork.status() == "waiting"
    assert stage.calls == [("pay", "A")]
    assert [line.state for line in stage.onlooker.effects(stage.run_id)] == ["done"]
    stage.app.rollback(stage.run_id, to="pay#1")
    assert stage.calls == [("pay", "A"), ("refund", "receipt 1"), ("pay", "A")], "undone once, by the one that did it"
    assert stage.app.answer(stage.run_id, True).result(240) == "receipt 2"


def test_of_a_source_and_its_fork_only_the_one_that_paid_takes_it_back(stage: Stage) -> None:
    stage.start(paying(stage))
    fork = stage.app.fork(stage.run_id, f"{stage.run_id}-b")
    stage.app.rollback(stage.run_id, to="pay#1")
    stage.app.rollback(fork.run_id, to="pay#1")
    assert [call for call in stage.calls if call[0] == "refund"] == [("refund", "receipt 1")]
    assert stage.calls.count(("pay", "A")) == 2
    assert stage.app.answer(fork.run_id, True).status() == "completed"


def test_a_rolled_back_fork_takes_what_its_source_has_done_anew(local: Stage) -> None:
    local.start(paying(local))
    fork = local.app.fork(local.run_id, f"{local.run_id}-b")
    local.app.rollback(local.run_id, to="pay#1")
    local.app.rollback(fork.run_id, to="pay#1")
    assert local.app.answer(fork.run_id, True).result(240) == "receipt 2", "the first one was refunded"


def test_a_fork_after_a_rollback_takes_the_outcome_that_stands(stage: Stage) -> None:
    stage.start(paying(stage))
    stage.app.rollback(stage.run_id, to="pay#1")
    before = list(stage.calls)
    assert before == [("pay", "A"), ("refund", "receipt 1"), ("pay", "A")]
    fork = stage.app.fork(stage.run_id, f"{stage.run_id}-b", at="len#1")
    assert fork.status() == "waiting"
    assert stage.calls == before
    assert stage.app.answer(fork.run_id, True).result(240) == "receipt 2"


def test_a_fork_of_an_effect_in_doubt_tries_it_with_the_same_idempotency_key(stage: Stage) -> None:
    def pay(idempotency_key: str) -> str:
        stage.calls.append(idempotency_key)
        if len(stage.calls) == 1:
            stage.die()
        return "paid"

    @stage.flow
    async def flow(run: AsyncRun) -> str:
        return await run.effect(pay, in_doubt="retry")

    stage.start_and_die(flow)
    stage.restart()
    assert stage.app.fork(stage.run_id, f"{stage.run_id}-b").result(240) == "paid"
    assert stage.app.resume(stage.run_id).result(240) == "paid"
    assert len(stage.calls) == 3
    assert len(set(stage.calls)) == 1, "one payment, one key"


def test_a_fork_that_meets_its_own_key_again_gets_the_record(stage: Stage) -> None:
    def pay() -> str:
        stage.calls.append("paid")
        return "paid"

    @stage.flow
    async def flow(run: AsyncRun) -> Any:
        found = []
        async for turn in run.loop():
            found.append(await run.effect(pay, key="once"))
            await run.ask("go on?", bool)
            if turn == 2:
                break
        return found

    stage.start(flow)
    fork = stage.app.fork(stage.run_id, f"{stage.run_id}-b")
    for run_id in (fork.run_id, stage.run_id):
        assert stage.app.answer(run_id, True).status() == "waiting"
        assert stage.app.answer(run_id, True).status() == "completed"
    assert stage.calls == ["paid"]


def test_every_rollback_to_the_same_place_takes_the_same_back(stage: Stage) -> None:
    """A question that was asked before the place and answered after it is void, however often one goes back there."""

    @stage.flow
    async def flow(run: AsyncRun) -> Any:
        async def asks(inner: AsyncRun) -> Any:
            return await inner.ask("A?", str)

        async def saves(inner: AsyncRun) -> None:
            await inner.step(len, "x")
            await inner.checkpoint(key="cp")

        answer = (await run.gather(asks, saves))[0]
        await run.step(len, "yy")
        return [answer, await run.ask("end?", str)]

    stage.start(flow)
    stage.app.answer(stage.run_id, "first")
    to = next(n for n, entry in enumerate(stage.journal(), 1) if entry["kind"] == "saved")
    for answer in ("second", "third", "fourth", "fifth"):
        stage.app.rollback(stage.run_id, to=to)
        assert [gate.prompt for gate in stage.app.gates(stage.run_id)] == ["A?"]
        stage.app.answer(stage.run_id, answer)
    stage.restart()
    assert stage.app.answer(stage.run_id, "end").result(240) == ["fifth", "end"]
    assert replay(stage.app, stage.run_id).status == "completed"


def test_nobody_goes_to_behind_what_an_interrupted_rollback_has_undone(local: Stage) -> None:
    bank = Bank(local)

    def give_back(receipt: Any) -> None:
        local.calls.append("given back")

    def buy() -> str:
        return "bought"

    local.undo(give_back)

    @local.flow
    async def flow(run: AsyncRun) -> Any:
        found = [await run.effect(bank.pay, "A", undo=bank.refund), await run.effect(buy, undo=give_back)]
        await run.checkpoint(key="cp")
        await run.ask("ok?", bool)
        return found

    local.start(flow)
    bank.closed = True
    with pytest.raises(RollbackFailed):
        local.app.rollback(local.run_id, to=1)
    assert local.calls == [("pay", "A"), "given back"]
    before = local.journal()
    for behind in ("cp", "buy#1"):
        with pytest.raises(InvalidInput, match="has begun; continue it"):
            local.app.rollback(local.run_id, to=behind)
    assert local.journal() == before
    bank.closed = False
    local.app.rollback(local.run_id)
    assert local.app.answer(local.run_id, True).result(240) == ["receipt 2", "bought"]


@pytest.mark.parametrize("big", [False, True], ids=["unstorable", "too large"])
def test_an_effect_whose_result_cannot_be_kept_counts_as_done_and_is_undone(
    local: Stage, big: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay_input, "_VALUE_BYTES_MAX", 100_000)

    def refund(receipt: Any, order: str) -> None:
        local.calls.append(("refund", receipt))

    def pay(order: str) -> Any:
        local.calls.append(("pay", order))
        return "x" * 100_001 if big else object()

    local.undo(refund)
    seen: list[str] = []

    @local.flow
    async def flow(run: AsyncRun) -> None:
        async for turn in run.loop():
            try:
                await run.effect(pay, "A", key="pay", undo=refund)
            except StepFailed as failed:
                seen.append(str(failed))
            if turn == 2:
                break
        await run.ask("ok?", bool)

    assert local.start(flow).status() == "waiting"
    assert local.calls == [("pay", "A")], "the second turn knows that it was done"
    assert [line.state for line in local.onlooker.effects(local.run_id)] == ["done"]
    local.restart()
    plan = local.app.rollback_plan(local.run_id, to=1)
    assert [effect.key for effect in plan.undo] == ["pay"]
    assert local.app.rollback(local.run_id, to=1).status() == "waiting"
    assert local.calls == [("pay", "A"), ("refund", None), ("pay", "A")]
    assert local.app.answer(local.run_id, True).status() == "completed"


def test_an_effect_with_a_too_large_result_fails_the_same_on_replay(
    local: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay_input, "_VALUE_BYTES_MAX", 100_000)
    seen: list[str] = []

    def pay() -> str:
        local.calls.append("paid")
        return "x" * 100_001

    @local.flow
    async def flow(run: AsyncRun) -> None:
        try:
            await run.effect(pay)
        except StepFailed as failed:
            seen.append(str(failed))
        await run.ask("ok?", bool)

    assert local.start(flow).status() == "waiting"
    local.restart()
    assert local.app.answer(local.run_id, True).status() == "completed"
    assert local.calls == ["paid"]
    assert seen[0] == seen[1]


def test_a_fork_of_a_cancelled_run_begins_before_its_cancellation(stage: Stage) -> None:
    @stage.flow
    async def flow(run: AsyncRun) -> str:
        await run.step(len, "x")
        try:
            return str(await run.ask("go on?", str))
        finally:
            if run.attempt > 1:
                await run.step(len, "yy", name="clean_up")

    stage.start(flow)
    assert stage.app.cancel(stage.run_id).status() == "cancelled"
    kinds = [entry["kind"] for entry in stage.journal()]
    assert kinds == ["started", "step", "asked", "cancelling", "step", "cancelled"]
    fork = stage.app.fork(stage.run_id, f"{stage.run_id}-b")
    assert fork.status() == "waiting"
    assert stage.app.answer(fork.run_id, "on").result(240) == "on"
    for inside in (4, 5, "clean_up#1"):
        with pytest.raises(InvalidInput, match="is in its cleanup; choose 3 or less"):
            stage.app.fork(stage.run_id, f"{stage.run_id}-c", at=inside)
    assert stage.app.fork(stage.run_id, f"{stage.run_id}-c", at=3).status() == "waiting"


def test_an_idempotency_key_of_the_callers_own_is_left_alone(local: Stage) -> None:
    def pay(order: str, idempotency_key: str) -> str:
        return idempotency_key

    @local.flow
    async def flow(run: AsyncRun) -> str:
        return await run.effect(pay, "A", idempotency_key="order-17")

    assert local.start(flow).result(240) == "order-17"


def test_a_process_without_the_workflow_rolls_nothing_back(stage: Stage) -> None:
    stage.start(paying(stage))
    before = stage.journal()
    with App(stage.onlooker) as other, pytest.raises(UnknownWorkflow, match="flow"):
        other.rollback(stage.run_id, to=1)
    assert stage.journal() == before
    assert stage.status() == "waiting"
    assert stage.calls == [("pay", "A")]
    assert stage.app.answer(stage.run_id, True).result(240) == "receipt 1"
