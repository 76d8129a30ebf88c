"""A plugin that records an agent's model calls as steps, its tool calls as effects, and asks its interrupts.

Keys come from the order in which agents are called, from the number of the recorded response and from the ids in it.
Strands invokes an agent again after an interrupt; this belongs to the same call, so that a key does not depend on what
was asked. The ids that Strands draws for cycles and messages are new at every replay, so no key has one.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import re
import uuid
import weakref
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from typing import Any, Final

from strands import Agent
from strands.hooks import AfterInvocationEvent, AfterToolsEvent, BeforeInvocationEvent
from strands.interrupt import Interrupt as AgentInterrupt
from strands.interrupt import InterruptException
from strands.middleware import ExecuteToolContext, ExecuteToolStage, InvokeModelContext, InvokeModelStage
from strands.plugins import Plugin
from strands.types.content import Message
from strands.types.events import ModelStopReason, ToolResultEvent, TypedEvent
from strands.types.interrupt import InterruptResponseContent
from strands.types.tools import ToolResult, ToolUse

from holdfast.adapters.shared.calls import (
    DEFAULT,
    AgentStopped,
    Given,
    ToolCall,
    ToolPolicy,
    ask_approvals,
    current,
    next_key,
    perform,
    record_call,
    refuse_unproven,
    refuse_unreached_gate,
)
from holdfast.engine.execution import Execution
from holdfast.errors import InDoubt, Interrupt, StepFailed
from holdfast.runtime.async_run import AsyncRun

Events = AsyncGenerator[TypedEvent, None]
Respond = Callable[[bool, str], Any]
_ADAPTER: Final = "the adapter for Strands"
_UNKNOWN_TASK: Final = re.compile(r"Task .* timed out after|Task .* without status|Task completed but|Unexpected task")
"""How errors about a task begin whose outcome the MCP client of Strands does not know."""
_PLAIN_ID: Final = re.compile(r"[\w.:-]{1,100}")
_STRUCTURED_OUTPUT: Final = "structured_output"
_INTERRUPT: Final = InterruptException.__name__
_stops: weakref.WeakKeyDictionary[Execution, BaseException] = weakref.WeakKeyDictionary()
"""What has stopped an agent of an execution."""


def _answer_in_words(approved: bool, note: str) -> str:
    """The response that hooks of Strands expect. It begins with its decision, so that no note counts as a yes."""
    if approved:
        return "y"
    return f"n: {note}" if note else "n"


class HoldfastPlugin(Plugin):
    """Makes an agent durable inside an `async def` workflow of Holdfast.

    `tools` has the policies of tools by name, see `ToolPolicy`. A tool without one is an effect whose doubt a person
    decides. Interrupts of hooks become gates; `respond(approved, note)` returns the response that the hooks expect: by
    default `y`, or `n` and the note. Middlewares that are added to the agent later run inside the recorded
    calls. Create the agent in the workflow, and call it with `await agent.invoke_async(…)`.

    Example:
        agent = Agent(model, tools=[look, pay], plugins=[HoldfastPlugin({"pay": {"in_doubt": "retry"}})])
    """

    name = "holdfast"

    def __init__(
        self,
        tools: Mapping[str, ToolPolicy | Mapping[str, Any]] | None = None,
        *,
        respond: Respond = _answer_in_words,
    ) -> None:
        super().__init__()
        self._policies = {name: ToolPolicy.of(given, name) for name, given in (tools or {}).items()}
        self._respond = respond
        self._invocations: weakref.WeakKeyDictionary[Any, _Invocation] = weakref.WeakKeyDictionary()

    def init_agent(self, agent: Agent) -> None:
        """Add the middlewares to an agent; Strands calls this."""
        agent.add_middleware(InvokeModelStage, self._call_model)
        agent.add_middleware(ExecuteToolStage, self._call_tool)
        agent.add_hook(self._begin, BeforeInvocationEvent)
        agent.add_hook(self._raise_stop, AfterToolsEvent)
        agent.add_hook(self._ask, AfterInvocationEvent)

    def _begin(self, event: BeforeInvocationEvent) -> None:
        run = current(_ADAPTER)
        invocation = self._invocations.pop(event.agent, None)
        if run is None:
            return
        if run.execution in _stops:  # a graph drops what has stopped one of its agents, and starts the next one
            raise _stops[run.execution]
        if invocation is not None and invocation.is_resumed:  # with the answers to its interrupts
            invocation.is_resumed = False
            self._invocations[event.agent] = invocation
            return
        # The number of earlier messages is part of it: an agent from outside the workflow would have those of the last
        # execution, and the model would see them twice.
        given = [len(event.agent.messages), *map(_brief, event.messages or [])]
        invocation = _Invocation(run, next_key(run, f"agent {event.agent.name}"), given)
        self._invocations[event.agent] = invocation
        with invocation.keeping_stop():
            _check_agent(event.agent)

    def _raise_stop(self, event: AfterToolsEvent) -> None:
        """Raise what has stopped a tool call. The tools' tasks drop every BaseException, and the agent would go on."""
        invocation = self._invocations.get(event.agent)
        if invocation is not None and invocation.stopped is not None:
            raise invocation.stopped

    async def _ask(self, event: AfterInvocationEvent) -> None:
        """Ask for the answers to interrupts, and let the agent go on with them."""
        run, result, invocation = current(_ADAPTER), event.result, self._invocations.get(event.agent)
        if run is None or invocation is None or result is None or result.stop_reason != "interrupt":
            return
        uses = [part["toolUse"] for part in result.message["content"] if "toolUse" in part]
        interrupts = list(result.interrupts or [])
        calls = [self._question(invocation, interrupt, uses) for interrupt in interrupts]
        with invocation.keeping_stop():
            answers = await ask_approvals(run, calls)
        responses: list[InterruptResponseContent] = []
        for interrupt, answer in zip(interrupts, answers, strict=True):
            response = self._respond(answer.approved, answer.note)
            responses.append({"interruptResponse": {"interruptId": interrupt.id, "response": response}})
        event.resume = responses
        invocation.is_resumed = True

    def _question(self, invocation: _Invocation, interrupt: AgentInterrupt, uses: list[ToolUse]) -> ToolCall:
        use = next((use for use in uses if interrupt.id in _interrupt_ids(use, interrupt.name)), None)
        if use is None:
            return ToolCall(invocation.call_key(interrupt.id), interrupt.name, {"reason": interrupt.reason})
        by = "hook" if interrupt.id == _interrupt_ids(use, interrupt.name)[0] else "tool"
        key = f"{invocation.call_key(use['toolUseId'])} {by} {_plain_id(interrupt.name)}"
        given: object = use["input"]  # what the model has given; Strands reports it if it is not an object
        arguments = dict(given) if isinstance(given, Mapping) else {"input": given}
        if isinstance(interrupt.reason, str):
            arguments.setdefault("reason", interrupt.reason)
        return ToolCall(key, use["name"], arguments, self._policies.get(use["name"]) or DEFAULT)

    async def _call_model(
        self, context: InvokeModelContext, call_next: Callable[[InvokeModelContext], Events]
    ) -> Events:
        run, invocation = current(_ADAPTER), self._invocations.get(context.agent)
        if run is None or invocation is None:
            async for event in call_next(context):
                yield event
            return
        if invocation.stopped is not None:
            raise invocation.stopped
        invocation.model_calls += 1
        key = f"{invocation.key} model {invocation.model_calls}"
        events: list[TypedEvent] = []

        async def call() -> dict[str, Any]:
            # From begin to end in one task, because of the tracing contexts of Strands.
            events.extend([event async for event in call_next(context)])
            last = next(event for event in reversed(events) if isinstance(event, ModelStopReason))
            _name_calls(last.message)
            return {
                "stop_reason": last.stop_reason,
                "message": dict(last.message),
                "usage": dict(last.usage),
                "metrics": dict(last.metrics),
            }

        with invocation.keeping_stop():
            after = [f"{invocation.key} model"]
            record = await record_call(run, key, call, name="model", request=invocation.given, after=after)
        for event in events:
            if not isinstance(event, ModelStopReason):
                yield event
        yield ModelStopReason(**record)

    async def _call_tool(
        self, context: ExecuteToolContext, call_next: Callable[[ExecuteToolContext], Events]
    ) -> Events:
        run, invocation, tool = current(_ADAPTER), self._invocations.get(context.agent), context.tool
        use = context.tool_use
        policy = self._policies.get(use["name"]) or DEFAULT
        # The tool of structured output passes its result on in memory, so it has to be called on every replay.
        is_internal = tool is None or tool.tool_type == _STRUCTURED_OUTPUT
        if run is None or invocation is None:
            async for event in call_next(context):
                yield event
            return
        call_id = invocation.call_key(use["toolUseId"])
        if is_internal or policy.record == "none":
            with invocation.keeping_stop():
                refuse_unreached_gate(run, ToolCall(f"{call_id} hook", use["name"], {}))
                async for event in call_next(context):
                    yield event
            return
        events: list[TypedEvent] = []

        async def call() -> dict[str, Any]:
            before = context.agent.state.get()
            events.extend([event async for event in call_next(context)])
            last = next((event for event in reversed(events) if isinstance(event, ToolResultEvent)), None)
            if last is None:  # the events end with an interrupt
                raise InterruptException(AgentInterrupt(use["toolUseId"], use["name"]))
            if last.exception is not None:
                raise last.exception
            if policy.record == "effect":
                _raise_unknown(tool, last.tool_result)
            after = context.agent.state.get()
            return {
                "result": dict(last.tool_result),
                "state": {key: value for key, value in after.items() if before.get(key) != value},
            }

        tool_call = ToolCall(
            invocation.attempt_key(call_id),
            use["name"],
            use["input"],
            policy,
            asked_as=call_id,
            followed_by=f"{invocation.key} model {invocation.model_calls + 1}",
        )
        with invocation.keeping_stop():
            result, error = await self._perform(run, tool_call, call, context)
        for event in events:
            if not isinstance(event, ToolResultEvent):
                yield event
        yield ToolResultEvent(result, exception=error)

    async def _perform(
        self, run: AsyncRun, call: ToolCall, body: Callable[[], Any], context: ExecuteToolContext
    ) -> tuple[ToolResult, Exception | None]:
        use = context.tool_use
        try:
            record = await perform(run, call, body, raise_unproven=True, result_at=("result",))
        except StepFailed as error:
            if error.error_type == _INTERRUPT:
                hint = "interrupt in a hook of BeforeToolCallEvent, or give the tool the policy {'record': 'none'}"
                raise AgentStopped(f"tool {call.name!r} was interrupted in a recorded call; {hint}") from error
            refuse_unproven(run, error)
            return _result(use, "error", f"Error: {error.error_type} - {error.error_message}"), error
        if isinstance(record, Given):
            return _result(use, "success", str(record.value)), None
        for key, value in record["state"].items():
            context.agent.state.set(key, value)
        return record["result"], None


class _Invocation:
    """One invocation of an agent within a run."""

    def __init__(self, run: AsyncRun, key: str, given: list[Any]) -> None:
        self._run = run
        self.key = key
        self.given = given
        self.model_calls = 0
        self.attempts: Counter[str] = Counter()
        """Of each tool call: a hook may ask for another one."""
        self.stopped: BaseException | None = None
        self.is_resumed = False
        """Strands invokes the agent again, with the answers to its interrupts."""

    def call_key(self, call_id: str) -> str:
        """The key of a tool call. Some models use the same ids in every response, so it has the response's number."""
        return f"{self.key} model {self.model_calls} {_plain_id(call_id)}"

    def attempt_key(self, call_key: str) -> str:
        """The key of the next attempt of a tool call."""
        self.attempts[call_key] += 1
        return call_key if self.attempts[call_key] == 1 else f"{call_key} {self.attempts[call_key]}"

    @contextlib.contextmanager
    def keeping_stop(self) -> Iterator[None]:
        """Keep what stops the agent, because Strands drops it in tasks of tools and of graphs.

        An error comes before a wait. The run fails with it even if its code goes on.
        """
        execution = self._run.execution
        try:
            yield
        except Interrupt as wait:
            self.stopped = self.stopped or wait
            _stops.setdefault(execution, wait)
            raise
        except Exception:
            raise
        except BaseException as error:  # Strands would call the model again, without the result of the tool
            if not isinstance(error, (asyncio.CancelledError, GeneratorExit)):
                self.stopped = _stops[execution] = error
            raise


def _plain_id(text: str) -> str:
    """A part of a key, without spaces."""
    return text if _PLAIN_ID.fullmatch(text) else hashlib.sha256(text.encode()).hexdigest()


def _interrupt_ids(use: ToolUse, name: str) -> list[str]:
    """The ids of an interrupt of this tool call. Strands calls them opaque, but nothing else names the call."""
    kinds = ("before_tool_call", "tool_call", "middleware_execute_tool")
    return [f"v1:{kind}:{use['toolUseId']}:{uuid.uuid5(uuid.NAMESPACE_OID, name)}" for kind in kinds]


def _check_agent(agent: Any) -> None:
    """Refuse what cannot be replayed."""
    if agent.model.stateful:
        raise AgentStopped(
            f"model {type(agent.model).__name__} keeps the conversation itself, so it cannot be replayed"
        )
    # Private, because Strands has no other way to see that tools may be called at any time.
    if getattr(agent, "_background_tasks", None) is not None:
        raise AgentStopped(
            f"agent {agent.name!r} calls tools in the background, which cannot be replayed; create it without "
            "background_tasks"
        )


def _brief(message: Message) -> list[Any]:
    return [message["role"], *[part["text"] for part in message["content"] if "text" in part]]


def _name_calls(message: Message) -> None:
    """Give every tool call of a response an id of its own."""
    seen: Counter[str] = Counter()
    for part in message["content"]:
        if "toolUse" in part:
            call_id = part["toolUse"].get("toolUseId") or "call"
            seen[call_id] += 1
            part["toolUse"]["toolUseId"] = call_id if seen[call_id] == 1 else f"{call_id}-{seen[call_id]}"


def _raise_unknown(tool: object, result: Mapping[str, Any]) -> None:
    """Raise InDoubt for an error that the MCP client has made of a timeout or a lost connection.

    Answers of a server have `isError`; the client's own errors do not, or they are about a task of the server.
    """
    if result.get("status") != "error" or not _is_of(tool, "strands.tools.mcp"):
        return
    text = str((result.get("content") or [{}])[0].get("text", ""))
    if _UNKNOWN_TASK.match(text) if "isError" in result else not text.startswith("MCP Elicitation required"):
        raise InDoubt(text)


def _is_of(tool: object, module: str) -> bool:
    return any(kind.__module__.startswith(module) for kind in type(tool).__mro__)


def _result(use: ToolUse, status: Any, text: str) -> ToolResult:
    return {"toolUseId": use["toolUseId"], "status": status, "content": [{"text": text}]}
