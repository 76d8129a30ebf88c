"""The story with the OpenAI Agents SDK."""

from __future__ import annotations

import json
from typing import Any

import agents
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

import holdfast
from holdfast.adapters.openai_agents import idempotency_key, run_agent
from tests.adapters import bank
from tests.adapters.story import ORDERS, policy_of

agents.set_tracing_disabled(True)
PRICES = {"A-17": 40, "B-20": 25}


def response(turn: int, calls: list[tuple[str, str, dict[str, Any]]], text: str = "") -> agents.ModelResponse:
    """A response of a model: calls of tools, as id, name and arguments, or a last message."""
    output: list[Any] = [
        ResponseFunctionToolCall(type="function_call", call_id=call_id, name=name, arguments=json.dumps(arguments))
        for call_id, name, arguments in calls
    ]
    if not calls:
        part = ResponseOutputText(type="output_text", text=text, annotations=[])
        output = [ResponseOutputMessage(id="m", type="message", role="assistant", status="completed", content=[part])]
    return agents.ModelResponse(output=output, usage=agents.Usage(requests=1), response_id=f"r{turn}")


class StoryModel(agents.Model):
    """Look both orders up, pay both, report: a function of the conversation."""

    async def get_response(self, *args: Any, **kwargs: Any) -> Any:
        items = kwargs["input"]
        results = [item["output"] for item in items if item.get("type") == "function_call_output"]
        bank.model_called(str(len(results)))
        if not results:
            return response(0, [(f"look-{order}", "look", {"order": order}) for order in ORDERS])
        if len(results) == len(ORDERS):
            pays = [(f"pay-{order}", "pay", {"order": order, "amount": PRICES[order]}) for order in ORDERS]
            return response(1, pays)
        return response(2, [], "; ".join(results[len(ORDERS) :]))

    def stream_response(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError


@agents.function_tool
def look(order: str) -> int:
    return bank.look(order)


@agents.function_tool(needs_approval=True)
def pay(order: str, amount: int) -> str:
    return bank.pay(order, amount, idempotency_key())


agent = agents.Agent(name="payer", model=StoryModel(), tools=[look, pay])


async def pay_orders(run: holdfast.AsyncRun, policy: str) -> str:
    result = await run_agent(run, agent, "Please pay my orders.", policies={"pay": policy_of(policy)})
    return str(result.final_output)


async def without_run() -> str:
    result = await agents.Runner.run(agent, "Please pay my orders.")
    while result.interruptions:
        state = result.to_state()
        for item in result.interruptions:
            state.approve(item)
        result = await agents.Runner.run(agent, state)
    return str(result.final_output)
