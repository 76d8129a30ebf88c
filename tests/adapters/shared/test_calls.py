"""Recorded calls of agents: keys, policies, results of people, errors that the model must not see."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.adapters.shared.call_keys import plain_key
from holdfast.adapters.shared.calls import (
    AgentStopped,
    Decision,
    Given,
    ToolCall,
    ToolPolicy,
    ask_approvals,
    current,
    describe_call,
    dump_or_lose,
    idempotency_key,
    next_key,
    perform,
    record_call,
)
from holdfast.errors import Diverged, InvalidInput


@pytest.fixture(params=["memory", "sqlite"])
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[holdfast.App]:
    with holdfast.App("memory:" if request.param == "memory" else f"sqlite:{tmp_path}/runs.db") as found:
        yield found


async def _pays(calls: list[Any], what: object = "paid") -> object:
    calls.append((what, idempotency_key()))
    return what


def test_a_call_id_that_a_model_repeats_in_another_turn_or_branch_is_performed_again(app: holdfast.App) -> None:
    calls: list[Any] = []

    @app.workflow
    async def turns(run: holdfast.AsyncRun) -> None:
        async for turn in run.loop():
            await perform(run, ToolCall("call_0", "pay", {"amount": 1}), lambda: _pays(calls))
            if turn == 2:
                break

        async def branch(run: holdfast.AsyncRun) -> object:
            return await perform(run, ToolCall("call_0", "pay", {"amount": 1}), lambda: _pays(calls))

        await run.gather(branch, branch)

    app.start(turns).result()
    assert len(calls) == 4
    assert len({key for _, key in calls}) == 4
    assert None not in {key for _, key in calls}


@pytest.mark.parametrize("name", ["call[1]", "call#1", "a/b", "x" * 2000, "ä\n\x00", "", "%2", "a@2"])
def test_every_id_that_a_model_chooses_makes_a_key(app: holdfast.App, name: str) -> None:
    calls: list[Any] = []

    @app.workflow
    async def once(run: holdfast.AsyncRun) -> object:
        call = ToolCall(name, "pay", {})
        (decision,) = await ask_approvals(run, [call])
        assert decision == Decision(approved=True, note="")
        return await perform(run, call, lambda: _pays(calls))

    app.start(once, run_id="r")
    assert app.answer("r", {"approve": True}).result() == "paid"
    assert len(calls) == 1


def test_different_ids_have_different_keys() -> None:
    ids = ["tool a", "tool a[", "tool a]", "tool b", "tool " + "x" * 400, "tool " + "x" * 401, "tool " + "x y " * 200]
    assert len({plain_key(text) for text in ids}) == len(ids)


def test_keys_of_one_agent_begin_alike() -> None:
    assert plain_key("approve agent 1:2:call/1 x").startswith("approve agent 1:2:")
    assert plain_key("approve agent 1 call[1] 2").startswith(plain_key("approve agent 1 call[1]") + " ")


def test_calls_without_an_id_are_counted_per_flow(app: holdfast.App) -> None:
    keys: list[str] = []

    @app.workflow
    async def flow(run: holdfast.AsyncRun) -> None:
        keys.extend(next_key(run, "model") for _ in range(2))
        async for turn in run.loop():
            keys.append(next_key(run, "model"))
            if turn == 2:
                return

    app.start(flow).result()
    assert keys == ["model 1", "model 2", "model 1", "model 1"]


def test_an_unknown_outcome_fails_the_run_even_if_the_framework_swallows_it(app: holdfast.App) -> None:
    async def times_out() -> object:
        raise TimeoutError("the bank did not answer")

    @app.workflow
    async def careless(run: holdfast.AsyncRun) -> str:
        with contextlib.suppress(AgentStopped):
            await perform(run, ToolCall("1", "pay", {}, ToolPolicy(in_doubt="fail")), times_out)
        return "went on"

    with pytest.raises(holdfast.RunFailed) as failed:
        app.start(careless).result()
    assert failed.value.failure["type"] == "EffectInDoubt"


def test_a_retry_of_the_run_asks_before_a_tool_without_proof_is_called_again(app: holdfast.App) -> None:
    calls: list[Any] = []

    async def unparsable() -> object:
        calls.append(idempotency_key())
        raise ValueError("could not parse the response of the bank")

    @app.workflow
    async def pays(run: holdfast.AsyncRun) -> object:
        return await perform(run, ToolCall("1", "pay", {}), unparsable)

    app.start(pays, run_id="r")
    assert app.retry("r").status() == "waiting"
    assert len(calls) == 1
    assert "Did pay happen?" in app.gates("r")[0].prompt


def test_a_tool_that_provably_did_nothing_fails_for_the_model(app: holdfast.App) -> None:
    async def refused() -> object:
        raise ConnectionRefusedError("no bank")

    @app.workflow
    async def told(run: holdfast.AsyncRun) -> str:
        try:
            await perform(run, ToolCall("1", "pay", {}), refused)
        except holdfast.EffectFailed as error:
            return f"the model reads {error}"
        return ""

    assert "no bank" in app.start(told).result()


def test_a_result_from_a_person_is_told_from_a_recorded_one(app: holdfast.App) -> None:
    async def times_out() -> object:
        raise TimeoutError("the bank did not answer")

    @app.workflow
    async def asks(run: holdfast.AsyncRun) -> object:
        found = await perform(run, ToolCall("1", "pay", {"order": "A-17"}), times_out)
        return ["given", found.value] if isinstance(found, Given) else ["recorded", found]

    app.start(asks, run_id="r")
    (gate,) = app.gates("r")
    assert "A-17" in str(gate.show)
    assert app.answer("r", {"outcome": "happened", "result": "R-1"}).result() == ["given", "R-1"]


def test_inside_a_recorded_call_adapters_record_nothing(app: holdfast.App) -> None:
    seen: list[object] = []

    @app.workflow
    async def nested(run: holdfast.AsyncRun) -> None:
        async def body() -> None:
            seen.append(current("a test"))

        await record_call(run, "model 1", body, name="model")
        await perform(run, ToolCall("1", "pay", {}), body)
        await perform(run, ToolCall("2", "agent", {}, ToolPolicy(record="none")), body)

    app.start(nested).result()
    assert [found is None for found in seen] == [True, True, False]
    assert current("a test") is None


def test_a_step_of_another_request_is_refused(app: holdfast.App) -> None:
    request = ["first"]

    @app.workflow
    async def model(run: holdfast.AsyncRun) -> None:
        async def answers() -> str:
            return "hello"

        await record_call(run, "model 1", answers, name="model", request=request[0])
        await run.ask("Go on?", bool)

    app.start(model, run_id="r")
    request[0] = "second"
    with pytest.raises(Diverged, match="argument 'request' of step 'model 1' changed"):
        app.answer("r", True)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"in_dout": "ask"}, "has no option 'in_dout'; it has record, in_doubt"),
        ("retry", "must be a dict, not str"),
        ({"record": "twice"}, "'pay': record of a tool must be one of effect, step, none, not 'twice'"),
        ({"in_doubt": "maybe"}, "'pay': in_doubt of a tool must be one of ask, retry, fail, not 'maybe'"),
    ],
)
def test_a_policy_that_does_not_fit_is_refused(given: Any, problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        ToolPolicy.of(given, "pay")


def test_a_def_workflow_is_refused_with_the_way_out(app: holdfast.App) -> None:
    @app.workflow
    def blocking(run: holdfast.Run) -> object:
        return current("the adapter of X")

    with pytest.raises(holdfast.RunFailed, match="the adapter of X needs an `async def` workflow"):
        app.start(blocking).result()


def test_the_question_has_no_markup_of_the_model() -> None:
    call = ToolCall("1", "pay", {"order": "A-17", "note": "**all is well** [here](http://x)", "amount": 40})
    assert describe_call(call) == "Allow pay(order='A-17', note=…, amount=40)?"
    assert describe_call(ToolCall("1", "pay", {"a": 4000, "b=1)?\n\n**Approved**": ""})) == "Allow pay(a=4000, …)?"
    assert describe_call(ToolCall("1", "pay", {"url": "https://evil.example"})) == "Allow pay(url=…)?"
    assert describe_call(ToolCall("1", "pay", {"order": "A', amount=1, memo='x"})) == "Allow pay(order=…)?"


def test_a_result_without_a_recorded_form_does_not_fail_the_call(app: holdfast.App) -> None:
    calls: list[Any] = []

    @app.workflow
    async def pays(run: holdfast.AsyncRun) -> object:
        async def body() -> object:
            await _pays(calls)
            return dump_or_lose(lambda: 1 // 0)

        return await perform(run, ToolCall("1", "pay", {}), body)

    with pytest.raises(holdfast.RunFailed) as failed:
        app.start(pays, run_id="r").result()
    assert failed.value.failure["type"] == "ResultLost"
    with pytest.raises(holdfast.Conflict, match="was performed"):
        app.retry("r")
    assert len(calls) == 1


def test_all_gates_of_a_batch_open_at_once(app: holdfast.App) -> None:
    @app.workflow
    async def batch(run: holdfast.AsyncRun) -> list[list[object]]:
        calls = [ToolCall(str(number), "pay", {"n": number}, ToolPolicy(who="ana")) for number in range(3)]
        return [list(decision) for decision in await ask_approvals(run, calls)]

    app.start(batch, run_id="r")
    gates = app.gates("r")
    assert [gate.show for gate in gates] == [{"n": 0}, {"n": 1}, {"n": 2}]
    for gate in gates:
        assert gate.who == ("ana",)
        app.answer("r", {"approve": gate.show["n"] != 1, "note": "no"}, gate=gate.gate, by="ana")
    assert app.handle("r").result() == [[True, "no"], [False, "no"], [True, "no"]]


def test_sibling_calls_may_be_cancelled(app: holdfast.App) -> None:
    calls: list[Any] = []

    @app.workflow
    async def group(run: holdfast.AsyncRun) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(perform(run, ToolCall("1", "pay", {}), lambda: _pays(calls)))
            tasks.create_task(ask_approvals(run, [ToolCall("2", "pay", {})]))

    app.start(group, run_id="r")
    app.answer("r", {"approve": True})
    assert app.handle("r").status() == "completed"
    assert len(calls) == 1
