"""The story with an agent of Pydantic AI."""

from __future__ import annotations

from typing import Any

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.tools import DeferredToolRequests

import holdfast
from holdfast.adapters.pydantic_ai import HoldfastDurability, idempotency_key
from tests.adapters import bank
from tests.adapters.story import ORDERS, policy_of

_QUESTION = "Please pay my orders."


def _model(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
    bank.model_called(str(len(messages)))
    returned = [part for part in messages[-1].parts if isinstance(part, ToolReturnPart)]
    if not returned:
        return ModelResponse([ToolCallPart("look", {"order": order}, f"look-{order}") for order in ORDERS])
    if returned[0].tool_name == "look":
        prices = {part.tool_call_id.removeprefix("look-"): part.content for part in returned}
        return ModelResponse(
            [ToolCallPart("pay", {"order": order, "amount": prices[order]}, f"pay-{order}") for order in ORDERS]
        )
    return ModelResponse([TextPart("; ".join(str(part.content) for part in returned))])


def make_agent(policy: str) -> Agent[None, Any]:
    agent = Agent(
        FunctionModel(_model),
        name="payer",
        output_type=[str, DeferredToolRequests],
        capabilities=[HoldfastDurability()],
    )

    @agent.tool_plain(metadata={"holdfast": {"record": "step"}})
    def look(order: str) -> int:
        return bank.look(order)

    @agent.tool_plain(requires_approval=True, metadata={"holdfast": policy_of(policy)})
    def pay(order: str, amount: int) -> str:
        return bank.pay(order, amount, idempotency_key())

    return agent


async def pay_orders(run: holdfast.AsyncRun, policy: str) -> str:
    return str((await make_agent(policy).run(_QUESTION)).output)


async def without_run() -> str:
    agent = make_agent("ask")
    first = await agent.run(_QUESTION)
    assert isinstance(first.output, DeferredToolRequests)
    results = first.output.build_results(approve_all=True)
    last = await agent.run(message_history=first.all_messages(), deferred_tool_results=results)
    return str(last.output)
