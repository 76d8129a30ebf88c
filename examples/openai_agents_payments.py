"""An agent of the OpenAI Agents SDK that asks before it pays, on Holdfast.

    pip install "holdfast[openai-agents]"
    python openai_agents_payments.py start          # looks two orders up, then asks; this process ends
    holdfast gates --store sqlite:payments.db       # both questions
    python openai_agents_payments.py answer yes no  # another process answers and continues

The agent and its tools are plain SDK code. Instead of `Runner.run`, the workflow calls `run_agent`: model calls are
recorded, payments are effects in the ledger, approvals are gates. A killed process repeats neither a finished model
call nor a payment. The model is a fake, so no key is needed.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import agents
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

import holdfast
from holdfast.adapters.openai_agents import idempotency_key, run_agent

agents.set_tracing_disabled(True)
PRICES = {"A-17": 40, "B-20": 25}


@agents.function_tool
def look(order: str) -> str:
    """Look up the price of an order."""
    return f"{order} costs {PRICES[order]}"


@agents.function_tool(needs_approval=True)
def pay(order: str, amount: int) -> str:
    """Pay an order."""
    print(f"  … paying {amount} for {order} with the key {idempotency_key()}")
    return f"paid {amount} for {order}"


class FakeModel(agents.Model):
    """Look both orders up, then pay both, then report: a function of the conversation."""

    async def get_response(self, *args: Any, **kwargs: Any) -> agents.ModelResponse:
        print("  … calling the model")
        results = [item["output"] for item in kwargs["input"] if item.get("type") == "function_call_output"]
        if not results:
            return self._call([("look", {"order": order}) for order in PRICES])
        if len(results) == len(PRICES):
            return self._call([("pay", {"order": order, "amount": price}) for order, price in PRICES.items()])
        text = ResponseOutputText(type="output_text", text="; ".join(results[2:]), annotations=[])
        message = ResponseOutputMessage(id="m", type="message", role="assistant", status="completed", content=[text])
        return agents.ModelResponse(output=[message], usage=agents.Usage(), response_id=None)

    def _call(self, calls: list[tuple[str, dict[str, Any]]]) -> agents.ModelResponse:
        output: list[Any] = [
            ResponseFunctionToolCall(
                type="function_call", call_id=f"{name}-{given['order']}", name=name, arguments=json.dumps(given)
            )
            for name, given in calls
        ]
        return agents.ModelResponse(output=output, usage=agents.Usage(), response_id=None)

    def stream_response(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError


agent = agents.Agent(name="payer", instructions="Pay the customer's orders.", model=FakeModel(), tools=[look, pay])


async def pay_orders(run: holdfast.AsyncRun, request: str) -> str:
    # If the process dies during a payment, a person is asked whether it was made. Other choices: "retry", "fail".
    result = await run_agent(run, agent, request, policies={"pay": {"in_doubt": "ask"}})
    return str(result.final_output)


def main(verb: str, *answers: str) -> None:
    with holdfast.App("sqlite:payments.db") as app:
        app.workflow(pay_orders)
        if verb == "start":
            app.start(pay_orders, "Please pay my orders.", run_id="orders")
        for gate, answer in zip(app.gates("orders"), answers, strict=False):
            app.answer("orders", {"approve": answer == "yes", "note": "not this one"}, gate=gate.gate)
        handle = app.handle("orders")
        print(f"orders is {handle.status()}")
        for gate in app.gates("orders"):
            print(f"  waits for an answer: {gate.prompt}")
        if handle.status() == "completed":
            print(f"  {handle.result()}")


if __name__ == "__main__":
    main(*sys.argv[1:])
