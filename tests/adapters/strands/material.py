"""What the tests of this adapter share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

pytest.importorskip("strands")
from strands import Agent, ToolContext, tool
from strands.hooks import BeforeToolCallEvent
from strands.types.content import ContentBlock, Messages

import holdfast
from holdfast.adapters.strands import HoldfastPlugin, idempotency_key
from tests.adapters.strands.story_agent import FakeModel, call, results

Calls = list[Any]


def scripted(*turns: list[ContentBlock], calls: Calls) -> FakeModel:
    """A model that answers with these turns, chosen by the number of results; it notes its calls."""

    def answer(messages: Messages) -> list[ContentBlock]:
        found = results(messages)
        calls.append(("model", *found))
        asked = 0
        for turn in turns:
            if asked == len(found):
                return turn
            asked += len(turn)
        return [{"text": "; ".join(found)}]

    return FakeModel(answer)


def paying(calls: Calls, error: Exception | None = None) -> Any:
    @tool
    def pay(order: str) -> str:
        """Pay an order."""
        calls.append(("pay", order, idempotency_key()))
        if error is not None:
            raise error
        return f"paid {order}"

    return pay


def agent_of(model: FakeModel, tools: list[Any], policies: Any = None, **options: Any) -> Agent:
    plugin = HoldfastPlugin(policies, **options.pop("plugin", {}))
    hooks = options.pop("hook", None)
    agent = Agent(model, tools=tools, plugins=[plugin], callback_handler=None, **options)
    if hooks is not None:
        agent.add_hook(hooks, BeforeToolCallEvent)
    return agent


def two_payments(calls: Calls) -> FakeModel:
    return scripted([call("c1", "pay", order="A"), call("c2", "pay", order="B")], calls=calls)


def start(workflow: Callable[..., Awaitable[Any]]) -> tuple[holdfast.App, holdfast.Handle[Any]]:
    app = holdfast.App("memory:")
    app.workflow(name="workflow")(workflow)
    return app, app.start("workflow", run_id="run")


def answer_all(app: holdfast.App, approve: bool = True, note: str = "") -> None:
    for gate in app.gates("run"):
        app.answer("run", {"approve": approve, "note": note}, gate=gate.gate)


def failure(handle: holdfast.Handle[Any]) -> str:
    with pytest.raises(holdfast.RunFailed) as error:
        handle.result()
    return str(error.value)


def kinds(calls: Calls) -> list[str]:
    return [each[0] for each in calls]


@tool(context=True)
def ask_user(question: str, tool_context: ToolContext) -> str:
    """Ask the user."""
    return f"the user says {tool_context.interrupt('question', reason=question)}"
