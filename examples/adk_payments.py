"""A Google ADK agent that asks before it pays, on Holdfast.

    pip install "holdfast[adk]"
    python adk_payments.py start                  # looks up two orders, asks before it pays; this process ends
    holdfast gates --store sqlite:payments.db
    python adk_payments.py answer A-17 yes        # or: holdfast answer …, or the page; any process continues
    python adk_payments.py answer B-20 no

The agent is plain ADK. Holdfast's are the workflow around it and the plugin. A killed process repeats neither a model
call nor a payment. Replace `FakeModel` by the name of a model.
"""

from __future__ import annotations

import sys

from google.adk.agents import LlmAgent
from google.adk.apps import App
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import InMemoryRunner
from google.adk.tools.function_tool import FunctionTool
from google.genai import types

import holdfast
from holdfast.adapters.adk import HoldfastPlugin, idempotency_key

PRICES = {"A-17": 40, "B-20": 25}


def look(order: str) -> int:
    """The price of an order."""
    return PRICES[order]


def pay(order: str, amount: int) -> str:
    """Pay an order."""
    print(f"  … paying {amount} for {order}, key {idempotency_key()}")  # pass the key to the payment service
    return f"paid {amount} for {order}"


class FakeModel(BaseLlm):
    """Works offline: looks both orders up, then pays both, then reports."""

    async def generate_content_async(self, llm_request, stream=False):
        parts = [part for content in llm_request.contents for part in content.parts or ()]
        replies = [part.function_response for part in parts if part.function_response]
        if not replies:
            answer = [types.Part.from_function_call(name="look", args={"order": order}) for order in PRICES]
        elif replies[-1].name == "look":
            pays = [{"order": order, "amount": price} for order, price in PRICES.items()]
            answer = [types.Part.from_function_call(name="pay", args=args) for args in pays]
        else:
            answer = [types.Part(text="; ".join(str(next(iter(reply.response.values()))) for reply in replies[-2:]))]
        yield LlmResponse(content=types.Content(role="model", parts=answer))


agent = LlmAgent(
    name="payer",
    model=FakeModel(model="fake"),
    tools=[look, FunctionTool(pay, require_confirmation=True)],
)
plugin = HoldfastPlugin(tools={"look": {"record": "step"}, "pay": {"in_doubt": "ask"}})
shop = App(name="shop", root_agent=agent, plugins=[plugin])


async def pay_orders(run: holdfast.AsyncRun, question: str) -> str:
    runner = InMemoryRunner(app=shop)
    await runner.session_service.create_session(app_name="shop", user_id="ana", session_id="orders")
    text = ""
    message = types.UserContent(question)
    async for event in runner.run_async(user_id="ana", session_id="orders", new_message=message):
        parts = (event.content and event.content.parts) or []
        text = "".join(part.text or "" for part in parts) or text
    return text


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
