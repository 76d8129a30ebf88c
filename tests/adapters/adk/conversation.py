"""Fake models, a bank and conversations for the tests of the ADK adapter."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

from google.adk.agents.run_config import RunConfig
from google.adk.apps import App
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.runners import InMemoryRunner
from google.adk.tools.function_tool import FunctionTool
from google.genai import types

import holdfast
from holdfast.adapters.adk import HoldfastPlugin, idempotency_key

Reply = str | list[tuple[str, dict[str, Any]]] | types.Content | Exception


class Script(BaseLlm):
    """A model whose n-th reply is that of the conversation's n-th turn: a text, or calls of tools."""

    model: str = "script"
    replies: list[Any]
    calls: list[int]
    ids: bool = False

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        turn = sum(content.role == "model" for content in llm_request.contents)
        self.calls.append(turn)
        reply: Reply = self.replies[min(turn, len(self.replies) - 1)]
        if isinstance(reply, Exception):
            raise reply
        if stream:
            yield LlmResponse(content=types.ModelContent("par"), partial=True)
        yield LlmResponse(content=content_of(reply, ids=self.ids))


class PayWhatIsAsked(Script):
    """Pays the order that it is asked for, then reports."""

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        self.calls.append(len(llm_request.contents))
        parts = [part for content in llm_request.contents for part in content.parts or ()]
        asked = next(part.text for part in reversed(parts) if part.text)
        has_paid = any(part.function_response for part in parts)
        yield LlmResponse(content=content_of(f"inner {asked}" if has_paid else [("pay", {"order": asked})], ids=True))


def content_of(reply: Any, *, ids: bool = False) -> types.Content:
    if isinstance(reply, types.Content):
        return reply
    if isinstance(reply, str):
        return types.ModelContent(reply)
    calls = [
        types.FunctionCall(id=f"call_{number}" if ids else None, name=name, args=args)
        for number, (name, args) in enumerate(reply)
    ]
    return types.Content(role="model", parts=[types.Part(function_call=call) for call in calls])


def script(*replies: Reply, ids: bool = False) -> Script:
    return Script(replies=list(replies), calls=[], ids=ids)


async def talk(
    agent: Any,
    *plugins: BasePlugin,
    config: RunConfig | None = None,
    text: str = "go",
    before: tuple[BasePlugin, ...] = (),
) -> list[Any]:
    """Run an agent in a session of its own; the events."""
    chosen = [*before, *(plugins or [HoldfastPlugin()])]
    runner = InMemoryRunner(app=App(name="shop", root_agent=agent, plugins=chosen))
    await runner.session_service.create_session(app_name="shop", user_id="ana", session_id="s")
    message = types.UserContent(text)
    return [
        event async for event in runner.run_async(user_id="ana", session_id="s", new_message=message, run_config=config)
    ]


def texts(events: list[Any]) -> str:
    parts = [part for event in events for part in (event.content and event.content.parts) or ()]
    return " ".join(part.text for part in parts if part.text)


def responses(events: list[Any]) -> list[Any]:
    return [reply.response for event in events for reply in event.get_function_responses()]


def start(app: holdfast.App, agent: Any, *plugins: BasePlugin, **options: Any) -> holdfast.Handle[Any]:
    """Start a run whose workflow is one conversation; its result is the responses and the texts."""

    async def work(run: holdfast.AsyncRun) -> list[Any]:
        events = await talk(agent, *plugins, **options)
        return [responses(events), texts(events)]

    app.workflow(name="work")(work)
    return app.start("work", run_id="r")


def gates(app: holdfast.App) -> dict[str, str]:
    return {gate.show["order"]: gate.gate for gate in app.gates("r")}


class Bank:
    """Tools that count their calls."""

    def __init__(self) -> None:
        self.paid: list[str] = []
        self.keys: list[str | None] = []

    def pay(self, order: str) -> str:
        """Pay an order."""
        self.paid.append(order)
        self.keys.append(idempotency_key())
        return f"paid {order}"

    def ask(self) -> FunctionTool:
        return FunctionTool(self.pay, require_confirmation=True)
