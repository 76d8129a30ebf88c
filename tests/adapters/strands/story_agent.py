"""The story with an agent of Strands."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterable, Callable
from typing import Any

from strands import Agent, tool
from strands.hooks import BeforeToolCallEvent
from strands.models import Model
from strands.types.content import ContentBlock, Messages
from strands.types.streaming import StreamEvent

import holdfast
from holdfast.adapters.strands import HoldfastPlugin, idempotency_key
from tests.adapters import bank
from tests.adapters.story import policy_of

PRICES = {"A-17": 40, "B-20": 25}
Answer = Callable[[Messages], list[ContentBlock]]


class FakeModel(Model):
    """A model that is a function of the messages."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer

    def update_config(self, **_: Any) -> None:
        pass

    def get_config(self) -> dict[str, Any]:
        return {}

    async def structured_output(self, *_: Any, **__: Any) -> AsyncGenerator[dict[str, Any], None]:
        yield {}

    async def stream(self, messages: Messages, *_: Any, **__: Any) -> AsyncIterable[StreamEvent]:
        parts = self.answer(messages)
        yield {"messageStart": {"role": "assistant"}}
        for part in parts:
            if "toolUse" in part:
                use = part["toolUse"]
                begin: Any = {"toolUse": {"name": use["name"], "toolUseId": use["toolUseId"]}}
                yield {"contentBlockStart": {"start": begin}}
                yield {"contentBlockDelta": {"delta": {"toolUse": {"input": json.dumps(use["input"])}}}}
            else:
                yield {"contentBlockStart": {"start": {}}}
                yield {"contentBlockDelta": {"delta": {"text": part["text"]}}}
            yield {"contentBlockStop": {}}
        is_tool = any("toolUse" in part for part in parts)
        yield {"messageStop": {"stopReason": "tool_use" if is_tool else "end_turn"}}


def call(call_id: str, name: str, **arguments: Any) -> ContentBlock:
    return {"toolUse": {"toolUseId": call_id, "name": name, "input": arguments}}


def results(messages: Messages) -> list[str]:
    """The results of tools in a conversation."""
    return [
        part["toolResult"]["content"][0]["text"]
        for message in messages
        for part in message["content"]
        if "toolResult" in part
    ]


def model(messages: Messages) -> list[ContentBlock]:
    found = results(messages)
    bank.model_called(str(len(found)))
    if not found:
        return [call(f"look-{order}", "look", order=order) for order in PRICES]
    if len(found) == 2:
        return [call(f"pay-{order}", "pay", order=order, amount=price) for order, price in PRICES.items()]
    return [{"text": "; ".join(found[2:])}]


@tool
def look(order: str) -> str:
    """The price of an order."""
    return f"{order} costs {bank.look(order)}"


@tool
def pay(order: str, amount: int) -> str:
    """Pay an order."""
    return bank.pay(order, amount, idempotency_key())


def approve(event: BeforeToolCallEvent) -> None:
    """Ask before a payment, as agents of Strands do."""
    if event.tool_use["name"] == "pay":
        answer = event.interrupt("approve-payment", reason=event.tool_use["input"])
        if answer != "y":
            event.cancel_tool = f"refused: {answer}"


def make_agent(policy: str) -> Agent:
    plugin = HoldfastPlugin({"look": {"record": "step"}, "pay": policy_of(policy)})
    agent = Agent(FakeModel(model), name="payer", tools=[look, pay], plugins=[plugin], callback_handler=None)
    agent.add_hook(approve, BeforeToolCallEvent)
    return agent


async def pay_orders(run: holdfast.AsyncRun, policy: str) -> str:
    return str(await make_agent(policy).invoke_async("Please pay my orders.")).strip()


async def without_run() -> str:
    agent = make_agent("ask")
    result = await agent.invoke_async("Please pay my orders.")
    while result.stop_reason == "interrupt":
        answers: Any = [
            {"interruptResponse": {"interruptId": each.id, "response": "y"}} for each in result.interrupts or []
        ]
        result = await agent.invoke_async(answers)
    return str(result).strip()
