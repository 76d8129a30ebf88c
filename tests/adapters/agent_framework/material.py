"""What the tests of this adapter share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

pytest.importorskip("agent_framework")
from agent_framework import (
    Content,
    Message,
    tool,
)

import holdfast
from tests.adapters.agent_framework.story_agent import FakeClient, call, results

Calls = list[Any]


def scripted(*turns: Sequence[Content], calls: Calls) -> FakeClient:
    """A client whose model answers with these turns, chosen by the number of results; it notes its calls."""

    def model(messages: Sequence[Message]) -> Sequence[Content]:
        found = results(messages)
        calls.append(("model", *found))
        asked = 0
        for turn in turns:
            if asked == len(found):
                return [Content.from_dict(content.to_dict()) for content in turn]
            asked += len(turn)
        return [Content.from_text("; ".join(found))]

    return FakeClient(model)


def paying(calls: Calls, approval_mode: Any = "always_require") -> Any:
    @tool(approval_mode=approval_mode)
    def pay(order: str) -> str:
        """Pay an order."""
        calls.append(("pay", order))
        return f"paid {order}"

    return pay


def two_payments(calls: Calls) -> FakeClient:
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


async def _text(agent: Any) -> str:
    return str((await agent.run("Hi.")).text)
