"""An agent of Strands that asks before it pays, on Holdfast.

    pip install "holdfast[strands]"
    python strands_payments.py start          # looks up two orders and asks before both payments; this process ends
    holdfast gates --store sqlite:payments.db
    python strands_payments.py answer yes     # or: holdfast answer …, or the page; any process continues

The agent is plain Strands: a hook interrupts before the tool `pay`. One argument is Holdfast's: the plugin.
A killed process repeats neither a finished model call nor a payment.
"""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from typing import Any

from strands import Agent, tool
from strands.hooks import BeforeToolCallEvent
from strands.models import Model

import holdfast
from holdfast.adapters.strands import HoldfastPlugin, idempotency_key

PRICES = {"A-17": 40, "B-20": 25}


@tool
def look(order: str) -> str:
    """The price of an order."""
    return f"{order} costs {PRICES[order]}"


@tool
def pay(order: str, amount: int) -> str:
    """Pay an order."""
    print(f"  … paying {amount} for {order} (key {idempotency_key()})")  # pass the key to the payment service
    return f"paid {amount} for {order}"


def approve(event: BeforeToolCallEvent) -> None:
    """Ask before a payment. The answer of a gate is `y`, or `n` and the note."""
    if event.tool_use["name"] == "pay":
        answer = event.interrupt("approve", reason=event.tool_use["input"])
        if answer != "y":
            event.cancel_tool = f"refused ({answer})"


async def payments(run: holdfast.AsyncRun, question: str) -> str:
    """The workflow. On a resume the agent starts again, and finds its model and tool calls recorded."""
    plugin = HoldfastPlugin({"look": {"record": "step"}, "pay": {"in_doubt": "ask"}})
    agent = Agent(FakeModel(), name="payer", tools=[look, pay], plugins=[plugin], callback_handler=None)
    agent.add_hook(approve, BeforeToolCallEvent)
    return str(await agent.invoke_async(question)).strip()


class FakeModel(Model):
    """A model that works offline. It looks both orders up, then pays both, then reports."""

    def update_config(self, **config: Any) -> None: ...

    def get_config(self) -> dict[str, Any]:
        return {}

    async def structured_output(self, *args: Any, **options: Any) -> Any: ...

    async def stream(self, messages: Any, *args: Any, **options: Any) -> AsyncIterator[Any]:
        parts = [part["toolResult"] for message in messages for part in message["content"] if "toolResult" in part]
        if not parts:
            calls = [("look", order, {"order": order}) for order in PRICES]
        else:
            calls = [("pay", order, {"order": order, "amount": price}) for order, price in PRICES.items()]
        yield {"messageStart": {"role": "assistant"}}
        if len(parts) > 2:
            text = "; ".join(part["content"][0]["text"] for part in parts[2:])
            yield {"contentBlockDelta": {"delta": {"text": text}}}
            yield {"contentBlockStop": {}}
            calls = []
        for name, order, given in calls:
            yield {"contentBlockStart": {"start": {"toolUse": {"name": name, "toolUseId": f"{name}-{order}"}}}}
            yield {"contentBlockDelta": {"delta": {"toolUse": {"input": json.dumps(given)}}}}
            yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "tool_use" if calls else "end_turn"}}


def main(verb: str, answer: str = "yes", note: str = "") -> None:
    with holdfast.App("sqlite:payments.db") as app:
        app.workflow(payments)
        if verb == "start":
            app.start(payments, "Please pay my orders.", run_id="orders")
        else:
            for gate in app.gates("orders"):
                app.answer("orders", {"approve": answer == "yes", "note": note}, gate=gate.gate)
        handle = app.handle("orders")
        print(f"orders is {handle.status()}")
        for gate in app.gates("orders"):
            print(f"  waits for an answer: {gate.prompt}")
        if handle.status() == "completed":
            print(f"  {handle.result()}")


if __name__ == "__main__":
    main(*sys.argv[1:])
