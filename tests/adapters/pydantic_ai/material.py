"""What the tests share: scripted models, and a run that is replayed from its journal."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel

import holdfast
from holdfast.adapters.pydantic_ai import HoldfastDurability

Turn = str | list[tuple[str, dict[str, Any], str]]
"""A text, or tool calls with their arguments and ids."""


class Script:
    """A model that answers its turns in order: the number of responses in the conversation decides."""

    def __init__(self, *turns: Turn) -> None:
        self.turns = turns
        self.calls = 0
        self.seen: list[list[ModelMessage]] = []

    def answer(self, messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        self.calls += 1
        self.seen.append(list(messages))
        turn = self.turns[sum(isinstance(message, ModelResponse) for message in messages)]
        if isinstance(turn, str):
            return ModelResponse([TextPart(turn)])
        return ModelResponse([ToolCallPart(name, arguments, call_id) for name, arguments, call_id in turn])

    async def stream(self, messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str | DeltaToolCalls]:
        for index, part in enumerate(self.answer(messages, info).parts):
            if isinstance(part, ToolCallPart):
                yield {index: DeltaToolCall(part.tool_name, part.args_as_json_str(), tool_call_id=part.tool_call_id)}
            elif isinstance(part, TextPart):
                for word in part.content.split(" "):
                    yield f"{word} "

    @property
    def model(self) -> FunctionModel:
        return FunctionModel(self.answer, stream_function=self.stream)

    @property
    def told(self) -> list[str]:
        """What tools returned to the model, and what it was asked to repeat, in the last call."""
        parts = [part for message in self.seen[-1] if isinstance(message, ModelRequest) for part in message.parts]
        return [str(part.content) for part in parts if part.part_kind in ("tool-return", "retry-prompt")]


def make_agent(model: Any, name: str = "agent", **options: Any) -> Agent[None, Any]:
    capabilities = [*options.pop("capabilities", []), options.pop("durability", None) or HoldfastDurability()]
    return Agent(model, name=name, capabilities=capabilities, **options)


Work = Callable[[holdfast.AsyncRun], Awaitable[Any]]


def replay(work: Work, *, app: holdfast.App | None = None) -> tuple[Any, Any]:
    """What `work` returns when it is executed, and when it is replayed from the journal."""
    found: list[Any] = []

    async def twice(run: holdfast.AsyncRun) -> None:
        found.append(await work(run))
        await run.ask("Go on?", {"ok": bool}, key="the end of the test")

    with app or holdfast.App("memory:") as opened:
        opened.workflow(name="twice")(twice)
        handle = opened.start("twice", run_id="r")
        if not found:
            handle.result()
        opened.answer("r", {"ok": True}, gate=opened.gates("r")[-1].gate)
        handle.result()
    first, second = found
    return first, second
