"""Agents of ADK that run other agents, and agents side by side."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("google.adk")

from google.adk.agents import LlmAgent, ParallelAgent
from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.function_tool import FunctionTool
from google.adk.workflow import Workflow

import holdfast
from tests.adapters.adk.conversation import Bank, PayWhatIsAsked, gates, script, start, talk, texts

# ADK warns of its own calls, as when AgentTool makes a Runner.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")


@pytest.fixture
def app() -> Iterator[holdfast.App]:
    with holdfast.App("memory:") as made:
        yield made


def test_two_parallel_calls_of_one_nested_agent_are_told_apart(app: holdfast.App) -> None:
    bank = Bank()

    inner = PayWhatIsAsked(replies=[], calls=[])
    nested = LlmAgent(name="inner", model=inner, tools=[bank.ask()])
    outer = script([("inner", {"request": "A"}), ("inner", {"request": "B"})], "done", ids=True)
    agent = LlmAgent(name="outer", model=outer, tools=[AgentTool(nested)])
    start(app, agent)
    found = gates(app)
    assert sorted(found) == ["A", "B"]
    app.answer("r", {"approve": True}, gate=found["B"])
    handle = app.answer("r", {"approve": True}, gate=found["A"])
    assert handle.result() == [[{"result": "inner A"}, {"result": "inner B"}], "done"]
    assert sorted(bank.paid) == ["A", "B"]
    assert (len(inner.calls), len(outer.calls)) == (4, 2)


def test_a_sub_agent_gets_the_conversation(app: holdfast.App) -> None:
    bank = Bank()
    helper_model, root_model = (
        script([("pay", {"order": "A"})], "paid by helper"),
        script([("transfer_to_agent", {"agent_name": "helper"})]),
    )
    helper = LlmAgent(name="helper", description="pays", model=helper_model, tools=[bank.ask()])
    start(app, LlmAgent(name="root", model=root_model, sub_agents=[helper]))
    assert app.answer("r", {"approve": True}).result()[1] == "paid by helper"
    assert (helper_model.calls, root_model.calls, bank.paid) == ([0, 1], [0], ["A"])


def test_parallel_calls_of_an_inline_agent_are_told_apart(app: holdfast.App) -> None:
    bank, inner = Bank(), PayWhatIsAsked(replies=[], calls=[])
    nested = LlmAgent(name="inner", description="pays", model=inner, tools=[bank.ask()], mode="single_turn")
    outer = script([("inner", {"request": "A"}), ("inner", {"request": "B"})], "done", ids=True)
    start(app, LlmAgent(name="outer", model=outer, sub_agents=[nested]))
    found = gates(app)
    assert sorted(found) == ["A", "B"]
    app.answer("r", {"approve": True}, gate=found["B"])
    assert app.answer("r", {"approve": True}, gate=found["A"]).result()[1].endswith("done")
    assert sorted(bank.paid) == ["A", "B"]
    assert (len(inner.calls), len(outer.calls)) == (4, 2)


def test_agents_that_are_nodes_of_a_workflow_are_recorded(app: holdfast.App) -> None:
    bank, first, second = Bank(), script("A"), PayWhatIsAsked(replies=[], calls=[])
    graph = Workflow(
        name="graph",
        edges=[("START", LlmAgent(name="one", model=first), LlmAgent(name="two", model=second, tools=[bank.ask()]))],
    )
    start(app, graph)
    assert "inner A" in app.answer("r", {"approve": True}).result()[1]
    assert (first.calls, len(second.calls), bank.paid) == ([0], 2, ["A"])


def test_a_tool_that_is_a_node_of_a_workflow_is_refused(app: holdfast.App) -> None:
    bank = Bank()
    graph = Workflow(name="graph", edges=[("START", FunctionTool(bank.pay))])
    with pytest.raises(holdfast.RunFailed, match="is a node of a Workflow"):
        start(app, graph, text='{"order": "A"}').result()
    assert bank.paid == []


def test_parallel_agents_wait_and_go_on(app: holdfast.App) -> None:
    bank = Bank()
    models = {name: script([("pay", {"order": name})], f"done {name}") for name in ("a", "b")}
    agents: list[Any] = [LlmAgent(name=name, model=model, tools=[bank.ask()]) for name, model in models.items()]
    handle = start(app, ParallelAgent(name="both", sub_agents=agents))
    for _ in range(3):
        for gate in app.gates("r"):
            handle = app.answer("r", {"approve": True}, gate=gate.gate)
    assert handle.status() == "completed"
    assert sorted(handle.result()[1].split()) == ["a", "b", "done", "done"]
    assert sorted(bank.paid) == ["a", "b"]
    assert all(model.calls == [0, 1] for model in models.values())


def test_agents_in_branches_of_a_run_are_told_apart(app: holdfast.App) -> None:
    bank = Bank()
    models = {order: script([("pay", {"order": order})], f"done {order}", ids=True) for order in ("A", "B")}

    @app.workflow(name="work")
    async def work(run: holdfast.AsyncRun) -> list[str]:
        async def one(order: str) -> str:
            return texts(await talk(LlmAgent(name="payer", model=models[order], tools=[bank.ask()])))

        return await run.gather(*[lambda _, order=order: one(order) for order in models])

    app.start("work", run_id="r")
    found = gates(app)
    app.answer("r", {"approve": True}, gate=found["B"])
    assert app.answer("r", {"approve": True}, gate=found["A"]).result() == ["done A", "done B"]
    assert sorted(bank.paid) == ["A", "B"]
    assert all(model.calls == [0, 1] for model in models.values())
