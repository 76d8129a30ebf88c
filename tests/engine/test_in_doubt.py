"""Effects in doubt: begun, and nobody knows whether they happened."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from typing import Any

import pytest

from holdfast import AsyncRun, DidNotHappen, EffectInDoubt, Happened, InvalidAnswer
from holdfast.errors import StorageFailed
from tests.harness import Stage


@dataclasses.dataclass
class Receipt:
    number: str


def dies_while_paying(stage: Stage, **options: Any) -> None:
    """A run whose process died inside its effect."""

    def pay(amount: int) -> str:
        stage.calls.append(amount)
        if len(stage.calls) == 1:
            stage.die()
        return f"receipt {len(stage.calls)}"

    @stage.flow
    async def order(run: AsyncRun) -> str:
        try:
            return await run.effect(pay, 30, **options)
        except EffectInDoubt as error:
            await run.step(len, "after")
            return f"in doubt: {error.error_message}"

    stage.start_and_die(order)


def the_ledger(stage: Stage) -> list[str]:
    return [line.state for line in stage.app.store.effects(stage.run_id)]


def test_a_person_is_asked_by_default_and_says_that_it_happened(stage: Stage) -> None:
    dies_while_paying(stage)
    assert stage.resume().status() == "waiting"
    (gate,) = stage.app.gates(stage.run_id)
    assert gate.purpose == "in_doubt"
    assert "Did pay happen?" in gate.prompt
    assert gate.show["effect"] == "pay"
    assert gate.show["arguments"] == ["amount=30"]
    assert [choice.value for choice in gate.form.fields[0].choices] == ["happened", "did not happen", "fail"]
    assert [choice.label.partition(":")[0] for choice in gate.form.fields[0].choices] == [
        "Happened", "Did not happen", "Fail",
    ]  # fmt: skip
    assert the_ledger(stage) == ["in_doubt"]
    stage.restart()
    with pytest.raises(InvalidAnswer):
        stage.app.answer(stage.run_id, {"outcome": "perhaps"})
    done = stage.app.answer(stage.run_id, {"outcome": "happened", "result": "receipt 1"}, by="ana")
    assert done.result(240) == "receipt 1"
    assert stage.calls == [30]
    assert the_ledger(stage) == ["done"]
    outcome = stage.journal("outcome")[0]
    assert (outcome["how"], outcome["by"], outcome["result"]) == ("answered", "ana", "receipt 1")


def test_only_the_people_that_are_named_decide_what_happened(stage: Stage) -> None:
    dies_while_paying(stage, ask_who=["cho", "group:finance"])
    stage.resume()
    (gate,) = stage.app.gates(stage.run_id)
    assert gate.who == ("cho", "group:finance")
    answer = {"outcome": "happened", "result": "receipt 1"}
    with pytest.raises(InvalidAnswer, match="it is for cho"):
        stage.app.answer(stage.run_id, answer, by="ana")
    assert stage.app.answer(stage.run_id, answer, by="ben", groups=("finance",)).result(240) == "receipt 1"


def test_a_person_says_that_it_did_not_happen_and_it_is_performed(stage: Stage) -> None:
    dies_while_paying(stage)
    stage.resume()
    assert stage.app.answer(stage.run_id, {"outcome": "did not happen"}).result(240) == "receipt 2"
    assert stage.calls == [30, 30]
    assert the_ledger(stage) == ["done"]


def test_a_person_says_that_it_counts_as_failed(stage: Stage) -> None:
    dies_while_paying(stage)
    stage.resume()
    handle = stage.app.answer(stage.run_id, {"outcome": "fail"}, by="ana")
    assert handle.result(240) == "in doubt: ana decided that it counts as failed"
    assert stage.calls == [30]
    assert the_ledger(stage) == ["in_doubt"], "nobody knows, so the ledger does not say that it failed"


@pytest.mark.parametrize("outcome", ["did not happen", "fail"])
def test_a_result_of_an_effect_that_did_not_happen_is_refused(stage: Stage, outcome: str) -> None:
    dies_while_paying(stage)
    stage.resume()
    with pytest.raises(InvalidAnswer) as refused:
        stage.app.answer(stage.run_id, {"outcome": outcome, "result": "receipt 1"})
    assert refused.value.problems == [f"result must be left out if the outcome is {outcome!r}"]
    (gate,) = stage.app.gates(stage.run_id)
    assert gate.state == "open"
    assert stage.calls == [30]
    assert stage.app.answer(stage.run_id, {"outcome": outcome, "result": None}).result(240)


def test_arguments_without_a_parameter_name_are_shown_as_they_are(stage: Stage) -> None:
    def pay(first: int, /, *rest: int, note: str) -> None:
        raise TimeoutError

    @stage.flow
    async def order(run: AsyncRun) -> None:
        await run.effect(pay, 1, 2, 3, note="x")

    stage.start(order)
    (gate,) = stage.app.gates(stage.run_id)
    assert gate.show["arguments"] == ["first=1", "2", "3", "note='x'"]


def test_death_after_the_person_answered_and_before_the_second_call_asks_again(stage: Stage) -> None:
    dies_while_paying(stage)
    stage.resume()
    stage.wire.cut_after(2)
    stage.calls.clear()
    with contextlib.suppress(StorageFailed):
        stage.app.answer(stage.run_id, {"outcome": "did not happen"})
    assert stage.resume().status() == "waiting"
    assert len(stage.app.gates(stage.run_id)) == 1
    assert stage.app.answer(stage.run_id, {"outcome": "happened", "result": "r"}).result(240) == "r"


def test_an_effect_declared_idempotent_is_tried_again(stage: Stage) -> None:
    dies_while_paying(stage, in_doubt="retry")
    assert stage.resume().result(240) == "receipt 2"
    assert the_ledger(stage) == ["done"]


def test_an_effect_may_be_declared_to_fail_in_doubt(stage: Stage) -> None:
    dies_while_paying(stage, in_doubt="fail")
    assert stage.resume().result(240) == "in doubt: the process died during the call"
    assert stage.calls == [30]
    assert the_ledger(stage) == ["in_doubt"]


def test_a_check_that_finds_it_happened_gives_the_result(stage: Stage) -> None:
    def check(amount: int) -> Happened:
        stage.calls.append(("check", amount))
        return Happened("found receipt")

    dies_while_paying(stage, check=check, in_doubt="fail")
    assert stage.resume().result(240) == "found receipt"
    assert stage.calls == [30, ("check", 30)]
    assert stage.journal("outcome")[0]["how"] == "checked"
    assert the_ledger(stage) == ["done"]


def test_a_check_that_finds_it_did_not_happen_lets_it_be_performed(stage: Stage) -> None:
    async def check(amount: int) -> Any:
        return DidNotHappen

    dies_while_paying(stage, check=check, in_doubt="fail")
    assert stage.resume().result(240) == "receipt 2"


def test_a_check_that_raises_leaves_it_to_the_policy(stage: Stage) -> None:
    def check(amount: int) -> Any:
        raise ConnectionError("bank is closed")

    dies_while_paying(stage, check=check, in_doubt="fail")
    told = stage.resume().result(240)
    assert told.endswith("its check raised ConnectionError: bank is closed")


def test_a_check_that_raises_leaves_it_to_a_person_whose_answer_counts(stage: Stage) -> None:
    def check(amount: int) -> Any:
        stage.calls.append("check")
        raise ConnectionError("bank is closed")

    dies_while_paying(stage, check=check)
    assert stage.resume().status() == "waiting"
    assert "bank is closed" in stage.app.gates(stage.run_id)[0].prompt
    assert stage.app.answer(stage.run_id, {"outcome": "happened", "result": 1}).result(240) == 1
    assert stage.calls == [30, "check"]


def test_a_check_that_returns_something_else_tells_nothing(local: Stage) -> None:
    dies_while_paying(local, check=lambda amount: True)
    local.resume()
    (gate,) = local.app.gates(local.run_id)
    assert "its check returned True instead of Happened" in gate.prompt


def test_a_timeout_puts_an_effect_in_doubt(stage: Stage) -> None:
    go = threading.Event()

    def pay() -> str:
        stage.calls.append("call")
        go.wait(5)
        return "late"

    @stage.flow
    async def flow(run: AsyncRun) -> Any:
        return await run.effect(pay, timeout=0.05)

    handle = stage.start(flow)
    go.set()
    assert handle.status() == "waiting"
    (gate,) = handle.gates()
    assert "took longer than 0.05 s" in gate.prompt
    stage.restart()
    assert stage.app.answer(stage.run_id, {"outcome": "happened", "result": "told"}).result(240) == "told"
    assert stage.calls == ["call"]


def test_a_timeout_of_an_idempotent_effect_tries_it_again_and_can_still_be_cancelled(local: Stage) -> None:
    def pay() -> str:
        local.calls.append("call")
        if len(local.calls) == 2:
            local.app.cancel(local.run_id, enqueue=True)
        threading.Event().wait(0.1)
        return "late"

    @local.flow
    async def flow(run: AsyncRun) -> Any:
        return await run.effect(pay, timeout=0.02, in_doubt="retry")

    assert local.start(flow).status() == "cancelled"
    assert len(local.calls) <= 3, "what outsiders want is seen with the next commit"


def test_each_doubt_of_one_effect_is_a_gate_of_its_own(stage: Stage) -> None:
    def pay() -> str:
        stage.calls.append("call")
        if len(stage.calls) <= 2:
            stage.die()
        return "paid"

    @stage.flow
    async def flow(run: AsyncRun) -> str:
        return await run.effect(pay)

    stage.start_and_die(flow)
    stage.resume()
    with pytest.raises(Exception, match="the wire was cut"):
        stage.app.answer(stage.run_id, {"outcome": "did not happen"})
    stage.resume()
    assert stage.status() == "waiting"
    assert stage.app.answer(stage.run_id, {"outcome": "did not happen"}).result(240) == "paid"
    gates = stage.app.gates(stage.run_id, state=None)
    assert [gate.state for gate in gates] == ["answered", "answered"]
    assert len({gate.gate for gate in gates}) == 2


@pytest.mark.parametrize("asynchronous", [True, False])
def test_a_check_gets_the_idempotency_key_of_the_effect(stage: Stage, asynchronous: bool) -> None:
    def pay(amount: int, *, idempotency_key: str) -> None:
        stage.calls.append(idempotency_key)
        stage.die()

    def check(amount: int, idempotency_key: str) -> Happened:
        stage.calls.append(idempotency_key)
        return Happened(f"{amount} found")

    async def check_async(amount: int, *, idempotency_key: str) -> Happened:
        return check(amount, idempotency_key)

    @stage.flow
    async def flow(run: AsyncRun) -> Any:
        return await run.effect(pay, 30, check=check_async if asynchronous else check)

    stage.start_and_die(flow)
    assert stage.resume().result(240) == "30 found"
    first, second = stage.calls
    assert first == second
    (line,) = stage.app.store.effects(stage.run_id)
    assert line.idempotency_key == first


def test_the_gate_shows_the_idempotency_key_and_what_the_check_said(stage: Stage) -> None:
    def check(amount: int) -> Any:
        raise ConnectionError("bank is closed")

    dies_while_paying(stage, check=check)
    stage.resume()
    (gate,) = stage.app.gates(stage.run_id)
    (line,) = stage.app.store.effects(stage.run_id)
    assert gate.show == {
        "effect": "pay",
        "key": line.key,
        "idempotency_key": line.idempotency_key,
        "arguments": ["amount=30"],
        "why": "the process died during the call",
        "check": "raised ConnectionError: bank is closed",
    }
    assert line.state == "in_doubt"
    assert line.idempotency_key is not None
    assert len(line.idempotency_key) == 32


def test_a_result_that_does_not_fit_the_function_is_asked_for_again(stage: Stage) -> None:
    def charge(amount: int) -> Receipt:
        stage.calls.append(amount)
        raise TimeoutError("no answer")

    @stage.flow
    async def flow(run: AsyncRun) -> str:
        return (await run.effect(charge, 5)).number

    stage.start(flow)
    for answer in ({"outcome": "happened"}, {"outcome": "happened", "result": "R1"}):
        assert stage.app.answer(stage.run_id, answer).status() == "waiting"
        stage.restart()
        (gate,) = stage.app.gates(stage.run_id)
        assert "does not fit the annotation" in gate.prompt
        assert "result=" in gate.prompt
    fitting: dict[str, Any] = {"outcome": "happened", "result": {"number": "R1"}}
    assert stage.app.answer(stage.run_id, fitting).result(240) == "R1"
    assert stage.restart().handle(stage.run_id).result(240) == "R1"
    assert stage.calls == [5]
