"""The story as a LlamaIndex workflow: a model step, parallel tool steps, approvals by InputRequiredEvent."""

from __future__ import annotations

from typing import Any

from workflows import Context, Workflow, step
from workflows.events import Event, HumanResponseEvent, InputRequiredEvent, StartEvent, StopEvent

import holdfast
from holdfast.adapters.llama_index import HoldfastRuntime, idempotency_key, perform_tool, run_workflow
from tests.adapters import bank
from tests.adapters.story import ORDERS, policy_of


class Ask(StartEvent):
    """The beginning."""

    question: str
    policy: str = "ask"


class Turn(Event):
    """The conversation so far; the model is next."""

    messages: list[dict[str, Any]]


class ToolCalled(Event):
    """A tool call of the model's response."""

    call_id: str
    tool: str
    arguments: dict[str, Any]


class ToolReturned(Event):
    """Its result, for the model."""

    call_id: str
    text: str


class ApprovePayment(InputRequiredEvent):
    """May this be paid?"""

    call_id: str
    order: str
    amount: int


class PaymentAnswer(HumanResponseEvent):
    """Yes or no."""

    call_id: str
    approve: bool
    note: str = ""


def model(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """A function of the conversation."""
    bank.model_called(str(len(messages)))
    turn = sum(message["role"] == "assistant" for message in messages)
    if turn == 0:
        calls = [{"id": f"look-{order}", "tool": "look", "arguments": {"order": order}} for order in ORDERS]
        return {"role": "assistant", "calls": calls}
    if turn == 1:
        prices = {message["call_id"].removeprefix("look-"): int(message["text"]) for message in messages[-2:]}
        calls = [
            {"id": f"pay-{order}", "tool": "pay", "arguments": {"order": order, "amount": prices[order]}}
            for order in ORDERS
        ]
        return {"role": "assistant", "calls": calls}
    return {"role": "assistant", "text": "; ".join(sorted(message["text"] for message in messages[-2:]))}


async def look(order: str) -> int:
    return bank.look(order)


def pay(order: str, amount: int) -> str:
    return bank.pay(order, amount, idempotency_key())


class PayOrders(Workflow):
    """The agent."""

    @step
    async def begin(self, ctx: Context, ev: Ask) -> Turn:
        await ctx.store.set("policy", ev.policy)
        return Turn(messages=[{"role": "user", "content": ev.question}])

    @step
    async def think(self, ctx: Context, ev: Turn) -> ToolCalled | StopEvent | None:
        reply = model(ev.messages)
        await ctx.store.set("messages", [*ev.messages, reply])
        if "calls" not in reply:
            return StopEvent(result=reply["text"])
        for call in reply["calls"]:
            ctx.send_event(ToolCalled(call_id=call["id"], tool=call["tool"], arguments=call["arguments"]))
        return None

    @step(num_workers=4)
    async def use_tool(self, ctx: Context, ev: ToolCalled) -> ToolReturned:
        policy = None
        if ev.tool == "pay":
            answer = await ctx.wait_for_event(
                PaymentAnswer,
                waiter_event=ApprovePayment(call_id=ev.call_id, **ev.arguments),
                waiter_id=ev.call_id,
                requirements={"call_id": ev.call_id},
                timeout=None,
            )
            if not answer.approve:
                return ToolReturned(call_id=ev.call_id, text=f"refused: {answer.note}")
            policy = policy_of(await ctx.store.get("policy"))
        tool: Any = {"look": look, "pay": pay}[ev.tool]
        result = await perform_tool(ev.call_id, tool, ev.arguments, name=ev.tool, policy=policy)
        return ToolReturned(call_id=ev.call_id, text=str(result))

    @step
    async def collect(self, ctx: Context, ev: ToolReturned) -> Turn | None:
        returned = ctx.collect_events(ev, [ToolReturned] * 2)
        if returned is None:
            return None
        messages: list[dict[str, Any]] = await ctx.store.get("messages")
        results = [{"role": "tool", "call_id": each.call_id, "text": each.text} for each in returned]
        return Turn(messages=[*messages, *sorted(results, key=lambda result: result["call_id"])])


async def pay_orders(run: holdfast.AsyncRun, policy: str) -> str:
    workflow = PayOrders(timeout=None, runtime=HoldfastRuntime())
    return str(await run_workflow(run, workflow, question="Please pay my orders.", policy=policy))


async def without_run() -> str:
    handler = PayOrders(timeout=None, runtime=HoldfastRuntime()).run(question="Please pay my orders.")
    async for event in handler.stream_events():
        if isinstance(event, ApprovePayment):
            await handler.send_event(PaymentAnswer(call_id=event.call_id, approve=True))
    return str(await handler)
