"""Tool calls as effects, or as their policy says."""

from __future__ import annotations

import asyncio
import copy
import functools
import inspect
import json
import traceback
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import agents
from agents import tool as sdk_tool
from agents.tool_context import ToolContext
from pydantic_core import to_jsonable_python

from holdfast.adapters.openai_agents.guardrails import bind_guardrails
from holdfast.adapters.openai_agents.place import current_place, inside, recording
from holdfast.adapters.shared.calls import (
    DEFAULT,
    AgentStopped,
    Given,
    ToolCall,
    ToolPolicy,
    dump_or_lose,
    following_key,
    perform,
    record_call,
    refuse_unreached_gate,
    stop,
)
from holdfast.engine.failures import NOT_DONE, Classifier, Verdict
from holdfast.errors import InvalidInput, StepFailed
from holdfast.runtime.async_run import AsyncRun
from holdfast.state.tracked import TrackedDict, TrackedList

_LOCAL: Final = (
    agents.ApplyPatchTool,
    agents.ComputerTool,
    agents.CustomTool,
    agents.LocalShellTool,
    agents.ShellTool,
)
"""Tools that the SDK executes in this process, and whose calls cannot be recorded."""
_INVOKES: Final = "_on_invoke_tool_impl"
_REFUSES: Final = ([_INVOKES, "_prepare_arguments"], ["invoke_mcp_tool"])
"""Where the SDK refuses arguments, as the function of a tool and the function that it calls first."""
_OUTPUTS: Final = (agents.ToolOutputText, agents.ToolOutputImage, agents.ToolOutputFileContent)


def make_get_all_tools(
    agent: agents.Agent[Any], bind_agents: Callable[[agents.Agent[Any]], None], original: Callable[..., Any]
) -> Callable[..., Any]:
    """The function that lists the tools of an agent. Tools of MCP servers exist only from here on."""

    async def get_all_tools(*args: Any, **kwargs: Any) -> list[Any]:
        tools: list[Any] = await original(*args, **kwargs)
        found = recording()
        if found is None:
            return tools
        for tool in tools:
            if isinstance(tool, _LOCAL):
                raise AgentStopped(f"calls of {type(tool).__name__} cannot be recorded; make it a function tool")
            if isinstance(tool, agents.FunctionTool):
                _bind_tool(tool)
                inner = _agent_of(tool)
                if inner is not None:
                    bind_agents(inner)
                if tool.__dict__["needs_approval"] is False:
                    _refuse_unused_gate(found[1], tool)
                plain = found[0].segment.plain
                key = id(agent), tool.name
                plain[key] = plain.get(key, True) and tool.__dict__["needs_approval"] is False
        return tools

    return get_all_tools


def _refuse_unused_gate(run: AsyncRun, tool: agents.FunctionTool) -> None:
    try:
        _policy_of(tool).refuse_unused_gate(tool.name, "pass needs_approval=True to function_tool")
    except InvalidInput as error:
        raise stop(run, error) from error


def _bind_tool(tool: agents.FunctionTool) -> None:
    if not hasattr(type(tool), "holdfast_original"):
        kind: Any = type(tool)
        tool.__class__ = _recorded_class(kind)
        bind_guardrails([*(tool.tool_input_guardrails or []), *(tool.tool_output_guardrails or [])])


@functools.cache
def _recorded_class(kind: Any) -> type[agents.FunctionTool]:
    """The class with fields that have another value while calls are recorded.

    A wrapper around the tool would not do: the SDK finds tools by identity when it resumes, and inspects their fields.
    """

    def vary(name: str, choose: Callable[[agents.FunctionTool, Any], Any]) -> property:
        def get(tool: agents.FunctionTool) -> Any:
            value = tool.__dict__[name]
            return value if recording() is None else choose(tool, value)

        return property(get, lambda tool, value: tool.__dict__.__setitem__(name, value))

    members = {
        "holdfast_original": kind,
        "on_invoke_tool": vary("on_invoke_tool", _choose_invoker),
        "needs_approval": vary("needs_approval", _choose_approval),
        "timeout_seconds": vary("timeout_seconds", _choose_timeout),
    }
    return type(kind.__name__, (kind,), members)


def _choose_invoker(tool: agents.FunctionTool, _: object) -> Callable[..., Any]:
    """The same function each time, because the SDK compares it; a copy of the tool has its own."""
    kept: functools.partial[Any] | None = tool.__dict__.get("holdfast_invoke")
    if kept is None or kept.args[0] is not tool:
        kept = tool.__dict__["holdfast_invoke"] = functools.partial(_invoke, tool)
    return kept


def _choose_approval(tool: agents.FunctionTool, needed: Any) -> Any:
    """Ask for an approval that no person decides if a checkpoint is due: so the SDK stops with a state to save."""
    place = current_place()
    if needed is False:
        return place is not None and place.is_pause_due
    if not callable(needed):
        return needed

    async def decide(context: Any, parameters: dict[str, Any], call_id: str) -> bool:
        # The SDK lets a function decide only about arguments that are used as they are. It asks the tool's own invoker,
        # which it does not see here.
        prepare = getattr(tool.__dict__["on_invoke_tool"], "prepare_arguments", None)
        prepared = prepare(json.dumps(parameters), tool.name) if prepare is not None else None
        if prepared is not None and not prepared.unchanged:
            return True
        decision = needed(context, parameters, call_id)
        return bool(await decision if inspect.isawaitable(decision) else decision)

    return decide


def _choose_timeout(tool: agents.FunctionTool, seconds: float | None) -> float | None:
    """None where `_invoke` applies the limit, since a call that took too long may have happened."""
    return seconds if _policy_of(tool).record == "none" else None


def _policy_of(tool: agents.FunctionTool) -> ToolPolicy:
    place = current_place()
    policy = place.policies.get(tool.name, DEFAULT) if place is not None else DEFAULT
    return policy if _agent_of(tool) is None else replace(policy, record="none")


def _agent_of(tool: agents.FunctionTool) -> agents.Agent[Any] | None:
    """The agent that is called by this tool; only a private name leads to it."""
    found = tool._agent_instance
    return found if isinstance(found, agents.Agent) else None


async def _invoke(tool: agents.FunctionTool, context: ToolContext[Any], arguments: str) -> Any:
    """Call a tool as its policy says; what the SDK calls instead of the tool's own function."""
    found = recording()
    assert found is not None
    place, run = found
    policy, call_id = _policy_of(tool), context.tool_call_id
    if not place.segment.knows(place.prefix, call_id):
        raise AgentStopped(
            f"the model response that asks for {tool.name!r} was not recorded, so the call cannot be identified on a "
            "resume; do not pass run_config to Agent.as_tool, and run other agents with run_agent"
        )
    asked_as = f"{place.agent}{call_id}"  # approvals do not know the tool calls around them
    if policy.record == "none":
        refuse_unreached_gate(run, ToolCall(asked_as, tool.name, {}))
        with inside(replace(place, prefix=f"{place.prefix}{call_id}:")):
            return await tool.__dict__["on_invoke_tool"](context, arguments)
    seconds: float | None = tool.__dict__["timeout_seconds"]
    if policy.record == "effect":
        policy = replace(policy, timeout=policy.timeout or seconds)
        seconds = None

    async def body() -> object:
        # Errors must reach the ledger before the SDK makes text of them.
        own = sdk_tool.set_function_tool_failure_error_function(copy.copy(tool), None)
        async with asyncio.timeout(seconds):
            result = await own.on_invoke_tool(context, arguments)
        return dump_or_lose(lambda: _to_plain(tool, result))

    # The default of the SDK asks the model to try again. A function that the user has chosen decides itself.
    has_own = not tool._use_default_failure_error_function
    policy = replace(policy, classify=functools.partial(_classify, policy.classify))
    following = following_key(run, f"{place.path}model")
    call = ToolCall(
        f"{place.path}{call_id}",
        tool.name,
        parse_arguments(arguments),
        policy,
        asked_as=asked_as,
        followed_by=following,
    )
    try:
        result = await perform(run, call, body, raise_unproven=has_own)
    except StepFailed as failed:
        return await _explain(run, call, failed, tool, context)
    return result.value if isinstance(result, Given) else result


async def _explain(
    run: AsyncRun, call: ToolCall, failed: StepFailed, tool: agents.FunctionTool, context: ToolContext[Any]
) -> str:
    """What the model is told about a call that failed; recorded, because a replay does not have the exception."""
    cause = failed.__cause__ or Exception(failed.error_message)

    async def body() -> str | None:
        return await sdk_tool.maybe_invoke_function_tool_failure_error_function(
            function_tool=tool, context=context, error=cause
        )

    text: str | None = await record_call(run, f"error of {call.id}", body, name=f"error of {call.name}")
    if text is None:
        raise failed
    return text


def _classify(given: Classifier | None, error: BaseException) -> Verdict | None:
    """Arguments that the SDK refuses prove that the tool was not called."""
    verdict = given(error) if given is not None else None
    if verdict is not None or not isinstance(error, agents.ModelBehaviorError):
        return verdict
    names = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
    at = names.index(_INVOKES) if _INVOKES in names else len(names) - 1
    return NOT_DONE if names[at : at + 2] in _REFUSES else None


def _to_plain(tool: agents.FunctionTool, result: Any) -> Any:
    """What the model gets, as plain data. The SDK makes text of what is not."""
    parts = result if isinstance(result, list | tuple) and result else [result]
    if tool.output_json_schema is not None or all(isinstance(part, _OUTPUTS) for part in parts):
        return to_jsonable_python(result)
    return result if _is_plain(result) else str(result)


def _is_plain(value: object) -> bool:
    if isinstance(value, list) and type(value) in (list, TrackedList):
        return all(map(_is_plain, value))
    if isinstance(value, dict) and type(value) in (dict, TrackedDict):
        return all(type(key) is str for key in value) and all(map(_is_plain, value.values()))
    return value is None or type(value) in (str, int, float, bool)


def parse_arguments(arguments: str | None) -> dict[str, Any]:
    """The arguments of a call, as its gate and the ledger show them."""
    try:
        found = json.loads(arguments or "{}")
    except ValueError:
        found = arguments
    return found if isinstance(found, dict) else {"arguments": found}
