"""An exception does not prove that an effect did not happen: which ones leave it in doubt, and what is retried."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from holdfast import (
    AsyncRun,
    DidNotHappen,
    EffectInDoubt,
    Happened,
    InDoubt,
    InvalidInput,
    Retry,
    RunFailed,
    StepFailed,
)
from tests.harness import Stage

SOON = Retry(attempts=3, initial_delay=0)


def pays_and_raises(stage: Stage, error: Any, *, key: bool = False, good: int = 99, **options: Any) -> None:
    """A workflow whose effect pays and then raises, up to its call number `good`; it returns what it was told."""

    def pay(amount: int) -> str:
        stage.calls.append(amount)
        if len(stage.calls) < good:
            raise error
        return f"receipt {len(stage.calls)}"

    def pay_once(amount: int, *, idempotency_key: str) -> str:
        stage.calls.append(idempotency_key)
        if len(stage.calls) < good:
            raise error
        return f"receipt {len(stage.calls)}"

    @stage.flow
    async def order(run: AsyncRun) -> str:
        try:
            return await run.effect(pay_once if key else pay, 30, name="pay", **options)
        except EffectInDoubt as failed:
            await run.ask("more?", bool)
            return f"in doubt: {failed}"
        except StepFailed as failed:
            await run.ask("more?", bool)
            return f"failed: {failed}"

    stage.start("order")


def told(stage: Stage) -> str:
    """What the workflow was told, live and on replay: the same."""
    stage.restart()
    return str(stage.app.answer(stage.run_id, True).result(240))


def the_ledger(stage: Stage) -> list[str]:
    return [line.state for line in stage.onlooker.effects(stage.run_id)]


@pytest.mark.parametrize(
    "error", [TimeoutError("late"), ConnectionResetError("reset"), InDoubt("no word"), SystemExit(3)]
)
def test_after_a_doubtful_exception_a_person_is_asked_in_the_same_run_and_nothing_is_retried(
    stage: Stage, error: BaseException
) -> None:
    pays_and_raises(stage, error, retry=SOON)
    assert stage.status() == "waiting"
    (gate,) = stage.app.gates(stage.run_id)
    assert gate.purpose == "in_doubt"
    assert type(error).__name__ in gate.prompt
    assert the_ledger(stage) == ["in_doubt"]
    stage.restart()
    assert stage.app.answer(stage.run_id, {"outcome": "happened", "result": "r"}).result(240) == "r"
    assert stage.calls == [30]
    assert the_ledger(stage) == ["done"]


def test_the_person_may_have_it_performed_again(stage: Stage) -> None:
    pays_and_raises(stage, TimeoutError("late"), good=2)
    assert stage.app.answer(stage.run_id, {"outcome": "did not happen"}).result(240) == "receipt 2"


def test_in_doubt_fail_raises_and_the_ledger_does_not_call_it_failed(stage: Stage) -> None:
    pays_and_raises(stage, TimeoutError("late"), retry=SOON, in_doubt="fail")
    assert told(stage) == "in doubt: effect 'pay#1' failed: InDoubt: it raised TimeoutError: late"
    assert stage.calls == [30]
    assert the_ledger(stage) == ["in_doubt"]
    (outcome,) = stage.journal("outcome")
    assert outcome["error"]["cause"]["type"] == "TimeoutError"


@pytest.mark.parametrize(
    ("found", "expected", "calls", "state"),
    [
        (Happened("found"), "found", 1, "done"),
        (DidNotHappen, "receipt 2", 2, "done"),
        (ConnectionError("closed"), None, 1, "in_doubt"),
    ],
)
def test_a_check_is_asked_first(stage: Stage, found: Any, expected: Any, calls: int, state: str) -> None:
    def check(amount: int) -> Any:
        if isinstance(found, Exception):
            raise found
        return found

    pays_and_raises(stage, TimeoutError("late"), good=2, check=check, retry=Retry(attempts=2, initial_delay=0))
    assert (len(stage.calls), the_ledger(stage)) == (calls, [state])
    if expected is None:
        assert stage.status() == "waiting"
    else:
        assert stage.app.handle(stage.run_id).result(240) == expected


def test_a_check_that_never_finds_it_does_not_repeat_it_for_ever(stage: Stage) -> None:
    pays_and_raises(stage, TimeoutError("late"), check=lambda amount: DidNotHappen, retry=SOON)
    assert stage.calls == [30] * 3
    assert the_ledger(stage) == ["failed"], "its check knows that it did not happen"
    assert told(stage) == "failed: effect 'pay#1' failed after 3 attempts: TimeoutError: late"


@pytest.mark.parametrize("options", [{"key": True, "retry": SOON}, {"in_doubt": "retry", "retry": SOON}])
def test_what_may_be_repeated_is_retried_under_the_same_key(stage: Stage, options: Any) -> None:
    pays_and_raises(stage, TimeoutError("late"), good=3, **options)
    assert stage.app.handle(stage.run_id).result(240) == "receipt 3"
    assert len(stage.calls) == 3
    assert len(set(stage.calls)) == 1
    assert the_ledger(stage) == ["done"]


def test_with_a_key_the_policy_decides_when_the_tries_are_used_up(stage: Stage) -> None:
    pays_and_raises(stage, TimeoutError("late"), key=True, retry=SOON)
    assert len(stage.calls) == 3
    assert stage.status() == "waiting"
    assert stage.app.gates(stage.run_id)[0].show["idempotency_key"] == stage.calls[0]


@pytest.mark.parametrize(("retry", "tries"), [(None, 3), (2, 2), (Retry(attempts=5, initial_delay=0), 5)])
def test_in_doubt_retry_has_a_limit_and_then_it_is_in_doubt(local: Stage, retry: Any, tries: int) -> None:
    pays_and_raises(local, TimeoutError("late"), in_doubt="retry", retry=retry)
    while not local.journal("outcome"):  # longer waits give the run back
        local.clock.advance(60)
        local.app.resume(local.run_id)
    assert local.calls == [30] * tries
    assert told(local).startswith(f"in doubt: effect 'pay#1' failed after {tries} attempts: InDoubt: it raised Timeout")
    assert the_ledger(local) == ["in_doubt"]


def test_tries_are_counted_over_restarts_and_a_crash_is_not_a_try(stage: Stage) -> None:
    def pay() -> None:
        stage.calls.append("call")
        if len(stage.calls) in (2, 3):
            stage.die()
        raise TimeoutError("late")

    @stage.flow
    async def flow(run: AsyncRun) -> str:
        try:
            await run.effect(pay, in_doubt="retry", retry=SOON)
        except EffectInDoubt as error:
            return f"after {error.attempts}"
        return ""

    stage.start_and_die(flow)
    with contextlib.suppress(Exception):
        stage.resume()
    assert stage.resume().result(240) == "after 3"
    assert len(stage.calls) == 5


@pytest.mark.parametrize("crash", [True, False])
def test_a_try_that_proves_that_it_did_nothing_does_not_end_the_doubt_of_an_earlier_one(
    stage: Stage, crash: bool
) -> None:
    def pay() -> None:
        stage.calls.append("call")
        if len(stage.calls) > 1:
            raise ConnectionRefusedError("closed")
        if crash:
            stage.die()
        raise TimeoutError("late")

    @stage.flow
    async def flow(run: AsyncRun) -> str:
        try:
            await run.effect(pay, in_doubt="retry", retry=Retry(attempts=2, initial_delay=0))
        except StepFailed as error:
            return f"{type(error).__name__}: {error.error_message}"
        return ""

    if crash:
        stage.start_and_die(flow)
        handle = stage.resume()
    else:
        handle = stage.start(flow)
    assert handle.result(240).startswith("EffectInDoubt: an earlier attempt is in doubt, and the last one raised Conn")
    assert the_ledger(stage) == ["in_doubt"]


def test_a_wait_before_the_next_try_outlives_the_process(stage: Stage) -> None:
    pays_and_raises(
        stage, TimeoutError("late"), good=2, in_doubt="retry", retry=Retry(attempts=2, initial_delay=600, max_delay=600)
    )
    assert stage.status() == "waiting"
    stage.restart()
    stage.clock.advance(1000)
    assert stage.app.resume(stage.run_id).result(240) == "receipt 2"


def test_code_that_no_longer_calls_it_idempotent_asks_instead_of_trying_again(stage: Stage) -> None:
    later = Retry(attempts=2, initial_delay=600, max_delay=600)
    pays_and_raises(stage, TimeoutError("late"), in_doubt="retry", retry=later)
    assert stage.status() == "waiting"

    def pay(amount: int) -> str:
        stage.calls.append("again")
        return "twice"

    async def order(run: AsyncRun) -> Any:
        return await run.effect(pay, 30, name="pay", retry=later)

    stage.change(order)
    stage.clock.advance(1000)
    assert stage.app.resume(stage.run_id).status() == "waiting"
    assert "It raised TimeoutError: late" in stage.app.gates(stage.run_id)[0].prompt
    assert stage.app.answer(stage.run_id, {"outcome": "happened", "result": "r"}).result(240) == "r"
    assert stage.calls == [30]


# --- neither proven nor doubtful --------------------------------------------------------------------------------------


def test_an_exception_of_no_known_meaning_fails_the_effect_and_is_not_retried(stage: Stage) -> None:
    pays_and_raises(stage, KeyError("receipt"), retry=SOON)
    assert stage.calls == [30]
    assert the_ledger(stage) == ["failed"]
    assert told(stage) == (
        "failed: effect 'pay#1' failed: KeyError: 'receipt'; it was not retried, because KeyError does not prove that "
        "nothing happened: list it in not_done=, give 'pay' a parameter idempotency_key, or pass in_doubt=\"retry\""
    )


@pytest.mark.parametrize(
    "options", [{"key": True}, {"in_doubt": "retry"}, {"not_done": KeyError}, {"classify": lambda error: "not_done"}]
)
def test_an_exception_of_no_known_meaning_is_retried_where_that_does_no_harm(stage: Stage, options: Any) -> None:
    pays_and_raises(stage, KeyError("receipt"), retry=SOON, **options)
    assert len(stage.calls) == 3
    assert the_ledger(stage) == ["failed"]
    assert told(stage) == "failed: effect 'pay#1' failed after 3 attempts: KeyError: 'receipt'"


def test_without_retry_nothing_is_said_about_it(local: Stage) -> None:
    pays_and_raises(local, KeyError("receipt"))
    assert told(local) == "failed: effect 'pay#1' failed: KeyError: 'receipt'"


def test_an_exception_that_proves_that_nothing_happened_is_retried(stage: Stage) -> None:
    pays_and_raises(stage, ConnectionRefusedError("closed"), good=3, retry=SOON)
    assert stage.app.handle(stage.run_id).result(240) == "receipt 3"


# --- whose word counts ------------------------------------------------------------------------------------------------


def test_the_call_counts_more_than_the_app_and_the_app_more_than_the_table(stage: Stage) -> None:
    def classify(error: BaseException) -> Any:
        return "doubtful" if isinstance(error, ValueError) else None

    stage.open(classify=classify)

    def fail(error: Exception) -> None:
        raise error

    @stage.flow
    async def flow(run: AsyncRun) -> list[str]:
        found = []
        for options in ({}, {"not_done": ValueError}, {"doubtful": KeyError}):
            for error in (ValueError("v"), KeyError("k")):
                try:
                    await run.effect(fail, error, name="fail", in_doubt="fail", **options)
                except StepFailed as raised:
                    found.append(type(raised).__name__)
        return found

    doubt, failed = "EffectInDoubt", "EffectFailed"
    assert stage.start(flow).result(240) == [doubt, failed, failed, failed, doubt, doubt]


def test_wrong_declarations_are_refused_before_anything_is_written(local: Stage) -> None:
    @local.flow
    async def flow(run: AsyncRun) -> str:
        try:
            await run.effect(len, "x", not_done="ValueError")
        except InvalidInput as error:
            return str(error)
        return ""

    assert local.start(flow).result(240) == "not_done must be exception types, not 'ValueError'"
    assert the_ledger(local) == []


# --- cancellation -----------------------------------------------------------------------------------------------------


def test_a_cancelled_await_inside_an_effect_leaves_it_in_doubt(local: Stage) -> None:
    async def pay() -> None:
        local.calls.append("call")
        raise asyncio.CancelledError("something inside was cancelled")

    @local.flow
    async def flow(run: AsyncRun) -> None:
        await run.effect(pay, in_doubt="fail", retry=SOON)

    with pytest.raises(RunFailed, match="InDoubt: it raised"):
        local.start(flow).result(240)
    assert the_ledger(local) == ["in_doubt"]
    assert local.calls == ["call"]


def test_an_interrupted_process_leaves_its_effect_in_doubt(local: Stage) -> None:
    def pay() -> None:
        local.calls.append("call")
        raise KeyboardInterrupt

    @local.flow
    async def flow(run: AsyncRun) -> None:
        await run.effect(pay, retry=SOON)

    with pytest.raises(KeyboardInterrupt):
        local.start(flow)
    assert the_ledger(local) == ["in_doubt"]
    assert local.resume().status() == "waiting"
    assert local.app.gates(local.run_id)[0].purpose == "in_doubt"
    assert local.calls == ["call"]
