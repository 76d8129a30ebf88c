"""Agents of the OpenAI Agents SDK inside runs: what the common story does not cover, part 2."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

pytest.importorskip("agents")
import agents

import holdfast
from holdfast.adapters.openai_agents import run_agent
from tests.adapters.openai_agents.fakes import Calls, FakeModel, script
from tests.adapters.openai_agents.material import (
    Log,
    Receipt,
    failing_tool,
    gates_of,
    pay_tool,
    run_tool,
    with_app,
)


def test_a_tool_may_run_another_agent(url: str) -> None:
    models: list[str] = []
    pays: Log = []

    def make() -> holdfast.App:
        payer = agents.Agent(
            name="payer",
            model=FakeModel(script([("c", "pay", {"order": "A"})], "{0}"), models),
            tools=[pay_tool(pays, needs_approval=True)],
        )

        @agents.function_tool
        async def delegate(what: str) -> str:
            run = holdfast.current_run()
            assert isinstance(run, holdfast.AsyncRun)
            return str((await run_agent(run, payer, what)).final_output)

        boss = agents.Agent(
            name="boss",
            model=FakeModel(script([("c", "delegate", {"what": "pay"})], "{0}"), models),
            tools=[delegate],
        )

        async def work(run: holdfast.AsyncRun) -> str:
            result = await run_agent(run, boss, "go", policies={"delegate": {"record": "none"}})
            return str(result.final_output)

        return with_app(url, work)

    with make() as app:
        app.start("work", run_id="r")
    with make() as app:
        assert app.answer("r", {"approve": True}).result() == "paid A"
    assert len(models) == 4
    assert len(pays) == 1


def test_an_agent_whose_model_calls_are_not_recorded_stops_before_it_acts(url: str) -> None:
    class Provider(agents.ModelProvider):
        def get_model(self, model_name: str | None) -> agents.Model:
            return FakeModel(script([("p", "pay", {"order": "A"})], "{0}"))

    pays: Log = []
    payer = agents.Agent(name="payer", model="some-model", tools=[pay_tool(pays)])
    tool = payer.as_tool("payer", "pays", run_config=agents.RunConfig(model_provider=Provider()))
    boss = agents.Agent(name="boss", model=FakeModel(script([("1", "payer", {"input": "A"})], "!")), tools=[tool])

    async def work(run: holdfast.AsyncRun) -> None:
        await run_agent(run, boss, "go")

    with with_app(url, work) as app, pytest.raises(holdfast.RunFailed, match="was not recorded"):
        app.start("work", run_id="r").result()
    assert not pays


def test_models_of_a_provider_are_recorded(url: str) -> None:
    models: list[str] = []

    class Provider(agents.ModelProvider):
        def get_model(self, model_name: str | None) -> agents.Model:
            assert model_name == "some-model"
            return FakeModel(script("hello"), models)

    def make() -> holdfast.App:
        agent = agents.Agent(name="a", model="some-model")

        async def work(run: holdfast.AsyncRun) -> str:
            config = agents.RunConfig(model_provider=Provider())
            result = await run_agent(run, agent, "go", run_config=config)
            await run.ask("Go on?", {"ok": bool})
            return str(result.final_output)

        return with_app(url, work)

    with make() as app:
        app.start("work", run_id="r")
    with make() as app:
        assert app.answer("r", {"ok": True}).result() == "hello"
    assert len(models) == 1


def test_an_agent_that_is_a_tool_may_stream(url: str) -> None:
    models: list[str] = []
    events: list[str] = []

    def make() -> holdfast.App:
        async def on_stream(payload: Any) -> None:
            events.append(payload["event"].type)

        worker = agents.Agent(name="worker", model=FakeModel(script("worked"), models))
        tool = worker.as_tool("worker", "works", on_stream=on_stream)
        boss = agents.Agent(
            name="boss", model=FakeModel(script([("1", "worker", {"input": "A"})], "{0}"), models), tools=[tool]
        )

        async def work(run: holdfast.AsyncRun) -> str:
            result = await run_agent(run, boss, "go")
            await run.ask("Go on?", {"ok": bool})
            return str(result.final_output)

        return with_app(url, work)

    with make() as app:
        app.start("work", run_id="r")
    with make() as app:
        assert app.answer("r", {"ok": True}).result() == "worked"
    assert len(models) == 3
    assert "run_item_stream_event" in events


def test_an_effect_in_doubt_in_a_streaming_agent_that_is_a_tool_waits_for_a_person(url: str) -> None:
    pays: Log = []

    def make() -> holdfast.App:
        @agents.function_tool
        def pay(order: str) -> str:
            pays.append(order)
            raise TimeoutError("the bank did not answer")

        async def on_stream(payload: Any) -> None:
            pass

        worker = agents.Agent(name="w", model=FakeModel(script([("p", "pay", {"order": "A"})], "{0}")), tools=[pay])
        tool = worker.as_tool("worker", "works", on_stream=on_stream)
        boss = agents.Agent(name="b", model=FakeModel(script([("1", "worker", {"input": "A"})], "{0}")), tools=[tool])

        async def work(run: holdfast.AsyncRun) -> str:
            return str((await run_agent(run, boss, "go")).final_output)

        return with_app(url, work)

    with make() as app:
        assert app.start("work", run_id="r").status() == "waiting"
    with make() as app:
        assert app.answer("r", {"outcome": "happened", "result": "paid A"}).result() == "paid A"
    assert pays == ["A"]


def test_an_error_of_a_tool_is_told_to_the_model_and_recorded(url: str) -> None:
    log: Log = []
    told: Log = []

    def explain(context: Any, error: Exception) -> str:
        told.append(error)
        return f"refused: {error}"

    tool = failing_tool(ValueError("no money"), log, failure_error_function=explain)
    with run_tool(url, tool, {"order": "A"}) as app:
        app.start("work", run_id="r")
    with run_tool(url, tool, {"order": "A"}) as app:
        assert app.answer("r", {"ok": True}).result() == "refused: no money"
    assert len(log) == 1
    assert [type(error) for error in told] == [ValueError]


def test_an_error_of_a_tool_without_a_text_for_it_fails_the_run(url: str) -> None:
    tool = failing_tool(ValueError("no money"), [], failure_error_function=None)
    with run_tool(url, tool, {"order": "A"}) as app, pytest.raises(holdfast.RunFailed, match="no money"):
        app.start("work", run_id="r").result()


def test_an_error_that_leaves_the_outcome_open_is_not_told_to_the_model(url: str) -> None:
    log: Log = []
    tool = failing_tool(TimeoutError("the bank did not answer"), log)
    with run_tool(url, tool, {"order": "A"}) as app:
        assert app.start("work", run_id="r").status() == "waiting"
        (gate,) = app.gates("r")
        assert "pay" in gate.prompt
    with run_tool(url, tool, {"order": "A"}) as app:
        app.answer("r", {"outcome": "happened", "result": {"receipt": 7}})
        assert app.answer("r", {"ok": True}).result() == "{'receipt': 7}"
    assert len(log) == 1


def test_the_time_limit_of_a_tool_leaves_the_outcome_open(url: str) -> None:
    @agents.function_tool(timeout=0.01)
    async def pay(order: str) -> str:
        await asyncio.Event().wait()
        return "never"

    app = run_tool(url, pay, {"order": "A"}, policies={"pay": {"in_doubt": "fail"}})
    with app, pytest.raises(holdfast.RunFailed, match="pay"):
        app.start("work", run_id="r").result()
    assert pay.timeout_seconds == 0.01


def test_the_time_limit_of_a_tool_that_only_reads_is_told_to_the_model(url: str) -> None:
    @agents.function_tool(timeout=0.01)
    async def read(order: str) -> str:
        await asyncio.Event().wait()
        return "never"

    with run_tool(url, read, {"order": "A"}, policies={"read": {"record": "step"}}) as app:
        app.start("work", run_id="r")
        assert "error occurred" in app.answer("r", {"ok": True}).result()


def test_a_retried_tool_has_one_key(url: str) -> None:
    log: Log = []
    tool = failing_tool(ConnectionResetError("cut"), log)
    policy = {"in_doubt": "retry", "retry": 3}
    with run_tool(url, tool, {"order": "A"}, policies={"pay": policy}) as app, pytest.raises(holdfast.RunFailed):
        app.start("work", run_id="r").result()
    assert len(log) == 3
    assert len(set(log)) == 1
    assert log[0][1]


def test_results_of_tools_are_what_the_model_gets_without_a_run(url: str) -> None:
    found: list[Any] = []

    @agents.function_tool
    def image() -> agents.ToolOutputImage:
        return agents.ToolOutputImage(image_url="https://example.org/a.png")

    @agents.function_tool
    def texts() -> list[agents.ToolOutputText]:
        return [agents.ToolOutputText(text="a"), agents.ToolOutputText(text="b")]

    @agents.function_tool
    def receipt() -> Receipt:
        return Receipt(number=7)

    @agents.function_tool
    def data() -> dict[str, Any]:
        return {"a": [1, 2.5, None, True]}

    @agents.function_tool
    def pair() -> tuple[int, int]:
        return (1, 2)

    @agents.function_tool(output_type=Receipt)
    def typed() -> Receipt:
        return Receipt(number=8)

    tools = [image, texts, receipt, data, pair, typed]
    calls: Calls = [(f"c{number}", tool.name, {}) for number, tool in enumerate(tools)]

    def make() -> agents.Agent[Any]:
        return agents.Agent(name="a", model=FakeModel(script(calls, "done")), tools=list(tools))

    async def work(run: holdfast.AsyncRun) -> None:
        found.append((await run_agent(run, make(), "go")).to_input_list())

    async def plain() -> None:
        found.append((await agents.Runner.run(make(), "go")).to_input_list())

    with with_app(url, work) as app:
        app.start("work", run_id="r").result()
    asyncio.run(plain())
    assert found[0] == found[1]
    assert len(found[0]) == 1 + 2 * len(tools) + 1


def test_a_tool_that_decides_about_its_approval_is_asked(url: str) -> None:
    pays: Log = []

    async def is_large(context: Any, parameters: dict[str, Any], call_id: str) -> bool:
        return bool(parameters["amount"] > 10)

    @agents.function_tool(needs_approval=is_large)
    def pay(amount: int, note: str = "-") -> str:
        pays.append(amount)
        return f"paid {amount}"

    # The SDK asks a person if an argument is missing that has a default.
    calls: Calls = [
        ("1", "pay", {"amount": 5, "note": "a"}),
        ("2", "pay", {"amount": 50, "note": "b"}),
        ("3", "pay", {"amount": 6}),
    ]
    agent = agents.Agent(name="a", model=FakeModel(script(calls, "{0} {1} {2}")), tools=[pay])

    async def work(run: holdfast.AsyncRun) -> str:
        return str((await run_agent(run, agent, "go", checkpoint_turns=1)).final_output)

    with with_app(url, work) as app:
        app.start("work", run_id="r")
        gates = gates_of(app)
        assert sorted(gates) == ["Allow pay(amount=50, note='b')?", "Allow pay(amount=6)?"]
        assert pays == [5]
        for gate in gates.values():
            handle = app.answer("r", {"approve": True}, gate=gate)
        assert handle.result() == "paid 5 paid 50 paid 6"


def test_policies_name_the_approvers(url: str) -> None:
    with run_tool(
        url, pay_tool([], needs_approval=True), {"order": "A"}, policies={"pay": {"who": ["ana"], "approvals": 1}}
    ) as app:
        app.start("work", run_id="r")
        with pytest.raises(holdfast.InvalidAnswer):
            app.answer("r", {"approve": True}, by="ben")
        app.answer("r", {"approve": False}, by="ana")
        assert app.answer("r", {"ok": True}).result() == "Tool execution was not approved."


def test_outside_a_run_a_tool_is_what_it_was(url: str) -> None:
    pays: Log = []
    tool = pay_tool(pays)
    invoker, kind = tool.on_invoke_tool, type(tool)
    agent = agents.Agent(name="a", model=FakeModel(script([("c", "pay", {"order": "A"})], "{0}")), tools=[tool])

    async def work(run: holdfast.AsyncRun) -> str:
        return str((await run_agent(run, agent, "go", checkpoint_turns=1)).final_output)

    with with_app(url, work) as app:
        assert app.start("work", run_id="r").result() == "paid A"
    assert tool.on_invoke_tool is invoker
    assert isinstance(tool, kind)
    assert tool.needs_approval is False
    assert tool.__wrapped__
    result = asyncio.run(agents.Runner.run(agent, "go"))
    assert result.final_output == "paid A"
    assert [key is None for _, key in pays] == [False, True]


def test_tools_that_act_in_this_process_unrecorded_are_refused(url: str) -> None:
    tool = agents.LocalShellTool(executor=lambda request: "done")
    agent = agents.Agent(name="a", model=FakeModel(script("hello")), tools=[tool])

    async def work(run: holdfast.AsyncRun) -> None:
        await run_agent(run, agent, "go")

    with with_app(url, work) as app, pytest.raises(holdfast.RunFailed, match="LocalShellTool cannot be recorded"):
        app.start("work", run_id="r").result()
