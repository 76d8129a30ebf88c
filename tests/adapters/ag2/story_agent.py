"""The story with AG2: `pay` has the tool middleware `approval_required`."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from ag2 import Agent, Context, tool
from ag2.events import BaseEvent, ModelMessage, ModelResponse, ToolCallEvent, ToolCallsEvent, ToolResultsEvent
from ag2.middleware import approval_required
from ag2.testing import TestClient, TestConfig

import holdfast
from holdfast.adapters.ag2 import idempotency_key, make_durable
from tests.adapters import bank
from tests.adapters.story import ORDERS, policy_of

Model = Callable[[list[list[str]]], str | list[ToolCallEvent]]


class FakeClient(TestClient):
    """A model that is a function of the results of each turn so far, as texts."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self._reply = model

    async def __call__(self, messages: Sequence[BaseEvent], context: Context, **options: Any) -> ModelResponse:
        results = [event for event in messages if isinstance(event, ToolResultsEvent)]
        reply = self._reply([[text_of(one.result) for one in event.results] for event in results])
        if isinstance(reply, str):
            return ModelResponse(ModelMessage(reply))
        return ModelResponse(tool_calls=ToolCallsEvent(reply))


class FakeConfig(TestConfig):
    """Makes the client of such a model."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.client: TestClient = FakeClient(model)

    def create(self) -> TestClient:
        return self.client


def text_of(result: Any) -> str:
    return " ".join(str(getattr(part, "content", getattr(part, "data", ""))) for part in result.parts)


def call(name: str, **arguments: Any) -> ToolCallEvent:
    return ToolCallEvent(name, arguments=json.dumps(arguments))


def model(turns: list[list[str]]) -> str | list[ToolCallEvent]:
    bank.model_called(str(len(turns)))
    if not turns:
        return [call("look", order=order) for order in ORDERS]
    if len(turns) == 1:
        return [call("pay", order=order, amount=int(text)) for order, text in zip(ORDERS, turns[0], strict=True)]
    return "; ".join(turns[1])


@tool
def look(order: str) -> int:
    """The price of an order."""
    return bank.look(order)


@tool(middleware=[approval_required()])
def pay(order: str, amount: int) -> str:
    """Pay an order."""
    return bank.pay(order, amount, idempotency_key())


def make_agent(policy: dict[str, Any] | None = None, **options: Any) -> Agent[Any]:
    agent = Agent("payer", config=FakeConfig(model), tools=[look, pay], **options)
    return make_durable(agent, tools={"pay": policy or {}})


async def pay_orders(run: holdfast.AsyncRun, policy: str) -> str:
    reply = await make_agent(policy_of(policy)).ask("Please pay my orders.")
    return reply.body or ""


async def without_run() -> str:
    reply = await make_agent(hitl_hook=lambda: "yes").ask("Please pay my orders.")
    return reply.body or ""
