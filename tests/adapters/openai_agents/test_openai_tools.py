"""Agents of the OpenAI Agents SDK inside runs: what the common story does not cover, part 3."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

pytest.importorskip("agents")
import agents
from agents.tool_guardrails import tool_input_guardrail
from pydantic import BaseModel

import holdfast
from holdfast.adapters.openai_agents import run_agent
from tests.adapters.openai_agents.fakes import Calls, FakeModel, script
from tests.adapters.openai_agents.material import (
    HELLO,
    Log,
    fail_with,
    pay_tool,
    with_app,
)


def test_a_structured_output_is_restored(url: str) -> None:
    class Answer(BaseModel):
        total: int

    found: list[Any] = []

    def make() -> holdfast.App:
        agent = agents.Agent(name="a", model=FakeModel(lambda _: '{"total": 65}'), output_type=Answer)

        async def work(run: holdfast.AsyncRun) -> int:
            result = await run_agent(run, agent, "go")
            found.append(result.final_output)
            await run.ask("Go on?", {"ok": bool})
            return result.final_output_as(Answer).total

        return with_app(url, work)

    with make() as app:
        app.start("work", run_id="r")
    with make() as app:
        assert app.answer("r", {"ok": True}).result() == 65
    assert found == [Answer(total=65), Answer(total=65)]


def test_the_retries_of_the_sdk_are_kept_and_not_repeated(url: str) -> None:
    models: list[str] = []
    down = [2]

    def make() -> holdfast.App:
        def say(outputs: list[str]) -> str:
            if down[0]:
                down[0] -= 1
                raise ConnectionError("connection error")
            return "hello"

        retry = agents.ModelRetrySettings(
            max_retries=3, backoff={"initial_delay": 0.0, "jitter": False}, policy=lambda context: context.attempt < 3
        )
        agent = agents.Agent(name="a", model=FakeModel(say, models), model_settings=agents.ModelSettings(retry=retry))

        async def work(run: holdfast.AsyncRun) -> str:
            result = await run_agent(run, agent, "go")
            await run.ask("Go on?", {"ok": bool})
            return str(result.final_output)

        return with_app(url, work)

    with make() as app:
        assert app.start("work", run_id="r").status() == "waiting"
    assert len(models) == 3
    down[0] = 9
    with make() as app:
        assert app.answer("r", {"ok": True}).result() == "hello"
    assert len(models) == 3


def test_a_model_that_fails_fails_the_call_in_every_replay(url: str) -> None:
    models: list[str] = []

    def make() -> holdfast.App:
        def say(outputs: list[str]) -> str:
            raise ValueError("the model is down")

        agent = agents.Agent(name="a", model=FakeModel(say, models))

        async def work(run: holdfast.AsyncRun) -> str:
            try:
                await run_agent(run, agent, "go")
            except holdfast.StepFailed as error:
                await run.ask("Go on?", {"ok": bool})
                return error.error_message
            return "no error"

        return with_app(url, work)

    with make() as app:
        app.start("work", run_id="r")
    with make() as app:
        assert app.answer("r", {"ok": True}).result() == "the model is down"
    assert len(models) == 1


@pytest.mark.parametrize("run_in_parallel", [True, False])
def test_an_input_guardrail_with_a_model_is_recorded(url: str, run_in_parallel: bool) -> None:
    models: list[str] = []

    def make() -> holdfast.App:
        checker = agents.Agent(name="checker", model=FakeModel(lambda _: "fine", models))

        async def check(context: Any, agent: Any, given: Any) -> agents.GuardrailFunctionOutput:
            result = await agents.Runner.run(checker, given)
            return agents.GuardrailFunctionOutput({"said": result.final_output}, tripwire_triggered=given == "bad")

        guardrail: agents.InputGuardrail[Any] = agents.InputGuardrail(check, run_in_parallel=run_in_parallel)
        agent = agents.Agent(
            name="a",
            model=FakeModel(script([("p", "pay", {"order": "A"})], "{0}"), models),
            input_guardrails=[guardrail],
            tools=[pay_tool([], needs_approval=True)],
        )

        async def work(run: holdfast.AsyncRun, text: str) -> Any:
            try:
                result = await run_agent(run, agent, text)
            except agents.InputGuardrailTripwireTriggered as error:
                await run.ask("Go on?", {"approve": bool})
                return ["stopped", error.guardrail_result.output.output_info]
            return [result.final_output, result.input_guardrail_results[0].output.output_info]

        return with_app(url, work)

    with make() as app:
        app.start("work", "good", run_id="r")
        app.start("work", "bad", run_id="s")
    before = len(models)
    with make() as app:
        assert app.answer("r", {"approve": True}).result() == ["paid A", {"said": "fine"}]
        assert app.answer("s", {"approve": True}).result() == ["stopped", {"said": "fine"}]
    # One for the rest of the first run; the second may have to repeat a call that the guardrail interrupted.
    assert 1 <= len(models) - before <= 2


def test_an_output_guardrail_raises_as_in_the_sdk(url: str) -> None:
    checks: Log = []

    @agents.output_guardrail
    def no_secrets(context: Any, agent: Any, output: Any) -> agents.GuardrailFunctionOutput:
        checks.append(output)
        return agents.GuardrailFunctionOutput(None, tripwire_triggered="secret" in output)

    def make() -> holdfast.App:
        agent = agents.Agent(name="a", model=FakeModel(lambda _: "a secret"), output_guardrails=[no_secrets])

        async def work(run: holdfast.AsyncRun) -> str:
            try:
                await run_agent(run, agent, "go")
            except agents.OutputGuardrailTripwireTriggered as error:
                await run.ask("Go on?", {"ok": bool})
                return error.guardrail_result.guardrail.get_name()
            return "no error"

        return with_app(url, work)

    with make() as app:
        app.start("work", run_id="r")
    with make() as app:
        assert app.answer("r", {"ok": True}).result() == "no_secrets"
    assert checks == ["a secret"]


def test_a_failed_call_beside_a_finished_one_is_replayed(url: str) -> None:
    pays: Log = []
    paid = asyncio.Event()

    def make() -> holdfast.App:
        async def pay(order: str) -> str:
            pays.append(order)
            paid.set()
            return "paid"

        async def fail(order: str) -> str:
            await paid.wait()
            raise ValueError("no money")

        calls: Calls = [("1", "fail", {"order": "A"}), ("2", "pay", {"order": "B"})]
        tools: list[Any] = [agents.function_tool(fail, failure_error_function=None), agents.function_tool(pay)]
        agent = agents.Agent(name="a", model=FakeModel(script(calls, "!")), tools=tools)

        async def work(run: holdfast.AsyncRun) -> str:
            try:
                await run_agent(run, agent, "go")
            except agents.UserError as error:
                await run.ask("Go on?", {"ok": bool})
                return str(error)
            return "no error"

        return with_app(url, work)

    with make() as app:
        assert app.start("work", run_id="r").status() == "waiting"
    with make() as app:
        assert "no money" in app.answer("r", {"ok": True}).result()
    assert pays == ["B"]


def test_a_guardrail_of_a_tool_is_recorded(url: str) -> None:
    checks: Log = []
    pays: Log = []

    @tool_input_guardrail
    def only_a(data: Any) -> agents.ToolGuardrailFunctionOutput:
        checks.append(data.context.tool_arguments)
        if '"A"' in data.context.tool_arguments:
            return agents.ToolGuardrailFunctionOutput.allow()
        return agents.ToolGuardrailFunctionOutput.reject_content("only A")

    tool = pay_tool(pays)
    tool.tool_input_guardrails = [only_a]

    def make() -> holdfast.App:
        calls: Calls = [("1", "pay", {"order": "A"}), ("2", "pay", {"order": "B"})]
        agent = agents.Agent(name="a", model=FakeModel(script(calls, "{0}; {1}")), tools=[tool])

        async def work(run: holdfast.AsyncRun) -> str:
            result = await run_agent(run, agent, "go")
            await run.ask("Go on?", {"ok": bool})
            return str(result.final_output)

        return with_app(url, work)

    with make() as app:
        app.start("work", run_id="r")
    with make() as app:
        assert app.answer("r", {"ok": True}).result() == "paid A; only A"
    assert len(checks) == 2
    assert len(pays) == 1


def test_the_context_is_passed_to_tools_and_not_stored(url: str, tmp_path: Any) -> None:
    seen: Log = []

    def make(context: Any) -> holdfast.App:
        @agents.function_tool(needs_approval=True)
        def pay(context: agents.RunContextWrapper[Any], order: str) -> str:
            seen.append(context.context["key"])
            return "paid"

        worker = agents.Agent(name="w", model=FakeModel(script([("p", "pay", {"order": "A"})], "{0}")), tools=[pay])
        boss = agents.Agent(
            name="b",
            model=FakeModel(script([("1", "w", {"input": "A"})], [("2", "pay", {"order": "B"})], "{0} {1}")),
            tools=[worker.as_tool("w", "works"), pay],
        )

        async def work(run: holdfast.AsyncRun) -> str:
            return str((await run_agent(run, boss, "go", context=context)).final_output)

        return with_app(url, work)

    with make({"key": "hidden-1", "client": object()}) as app:
        app.start("work", run_id="r")
        checkpoint = app.store.load("r")
        assert checkpoint is not None
        assert "agent_run_state" in str(checkpoint.state)
        assert "hidden-1" not in str(checkpoint.state)
    with make({"key": "hidden-2", "client": object()}) as app:
        app.answer("r", {"approve": True})
        assert app.answer("r", {"approve": True}).result() == "paid paid"
    assert seen == ["hidden-2", "hidden-2"]


def test_agents_of_one_flow_cannot_run_side_by_side(url: str) -> None:
    async def work(run: holdfast.AsyncRun) -> None:
        await asyncio.gather(run_agent(run, HELLO, "1"), run_agent(run, HELLO, "2"))

    assert "run.gather" in fail_with(url, work)


def test_an_agent_cannot_run_in_a_step(url: str) -> None:
    async def work(run: holdfast.AsyncRun) -> None:
        async def body() -> None:
            await run_agent(run, HELLO, "1")

        await run.step(body)

    assert "cannot make calls of the run" in fail_with(url, work)


def test_a_tool_that_runs_an_agent_inside_an_effect_is_refused(url: str) -> None:
    async def delegate() -> str:
        run = holdfast.current_run()
        assert isinstance(run, holdfast.AsyncRun)
        return str((await run_agent(run, HELLO, "1")).final_output)

    agent = agents.Agent(
        name="b",
        model=FakeModel(script([("c", "delegate", {})], "{0}")),
        tools=[agents.function_tool(delegate, failure_error_function=lambda context, error: str(error))],
    )

    async def work(run: holdfast.AsyncRun) -> str:
        return str((await run_agent(run, agent, "go")).final_output)

    with with_app(url, work) as app:
        assert "needs the policy {'record': 'none'}" in app.start("work", run_id="r").result()


def test_a_workflow_that_is_not_async_is_refused(url: str) -> None:
    def work(run: Any) -> None:
        asyncio.run(run_agent(run, HELLO, "1"))

    assert "needs an `async def` workflow" in fail_with(url, work)


def test_other_sessions_are_refused(url: str) -> None:
    async def work(run: holdfast.AsyncRun) -> None:
        await run_agent(run, HELLO, "1", session=agents.SQLiteSession("s"))  # type: ignore[arg-type]

    assert "must be a HoldfastSession" in fail_with(url, work)


def test_unknown_options_of_a_policy_are_refused(url: str) -> None:
    async def work(run: holdfast.AsyncRun) -> None:
        await run_agent(run, HELLO, "1", policies={"pay": {"in_dubt": "ask"}})

    assert "has no option 'in_dubt'" in fail_with(url, work)


def test_a_number_of_turns_that_is_not_positive_is_refused(url: str) -> None:
    async def work(run: holdfast.AsyncRun) -> None:
        await run_agent(run, HELLO, "1", checkpoint_turns=0)

    assert "checkpoint_turns must be at least 1" in fail_with(url, work)


def test_without_a_run_it_is_the_runner() -> None:
    result = asyncio.run(run_agent(None, HELLO, "1"))
    assert result.final_output == "hello"
