"""A LlamaIndex workflow that asks before it pays, inside a Holdfast run.

    pip install "holdfast[llama-index]"
    python llama_index_payments.py start        # looks up two orders, asks about two payments; this process ends
    python llama_index_payments.py answer yes   # or: holdfast answer …, or the page; any process continues

The workflow is plain LlamaIndex. Three names are Holdfast's: the runtime, `run_workflow` and `perform_tool`. A killed
process repeats neither a step that has returned nor a payment.
"""

from __future__ import annotations

import sys
from typing import Any

from workflows import Context, Workflow, step
from workflows.events import Event, HumanResponseEvent, InputRequiredEvent, StartEvent, StopEvent

import holdfast
from holdfast.adapters.llama_index import HoldfastRuntime, idempotency_key, perform_tool, run_workflow

PRICES = {"A-17": 40, "B-20": 25}


class Turn(StartEvent):
    messages: list[dict[str, Any]]


class ToolCalled(Event):
    call_id: str
    tool: str
    arguments: dict[str, Any]


class ToolReturned(Event):
    text: str


class ApprovePayment(InputRequiredEvent):
    call_id: str
    order: str
    amount: int


class PaymentAnswer(HumanResponseEvent):
    call_id: str  # as in the question; the other fields are the form
    approve: bool
    note: str = ""


def pay(order: str, amount: int) -> str:
    print(f"  … paying {amount} for {order} ({idempotency_key()})")  # the key is the same for every attempt
    return f"paid {amount} for {order}"


TOOLS = {"look": lambda order: f"{order} costs {PRICES[order]}", "pay": pay}


class Agent(Workflow):
    @step
    async def think(self, ctx: Context, ev: Turn) -> ToolCalled | StopEvent | None:
        reply = fake_model(ev.messages)
        await ctx.store.set("messages", [*ev.messages, reply])
        if not reply["calls"]:
            return StopEvent(result=reply["content"])
        for call_id, tool, arguments in reply["calls"]:
            ctx.send_event(ToolCalled(call_id=call_id, tool=tool, arguments=arguments))
        return None

    @step(num_workers=4)
    async def use_tool(self, ctx: Context, ev: ToolCalled) -> ToolReturned:
        if ev.tool == "pay":
            answer = await ctx.wait_for_event(
                PaymentAnswer,
                waiter_event=ApprovePayment(call_id=ev.call_id, **ev.arguments),
                requirements={"call_id": ev.call_id},
                timeout=None,
            )
            if not answer.approve:
                return ToolReturned(text=f"refused: {answer.note}")
        text = await perform_tool(ev.call_id, TOOLS[ev.tool], ev.arguments, name=ev.tool, policy={"in_doubt": "ask"})
        return ToolReturned(text=text)

    @step
    async def collect(self, ctx: Context, ev: ToolReturned) -> Turn | None:
        returned = ctx.collect_events(ev, [ToolReturned] * len(PRICES))
        if returned is None:
            return None
        results = [{"role": "tool", "content": each.text} for each in returned]
        return Turn(messages=await ctx.store.get("messages") + results)


def fake_model(messages: list[dict[str, Any]]) -> dict[str, Any]:
    turn = sum(message["role"] == "assistant" for message in messages)
    looks = [(f"look-{order}", "look", {"order": order}) for order in PRICES]
    pays = [(f"pay-{order}", "pay", {"order": order, "amount": price}) for order, price in PRICES.items()]
    report = "; ".join(message["content"] for message in messages[-2:])
    return {"role": "assistant", "content": report, "calls": [looks, pays, []][turn]}


async def pay_orders(run: holdfast.AsyncRun, question: str) -> str:
    messages = [{"role": "user", "content": question}]
    return await run_workflow(run, Agent(timeout=None, runtime=HoldfastRuntime()), messages=messages)


def main(verb: str, answer: str = "yes") -> None:
    with holdfast.App("sqlite:payments.db") as app:
        app.workflow(pay_orders)
        if verb == "start":
            app.start(pay_orders, "Please pay my orders.", run_id="orders")
        for gate in app.gates("orders") if verb == "answer" else ():
            app.answer("orders", {"approve": answer == "yes", "note": "not now"}, gate=gate.gate)
        handle = app.handle("orders")
        print(f"orders is {handle.status()}: {handle.result() if handle.status() == 'completed' else ''}")
        for gate in app.gates("orders"):
            print(f"  waits for an answer: {gate.prompt} {gate.show}")


if __name__ == "__main__":
    main(*sys.argv[1:])
