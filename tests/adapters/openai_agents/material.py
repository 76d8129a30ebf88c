"""What the tests of this adapter share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("agents")
import agents
from pydantic import BaseModel

import holdfast
from holdfast.adapters.openai_agents import idempotency_key, run_agent
from tests.adapters.openai_agents.fakes import Calls, FakeModel, script

Log = list[Any]


class Receipt(BaseModel):
    number: int


def pay_tool(log: Log, **options: Any) -> agents.FunctionTool:
    def pay(order: str) -> str:
        log.append((order, idempotency_key()))
        return f"paid {order}"

    return agents.function_tool(pay, **options)


def look_tool(log: Log) -> agents.FunctionTool:
    @agents.function_tool
    async def look(order: str) -> str:
        log.append(order)
        return f"saw {order}"

    return look


def looks(count: int, then: Calls | str, end: str = "done") -> Callable[[list[str]], Calls | str]:
    """Look `count` times, one after the other, then something else, then the end."""
    turns: list[Calls | str] = [[(f"look-{turn}", "look", {"order": str(turn)})] for turn in range(count)]
    return script(*turns, then, *([end] if not isinstance(then, str) else []))


def with_app(url: str, work: Callable[..., Any]) -> holdfast.App:
    app = holdfast.App(url)
    app.workflow(name="work")(work)
    return app


def gates_of(app: holdfast.App) -> dict[str, str]:
    return {gate.prompt: gate.gate for gate in app.gates("r")}


def run_tool(url: str, tool: agents.FunctionTool, arguments: dict[str, Any], **options: Any) -> holdfast.App:
    """An app whose workflow calls a tool once and returns what the model got."""
    agent = agents.Agent(name="a", model=FakeModel(script([("c", tool.name, arguments)], "{0}")), tools=[tool])

    async def work(run: holdfast.AsyncRun) -> str:
        result = await run_agent(run, agent, "go", **options)
        await run.ask("Go on?", {"ok": bool})
        return str(result.final_output)

    return with_app(url, work)


def failing_tool(error: Exception, log: Log, **options: Any) -> agents.FunctionTool:
    async def pay(order: str) -> str:
        log.append((order, idempotency_key()))
        raise error

    return agents.function_tool(pay, **options)


def fail_with(url: str, work: Callable[..., Any]) -> str:
    with with_app(url, work) as app, pytest.raises(holdfast.RunFailed) as caught:
        app.start("work", run_id="r").result()
    return str(caught.value)


HELLO = agents.Agent(name="a", model=FakeModel(lambda _: "hello"))
