"""An AG2 agent that asks before it pays, on Holdfast.

    pip install "holdfast[ag2]"
    python ag2_payments.py start                  # looks up two orders, asks before it pays; this process ends
    holdfast gates --store sqlite:payments.db
    python ag2_payments.py answer A-17 yes        # or: holdfast answer …, or the page; any process continues
    python ag2_payments.py answer B-20 no

The agent is plain AG2. Holdfast's are the workflow around it and `make_durable`. A killed process repeats neither a
model call nor a payment. Replace `FakeConfig` by the configuration of a model.
"""

from __future__ import annotations

import json
import sys

from ag2 import Agent, tool
from ag2.events import ModelMessage, ModelResponse, ToolCallEvent, ToolCallsEvent, ToolResultsEvent
from ag2.middleware import approval_required
from ag2.testing import TestConfig

import holdfast
from holdfast.adapters.ag2 import idempotency_key, make_durable

PRICES = {"A-17": 40, "B-20": 25}


@tool
def look(order: str) -> int:
    """The price of an order."""
    return PRICES[order]


@tool(middleware=[approval_required()])
def pay(order: str, amount: int) -> str:
    """Pay an order."""
    print(f"  … paying {amount} for {order}, key {idempotency_key()}")  # pass the key to the payment service
    return f"paid {amount} for {order}"


class FakeConfig(TestConfig):
    """Works offline: looks both orders up, then pays both, then reports."""

    def create(self):
        return fake_model


async def fake_model(messages, context, **options):
    turns = [event.results for event in messages if isinstance(event, ToolResultsEvent)]
    if not turns:
        calls = [ToolCallEvent("look", arguments=json.dumps({"order": order})) for order in PRICES]
    elif len(turns) == 1:
        pays = [{"order": order, "amount": price} for order, price in PRICES.items()]
        calls = [ToolCallEvent("pay", arguments=json.dumps(given)) for given in pays]
    else:
        texts = [" ".join(part.content for part in event.result.parts) for event in turns[-1]]
        return ModelResponse(ModelMessage("; ".join(texts)))
    return ModelResponse(tool_calls=ToolCallsEvent(calls))


agent = make_durable(
    Agent("payer", config=FakeConfig(), tools=[look, pay]),
    tools={"look": {"record": "step"}, "pay": {"in_doubt": "ask"}},
)


async def pay_orders(run: holdfast.AsyncRun, question: str) -> str:
    reply = await agent.ask(question)
    return reply.body or ""


def main(verb: str, order: str = "", answer: str = "yes") -> None:
    with holdfast.App("sqlite:payments.db") as app:
        app.workflow(pay_orders)
        if verb == "start":
            app.start(pay_orders, "Please pay my orders.", run_id="orders")
        else:
            gate = next(gate for gate in app.gates("orders") if gate.show["order"] == order)
            app.answer("orders", {"approve": answer == "yes"}, gate=gate.gate)
        handle = app.handle("orders")
        print(f"orders is {handle.status()}")
        for gate in app.gates("orders"):
            print(f"  waits for an answer: {gate.prompt}")
        if handle.status() == "completed":
            print(f"  {handle.result()}")


if __name__ == "__main__":
    main(*sys.argv[1:])
