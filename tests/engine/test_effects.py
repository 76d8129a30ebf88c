"""Effects: the intent first, then the call, then its outcome; keys, undos, and the ledger."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import AsyncRun, EffectFailed, InvalidInput, Retry, StepFailed
from holdfast.errors import Diverged, KeyReused
from tests.harness import Stage


def test_the_intent_is_durable_before_the_call_and_the_outcome_after_it(stage: Stage) -> None:
    def pay(amount: int) -> str:
        ledger = stage.onlooker.effects(stage.run_id)
        stage.calls.append([(line.tool, line.state, line.target) for line in ledger])
        stage.calls.append([entry["kind"] for entry in stage.journal()])
        return f"paid {amount}"

    @stage.flow
    async def flow(run: AsyncRun) -> str:
        return await run.effect(pay, 30, target="bank")

    assert stage.start(flow).result(240) == "paid 30"
    assert stage.calls == [[("pay", "in_doubt", "bank")], ["started", "intent"]]
    (line,) = stage.app.store.effects(stage.run_id)
    assert (line.tool, line.state, line.done, line.result) == ("pay", "done", True, "paid 30")
    assert [entry["kind"] for entry in stage.journal()] == ["started", "intent", "outcome", "completed"]


def test_a_recorded_effect_is_not_performed_again(stage: Stage) -> None:
    def pay() -> str:
        stage.calls.append("paid")
        return "receipt"

    def after() -> None:
        stage.calls.append("after")
        if stage.calls.count("after") == 1:
            stage.die()

    @stage.flow
    async def flow(run: AsyncRun) -> str:
        receipt = await run.effect(pay)
        await run.step(after)
        return receipt

    stage.start_and_die(flow)
    assert stage.resume().result(240) == "receipt"
    assert stage.calls == ["paid", "after", "after"]


def test_the_idempotency_key_stays_the_same_over_retries_and_resumes(stage: Stage) -> None:
    def pay(amount: int, *, idempotency_key: str) -> str:
        stage.calls.append(idempotency_key)
        if len(stage.calls) == 2:
            stage.die()
        if len(stage.calls) < 4:
            raise ConnectionError("away")
        return "paid"

    @stage.flow
    async def flow(run: AsyncRun) -> list[str]:
        first = await run.effect(pay, 3, in_doubt="retry", retry=Retry(attempts=9, initial_delay=0))
        return [first, await run.effect(pay, 3), await run.effect(pay, 4)]

    stage.start_and_die(flow)
    assert stage.resume().result(240) == ["paid"] * 3
    assert len(set(stage.calls[:4])) == 1
    assert len(set(stage.calls[3:])) == 3, "the same call again, and one with other arguments, are other effects"
    assert len(stage.calls) == 6


def test_two_runs_never_share_an_idempotency_key(local: Stage) -> None:
    def pay(*, idempotency_key: str) -> None:
        local.calls.append(idempotency_key)

    @local.flow
    async def flow(run: AsyncRun) -> None:
        await run.effect(pay, key="the same")

    local.start(flow)
    local.start(flow, run_id=f"{local.run_id}-other")
    assert len(set(local.calls)) == 2


def test_a_failing_effect_is_recorded_as_failed_and_raises_the_same_on_replay(stage: Stage) -> None:
    seen: list[EffectFailed] = []

    def pay() -> None:
        stage.calls.append("call")
        raise PermissionError("no money")

    @stage.flow
    async def flow(run: AsyncRun) -> None:
        try:
            await run.effect(pay, retry=Retry(attempts=2, initial_delay=0), not_done=PermissionError)
        except EffectFailed as error:
            seen.append(error)
        await run.ask("more?", bool)

    stage.start(flow)
    (line,) = stage.app.store.effects(stage.run_id)
    assert line.state == "failed"
    stage.restart()
    stage.app.answer(stage.run_id, True).result(240)
    live, replayed = seen
    assert str(live) == str(replayed) == "effect 'pay#1' failed after 2 attempts: PermissionError: no money"
    assert live.failure == replayed.failure
    assert isinstance(live.__cause__, PermissionError)
    assert replayed.__cause__ is None
    assert stage.calls == ["call", "call"]
    assert [entry["kind"] for entry in stage.journal()][:5] == ["started", "intent", "attempt", "intent", "outcome"]


def test_a_long_wait_between_attempts_gives_the_run_back(stage: Stage) -> None:
    def pay() -> str:
        stage.calls.append("call")
        if len(stage.calls) == 1:
            raise ConnectionRefusedError("away")
        return "paid"

    @stage.flow
    async def flow(run: AsyncRun) -> str:
        return await run.effect(pay, retry=Retry(attempts=2, initial_delay=600, max_delay=600, jitter=0))

    assert stage.start(flow).status() == "waiting"
    stage.restart()
    stage.clock.advance(601)
    assert stage.app.resume(stage.run_id).result(240) == "paid"
    assert stage.calls == ["call", "call"]


def test_an_explicit_key_with_other_arguments_is_refused(stage: Stage) -> None:
    def pay(amount: int) -> int:
        stage.calls.append(amount)
        return amount

    @stage.flow
    async def flow(run: AsyncRun) -> list[Any]:
        async def small(inner: AsyncRun) -> int:
            return await inner.effect(pay, 1, key="order-1")

        async def large(inner: AsyncRun) -> str:
            try:
                await inner.effect(pay, 100, key="order-1")
            except KeyReused as error:
                return error.key
            return "performed"

        return [*await run.gather(small), *await run.gather(large)]

    assert stage.start(flow).result(240) == [1, "order-1"]
    assert stage.calls == [1]


def test_an_explicit_key_with_the_same_arguments_elsewhere_has_its_recorded_outcome(stage: Stage) -> None:
    def pay(amount: int) -> str:
        stage.calls.append(amount)
        return f"receipt {len(stage.calls)}"

    @stage.flow
    async def flow(run: AsyncRun) -> list[Any]:
        async def once(inner: AsyncRun) -> str:
            return await inner.effect(pay, 5, key="order-1")

        found = [*await run.gather(once), *await run.gather(once), await run.effect(pay, 5, key="order-1")]
        await run.ask("more?", bool)
        return found

    stage.start(flow)
    stage.restart()
    assert stage.app.answer(stage.run_id, True).result(240) == ["receipt 1"] * 3
    assert stage.calls == [5]
    assert [line.key for line in stage.app.store.effects(stage.run_id)] == ["order-1"]


def test_code_that_gives_a_recorded_key_other_arguments_is_refused(stage: Stage) -> None:
    def pay(amount: int) -> int:
        return amount

    async def flow(run: AsyncRun) -> int:
        paid = await run.effect(pay, 1, key="k")
        await run.ask("more?", bool)
        return paid

    async def changed(run: AsyncRun) -> int:
        paid = await run.effect(pay, 2, key="k")
        await run.ask("more?", bool)
        return paid

    stage.flow(flow)
    stage.start(flow)
    stage.change(changed, name="flow")
    with pytest.raises(Diverged):  # the refusal ends the workflow before its record does
        stage.app.answer(stage.run_id, True)
    assert stage.status() == "paused"


def test_an_undo_that_is_not_registered_is_refused_before_anything_is_written(stage: Stage) -> None:
    def take_back(result: Any) -> None:
        """Not registered."""

    def pay() -> None:
        stage.calls.append("paid")

    @stage.flow
    async def flow(run: AsyncRun) -> str:
        try:
            await run.effect(pay, undo=take_back)
        except InvalidInput as error:
            return str(error)
        return ""

    assert "'take_back' is not registered" in stage.start(flow).result(240)
    assert stage.calls == []
    assert stage.app.store.effects(stage.run_id) == []
    assert [entry["kind"] for entry in stage.journal()] == ["started", "completed"]


def test_a_registered_undo_makes_the_line_reversible(stage: Stage) -> None:
    def take_back(result: Any) -> None:
        """Registered."""

    def pay() -> None:
        """Nothing."""

    stage.undo(take_back)

    @stage.flow
    async def flow(run: AsyncRun) -> None:
        await run.effect(pay, undo=take_back)
        await run.effect(pay, undo="take_back")
        await run.effect(pay)

    stage.start(flow)
    assert [line.reversible for line in stage.app.store.effects(stage.run_id)] == [True, True, False]


def test_an_effect_with_an_undo_needs_arguments_that_can_be_stored(local: Stage) -> None:
    def take_back(result: Any, given: Any) -> None:
        """Registered."""

    def pay(given: Any) -> str:
        local.calls.append("paid")
        return "paid"

    local.undo(take_back)

    @local.flow
    async def flow(run: AsyncRun) -> list[str]:
        found = [await run.effect(pay, object())]
        try:
            await run.effect(pay, object(), undo=take_back)
        except InvalidInput as error:
            found.append(str(error))
        return found

    paid, refused = local.start(flow).result(240)
    assert paid == "paid"
    assert "its arguments must be storable" in refused
    assert local.calls == ["paid"]


def test_a_result_that_cannot_be_stored_fails_the_effect_and_it_is_not_done_again(stage: Stage) -> None:
    def pay() -> object:
        stage.calls.append("paid")
        return object()

    @stage.flow
    async def flow(run: AsyncRun) -> str:
        try:
            await run.effect(pay, retry=3)
        except StepFailed as error:
            await run.ask("more?", bool)
            return error.error_type
        return ""

    stage.start(flow)
    stage.restart()
    assert stage.app.answer(stage.run_id, True).result(240) == "Unstorable"
    assert stage.calls == ["paid"]


def test_an_async_function_can_be_an_effect_of_both_kinds(stage: Stage) -> None:
    async def pay(amount: int, *, idempotency_key: str) -> int:
        stage.calls.append(idempotency_key)
        return amount

    @stage.flow
    async def flow(run: AsyncRun) -> int:
        return await run.effect(pay, 8)

    assert stage.start(flow).result(240) == 8
    assert len(stage.calls[0]) == 32
