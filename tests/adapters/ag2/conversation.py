"""Fake models, a bank and conversations for the tests of the AG2 adapter."""

from __future__ import annotations

from typing import Any

from ag2 import Agent, tool
from ag2.events import ToolCallEvent
from ag2.middleware import approval_required

import holdfast
from holdfast.adapters.ag2 import idempotency_key
from tests.adapters.ag2.story_agent import FakeConfig, call


class Model(FakeConfig):
    """The n-th reply is that of the n-th turn: a text, calls of tools, or an error."""

    def __init__(self, *replies: Any) -> None:
        super().__init__(self.reply)
        self.replies = list(replies)
        self.calls: list[int] = []
        self.seen: list[list[list[str]]] = []

    def reply(self, turns: list[list[str]]) -> str | list[ToolCallEvent]:
        self.calls.append(len(turns))
        self.seen.append(turns)
        reply = self.replies[min(len(turns), len(self.replies) - 1)]
        if isinstance(reply, Exception):
            raise reply
        if isinstance(reply, str):
            return reply
        return [call(name, **arguments) for name, arguments in reply]


class Bank:
    """Tools that count their calls."""

    def __init__(self) -> None:
        self.paid: list[str] = []
        self.keys: list[str | None] = []

    def pay(self, order: str) -> str:
        """Pay an order."""
        self.paid.append(order)
        self.keys.append(idempotency_key())
        return f"paid {order}"

    def plain(self) -> Any:
        return tool(self.pay)

    def ask(self) -> Any:
        return tool(self.pay, middleware=[approval_required()])


def start(app: holdfast.App, agent: Agent[Any], text: str = "go", **options: Any) -> holdfast.Handle[Any]:
    async def work(run: holdfast.AsyncRun) -> str:
        return (await agent.ask(text, **options)).body or ""

    app.workflow(name="work")(work)
    return app.start("work", run_id="r")


def gates(app: holdfast.App) -> dict[str, str]:
    return {gate.show["order"]: gate.gate for gate in app.gates("r")}
