"""Mistakes with agents of ADK that must not cost money: each is refused before a tool acts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("google.adk")

from google.adk.agents import LlmAgent
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.tool_context import ToolContext

import holdfast
from holdfast.adapters.adk import HoldfastPlugin
from holdfast.errors import Diverged
from tests.adapters.adk.conversation import Bank, script, start

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")


@pytest.fixture
def app() -> Iterator[holdfast.App]:
    with holdfast.App("memory:") as made:
        yield made


@pytest.mark.parametrize("record", ["effect", "step", "none"])
def test_a_call_whose_confirmation_was_removed_from_the_code_is_not_performed(app: holdfast.App, record: Any) -> None:
    bank = Bank()
    agent = LlmAgent(name="payer", model=script([("pay", {"order": "A"})], "done"), tools=[bank.ask()])
    start(app, agent, HoldfastPlugin(tools={"pay": {"record": record}}))
    agent.tools = [bank.pay]
    with pytest.raises(Diverged, match="before it calls 'pay'"):
        app.answer("r", {"approve": False, "note": "no"})
    assert bank.paid == []


def test_rules_of_an_approval_that_the_tool_does_not_need_are_refused(app: holdfast.App) -> None:
    bank = Bank()
    agent = LlmAgent(name="payer", model=script([("pay", {"order": "A"})], "done"), tools=[bank.pay])
    handle = start(app, agent, HoldfastPlugin(tools={"pay": {"who": ["ana"], "expires": 60}}))
    with pytest.raises(holdfast.RunFailed, match=r"has who, expires, but .*require_confirmation=True"):
        handle.result()
    assert bank.paid == []


@pytest.mark.parametrize("is_needed", [True, False])
def test_rules_of_an_approval_are_allowed_if_a_function_decides(app: holdfast.App, is_needed: bool) -> None:
    bank = Bank()
    tool = FunctionTool(bank.pay, require_confirmation=lambda order: is_needed)
    agent = LlmAgent(name="payer", model=script([("pay", {"order": "A"})], "done"), tools=[tool])
    start(app, agent, HoldfastPlugin(tools={"pay": {"who": ["ana"]}}))
    assert [gate.who for gate in app.gates("r")] == [("ana",)] * is_needed
    assert bank.paid == ["A"] * (not is_needed)


def test_a_tool_that_only_asked_is_not_an_effect(app: holdfast.App) -> None:
    paid: list[str] = []

    def pay(order: str, tool_context: ToolContext) -> str:
        """Pay an order."""
        if tool_context.tool_confirmation is None:
            tool_context.request_confirmation(hint="Pay it?")
            return "asked"
        paid.append(order)
        return "paid"

    agent = LlmAgent(name="payer", model=script([("pay", {"order": "A"})], "done"), tools=[pay])
    start(app, agent, HoldfastPlugin(tools={"pay": {"who": ["ana"]}}))
    assert [gate.prompt for gate in app.gates("r")] == ["Pay it?"]
    assert [effect.state for effect in app.store.effects("r")] == ["failed"]
    assert app.rollback_plan("r", to="payer 1 model 1").irreversible == ()
    app.answer("r", {"approve": True}, by="ana")
    assert app.handle("r").result() == [[{"result": "paid"}], "done"]
    assert paid == ["A"]


@pytest.mark.parametrize("was_closed", [True, False])
def test_a_payment_does_not_change_after_the_model_has_read_its_result(app: holdfast.App, was_closed: bool) -> None:
    bank, sent = Bank(), []
    is_closed = [was_closed]

    def send(order: str) -> str:
        """Send an order."""
        sent.append(order)
        return f"sent {order}"

    def close(tool: Any, args: Any, tool_context: Any) -> dict[str, Any] | None:
        del args, tool_context
        return {"error": "closed"} if is_closed[0] and tool.name == "pay" else None

    model = script([("pay", {"order": "A"})], [("send", {"order": "B"})], "done")
    tools: list[Any] = [bank.pay, FunctionTool(send, require_confirmation=True)]
    agent = LlmAgent(name="payer", model=model, tools=tools, before_tool_callback=close)
    start(app, agent)
    assert bank.paid == ["A"] * (not was_closed)
    is_closed[0] = not was_closed
    with pytest.raises(Diverged, match="so it was not called"):
        app.answer("r", {"approve": True})
    assert bank.paid == ["A"] * (not was_closed)
    assert model.calls == [0, 1]
    is_closed[0] = was_closed
    app.resume("r").result()
    assert (bank.paid, sent) == (["A"] * (not was_closed), ["B"])


@pytest.mark.parametrize("error", ["MCP tool execution failed: x", "Unexpected error during MCP tool execution: x"])
def test_a_lost_answer_of_an_mcp_server_is_in_doubt(app: holdfast.App, error: str) -> None:
    """ADK makes a result of it that says that the call failed; the model might pay again."""
    bank = Bank()

    class Lost(FunctionTool):
        __module__ = "google.adk.tools.mcp_tool.mcp_tool"  # the real one needs a server

        async def run_async(self, *, args: dict[str, Any], tool_context: ToolContext) -> Any:
            bank.pay(**args)
            return {"error": error}

    model = script([("pay", {"order": "A"})], "done")
    handle = start(app, LlmAgent(name="payer", model=model, tools=[Lost(bank.pay)]))
    (gate,) = app.gates("r")
    assert gate.prompt.startswith("Did pay happen?")
    assert (bank.paid, model.calls) == (["A"], [0])
    app.answer("r", {"outcome": "happened", "result": {"receipt": "A"}})
    assert handle.result()[0] == [{"receipt": "A"}]
    assert bank.paid == ["A"]
