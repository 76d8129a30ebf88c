"""Model calls and guardrails as steps, for all agents that an agent can reach.

Agents, models, tools and guardrails are changed in place, once, because the SDK compares them by identity. Code that
does not run inside `run_agent` gets what it would get without this module.
"""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable
from typing import Any

import agents
from openai.types.responses import Response, ResponseCompletedEvent, ResponseUsage
from pydantic import TypeAdapter

from holdfast.adapters.openai_agents.guardrails import bind_guardrails
from holdfast.adapters.openai_agents.place import has_record, recording, replace_function
from holdfast.adapters.openai_agents.recorded_tools import make_get_all_tools
from holdfast.adapters.shared.calls import next_key, record_call
from holdfast.errors import StepFailed


def bind_config(config: agents.RunConfig) -> None:
    """Let the calls of the models and guardrails of a configuration be recorded."""
    bind_guardrails([*(config.input_guardrails or []), *(config.output_guardrails or [])])
    replace_function(config.model_provider, "get_model", _make_get_model)
    if isinstance(config.model, agents.Model):
        _bind_model(config.model)


def bind_agents(agent: agents.Agent[Any]) -> None:
    """Let the calls of an agent be recorded, and those of all agents that it hands off to."""
    left, seen = [agent], set[int]()
    while left:
        found = left.pop()
        if id(found) in seen:
            continue
        seen.add(id(found))
        if isinstance(found.model, agents.Model):
            _bind_model(found.model)
        bind_guardrails([*found.input_guardrails, *found.output_guardrails])
        replace_function(found, "get_all_tools", functools.partial(make_get_all_tools, found, bind_agents))
        for handoff in found.handoffs:
            target: object = handoff
            if isinstance(handoff, agents.Handoff):
                replace_function(handoff, "on_invoke_handoff", _make_on_invoke_handoff)
                # A resumed state may begin behind the handoff, and only this private name leads there.
                target = handoff._agent_ref() if handoff._agent_ref is not None else None
            if isinstance(target, agents.Agent):
                left.append(target)


def _make_on_invoke_handoff(original: Callable[..., Any]) -> Callable[..., Any]:
    async def on_invoke_handoff(*args: Any, **kwargs: Any) -> Any:
        agent = await original(*args, **kwargs)
        if recording() is not None and isinstance(agent, agents.Agent):
            bind_agents(agent)
        return agent

    return on_invoke_handoff


def _make_get_model(original: Callable[[str | None], agents.Model]) -> Callable[[str | None], agents.Model]:
    def get_model(model_name: str | None) -> agents.Model:
        return _bind_model(original(model_name))

    return get_model


def _bind_model(model: agents.Model) -> agents.Model:
    replace_function(model, "get_response", _make_get_response)
    replace_function(model, "stream_response", functools.partial(_make_stream_response, model))
    return model


def _make_get_response(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    async def get_response(*args: Any, **kwargs: Any) -> agents.ModelResponse:
        found = recording()
        if found is None:
            response: agents.ModelResponse = await original(*args, **kwargs)
            return response
        place, run = found
        name = f"{place.path}model"

        async def body() -> object:
            codec = _response_codec()
            return codec.dump_python(
                await original(*args, **kwargs), mode="json", by_alias=True, exclude_unset=True, warnings=False
            )

        key = next_key(run, name)
        while True:
            try:
                recorded = await record_call(run, key, body, name="model", after=[place.agent])
                break
            except StepFailed as failed:
                # The SDK retried this call if the next one is recorded. Its policy cannot judge an error from a record.
                key = next_key(run, name) if failed.__cause__ is None else ""
                if not key or not has_record(run, key):
                    raise
        response = _response_codec().validate_python(recorded)
        segment = place.segment
        segment.known |= {f"{place.prefix}{getattr(item, 'call_id', '')}" for item in response.output}
        if segment.turns_left is not None and not place.prefix:
            segment.turns_left -= 1
        return response

    return get_response


@functools.cache
def _response_codec() -> TypeAdapter[agents.ModelResponse]:
    return TypeAdapter(agents.ModelResponse)


def _make_stream_response(model: agents.Model, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    async def stream_response(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        if recording() is None:
            async for event in original(*args, **kwargs):
                yield event
            return
        response = await model.get_response(*args, **kwargs)
        usage = response.usage
        yield ResponseCompletedEvent(
            type="response.completed",
            sequence_number=0,
            response=Response(
                id=response.response_id or "",
                created_at=0,
                model="",
                object="response",
                output=response.output,
                parallel_tool_calls=True,
                tool_choice="auto",
                tools=[],
                usage=ResponseUsage(
                    input_tokens=usage.input_tokens,
                    output_tokens=usage.output_tokens,
                    total_tokens=usage.total_tokens,
                    input_tokens_details=usage.input_tokens_details,
                    output_tokens_details=usage.output_tokens_details,
                ),
            ),
        )

    return stream_response
