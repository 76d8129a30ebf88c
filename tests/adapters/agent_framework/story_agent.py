"""The story with an agent of Microsoft Agent Framework."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any

from agent_framework import (
    Agent,
    BaseChatClient,
    ChatMiddlewareLayer,
    ChatResponse,
    ChatResponseUpdate,
    Content,
    FunctionInvocationLayer,
    Message,
    ResponseStream,
    tool,
)

import holdfast
from holdfast.adapters.agent_framework import durable_middleware, idempotency_key
from tests.adapters import bank
from tests.adapters.story import policy_of

PRICES = {"A-17": 40, "B-20": 25}
Model = Callable[[Sequence[Message]], Sequence[Content]]


class FakeClient(FunctionInvocationLayer[Any], ChatMiddlewareLayer[Any], BaseChatClient[Any]):
    """A chat client whose model is a function of the messages."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model

    def _inner_get_response(
        self, *, messages: Sequence[Message], stream: bool, options: Mapping[str, Any], **kwargs: Any
    ) -> Awaitable[ChatResponse[Any]] | ResponseStream[ChatResponseUpdate, ChatResponse[Any]]:
        if stream:

            async def updates() -> AsyncIterator[ChatResponseUpdate]:
                for content in self.model(messages):
                    yield ChatResponseUpdate(role="assistant", contents=[content])

            return self._build_response_stream(updates(), response_format=options.get("response_format"))

        async def respond() -> ChatResponse[Any]:
            return ChatResponse(
                messages=[Message("assistant", list(self.model(messages)))],
                response_format=options.get("response_format"),
            )

        return respond()


def call(call_id: str, name: str, **arguments: Any) -> Content:
    return Content.from_function_call(call_id, name, arguments=arguments)


def results(messages: Sequence[Message]) -> list[str]:
    """The results of tools in a conversation."""
    return [str(part.result) for message in messages for part in message.contents if part.type == "function_result"]


def model(messages: Sequence[Message]) -> Sequence[Content]:
    found = results(messages)
    bank.model_called(str(len(found)))
    if not found:
        return [call(f"look-{order}", "look", order=order) for order in PRICES]
    if len(found) == 2:
        return [call(f"pay-{order}", "pay", order=order, amount=price) for order, price in PRICES.items()]
    return [Content.from_text("; ".join(found[2:]))]


@tool(approval_mode="never_require")
def look(order: str) -> str:
    """The price of an order."""
    return f"{order} costs {bank.look(order)}"


@tool(approval_mode="always_require")
def pay(order: str, amount: int) -> str:
    """Pay an order."""
    return bank.pay(order, amount, idempotency_key())


def make_agent(policy: str) -> Agent[Any]:
    middleware = durable_middleware({"look": {"record": "step"}, "pay": policy_of(policy)})
    return Agent(FakeClient(model), name="payer", tools=[look, pay], middleware=middleware)


async def pay_orders(run: holdfast.AsyncRun, policy: str) -> str:
    response = await make_agent(policy).run("Please pay my orders.")
    return str(response.text)


async def without_run() -> str:
    agent = make_agent("ask")
    session = agent.create_session()
    response = await agent.run("Please pay my orders.", session=session)
    while response.user_input_requests:
        answers = [request.to_function_approval_response(True) for request in response.user_input_requests]
        response = await agent.run(Message("user", answers), session=session)
    return str(response.text)
