"""The story with Google ADK: `pay` is a FunctionTool with `require_confirmation`."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.apps import App
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import InMemoryRunner
from google.adk.tools.function_tool import FunctionTool
from google.genai import types

import holdfast
from holdfast.adapters.adk import HoldfastPlugin, idempotency_key
from tests.adapters import bank
from tests.adapters.story import ORDERS, policy_of

CONFIRMATION = "adk_request_confirmation"


def look(order: str) -> int:
    """The price of an order."""
    return bank.look(order)


async def pay(order: str, amount: int) -> str:
    """Pay an order."""
    return bank.pay(order, amount, idempotency_key())


class Model(BaseLlm):
    """Looks both orders up, pays both, then reports. It gives no ids to its calls, as Gemini."""

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        replies = _responses(llm_request.contents)
        bank.model_called(str(len(replies)))
        if not replies:
            parts = [types.Part.from_function_call(name="look", args={"order": order}) for order in ORDERS]
        elif replies[-1].name == "look":
            prices = [(reply.response or {})["result"] for reply in replies[-2:]]
            pays = [{"order": order, "amount": price} for order, price in zip(ORDERS, prices, strict=True)]
            parts = [types.Part.from_function_call(name="pay", args=args) for args in pays]
        else:
            said = [str((reply.response or {}).popitem()[1]) for reply in replies[-2:]]
            parts = [types.Part(text="; ".join(said))]
        yield LlmResponse(content=types.Content(role="model", parts=parts))


def _responses(contents: list[types.Content]) -> list[types.FunctionResponse]:
    parts = [part for content in contents for part in content.parts or ()]
    return [part.function_response for part in parts if part.function_response is not None]


def make_runner(policy: dict[str, Any] | None = None) -> InMemoryRunner:
    agent = LlmAgent(
        name="payer", model=Model(model="fake"), tools=[look, FunctionTool(pay, require_confirmation=True)]
    )
    plugin = HoldfastPlugin(tools={"pay": policy or {}})
    return InMemoryRunner(app=App(name="shop", root_agent=agent, plugins=[plugin]))


async def ask_agent(runner: InMemoryRunner, message: types.Content) -> tuple[str, list[types.FunctionCall]]:
    """The last text, and the confirmations that the agent asks for in ADK's own way."""
    text, asked = "", []
    async for event in runner.run_async(user_id="ana", session_id="orders", new_message=message):
        asked += [call for call in event.get_function_calls() if call.name == CONFIRMATION]
        parts = (event.content and event.content.parts) or []
        text = "".join(part.text or "" for part in parts) or text
    return text, asked


QUESTION = types.UserContent("Please pay my orders.")


async def pay_orders(run: holdfast.AsyncRun, policy: str) -> str:
    runner = make_runner(policy_of(policy))
    await runner.session_service.create_session(app_name="shop", user_id="ana", session_id="orders")
    text, _ = await ask_agent(runner, QUESTION)
    return text


async def without_run() -> str:
    runner = make_runner()
    await runner.session_service.create_session(app_name="shop", user_id="ana", session_id="orders")
    _, asked = await ask_agent(runner, QUESTION)
    answers = [
        types.Part(function_response=types.FunctionResponse(id=call.id, name=call.name, response={"confirmed": True}))
        for call in asked
    ]
    text, _ = await ask_agent(runner, types.UserContent(answers))
    return text
