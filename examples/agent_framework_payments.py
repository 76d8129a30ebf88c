"""An agent of Microsoft Agent Framework that asks before it pays, on Holdfast.

    pip install "holdfast[agent-framework]"
    python agent_framework_payments.py start          # looks up two orders and asks; this process ends
    holdfast gates --store sqlite:payments.db
    python agent_framework_payments.py answer yes     # or: holdfast answer …, or the page; any process continues

The agent is plain Agent Framework: the tool `pay` has `approval_mode="always_require"`. One line is Holdfast's:
`middleware=durable_middleware(…)`. A killed process repeats neither a finished model call nor a payment.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from agent_framework import (
    Agent,
    BaseChatClient,
    ChatMiddlewareLayer,
    ChatResponse,
    Content,
    FunctionInvocationLayer,
    Message,
    tool,
)

import holdfast
from holdfast.adapters.agent_framework import durable_middleware, idempotency_key

PRICES = {"A-17": 40, "B-20": 25}


@tool(approval_mode="never_require")
def look(order: str) -> str:
    """The price of an order."""
    return f"{order} costs {PRICES[order]}"


@tool(approval_mode="always_require")
def pay(order: str, amount: int) -> str:
    """Pay an order."""
    print(f"  … paying {amount} for {order} (key {idempotency_key()})")  # pass the key to the payment service
    return f"paid {amount} for {order}"


async def payments(run: holdfast.AsyncRun, question: str) -> str:
    """The workflow. On a resume the agent starts again, and finds its model and tool calls recorded."""
    agent = Agent(
        FakeClient(),
        name="payer",
        tools=[look, pay],
        middleware=durable_middleware({"look": {"record": "step"}, "pay": {"in_doubt": "ask"}}),
    )
    return (await agent.run(question)).text


class FakeClient(FunctionInvocationLayer, ChatMiddlewareLayer, BaseChatClient):
    """A client that works offline. It looks both orders up, then pays both, then reports."""

    async def _inner_get_response(self, *, messages: Sequence[Message], stream: bool, options: Any, **_: Any) -> Any:
        found = [part.result for message in messages for part in message.contents if part.type == "function_result"]
        if not found:
            calls = [self.call("look", order, {"order": order}) for order in PRICES]
        elif len(found) == 2:
            calls = [self.call("pay", order, {"order": order, "amount": price}) for order, price in PRICES.items()]
        else:
            calls = [Content.from_text("; ".join(found[2:]))]
        return ChatResponse(messages=[Message("assistant", calls)])

    @staticmethod
    def call(name: str, order: str, arguments: dict[str, Any]) -> Content:
        return Content.from_function_call(f"{name}-{order}", name, arguments=arguments)


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
