"""`HoldfastPlugin`: records what the agents of a runner do.

Keys come from the recorded order of model calls per agent and from the ids of tool calls, which are filled in before
a response is recorded.
"""

from __future__ import annotations

import contextvars
import copy
import functools
import uuid
from collections.abc import AsyncGenerator, Mapping
from typing import Any, Final, NamedTuple

from google.adk.agents.base_agent import BaseAgent
from google.adk.agents.callback_context import CallbackContext
from google.adk.agents.llm_agent import LlmAgent
from google.adk.events.event_actions import EventActions
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.tool_confirmation import ToolConfirmation
from google.adk.tools.tool_context import ToolContext
from pydantic_core import to_jsonable_python

from holdfast.adapters.adk.codec import dump, from_plain, load, to_plain
from holdfast.adapters.shared.batch import Batch
from holdfast.adapters.shared.call_keys import plain_key
from holdfast.adapters.shared.calls import (
    EXPIRED,
    AgentStopped,
    Decision,
    Given,
    OnlyAsked,
    ToolCall,
    ToolPolicy,
    ask_approvals,
    current,
    describe_call,
    next_key,
    perform,
    record_call,
    refuse_unreached_gate,
    stop,
)
from holdfast.adapters.shared.code_names import mentions
from holdfast.errors import InDoubt, InvalidInput, Suspended
from holdfast.forms import field
from holdfast.runtime.async_run import AsyncRun

_ADAPTER: Final = "holdfast.adapters.adk"
_DRAWN_BY_ADK: Final = "adk-"
_OWN_ID: Final = "adk-holdfast-"
"""ADK removes ids with its prefix before it calls a model, which has not given them."""
_BRACKETS: Final = str.maketrans("[]", "()")
_NESTS: Final = ToolPolicy(record="none")
_MCP: Final = "google.adk.tools.mcp_tool"
_MCP_ERRORS: Final = ("MCP tool execution failed: ", "Unexpected error during MCP tool execution: ")
"""How ADK reports errors of a call to the model, which may have happened all the same."""


class _Turn(NamedTuple):
    """One call of a model, and the tool calls that its response asks for."""

    place: str
    number: int
    batch: Batch

    @property
    def key(self) -> str:
        return f"{self.place} {self.number}"


_turn: contextvars.ContextVar[_Turn | None] = contextvars.ContextVar("holdfast_adk_turn", default=None)
_path: contextvars.ContextVar[str] = contextvars.ContextVar("holdfast_adk_path", default="")
"""The tool call that executes the current agent, if it is not the root."""


class HoldfastPlugin(BasePlugin):
    """Records the model and tool calls of all agents of a runner in the current run.

    `tools` has the policies of tools by their names, as `ToolPolicy` or as a dict of its options. A tool that is an
    agent has `record="none"`: its agent's own calls are recorded.

    Example:
        runner = InMemoryRunner(app=App(name="shop", root_agent=agent, plugins=[HoldfastPlugin(
            tools={"pay": {"check": find_payment}, "look": {"record": "step"}})]))
    """

    def __init__(
        self, tools: Mapping[str, ToolPolicy | Mapping[str, Any]] | None = None, *, name: str = "holdfast"
    ) -> None:
        super().__init__(name=name)
        if tools is not None and not isinstance(tools, Mapping):
            raise InvalidInput(f"tools must be a dict of policies by tool name, not {type(tools).__name__}")
        self._policies = {tool: ToolPolicy.of(given, tool) for tool, given in (tools or {}).items()}

    async def before_agent_callback(self, *, agent: BaseAgent, callback_context: CallbackContext) -> None:
        """Let the model of this agent record its calls."""
        del callback_context
        if current(_ADAPTER) is not None and isinstance(agent, LlmAgent):
            agent.model = _recording(agent.canonical_model)

    async def before_model_callback(self, *, callback_context: CallbackContext, llm_request: LlmRequest) -> None:
        """Name the turn, and let the tools of this request record their calls."""
        run = current(_ADAPTER)
        if run is None:
            return
        # The keys of effects are those of the whole run, so the branch or turn of the run is part of them.
        flow = run.scope.path.translate(_BRACKETS)
        parts = [flow, _path.get(), callback_context.branch or "", callback_context.agent_name]
        place = " ".join(filter(None, parts))
        _turn.set(_Turn(place, int(next_key(run, place).rpartition(" ")[2]), Batch()))
        for name, tool in llm_request.tools_dict.items():
            if not _is_recording(tool):
                llm_request.tools_dict[name] = self._wrap(tool)

    async def before_tool_callback(
        self, *, tool: BaseTool, tool_args: dict[str, Any], tool_context: ToolContext
    ) -> None:
        """Refuse a call that would not be recorded, and make the others known to their turn."""
        del tool_args, tool_context
        if current(_ADAPTER) is None:
            return
        turn = _turn.get()
        if turn is not None and _is_recording(tool):
            turn.batch.enter()
        elif self._policy_of(tool).record != "none":
            raise AgentStopped(
                f"tool {tool.name!r} is not called by a recorded model response: put HoldfastPlugin before the other "
                'plugins; a tool that is a node of a Workflow needs the policy {"record": "none"}'
            )

    def _policy_of(self, tool: BaseTool) -> ToolPolicy:
        # Tools that execute a node of a workflow have no public class.
        nests = isinstance(tool, AgentTool) or hasattr(tool, "node")
        return self._policies.get(tool.name, _NESTS if nests else ToolPolicy())

    def _wrap(self, tool: BaseTool) -> BaseTool:
        """A copy of the tool that records. ADK asks for the classes of tools, so it is not a class of its own."""
        wrapped = copy.copy(tool)
        recorded = _RecordedTool(tool, self._policy_of(tool))
        wrapped.__dict__.update(run_async=recorded.run_async, check_require_confirmation=recorded.check_confirmation)
        return wrapped


def _is_recording(tool: BaseTool) -> bool:
    return isinstance(getattr(tool.__dict__.get("run_async"), "__self__", None), _RecordedTool)


class _RecordedTool:
    """Calls a tool as its policy says; a confirmation is asked before the effect begins."""

    def __init__(self, tool: BaseTool, policy: ToolPolicy) -> None:
        self._tool = tool
        self._policy = policy

    async def check_confirmation(self, args: dict[str, Any], tool_context: ToolContext) -> bool:
        """ADK's own confirmation ends the invocation; inside a run `run_async` asks instead."""
        if current(_ADAPTER) is not None:
            return False
        return await self._tool.check_require_confirmation(args, tool_context)

    async def run_async(self, *, args: dict[str, Any], tool_context: ToolContext) -> Any:
        run, turn = current(_ADAPTER), _turn.get()
        if run is None or turn is None:
            return await self._tool.run_async(args=args, tool_context=tool_context)
        call_id = tool_context.function_call_id or ""
        if not call_id or (call_id.startswith(_DRAWN_BY_ADK) and not call_id.startswith(_OWN_ID)):
            raise AgentStopped(
                f"the call of tool {self._tool.name!r} has no recorded id, because a callback made it; "
                "give its FunctionCall an id that is the same in every replay"
            )
        arguments, following = to_jsonable_python(args), f"{turn.place} {turn.number + 1} model 1"
        call = ToolCall(f"{turn.key} {call_id}", self._tool.name, arguments, self._policy, followed_by=following)
        try:
            return await self._confirm_and_call(run, call, args, tool_context)
        except Suspended:
            await turn.batch.wait_for_others()
            raise

    async def _confirm_and_call(
        self, run: AsyncRun, call: ToolCall, args: dict[str, Any], tool_context: ToolContext
    ) -> Any:
        if not _may_ask(self._tool):
            self._refuse_unused_gate(run)
        if tool_context.tool_confirmation is None and await self._tool.check_require_confirmation(args, tool_context):
            (decision,) = await ask_approvals(run, [call])
            tool_context.tool_confirmation = ToolConfirmation(confirmed=decision.approved)
            if not decision.approved:
                return _refusal(decision)
        result = await self._call(run, call, args, tool_context)
        asked = tool_context.actions.requested_tool_confirmations.pop(tool_context.function_call_id or "", None)
        if asked is None or tool_context.tool_confirmation is not None:
            return result
        # The tool has only asked. It is called again with the answer, as ADK does, and that is another effect.
        decision, payload = await _ask_payload(run, call, asked)
        tool_context.tool_confirmation = ToolConfirmation(confirmed=decision.approved, payload=payload)
        tool_context.actions.skip_summarization = None
        if not decision.approved:
            return _refusal(decision)
        return await self._call(run, call._replace(id=f"{call.id} confirmed"), args, tool_context)

    def _refuse_unused_gate(self, run: AsyncRun) -> None:
        way_out = "make it FunctionTool(…, require_confirmation=True)"
        try:
            self._policy.refuse_unused_gate(self._tool.name, way_out)
        except InvalidInput as error:
            raise stop(run, error) from error

    async def _call(self, run: AsyncRun, call: ToolCall, args: dict[str, Any], tool_context: ToolContext) -> Any:
        """Call the tool. What it did to the state and the other actions is recorded with its result."""
        called = False
        if call.policy.record == "none":
            refuse_unreached_gate(run, call)
            token = _path.set(f"{call.id}/")
            try:
                return await self._tool.run_async(args=args, tool_context=tool_context)
            finally:
                _path.reset(token)

        async def body() -> dict[str, object]:
            nonlocal called
            called = True
            result = await self._tool.run_async(args=args, tool_context=tool_context)
            if call.policy.record == "effect":
                _raise_unknown(self._tool, result)
            try:
                record: dict[str, object] = {"result": to_plain(result), "actions": dump(tool_context.actions)}
            except Exception as error:  # the tool has acted, so its call must not count as failed
                return {"result": error}  # cannot be stored, which is reported as ResultLost
            asked = tool_context.actions.requested_tool_confirmations
            if tool_context.tool_confirmation is None and tool_context.function_call_id in asked:
                raise OnlyAsked(record)
            return record

        found = await perform(run, call, body, raise_unproven=True, result_at=("result",))
        if isinstance(found, Given):
            return found.value
        if not called:
            _apply(load(EventActions, found["actions"]), tool_context)
        return from_plain(found["result"])


def _raise_unknown(tool: BaseTool, result: object) -> None:
    """Raise InDoubt for a result that ADK has made of a timeout or a lost connection of MCP."""
    if isinstance(result, dict) and any(kind.__module__.startswith(_MCP) for kind in type(tool).__mro__):
        error = result.get("error")
        if isinstance(error, str) and error.startswith(_MCP_ERRORS):
            raise InDoubt(error)


def _may_ask(tool: BaseTool) -> bool:
    """Whether some call of this tool may ask for a confirmation."""
    required = getattr(tool, "_require_confirmation", None)  # ADK has no other name for it
    if required is None and type(tool).check_require_confirmation is not BaseTool.check_require_confirmation:
        return True
    code = getattr(tool, "func", type(tool).run_async)
    return bool(required) or mentions(code, "request_confirmation")


def _refusal(decision: Decision) -> dict[str, str]:
    note = f" {decision.note}" if decision.note else ""
    return {"error": f"This tool call is rejected.{note}"}


async def _ask_payload(run: AsyncRun, call: ToolCall, asked: ToolConfirmation) -> tuple[Decision, Any]:
    """Ask what `tool_context.request_confirmation` asks. The entries of a payload are fields of the form."""
    fields: dict[str, Any] = {"approve": bool, "note": field(str, required=False, multiline=True)}
    entries = asked.payload if isinstance(asked.payload, dict) else {}
    names = [name for name in entries if isinstance(name, str) and name.isidentifier() and name not in fields]
    fields |= {name: field(_type_of(entries[name]), default=entries[name], required=False) for name in names}
    policy = call.policy
    answer = await run.ask(
        asked.hint or describe_call(call),
        fields,
        show=dict(call.arguments),
        who=policy.who,
        approvals=policy.approvals,
        not_by=policy.not_by,
        escalate=policy.escalate,
        expires=policy.expires,
        expired={"approve": False, "note": EXPIRED, **{name: entries[name] for name in names}},
        key=plain_key(f"confirm {call.id}"),
    )
    payload = {**entries, **{name: answer[name] for name in names}} if entries else asked.payload
    return Decision(answer["approve"], answer["note"] or ""), payload


def _type_of(value: object) -> Any:
    return type(value) if type(value) in (bool, int, float, str) else Any


def _apply(actions: EventActions, tool_context: ToolContext) -> None:
    """Repeat what a recorded call did to its context."""
    tool_context.state.update(actions.state_delta)
    for name in actions.model_fields_set - {"state_delta"}:
        value, there = getattr(actions, name), getattr(tool_context.actions, name)
        if isinstance(value, dict) and isinstance(there, dict):
            there.update(value)
        else:
            setattr(tool_context.actions, name, value)


class _RecordingLlm(BaseLlm):
    """The part of a model's class that records. ADK asks for the classes of models, so each has a subclass."""

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        run, turn = current(_ADAPTER), _turn.get()
        answers = super().generate_content_async(llm_request, stream)
        if run is None or turn is None:
            async for response in answers:
                yield response
            return

        async def call() -> list[Any]:
            return [dump(_with_ids(response)) async for response in answers]

        try:
            earlier = [f"{turn.place} {number}" for number in range(1, turn.number)]
            recorded = await record_call(run, next_key(run, f"{turn.key} model"), call, name="model", after=earlier)
        finally:
            await answers.aclose()
        for each in recorded:
            response = load(LlmResponse, each)
            parts = (response.content and response.content.parts) or ()
            turn.batch.expected += sum(part.function_call is not None for part in parts) if not response.partial else 0
            yield response


@functools.cache
def _recording_class(cls: type[BaseLlm]) -> type[BaseLlm]:
    return type(cls.__name__, (_RecordingLlm, cls), {"__module__": __name__, "__doc__": cls.__doc__})


def _recording(model: BaseLlm) -> BaseLlm:
    if isinstance(model, _RecordingLlm):
        return model
    made = model.model_copy()
    made.__class__ = _recording_class(type(model))
    return made


def _with_ids(response: LlmResponse) -> LlmResponse:
    """Give every tool call an id. ADK draws missing ones later, where a replay would draw others."""
    for part in (response.content and response.content.parts) or ():
        if part.function_call is not None and not part.function_call.id:
            part.function_call.id = f"{_OWN_ID}{uuid.uuid4().hex[:16]}"
    return response
