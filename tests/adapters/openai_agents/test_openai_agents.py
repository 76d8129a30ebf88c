"""Agents of the OpenAI Agents SDK inside runs: what the common story does not cover."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

pytest.importorskip("agents")
import agents

import holdfast
from holdfast.adapters.openai_agents import HoldfastSession, run_agent
from tests.adapters.openai_agents.fakes import Calls, CountingHooks, FakeModel, script
from tests.adapters.openai_agents.material import (
    Log,
    gates_of,
    look_tool,
    looks,
    pay_tool,
    with_app,
)


def test_a_resume_at_a_gate_repeats_no_turn(url: str) -> None:
    log: Log = []
    models: list[str] = []
    pays: Log = []

    def make() -> tuple[holdfast.App, CountingHooks]:
        hooks = CountingHooks()
        model = FakeModel(looks(12, [("p", "pay", {"order": "A"})]), models)
        agent = agents.Agent(name="a", model=model, tools=[look_tool(log), pay_tool(pays, needs_approval=True)])

        async def work(run: holdfast.AsyncRun) -> str:
            result = await run_agent(run, agent, "go", max_turns=50, hooks=hooks, checkpoint_turns=3)
            return str(result.final_output)

        return with_app(url, work), hooks

    app, hooks = make()
    with app:
        assert app.start("work", run_id="r").status() == "waiting"
        assert hooks.turns == 13
    app, hooks = make()
    with app:
        ((prompt, gate),) = gates_of(app).items()
        assert prompt == "Allow pay(order='A')?"
        assert app.answer("r", {"approve": True}, gate=gate).result() == "done"
    assert hooks.turns == 1
    assert len(models) == 14
    assert len(log) == 12
    assert [order for order, _ in pays] == ["A"]


def test_a_resume_after_a_failure_repeats_the_turns_since_the_checkpoint(url: str) -> None:
    log: Log = []
    models: list[str] = []
    broken = True

    def make() -> tuple[holdfast.App, CountingHooks]:
        hooks = CountingHooks()

        def say(outputs: list[str]) -> Calls | str:
            if len(outputs) == 11 and broken:
                raise ValueError("the model is down")
            return looks(20, "done")(outputs)

        agent = agents.Agent(name="a", model=FakeModel(say, models), tools=[look_tool(log)])

        async def work(run: holdfast.AsyncRun) -> str:
            result = await run_agent(run, agent, "go", max_turns=50, hooks=hooks, checkpoint_turns=4)
            return str(result.final_output)

        return with_app(url, work), hooks

    app, _ = make()
    with app:
        assert app.start("work", run_id="r").status() == "failed"
    broken = False
    app, hooks = make()
    with app:
        assert app.retry("r").result() == "done"
    assert len(log) == 20
    assert len(models) == 22
    assert 21 - 11 <= hooks.turns <= 21 - 11 + 4


@pytest.mark.parametrize("checkpoint_turns", [1, 2, 100])
def test_the_result_is_that_of_the_runner(url: str, checkpoint_turns: int) -> None:
    def make() -> agents.Agent[Any]:
        said = looks(5, [("p", "pay", {"order": "A"}), ("q", "look", {"order": "B"})], "{5} {6}")
        return agents.Agent(name="a", model=FakeModel(said), tools=[look_tool([]), pay_tool([])])

    async def plain() -> agents.RunResult:
        session = agents.SQLiteSession("s")
        results.append(await agents.Runner.run(make(), "go", session=session, max_turns=30))
        items.append(await session.get_items())
        return results[0]

    results: list[agents.RunResult] = []
    items: list[Any] = []
    asyncio.run(plain())

    async def work(run: holdfast.AsyncRun) -> None:
        session = HoldfastSession("s", url)
        result = await run_agent(run, make(), "go", session=session, max_turns=30, checkpoint_turns=checkpoint_turns)
        results.append(result)
        items.append(await session.get_items())
        session.close()

    with with_app(url, work) as app:
        app.start("work", run_id="r").result()
    first, second = results
    assert first.final_output == second.final_output == "paid A saw B"
    assert first.to_input_list() == second.to_input_list()
    assert len(first.raw_responses) == len(second.raw_responses)
    assert [type(item) for item in first.new_items] == [type(item) for item in second.new_items]
    assert first.context_wrapper.usage.requests == second.context_wrapper.usage.requests
    assert items[0] == items[1]


def test_the_limit_of_turns_counts_across_checkpoints(url: str) -> None:
    agent = agents.Agent(name="a", model=FakeModel(looks(9, "done")), tools=[look_tool([])])

    async def work(run: holdfast.AsyncRun) -> str:
        try:
            await run_agent(run, agent, "go", max_turns=5, checkpoint_turns=2)
        except agents.MaxTurnsExceeded as error:
            return str(error)
        return "no error"

    with with_app(url, work) as app:
        assert app.start("work", run_id="r").result() == "Max turns (5) exceeded"


def test_calls_without_approval_do_not_wait_for_the_approval_of_others_at_a_checkpoint(url: str) -> None:
    log: Log = []
    said = script(
        [("c0", "look", {"order": "0"})], [("c1", "look", {"order": "1"}), ("c2", "pay", {"order": "A"})], "!"
    )
    agent = agents.Agent(name="a", model=FakeModel(said), tools=[look_tool(log), pay_tool([], needs_approval=True)])

    async def work(run: holdfast.AsyncRun) -> str:
        return str((await run_agent(run, agent, "go", checkpoint_turns=1)).final_output)

    with with_app(url, work) as app:
        app.start("work", run_id="r")
        assert list(gates_of(app)) == ["Allow pay(order='A')?"]
        assert log == ["0", "1"]
        assert app.answer("r", {"approve": True}).result() == "!"
    assert log == ["0", "1"]


def test_agents_run_one_after_the_other_and_in_a_loop_of_the_workflow(url: str) -> None:
    models: list[str] = []
    log: Log = []

    def make() -> holdfast.App:
        model = FakeModel(looks(3, [("p", "pay", {"order": "A"})]), models)
        agent = agents.Agent(name="a", model=model, tools=[look_tool(log), pay_tool([], needs_approval=True)])

        async def work(run: holdfast.AsyncRun) -> str:
            first = await run_agent(run, agent, "one", checkpoint_turns=2)
            run.state["chats"] = [first.final_output]
            async for turn in run.loop():
                said = await run_agent(run, agent, f"chat {turn}", checkpoint_turns=2)
                run.state["chats"].append(said.final_output)
                if turn == 2:
                    break
            return " ".join(run.state["chats"])

        return with_app(url, work)

    with make() as app:
        app.start("work", run_id="r")
    for _ in range(2):
        with make() as app:
            assert app.answer("r", {"approve": True}).status() == "waiting"
    with make() as app:
        assert app.answer("r", {"approve": True}).result() == "done done done"
    assert len(models) == 15
    assert len(log) == 9


@pytest.mark.parametrize("checkpoint_turns", [1, 10])
def test_a_handoff_survives_a_resume(url: str, checkpoint_turns: int) -> None:
    models: list[str] = []
    pays: Log = []
    last: list[str] = []

    def make() -> holdfast.App:
        target = FakeModel(script([("p", "pay", {"order": "A"})], "{0}"), models)
        billing = agents.Agent(name="billing", model=target, tools=[pay_tool(pays, needs_approval=True)])
        triage = agents.Agent(
            name="triage",
            model=FakeModel(lambda _: [("h", "transfer_to_billing", {})], models),
            handoffs=[agents.handoff(billing)],
        )

        async def work(run: holdfast.AsyncRun) -> str:
            result = await run_agent(run, triage, "go", checkpoint_turns=checkpoint_turns)
            last.append(result.last_agent.name)
            return str(result.final_output)

        return with_app(url, work)

    with make() as app:
        assert app.start("work", run_id="r").status() == "waiting"
    with make() as app:
        assert app.answer("r", {"approve": True}).result() == "paid A"
    assert last == ["billing"]
    assert len(models) == 3
    assert len(pays) == 1


@pytest.mark.parametrize(("checkpoint_turns", "ids"), [(1, ("p", "q")), (10, ("p", "q")), (10, ("same", "same"))])
def test_agents_that_are_tools_ask_together_and_are_not_repeated(
    url: str, checkpoint_turns: int, ids: tuple[str, str]
) -> None:
    models: list[str] = []
    pays: Log = []

    def make() -> holdfast.App:
        # Models other than OpenAI's may use the same id in both.
        payers = [
            agents.Agent(
                name=f"payer {order}",
                model=FakeModel(script([(call_id, "pay", {"order": order})], "{0}"), models),
                tools=[pay_tool(pays, needs_approval=True)],
            )
            for order, call_id in zip("AB", ids, strict=True)
        ]
        calls: Calls = [("1", "payer_a", {"input": "A"}), ("2", "payer_b", {"input": "B"})]
        boss = agents.Agent(
            name="boss",
            model=FakeModel(script(calls, "{0} {1}"), models),
            tools=[
                payers[0].as_tool("payer_a", "pays A"),
                payers[1].as_tool("payer_b", "pays B"),
            ],
        )

        async def work(run: holdfast.AsyncRun) -> str:
            return str((await run_agent(run, boss, "go", checkpoint_turns=checkpoint_turns)).final_output)

        return with_app(url, work)

    with make() as app:
        assert app.start("work", run_id="r").status() == "waiting"
        gates = gates_of(app)
    assert sorted(gates) == ["Allow pay(order='A')?", "Allow pay(order='B')?"]
    with make() as app:
        app.answer("r", {"approve": True}, gate=gates["Allow pay(order='A')?"])
    assert not pays
    with make() as app:
        answered = app.answer("r", {"approve": False, "note": "not B"}, gate=gates["Allow pay(order='B')?"])
        assert answered.result() == "paid A not B"
    assert [order for order, _ in pays] == ["A"]
    assert len(models) == 6


def test_agents_that_appear_during_the_run_are_recorded(url: str) -> None:
    models: list[str] = []
    pays: Log = []

    def make() -> holdfast.App:
        def payer(name: str, order: str, seen: int) -> agents.Agent[Any]:
            def say(outputs: list[str]) -> Calls | str:
                return [("p", "pay", {"order": order})] if len(outputs) == seen else "done"

            return agents.Agent(name=name, model=FakeModel(say, models), tools=[pay_tool(pays)])

        async def choose(context: Any, arguments: str) -> agents.Agent[Any]:
            return payer("billing", "B", 1)

        class Adds(agents.AgentHooks[Any]):
            async def on_start(self, context: Any, agent: agents.Agent[Any]) -> None:
                agent.tools = [payer("worker", "A", 0).as_tool("worker", "pays")]

        handoff: agents.Handoff[Any, Any] = agents.Handoff(
            tool_name="transfer",
            tool_description="",
            input_json_schema={},
            on_invoke_handoff=choose,
            agent_name="billing",
        )
        model = FakeModel(script([("1", "worker", {"input": "A"})], [("2", "transfer", {})]), models)
        triage = agents.Agent(name="triage", model=model, hooks=Adds(), handoffs=[handoff])

        async def work(run: holdfast.AsyncRun) -> str:
            result = await run_agent(run, triage, "go")
            await run.ask("Go on?", {"ok": bool})
            return str(result.final_output)

        return with_app(url, work)

    with make() as app:
        app.start("work", run_id="r")
    before = len(models), len(pays)
    with make() as app:
        assert app.answer("r", {"ok": True}).status() == "completed"
    assert [order for order, _ in pays] == ["A", "B"]
    assert all(key for _, key in pays)
    assert (len(models), len(pays)) == before


def test_agents_run_in_branches(url: str) -> None:
    models: list[str] = []
    pays: Log = []

    def make() -> holdfast.App:
        def agent(order: str) -> agents.Agent[Any]:
            model = FakeModel(script([("p", "pay", {"order": order})], "{0}"), models)
            return agents.Agent(name=f"payer {order}", model=model, tools=[pay_tool(pays, needs_approval=True)])

        async def one(run: holdfast.AsyncRun, order: str) -> str:
            return str((await run_agent(run, agent(order), "go")).final_output)

        async def work(run: holdfast.AsyncRun) -> list[str]:
            return await run.gather(lambda branch: one(branch, "A"), lambda branch: one(branch, "B"))

        return with_app(url, work)

    with make() as app:
        app.start("work", run_id="r")
        gates = gates_of(app)
        assert len(gates) == 2
    for gate in gates.values():
        with make() as app:
            app.answer("r", {"approve": True}, gate=gate)
    with make() as app:
        assert app.handle("r").result() == ["paid A", "paid B"]
    assert len(models) == 4
    assert sorted(order for order, _ in pays) == ["A", "B"]
    assert len({key for _, key in pays}) == 2
