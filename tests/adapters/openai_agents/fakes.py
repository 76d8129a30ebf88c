"""A model that is a function of the conversation, and what the tests share."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import agents
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

Calls = list[tuple[str, str, dict[str, Any]]]
"""Calls of tools: id, name and arguments."""


def make_response(said: Calls | str) -> agents.ModelResponse:
    """A response of a model: calls of tools, or a message."""
    if isinstance(said, str):
        part = ResponseOutputText(type="output_text", text=said, annotations=[])
        message = ResponseOutputMessage(id="m", type="message", role="assistant", status="completed", content=[part])
        return agents.ModelResponse(output=[message], usage=agents.Usage(requests=1), response_id="r")
    output: list[Any] = [
        ResponseFunctionToolCall(type="function_call", call_id=call_id, name=name, arguments=json.dumps(arguments))
        for call_id, name, arguments in said
    ]
    return agents.ModelResponse(output=output, usage=agents.Usage(requests=1), response_id="r")


class FakeModel(agents.Model):
    """Calls `say` with the outputs of tools so far. `calls` counts; it is shared by the processes of a test."""

    def __init__(self, say: Callable[[list[str]], Calls | str], calls: list[str] | None = None) -> None:
        self.say = say
        self.calls: list[str] = [] if calls is None else calls

    async def get_response(self, *args: Any, **kwargs: Any) -> Any:
        items = kwargs["input"] if "input" in kwargs else args[1]
        outputs = [item["output"] for item in items if isinstance(item, dict) and _is_output(item)]
        self.calls.append(str(len(outputs)))
        return make_response(self.say(outputs))

    def stream_response(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError


def _is_output(item: dict[str, Any]) -> bool:
    return item.get("type") == "function_call_output" and not str(item["output"]).startswith('{"assistant"')


def script(*said: Calls | str) -> Callable[[list[str]], Calls | str]:
    """Say these one after the other, each when the calls of those before have outputs; the last one may use them."""

    def say(outputs: list[str]) -> Calls | str:
        left = len(outputs)
        for each in said:
            if isinstance(each, str) or left < len(each) or left == 0:
                return each.format(*outputs) if isinstance(each, str) else each
            left -= len(each)
        raise AssertionError(f"nothing left to say after {outputs}")

    return say


class CountingHooks(agents.RunHooks[Any]):
    """Counts the model calls that the SDK makes, recorded or not."""

    def __init__(self) -> None:
        self.turns = 0

    async def on_llm_start(self, *args: Any, **kwargs: Any) -> None:
        self.turns += 1
