"""AG2 inside a workflow: model calls are steps, tool calls are effects, human input is a gate.

`make_durable` adds three middlewares to an agent: the effect is the innermost of each tool, so approvals are asked
before it begins; model calls are recorded by the innermost of the agent; the outermost lets all calls of a model
response open their gates. Without a run they pass everything on.
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import functools
import hashlib
import importlib
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from holdfast.adapters.shared.batch import Batch
from holdfast.adapters.shared.calls import (
    AgentStopped,
    Given,
    ToolCall,
    ToolPolicy,
    ask_approvals,
    current,
    following_key,
    idempotency_key,
    next_key,
    perform,
    record_call,
    refuse_unreached_gate,
)
from holdfast.errors import EffectFailed, InvalidInput, StepFailed, Suspended
from holdfast.forms import field
from holdfast.runtime.async_run import AsyncRun
from holdfast.runtime.run_base import current_run

try:
    from ag2 import Agent, Context, Toolkit
    from ag2.events import (
        BaseEvent,
        ClientToolCallEvent,
        DataInput,
        HumanInputRequest,
        HumanMessage,
        ModelResponse,
        TextInput,
        ToolApprovalRequest,
        ToolCallEvent,
        ToolErrorEvent,
        ToolResult,
        ToolResultEvent,
    )
    from ag2.exceptions import HumanInputTimeoutError
    from ag2.middleware import BaseMiddleware, Middleware
    from ag2.middleware.base import AgentTurn, HumanInputHook, LLMCall, ToolExecution, ToolResultType
    from ag2.tools.final import FunctionTool
    from ag2.tools.tool import Tool
    from ag2.utils import AGENT_CONTEXT_DEPENDENCY_KEY
    from pydantic_core import to_jsonable_python
except ImportError as error:
    if (error.name or "").partition(".")[0] != "ag2":
        raise
    raise ImportError('holdfast.adapters.ag2 needs ag2; pip install "holdfast[ag2]"', name=error.name) from error

__all__ = ["AgentStopped", "ToolPolicy", "idempotency_key", "make_durable"]

_ADAPTER: Final = "holdfast.adapters.ag2"
_BRACKETS: Final = str.maketrans("[]", "()")
_TYPE_MARKS: Final = ("__event__", "__dataclass__", "__pydantic__", "__enum__")
Policies = Mapping[str, ToolPolicy]


class _Turn(NamedTuple):
    """A recorded model response."""

    key: str
    next: str
    ids: frozenset[str]
    batch: Batch


@dataclasses.dataclass
class _Call:
    """A tool call that is executed now."""

    call: ToolCall
    event: ToolCallEvent
    note: str = ""


_turn: contextvars.ContextVar[_Turn | None] = contextvars.ContextVar("holdfast_ag2_turn", default=None)
_call: contextvars.ContextVar[_Call | None] = contextvars.ContextVar("holdfast_ag2_call", default=None)


def make_durable(agent: Agent[Any], *, tools: Mapping[str, ToolPolicy | Mapping[str, Any]] | None = None) -> Agent[Any]:
    """Let an agent record its calls in the current run. Changes the agent, and the agents that are its tools.

    `tools` has the policies of tools by their names, as `ToolPolicy` or as a dict of its options. Call it after all
    tools and middlewares are added. Returns the agent.

    Example:
        agent = make_durable(Agent("payer", config=config, tools=[pay]), tools={"pay": {"check": find_payment}})
        reply = await agent.ask("Please pay my orders.")
    """
    if not isinstance(agent, Agent):
        raise InvalidInput(f"make_durable needs an agent of AG2, not {type(agent).__name__}")
    if not isinstance(tools, Mapping | None):
        raise InvalidInput(f"tools must be a dict of policies by tool name, not {type(tools).__name__}")
    policies = {name: ToolPolicy.of(given, name) for name, given in (tools or {}).items()}
    if any(isinstance(each.middleware, Middleware) and each.middleware.cls is _Recorder for each in agent.middleware):
        return agent
    agent.tools[:] = [_wrap_tool(tool, policies) for tool in agent.tools]
    names = frozenset(name for tool in agent.tools for name in _wrapped_names(tool))
    agent.insert_middleware(Middleware(_Batch, policies=policies))
    agent.add_middleware(Middleware(_Recorder, wrapped=names))
    return agent


def _wrap_tool(tool: Any, policies: Policies) -> Any:
    """The tool with an effect around its function. Tools of other classes are recorded by the agent's middleware."""
    if type(tool) is Toolkit:
        return Toolkit(*[_wrap_tool(each, policies) for each in tool.tools], name=tool.name)
    inner = getattr(tool, "agent", None)
    if isinstance(inner, Agent):
        make_durable(inner, tools=policies)
    elif type(tool) is FunctionTool:
        function = tool.schema.function
        hooks = [each.middleware for each in tool.middleware]
        return FunctionTool(
            tool.model,
            name=function.name,
            description=function.description,
            schema=function.parameters,
            middleware=[*hooks, _effect],
        )
    return tool


def _wrapped_names(tool: Tool) -> list[str]:
    if type(tool) is Toolkit:
        return [name for each in tool.tools for name in _wrapped_names(each)]
    return [tool.name] if type(tool) is FunctionTool or isinstance(getattr(tool, "agent", None), Agent) else []


async def _effect(call_next: ToolExecution, event: ToolCallEvent, context: Context) -> ToolResultType:
    """The innermost middleware of a tool."""
    run, found = current(_ADAPTER), _call.get()
    if run is None:
        return await call_next(event, context)
    if found is None or found.event.id != event.id:
        raise _not_recorded(event)
    return await _perform(run, found.call, event, context, lambda: call_next(event, context))


def _not_recorded(event: ToolCallEvent) -> AgentStopped:
    return AgentStopped(
        f"tool {event.name!r} is called by a model response that is not recorded; call make_durable for this agent "
        "too, after its middlewares are added (the agents of sub-tasks cannot be recorded: set tasks=False)"
    )


class _Batch(BaseMiddleware):
    """The outermost middleware: names each tool call, and waits for the others before one stops the run."""

    def __init__(self, event: BaseEvent, context: Context, *, policies: Policies) -> None:
        super().__init__(event, context)
        self._policies = policies

    async def on_tool_execution(
        self, call_next: ToolExecution, event: ToolCallEvent, context: Context
    ) -> ToolResultType:
        run, turn = current(_ADAPTER), _turn.get()
        if run is None:
            return await call_next(event, context)
        if turn is None or event.id not in turn.ids:
            raise _not_recorded(event)
        turn.batch.enter()
        policy = self._policies.get(event.name, ToolPolicy())
        call = ToolCall(f"{turn.key} {event.id}", event.name, event.serialized_arguments, policy, followed_by=turn.next)
        token = _call.set(found := _Call(call, event))
        try:
            result = await call_next(event, context)
        except Suspended:
            await turn.batch.wait_for_others()
            raise
        finally:
            _call.reset(token)
        if found.note and isinstance(result, ToolResultEvent):
            noted = ToolResult(*result.result.parts, TextInput(found.note), metadata=result.result.metadata)
            result = ToolResultEvent.from_call(event, noted)
        return result


class _Recorder(BaseMiddleware):
    """The innermost middleware of an agent: records model calls and human input."""

    def __init__(self, event: BaseEvent, context: Context, *, wrapped: frozenset[str]) -> None:
        super().__init__(event, context)
        self._wrapped = wrapped
        self._key = ""

    async def on_turn(self, call_next: AgentTurn, event: BaseEvent, context: Context) -> ModelResponse:
        run = current(_ADAPTER)
        if run is None:
            return await call_next(event, context)
        self._key = next_key(run, _place(run, event, context))

        async def answer(event: HumanInputRequest, context: Context) -> None:
            await context.send(await self._answer(event))

        # An agent without a hook does not call its middlewares for human input.
        with context.stream.where(HumanInputRequest).sub_scope(answer, interrupt=True):
            return await call_next(event, context)

    async def on_llm_call(self, call_next: LLMCall, events: Sequence[BaseEvent], context: Context) -> ModelResponse:
        run = current(_ADAPTER)
        if run is None:
            return await call_next(events, context)
        called = False

        async def call() -> dict[str, object]:
            nonlocal called
            called, sent = True, []

            async def keep(event: BaseEvent) -> None:
                if not type(event).__transient__:
                    sent.append(_dump(event))

            with context.stream.sub_scope(keep):
                response = await call_next(events, context)
            return {"response": response.to_dict(), "sent": sent}

        key = next_key(run, f"{self._key} model")
        found = await record_call(run, key, call, name="model", after=[f"{self._key} model"])
        if not called:
            for each in found["sent"]:  # what a provider has executed is part of the conversation
                await context.send(_load(each))
        response = ModelResponse.from_dict(_checked(found["response"]))
        assert isinstance(response, ModelResponse)
        ids = frozenset(call.id for call in response.tool_calls.calls)
        _turn.set(_Turn(key, following_key(run, f"{self._key} model"), ids, Batch(len(ids))))
        return response

    async def on_tool_execution(
        self, call_next: ToolExecution, event: ToolCallEvent, context: Context
    ) -> ToolResultType:
        run, found = current(_ADAPTER), _call.get()
        if run is None or found is None or event.name in self._wrapped:
            return await call_next(event, context)
        return await _perform(run, found.call, event, context, lambda: call_next(event, context))

    async def on_human_input(
        self, call_next: HumanInputHook, event: HumanInputRequest, context: Context
    ) -> HumanMessage:
        if current_run() is None:
            return await call_next(event, context)
        return await self._answer(event)

    async def _answer(self, event: HumanInputRequest) -> HumanMessage:
        """Ask in the inbox of the run."""
        run, found = current(_ADAPTER), _call.get()
        if run is None:
            raise AgentStopped(
                f"human input was requested inside a recorded call: {event.content!r}; a tool that asks needs the "
                'policy {"record": "none"}, and an approval belongs in the middleware of its tool'
            )
        if isinstance(event, ToolApprovalRequest) and found is not None and found.event.id == event.tool_call_id:
            policy = found.call.policy
            policy = dataclasses.replace(policy, expires=policy.expires or event.timeout)
            (decision,) = await ask_approvals(run, [found.call._replace(policy=policy)])
            found.note = "" if decision.approved else decision.note
            return HumanMessage("y" if decision.approved else "n", parent_id=event.id)
        place, show = (self._key, None) if found is None else (found.call.id, dict(found.call.arguments))
        expiry: Any = {} if event.timeout is None else {"expires": event.timeout, "expired": {"answer": ""}}
        fields = {"answer": field(str, multiline=True)}
        answer = await run.ask(event.content, fields, show=show, key=next_key(run, f"{place} input"), **expiry)
        if event.timeout is not None and not answer["answer"]:
            raise HumanInputTimeoutError(event.timeout)
        return HumanMessage(answer["answer"], parent_id=event.id)


async def _perform(
    run: AsyncRun,
    call: ToolCall,
    event: ToolCallEvent,
    context: Context,
    proceed: Callable[[], Awaitable[ToolResultType]],
) -> ToolResultType:
    """Call a tool as its policy says. What it did to the variables is recorded with its result."""
    if call.policy.record == "none":
        refuse_unreached_gate(run, call)
        return await proceed()
    called = False

    async def body() -> dict[str, object]:
        nonlocal called
        called = True
        before = _encode_variables(context)
        outcome = await proceed()
        if isinstance(outcome, ToolErrorEvent):
            raise outcome.error
        if isinstance(outcome, ClientToolCallEvent):
            return {"client": {"name": outcome.name, "arguments": outcome.arguments}}
        try:
            return {"result": _dump_result(outcome.result), "variables": _changes(before, context)}
        except Exception as error:  # the tool has acted, so its call must not count as failed
            return {"result": error}  # cannot be stored, which is reported as ResultLost

    try:
        found = await perform(run, call, body, result_at=("result",))
    except (EffectFailed, StepFailed) as error:
        return ToolErrorEvent(parent_id=event.id, name=event.name, error=error, result=ToolResult(str(error)))
    if isinstance(found, Given):
        return ToolResultEvent.from_call(event, found.value)
    if "client" in found:
        return ClientToolCallEvent(id=event.id, **found["client"])
    if not called:
        context.variables.update(found["variables"]["set"])
        for name in found["variables"]["removed"]:
            context.variables.pop(name, None)
    return ToolResultEvent.from_call(event, _load_result(found["result"]))


def _place(run: AsyncRun, event: BaseEvent, context: Context) -> str:
    """A name for the turns of this agent here. Agents that one tool call runs side by side are told by their input."""
    agent, found = context.dependencies.get(AGENT_CONTEXT_DEPENDENCY_KEY), _call.get()
    name = agent.name if isinstance(agent, Agent) else "agent"
    if found is None:
        # The keys of effects are those of the whole run, so the branch or turn of the run is part of them.
        return " ".join(filter(None, [run.scope.path.translate(_BRACKETS), name]))
    text = json.dumps(_without_times(to_jsonable_python(event.to_dict(), fallback=repr)), sort_keys=True)
    return f"{found.call.id}/{name} {hashlib.sha256(text.encode()).hexdigest()[:8]}"


def _without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_times(each) for name, each in value.items() if name != "created_at"}
    return [_without_times(each) for each in value] if isinstance(value, list) else value


def _encode_variables(context: Context) -> dict[str, str]:
    """The variables that JSON can represent."""
    found = {}
    for name, value in context.variables.items():
        with contextlib.suppress(TypeError, ValueError):
            found[name] = json.dumps(value, sort_keys=True)
    return found


def _changes(before: dict[str, str], context: Context) -> dict[str, object]:
    after = _encode_variables(context).items()
    changed = {name: json.loads(text) for name, text in after if before.get(name) != text}
    return {"set": changed, "removed": [name for name in before if name not in context.variables]}


def _dump_result(result: ToolResult) -> dict[str, object]:
    plain = functools.partial(to_jsonable_python, bytes_mode="base64", fallback=repr)
    parts = [{"data": plain(part.data)} if isinstance(part, DataInput) else _dump(part) for part in result.parts]
    return {"parts": parts, "final": result.final, "metadata": plain(result.metadata)}


def _load_result(data: dict[str, Any]) -> ToolResult:
    parts = [_load(part) if "type" in part else DataInput(part["data"]) for part in data["parts"]]
    return ToolResult(*parts, final=data["final"], metadata=data["metadata"])


def _dump(event: BaseEvent) -> dict[str, Any]:
    return {"type": f"{type(event).__module__}:{type(event).__qualname__}", **event.to_dict()}


def _load(data: dict[str, Any]) -> Any:
    module, _, name = str(data["type"]).partition(":")
    found: Any = importlib.import_module(module) if _is_own(module) else None
    for part in name.split("."):
        found = getattr(found, part, None)
    if not (isinstance(found, type) and issubclass(found, BaseEvent)):
        raise InvalidInput(f"the record has an event of type {data['type']!r}, which is not an event of AG2")
    return found.from_dict(_checked({key: value for key, value in data.items() if key != "type"}))


def _checked(data: dict[str, Any]) -> dict[str, Any]:
    """The data, if it names only classes of AG2: its decoder imports every class that is named."""
    waiting: list[object] = [data]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            for mark in _TYPE_MARKS:
                if mark in value and not _is_own(str(value[mark])):
                    raise InvalidInput(f"the record names the type {value[mark]!r}, which is not one of AG2")
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
    return data


def _is_own(name: str) -> bool:
    return name.partition(".")[0] == "ag2"
