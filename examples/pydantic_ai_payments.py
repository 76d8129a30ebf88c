"""An agent of Pydantic AI that asks before it pays, on Holdfast.

    pip install "holdfast[pydantic-ai,cli]"
    python pydantic_ai_payments.py start            # looks up two orders and asks twice; this process ends
    holdfast gates --store sqlite:payments.db
    python pydantic_ai_payments.py answer A-17 yes  # or: holdfast answer …, or the page; any process continues
    python pydantic_ai_payments.py answer B-20 no

The agent is plain Pydantic AI. Two things are Holdfast's: the capability, and the workflow that the agent runs in. A
killed process repeats neither a finished model call nor a payment. Replace `fake_model` with "openai:…" or another one.
"""

from __future__ import annotations

import sys

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

import holdfast
from holdfast.adapters.pydantic_ai import HoldfastDurability, idempotency_key

PRICES = {"A-17": 40, "B-20": 25}


def fake_model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Look both orders up, then pay both, then report: a function of the conversation."""
    returned = [part for part in messages[-1].parts if isinstance(part, ToolReturnPart)]
    if not returned:
        return ModelResponse([ToolCallPart("look", {"order": order}, f"look-{order}") for order in PRICES])
    if returned[0].tool_name == "look":
        pays = [("pay", {"order": order, "amount": price}, f"pay-{order}") for order, price in PRICES.items()]
        return ModelResponse([ToolCallPart(*pay) for pay in pays])
    return ModelResponse([TextPart("; ".join(str(part.content) for part in returned))])


agent = Agent(FunctionModel(fake_model), name="payer", capabilities=[HoldfastDurability()])


@agent.tool_plain(metadata={"holdfast": {"record": "step"}})  # it only reads: it may be repeated after a crash
def look(order: str) -> str:
    return f"{order} costs {PRICES[order]}"


@agent.tool_plain(requires_approval=True)
def pay(order: str, amount: int) -> str:
    print(f"  … paying {amount} for {order} under the key {idempotency_key()}")
    return f"paid {amount} for {order}"


async def pay_orders(run: holdfast.AsyncRun, question: str) -> str:
    return str((await agent.run(question)).output)


def main(verb: str, order: str = "", answer: str = "yes") -> None:
    with holdfast.App("sqlite:payments.db") as app:
        app.workflow(pay_orders)
        if verb == "start":
            app.start(pay_orders, "Please pay my orders.", run_id="orders")
        for gate in app.gates("orders"):
            if verb == "answer" and gate.show["order"] == order:
                note = "" if answer == "yes" else "not this one"
                app.answer("orders", {"approve": answer == "yes", "note": note}, gate=gate.gate)
        handle = app.handle("orders")
        print(f"orders is {handle.status()}")
        for gate in app.gates("orders"):
            print(f"  waits for an answer: {gate.prompt}")
        if handle.status() == "completed":
            print(f"  {handle.result()}")


if __name__ == "__main__":
    main(*sys.argv[1:])
