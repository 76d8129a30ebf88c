"""What `make_durable` does beside the common story, part 2."""

from __future__ import annotations

import asyncio
import warnings
from typing import Any

import pytest

pytest.importorskip("ag2")
from ag2 import Agent, Context, TaskConfig, Toolkit, tool
from ag2.events import (
    ToolResultEvent,
)
from ag2.middleware import BaseMiddleware, Middleware, approval_required

import holdfast
from holdfast.adapters.ag2 import ToolPolicy, make_durable
from holdfast.errors import Diverged, InvalidInput
from tests.adapters.ag2.conversation import Bank, Model, gates, start


def test_tools_in_toolkits_and_those_of_one_call_are_recorded(app: holdfast.App) -> None:
    bank, calls = Bank(), []

    @tool
    def extra(order: str) -> str:
        """Given with the question."""
        calls.append(order)
        return f"extra {order}"

    model = Model([("extra", {"order": "B"})], [("pay", {"order": "A"})], "done")
    agent = make_durable(Agent("payer", config=model, tools=[Toolkit(bank.ask(), name="kit")]))
    start(app, agent, tools=[extra])
    assert app.answer("r", {"approve": True}).result() == "done"
    assert (bank.paid, calls) == (["A"], ["B"])
    assert [effect.tool for effect in app.store.effects("r")] == ["extra", "pay"]


def test_middlewares_of_the_agent_run_as_before(app: holdfast.App) -> None:
    bank, seen = Bank(), []

    class Guard(BaseMiddleware):
        async def on_tool_execution(self, call_next: Any, event: Any, context: Context) -> Any:
            if event.serialized_arguments["order"] == "B":
                return ToolResultEvent.from_call(event, "never B")
            seen.append(event.name)
            return await call_next(event, context)

    model = Model([("pay", {"order": "A"}), ("pay", {"order": "B"})], "done")
    agent = make_durable(Agent("payer", config=model, tools=[bank.ask()], middleware=[Middleware(Guard)]))
    start(app, agent)
    assert list(gates(app)) == ["A"]
    assert app.answer("r", {"approve": True}).result() == "done"
    assert model.seen[-1] == [["paid A", "never B"]]
    assert "pay" in seen


def test_a_sub_task_is_one_effect_and_its_tools_are_part_of_it(app: holdfast.App) -> None:
    bank = Bank()
    child = Model([("pay", {"order": "A"})], "child done")
    model = Model([("run_subtask", {"task": "pay A"})], "done")
    agent = Agent("payer", config=model, tools=[bank.plain()], tasks=TaskConfig(config=child))
    assert start(app, make_durable(agent)).result() == "done"
    assert [effect.tool for effect in app.store.effects("r")] == ["run_subtask"]
    assert (bank.paid, model.seen[-1]) == (["A"], [["child done"]])


def test_a_tool_of_an_agent_that_is_not_recorded_is_refused(app: holdfast.App) -> None:
    bank = Bank()
    made = make_durable(Agent("payer", config=Model("x"), tools=[bank.plain()]))
    other = Agent("other", config=Model([("pay", {"order": "A"})], "done"), tools=list(made.tools))
    handle = start(app, other)
    with pytest.raises(holdfast.RunFailed, match="is not recorded"):
        handle.result()
    assert bank.paid == []


def test_steps_and_calls_without_a_record(app: holdfast.App) -> None:
    bank, calls = Bank(), []

    @tool
    async def look(order: str) -> int:
        """Look up."""
        calls.append("look")
        return 40

    @tool
    def clock() -> int:
        """Read the time."""
        calls.append("clock")
        return 12

    model = Model([("look", {"order": "A"}), ("clock", {})], [("pay", {"order": "A"})], "done")
    agent = Agent("payer", config=model, tools=[look, clock, bank.ask()])
    make_durable(agent, tools={"look": {"record": "step"}, "clock": ToolPolicy(record="none"), "pay": {"who": "cfo"}})
    start(app, agent)
    with pytest.raises(holdfast.InvalidAnswer):
        app.answer("r", {"approve": True}, by="ana")
    assert app.answer("r", {"approve": True}, by="cfo").result() == "done"
    assert (calls.count("look"), calls.count("clock")) == (1, 2)
    assert [effect.tool for effect in app.store.effects("r")] == ["pay"]


def test_the_hook_of_an_agent_is_only_called_without_a_run(app: holdfast.App) -> None:
    bank, asked = Bank(), []

    def hook() -> str:
        asked.append(1)
        return "yes"

    agent = Agent("payer", config=Model([("pay", {"order": "A"})], "done"), tools=[bank.ask()], hitl_hook=hook)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert make_durable(make_durable(agent)) is agent
    assert len(agent.middleware) == 2
    start(app, agent)
    assert app.answer("r", {"approve": True}).result() == "done"
    assert asked == []
    assert asyncio.run(agent.ask("go")).body == "done"
    assert (asked, bank.paid, bank.keys[1]) == ([1], ["A", "A"], None)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ([], "tools must be a dict"),
        ({"pay": "retry"}, "must be a dict, not str"),
        ({"pay": {"in_dout": "retry"}}, "no option 'in_dout'"),
    ],
)
def test_a_wrong_policy_is_refused_at_once(given: Any, text: str) -> None:
    with pytest.raises(InvalidInput, match=text):
        make_durable(Agent("payer"), tools=given)
    with pytest.raises(InvalidInput, match="needs an agent of AG2, not str"):
        make_durable("payer")  # type: ignore[arg-type]


def test_a_def_workflow_is_refused(app: holdfast.App) -> None:
    agent = make_durable(Agent("payer", config=Model("x")))

    @app.workflow(name="work")
    def work(run: holdfast.Run) -> None:
        asyncio.run(agent.ask("go"))

    with pytest.raises(holdfast.RunFailed, match="async def"):
        app.start("work").result()


@pytest.mark.parametrize("was_closed", [True, False])
def test_a_payment_does_not_change_after_the_model_has_read_its_result(app: holdfast.App, was_closed: bool) -> None:
    bank, sent = Bank(), []
    is_closed = [was_closed]

    @tool(middleware=[approval_required()])
    def send(order: str) -> str:
        """Send an order."""
        sent.append(order)
        return f"sent {order}"

    class Close(BaseMiddleware):
        async def on_tool_execution(self, call_next: Any, event: Any, context: Context) -> Any:
            if is_closed[0] and event.name == "pay":
                return ToolResultEvent.from_call(event, "closed")
            return await call_next(event, context)

    model = Model([("pay", {"order": "A"})], [("send", {"order": "B"})], "done")
    agent = Agent("payer", config=model, tools=[bank.plain(), send], middleware=[Middleware(Close)])
    start(app, make_durable(agent))
    assert bank.paid == ["A"] * (not was_closed)
    is_closed[0] = not was_closed
    with pytest.raises(Diverged, match="so it was not called"):
        app.answer("r", {"approve": True})
    assert bank.paid == ["A"] * (not was_closed)
    assert model.calls == [0, 1]
    is_closed[0] = was_closed
    assert app.resume("r").result() == "done"
    assert (bank.paid, sent) == (["A"] * (not was_closed), ["B"])


@pytest.mark.parametrize("record", ["effect", "step", "none"])
def test_a_call_whose_approval_was_removed_from_the_code_is_not_performed(app: holdfast.App, record: Any) -> None:
    bank, tools = Bank(), []

    async def work(run: holdfast.AsyncRun) -> str:
        agent = Agent("payer", config=Model([("pay", {"order": "A"})], "done"), tools=list(tools))
        return (await make_durable(agent, tools={"pay": {"record": record}}).ask("go")).body or ""

    app.workflow(name="work")(work)
    tools[:] = [bank.ask()]
    app.start("work", run_id="r")
    tools[:] = [bank.plain()]
    with pytest.raises(Diverged, match="so it was not called"):
        app.answer("r", {"approve": False})
    assert bank.paid == []
    tools[:] = [bank.ask()]
    assert app.resume("r").result() == "done"
    assert bank.paid == []
