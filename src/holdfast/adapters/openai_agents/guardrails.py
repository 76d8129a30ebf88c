"""Guardrails as steps: what a guardrail found is recorded, with the model calls it made."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

import agents
from agents.tool_guardrails import ToolGuardrailFunctionOutput
from pydantic_core import to_jsonable_python

from holdfast.adapters.openai_agents.place import recording, replace_function
from holdfast.adapters.shared.calls import next_key, record_call


def bind_guardrails(guardrails: Iterable[Any]) -> None:
    for guardrail in guardrails:
        is_of_tool = isinstance(guardrail, agents.ToolInputGuardrail | agents.ToolOutputGuardrail)
        output = ToolGuardrailFunctionOutput if is_of_tool else agents.GuardrailFunctionOutput
        replace_function(
            guardrail, "guardrail_function", functools.partial(_make_guardrail, guardrail.get_name(), output)
        )


def _make_guardrail(name: str, output: Callable[..., Any], original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    async def check(*args: Any) -> Any:
        async def body() -> object:
            result = original(*args)
            return to_jsonable_python(await result if inspect.isawaitable(result) else result, fallback=str)

        found = recording()
        if found is None:
            result = original(*args)
            return await result if inspect.isawaitable(result) else result
        place, run = found
        call_id = getattr(getattr(args[0], "context", None), "tool_call_id", "")  # of a tool's guardrail
        key = next_key(run, f"{place.path}guardrail {name} {call_id}")
        return output(**await record_call(run, key, body, name=name))

    return check
