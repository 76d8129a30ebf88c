"""Agents of Pydantic AI inside a run: model calls are steps, tool calls are effects, deferred calls are gates.

`HoldfastDurability` connects an agent through Pydantic AI's port for durable engines. Without a run it does nothing.
"""

from __future__ import annotations

import asyncio
import contextvars
import datetime as dt
import functools
import hashlib
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final, Generic, Literal, TypeVar

from holdfast.adapters.shared import calls
from holdfast.adapters.shared.call_keys import plain_key
from holdfast.adapters.shared.calls import (
    AgentStopped,
    Given,
    ToolCall,
    ToolPolicy,
    current,
    following_key,
    idempotency_key,
    next_key,
)
from holdfast.errors import HoldfastError, InDoubt, StepFailed
from holdfast.forms import field
from holdfast.runtime.async_run import AsyncRun

try:
    from pydantic_ai import ToolApproved, ToolDenied, durable_exec
    from pydantic_ai.agent import EventStreamHandler
    from pydantic_ai.capabilities import AbstractCapability
    from pydantic_ai.capabilities.abstract import WrapToolExecuteHandler
    from pydantic_ai.messages import ToolCallPart
    from pydantic_ai.models import Model
    from pydantic_ai.tools import AgentDepsT, DeferredToolRequests, DeferredToolResults, RunContext, ToolDefinition
    from pydantic_ai.toolsets import AbstractToolset, ToolsetTool

    from holdfast.adapters.pydantic_ai_errors import UNKNOWN_OUTCOME, check_payload, model_error
    from holdfast.adapters.pydantic_ai_toolsets import (
        POLICY_KEY,
        find_approving,
        may_ask,
        policy_of,
        refuse_unknown,
        to_plain,
    )
except ImportError as error:
    if (error.name or "").partition(".")[0] != "pydantic_ai":
        raise
    raise ImportError(
        'holdfast.adapters.pydantic_ai needs pydantic-ai-slim; pip install "holdfast[pydantic-ai]"', name=error.name
    ) from error

__all__ = ["HoldfastDurability", "idempotency_key"]

P = TypeVar("P")
W = TypeVar("W")
R = TypeVar("R")

_NAME: Final = "HoldfastDurability"
_REQUIRED: Final = "required"
_PART_CHARS_MAX: Final = 120

_caller: contextvars.ContextVar[str] = contextvars.ContextVar("holdfast_pydantic_ai_caller", default="")
"""The tool call that the calling code belongs to, as the beginning of keys."""
_places: weakref.WeakKeyDictionary[object, dict[str, str]] = weakref.WeakKeyDictionary()
"""By execution: the places of agent runs whose `run_id` the caller has chosen."""


class HoldfastDurability(durable_exec.BaseDurabilityCapability[AgentDepsT]):
    """Makes the runs of an agent durable inside an `async def` workflow; elsewhere the agent behaves as before.

    A tool has its own policy in its metadata, see `holdfast.adapters.shared.calls.ToolPolicy`. Calls that need an
    approval, and external calls, open gates; with `gates=False` they are the output of the agent, as without Holdfast.

    Example:
        agent = Agent(model, name="payer", capabilities=[HoldfastDurability()])


        @agent.tool_plain(requires_approval=True, metadata={"holdfast": {"in_doubt": "retry"}})
        def pay(order: str) -> str:
            return f"paid {order} under {idempotency_key()}"


        @app.workflow
        async def pay_orders(run: holdfast.AsyncRun, question: str) -> str:
            return (await agent.run(question)).output
    """

    engine_spec: ClassVar = durable_exec.DurabilityEngineSpec(
        engine_name="Holdfast",
        durable_unit_noun="step",
        durable_container_noun="run",
        codec=durable_exec.JSON_CODEC,
        toolset_lifecycles={"function": "enter-always", "mcp": "enter-in-durable-unit", "dynamic": "enter-never"},
        unsupported_runtime_toolset_kinds=frozenset({"function", "mcp", "dynamic"}),
        # Records are decoded strictly all the same. It lets the plain result that a person has given pass.
        tool_call_result_upgrade_lenient=True,
        tool_config_key=POLICY_KEY,
    )

    def __init__(
        self,
        *,
        models: Mapping[str, Model] | None = None,
        event_stream_handler: EventStreamHandler[AgentDepsT] | None = None,
        name: str | None = None,
        gates: bool = True,
    ) -> None:
        super().__init__(models=models, event_stream_handler=event_stream_handler, name=name)
        self._gates = gates
        self._approving: set[str | None] = set()
        """The ids of toolsets inside one that decides about approvals at run time."""

    @property
    def in_durable_context(self) -> bool:
        """Whether calls are recorded now."""
        return current(_NAME) is not None

    def get_durable_operation_backend(self) -> _Backend:
        """The backend that records operations."""
        return _Backend(self._approving)

    def get_default_run_id(self) -> str | None:
        """The same id in every replay."""
        run = current(_NAME)
        return None if run is None else f"{run.run_id}:{_next_place(run)}"

    def get_default_conversation_id(self, run_id: str) -> str | None:
        """The same id in every replay."""
        return None if current(_NAME) is None else durable_exec.conversation_id_from_run_id(run_id)

    async def get_run_start_time(self, run_id: str) -> dt.datetime | None:
        """The recorded moment that the `timeout=` of an agent run is counted from."""
        run = current(_NAME)
        if run is None:
            return None

        async def read_clock() -> str:
            return dt.datetime.now(dt.UTC).isoformat()

        key = next_key(run, f"{_tidy(run_id.removeprefix(f'{run.run_id}:'))} start")
        return dt.datetime.fromisoformat(await calls.record_call(run, key, read_clock, name="start"))

    async def for_run(self, ctx: RunContext[AgentDepsT]) -> AbstractCapability[AgentDepsT]:
        """Record that this agent runs here with this prompt, so that a replay cannot use the records of another one."""
        run = current(_NAME)
        if run is not None:
            if not (ctx.run_id or "").startswith(f"{run.run_id}:"):
                # The caller's id may be random, so keys do not contain it.
                _places.setdefault(run.execution, {})[ctx.run_id or ""] = _next_place(run)

            request = {"agent": self.name, "prompt": to_plain(ctx.prompt)}
            nothing: calls.Body = functools.partial(asyncio.sleep, 0)
            await calls.record_call(run, _place_of(run, ctx), nothing, name="agent", request=request)
        return self

    def get_wrapper_toolset(self, toolset: AbstractToolset[AgentDepsT]) -> AbstractToolset[AgentDepsT] | None:
        """Replace toolsets by recorded ones. A toolset that cannot be recorded is refused inside a run."""
        if self.in_durable_context:
            toolset.apply(refuse_unknown)
            for approving in find_approving(toolset):
                approving.apply(lambda leaf: self._approving.add(leaf.id))
        return super().get_wrapper_toolset(toolset)

    async def wrap_tool_execute(
        self,
        ctx: RunContext[AgentDepsT],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: dict[str, Any],
        handler: WrapToolExecuteHandler,
    ) -> Any:
        """Agents that the tool runs have keys of their own: tools run side by side, in no fixed order."""
        run = current(_NAME)
        if run is None:
            return await handler(args)
        place = _describe_place(run, ctx, call.tool_call_id)
        if policy_of(tool_def, call.tool_name).record == "none":
            calls.refuse_unreached_gate(run, ToolCall(f"{place} {_REQUIRED}", call.tool_name, {}))
        token = _caller.set(f"{place}:")
        try:
            return await handler(args)
        finally:
            _caller.reset(token)

    async def handle_deferred_tool_calls(
        self, ctx: RunContext[AgentDepsT], *, requests: DeferredToolRequests
    ) -> DeferredToolResults | None:
        """Open a gate for every call, and wait until all are answered."""
        run = current(_NAME)
        if run is None or not self._gates:
            return None
        noted = requests.metadata
        approvals = [_deferred_call(run, ctx, part, noted.get(part.tool_call_id)) for part in requests.approvals]
        external = [_deferred_call(run, ctx, part) for part in requests.calls]
        # Every gate is open before any of them stops the run.
        asked = [calls.ask_approvals(run, approvals), *(_ask_result(run, call) for call in external)]
        answers: list[Any] = await asyncio.gather(*asked, return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
        results = DeferredToolResults()
        for part, decision in zip(requests.approvals, answers[0], strict=True):
            denied = ToolDenied(decision.note) if decision.note else ToolDenied()
            results.approvals[part.tool_call_id] = ToolApproved() if decision.approved else denied
        for part, answer in zip(requests.calls, answers[1:], strict=True):
            results.calls[part.tool_call_id] = answer
        return results


class _Backend(durable_exec.DurableOperationBackend[ToolPolicy]):
    """Binds the operations of an agent to the run that they are called in."""

    def __init__(self, approving: set[str | None]) -> None:
        self._approving = approving

    def bind(self, operation: durable_exec.DurableOperation[P, W, R]) -> _Recorded[P, W, R]:
        return _Recorded(operation)

    def config_for_tool(
        self,
        operation: durable_exec.DurableOperation[P, W, R],
        *,
        tool: object | None,
        tool_name: str,
    ) -> ToolPolicy | Literal[False]:
        policy = policy_of(tool.tool_def if isinstance(tool, ToolsetTool) else None, tool_name)
        toolset_id = getattr(operation.operation_id, "toolset_id", None)
        if toolset_id not in self._approving and not may_ask(tool):
            policy.refuse_unused_gate(tool_name, "define the tool with requires_approval=True")
        return False if policy.record == "none" else policy

    def registrations(self) -> Sequence[Callable[..., object]]:
        return ()


class _Recorded(durable_exec.BoundDurableOperation[P, W, R], Generic[P, W, R]):
    """An operation whose calls are recorded."""

    def __init__(self, operation: durable_exec.DurableOperation[P, W, R]) -> None:
        self._operation = operation

    @property
    def operation(self) -> durable_exec.DurableOperation[P, W, R]:
        return self._operation

    async def __call__(self, params: P, *, config: object | None = None) -> R:
        run = current(_NAME)
        if run is None:
            return await self._operation.handler(params)
        codec = self._operation.result_codec

        async def body() -> object:
            with durable_exec.durable_unit_scope():
                result = await self._operation.handler(params)
                return calls.dump_or_lose(lambda: codec.dump(result))

        operation_id = self._operation.operation_id
        if isinstance(operation_id, durable_exec.ToolsetCallToolId):
            policy = config if isinstance(config, ToolPolicy) else calls.DEFAULT
            payload = await _call_tool(run, params, policy, body, validates=operation_id.toolset_kind == "dynamic")
        else:
            payload = await _record(run, operation_id, params, body)
        if isinstance(payload, Given):
            return payload.value  # type: ignore[return-value]  # `engine_spec` lets plain results pass
        try:
            return codec.load(payload)
        except Exception as error:
            # A ValidationError here would be reported to the model as bad arguments.
            raise AgentStopped(
                f"a record of {operation_id} in run {run.run_id!r} cannot be decoded; if another version of "
                f"Pydantic AI wrote it, use that one: {error}"
            ) from error


async def _record(run: AsyncRun, operation_id: object, params: Any, body: calls.Body) -> object:
    """Record an operation that is not a tool call."""
    ctx = params.run_context if hasattr(params, "run_context") else params.ctx
    name = _tidy(_name_of(operation_id, params))
    place = _describe_place(run, ctx, ctx.tool_call_id) if ctx.tool_call_id else _place_of(run, ctx)
    is_model = isinstance(operation_id, durable_exec.ModelRequestId)
    after = [f"{_place_of(run, ctx)}:"] if is_model else []
    try:
        return await calls.record_call(run, next_key(run, f"{place} {name}"), body, name=name, after=after)
    except StepFailed as failed:
        if isinstance(operation_id, durable_exec.ModelRequestId | durable_exec.ModelCompactMessagesId):
            raise model_error(failed, operation_id.model_name) from failed
        raise


async def _call_tool(run: AsyncRun, params: Any, policy: ToolPolicy, body: calls.Body, *, validates: bool) -> object:
    """Call a tool as its policy says. A timeout of an effect leaves its outcome open, so the model must not see it.

    `validates`: the arguments are validated inside the call. Elsewhere a ValidationError is an error of the tool
    itself, perhaps about what a payment service has returned.
    """
    place = _describe_place(run, params.ctx, params.ctx.tool_call_id)
    following = following_key(run, f"{_place_of(run, params.ctx)} model")
    arguments = {name: to_plain(value) for name, value in params.tool_args.items()}
    call = ToolCall(next_key(run, place), params.name, arguments, policy, asked_as=place, followed_by=following)
    if policy.record != "effect":
        return await calls.perform(run, call, body)

    async def act() -> object:
        try:
            payload: Any = await body()
        except Exception as error:
            if UNKNOWN_OUTCOME.fullmatch(str(error)):
                raise InDoubt(str(error)) from error
            raise
        check_payload(payload, validates=validates)
        return payload

    return await calls.perform(run, call, act, raise_unproven=True, result_at=("result",))


async def _ask_result(run: AsyncRun, call: ToolCall) -> object:
    """Ask for the result of a call that is made outside."""
    policy = call.policy
    question = calls.describe_call(call).removeprefix("Allow ").removesuffix("?")
    try:
        answer = await run.ask(
            f"What is the result of {question}?",
            {"result": field(Any, required=False, default=None)},
            show=dict(call.arguments),
            who=policy.who,
            not_by=policy.not_by,
            escalate=policy.escalate,
            expires=policy.expires,
            key=plain_key(f"result {call.id}"),
        )
    except HoldfastError as error:
        raise AgentStopped(str(error)) from error
    return answer["result"]


def _deferred_call(
    run: AsyncRun, ctx: RunContext[Any], part: ToolCallPart, note: Mapping[str, Any] | None = None
) -> ToolCall:
    definition = None if ctx.tool_manager is None else ctx.tool_manager.get_tool_def(part.tool_name)
    place = _describe_place(run, ctx, part.tool_call_id)
    if definition is not None and definition.kind == "unapproved":  # it is asked before the tool is called
        place = f"{place} {_REQUIRED}"
    # Calls are counted without the gates: a key must not depend on what was asked.
    key = next_key(run, f"approve {place}").removeprefix("approve ")
    return ToolCall(key, part.tool_name, part.args_as_dict(), policy_of(definition, part.tool_name), to_plain(note))


def _next_place(run: AsyncRun) -> str:
    """The place of the next agent run: `agent 2`, in a turn `loop#1(3):agent 1`, in a tool `agent 1:4:call_x:agent 1`.

    The key of an effect holds in the whole run, so it names the turn or branch as well.
    """
    caller, path = _caller.get(), f"{_tidy(run.scope.path)}:" if run.scope.path else ""
    return next_key(run, f"{'' if caller.startswith(path) else path}{caller}agent")


def _place_of(run: AsyncRun, ctx: RunContext[Any]) -> str:
    run_id = ctx.run_id or ""
    return _tidy(_places.get(run.execution, {}).get(run_id) or run_id.removeprefix(f"{run.run_id}:"))


def _describe_place(run: AsyncRun, ctx: RunContext[Any], tool_call_id: str | None) -> str:
    """The place of a tool call. Some models use an id again in another response, so the number of the step is in it."""
    return f"{_place_of(run, ctx)}:{ctx.run_step}:{_tidy(tool_call_id or '')}"


def _tidy(text: str) -> str:
    """A part of a key: brackets, slashes, control characters and long texts are not for keys."""
    text = text.replace("[", "(").replace("]", ")").replace("/", ":")
    if text.isprintable() and len(text) <= _PART_CHARS_MAX:
        return text
    return f"…{hashlib.blake2s(text.encode('utf-8', 'replace'), digest_size=12).hexdigest()}"


def _name_of(operation_id: object, params: Any) -> str:
    """A name that does not change with the model or with a version of Pydantic AI."""
    match operation_id:
        case durable_exec.ModelRequestId():
            return "model"
        case durable_exec.CapabilityOperationId(capability_id, operation=operation):
            return f"{capability_id}.{operation}"
        case durable_exec.ToolsetGetToolsId(toolset_id=toolset_id):
            return f"tools of {toolset_id}"
        case durable_exec.ToolsetGetInstructionsId(toolset_id):
            return f"instructions of {toolset_id}"
        case durable_exec.ToolsetValidateToolArgumentsId():
            return f"arguments of {params.name}"
        case _:  # the union grows
            return type(operation_id).__name__.removesuffix("Id")
