"""Middlewares that record an agent's model calls as steps, its tool calls as effects, and ask its approvals.

Keys come from the order of `agent.run` calls and from the ids in recorded responses. The ids of approvals and sessions
are drawn at random by the framework at every replay, so no key has one.
"""

from __future__ import annotations

import contextlib
import contextvars
import copy
import hashlib
import re
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from agent_framework import (
    AgentContext,
    AgentMiddleware,
    AgentResponse,
    AgentResponseUpdate,
    ChatContext,
    ChatMiddleware,
    ChatResponse,
    ChatResponseUpdate,
    Content,
    FunctionInvocationContext,
    FunctionMiddleware,
    FunctionTool,
    Message,
    MiddlewareTermination,
    ResponseStream,
    UserInputRequiredException,
)
from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from holdfast.adapters.shared.calls import (
    DEFAULT,
    AgentStopped,
    Decision,
    Given,
    ToolCall,
    ToolPolicy,
    ask_approvals,
    current,
    dump_or_lose,
    next_key,
    perform,
    record_call,
    refuse_unproven,
    refuse_unreached_gate,
)
from holdfast.errors import StepFailed
from holdfast.runtime.async_run import AsyncRun
from holdfast.runtime.run_base import current_run

Next = Callable[[], Awaitable[None]]
Policies = Mapping[str, ToolPolicy]
_PLAIN_ID: Final = re.compile(r"[\w.:-]{1,100}")
_ADAPTER: Final = "the adapter for Microsoft Agent Framework"
_APPROVAL: Final = "function_approval_request"
_CONTROL_FLOW: Final = ("MiddlewareFailure", "UserInputRequiredException")
"""Exceptions by which a tool stops the agent; as an error of the tool the model would be told to go on."""
_UNSHARED_STATE: Final = ("tool_approval", "_")
"""How the keys of a session's state begin that belong to the framework."""


def durable_middleware(
    tools: Mapping[str, ToolPolicy | Mapping[str, Any]] | None = None,
) -> list[AgentMiddleware | ChatMiddleware | FunctionMiddleware]:
    """Return the middlewares that record an agent's calls; list them after the agent's other middlewares.

    `tools` has the policies of tools by name, see `ToolPolicy`. A tool without one is an effect whose doubt a person
    decides.

    Example:
        agent = Agent(client, tools=[look, pay], middleware=durable_middleware({"pay": {"in_doubt": "retry"}}))
    """
    policies = {name: ToolPolicy.of(given, name) for name, given in (tools or {}).items()}
    return [_ApprovalMiddleware(policies), _ModelMiddleware(), _ToolMiddleware(policies)]


class _AgentRun:
    """One call of `agent.run` within a run. Its key does not depend on what the framework draws at random."""

    def __init__(self, key: str, given: Sequence[Message]) -> None:
        self.key = key
        self.given = [[message.role, message.text] for message in given]
        self.model_calls = 0
        self.refused: dict[str, str] = {}

    def call_key(self, call_id: str) -> str:
        """The key of a tool call. Some models use the same ids in every response, so it has the response's number."""
        plain = call_id if _PLAIN_ID.fullmatch(call_id) else hashlib.sha256(call_id.encode()).hexdigest()
        return f"{self.key} model {self.model_calls} {plain}"

    def add_notes(self, messages: Sequence[Message]) -> None:
        """Add the notes of refusals to the results that the framework has made of them, before the model sees them."""
        for content in (content for message in messages for content in message.contents):
            note = self.refused.pop(content.call_id or "", "") if content.type == "function_result" else ""
            if note:
                content.items = [*(content.items or []), Content.from_text(note)]
                content.result = f"{content.result}\n{note}"

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        token = _agent_run.set(self)
        try:
            yield
        finally:
            _agent_run.reset(token)


_agent_run: contextvars.ContextVar[_AgentRun | None] = contextvars.ContextVar("holdfast_agent_run", default=None)
_tool_path: contextvars.ContextVar[str] = contextvars.ContextVar("holdfast_tool_path", default="")
"""The key of the tool call, of a policy that records nothing, that the calling code belongs to."""


class _ApprovalMiddleware(AgentMiddleware):
    """Asks for the approvals that an agent returns with, and runs the agent again with the answers."""

    def __init__(self, policies: Policies) -> None:
        self._policies = policies

    async def process(self, context: AgentContext, call_next: Next) -> None:
        run = current(_ADAPTER)
        if run is None:
            if current_run() is not None:
                context.stream_result_hooks.append(_refuse_approvals)
            await call_next()
            if current_run() is not None:
                _refuse_approvals(context.result)
            return
        if context.session is None:  # the framework accepts an approval only in the session that has its request
            context.session = context.agent.create_session()
        name = f"agent {context.agent.name or 'agent'}"
        path = _tool_path.get()
        agent_run = _AgentRun(next_key(run, f"{path}/{name}" if path else name), context.messages)
        if context.stream:
            context.result = self._stream(run, agent_run, context, call_next)
            return
        while True:
            with agent_run.entered():
                await call_next()
            if not await self._answer(run, agent_run, context, context.result):
                return

    def _stream(self, run: AsyncRun, agent_run: _AgentRun, context: AgentContext, call_next: Next) -> Any:
        last: list[AgentResponse[Any]] = []

        async def updates() -> AsyncIterator[AgentResponseUpdate]:
            while True:
                with agent_run.entered():
                    await call_next()
                stream = context.result
                assert isinstance(stream, ResponseStream)
                while True:
                    with agent_run.entered():  # not around the yield: the consumer may have another context
                        update = await anext(stream, None)
                    if update is None:
                        break
                    yield update
                with agent_run.entered():
                    last[:] = [await stream.get_final_response()]
                if not await self._answer(run, agent_run, context, last[0]):
                    return

        return ResponseStream(updates(), finalizer=lambda _: last[0])

    async def _answer(self, run: AsyncRun, agent_run: _AgentRun, context: AgentContext, response: object) -> bool:
        """Ask for the approvals of a response. False if it has none, or also requests that only the caller knows."""
        requests = response.user_input_requests if isinstance(response, AgentResponse) else []
        calls = [request.function_call for request in requests if request.type == _APPROVAL]
        if not calls or len(calls) < len(requests):
            return False
        asked = [self._call(agent_run, call) for call in calls if call is not None]
        answers: list[Decision] = await ask_approvals(run, asked)
        contents = []
        for request, call, answer in zip(requests, calls, answers, strict=True):
            contents.append(request.to_function_approval_response(answer.approved))
            if not answer.approved and call is not None:
                agent_run.refused[call.call_id or ""] = answer.note
        context.messages = [Message("user", contents)]
        return True

    def _call(self, agent_run: _AgentRun, call: Content) -> ToolCall:
        name = call.name or ""
        policy = self._policies.get(name) or DEFAULT
        return ToolCall(agent_run.call_key(call.call_id or ""), name, call.parse_arguments() or {}, policy)


def _refuse_approvals(response: object) -> None:
    """Stop an agent that asks inside a recorded tool call: the recorded call would contain the wait for the answer."""
    if isinstance(response, AgentResponse):
        requests = [request for request in response.user_input_requests if request.type == _APPROVAL]
        if requests:
            raise UserInputRequiredException(contents=requests, message="an agent inside the tool asks for an approval")


class _ModelMiddleware(ChatMiddleware):
    """Records each model call as a step. A streamed response is recorded before its updates are passed on."""

    async def process(self, context: ChatContext, call_next: Next) -> None:
        run = current(_ADAPTER)
        if run is None:
            await call_next()
            return
        agent_run = _agent_run.get()
        given = None
        if agent_run is None:
            key = next_key(run, "chat model")
        else:
            agent_run.model_calls += 1
            agent_run.add_notes(context.messages)
            key, given = f"{agent_run.key} model {agent_run.model_calls}", agent_run.given

        async def call_model() -> dict[str, Any]:
            with contextlib.suppress(MiddlewareTermination):  # as the framework does
                await call_next()
            found = context.result
            response = await found.get_final_response() if isinstance(found, ResponseStream) else found
            return _dump_response(response if response is not None else ChatResponse())

        after = [] if agent_run is None else [f"{agent_run.key} model"]
        record = await record_call(run, key, call_model, name="model", request=given, after=after)
        response_format = (context.options or {}).get("response_format")
        injected = {"chat_response": {"response_format": response_format}}
        response = ChatResponse.from_dict(record, dependencies=injected)
        context.result = _stream_of(response, response_format) if context.stream else response


def _dump_response(response: ChatResponse[Any]) -> dict[str, Any]:
    """A response as plain data, every tool call with an id of its own."""
    seen: Counter[str] = Counter()
    for content in (content for message in response.messages for content in message.contents):
        if content.type == "function_call":
            call_id = content.call_id or "call"
            seen[call_id] += 1
            content.call_id = call_id if seen[call_id] == 1 else f"{call_id}-{seen[call_id]}"
    dump = response.to_dict()
    # `to_dict` leaves them out, but the framework marks in them which conversation ids are its own.
    dump["additional_properties"] = to_jsonable_python(response.additional_properties, fallback=str)
    return dump


def _stream_of(response: ChatResponse[Any], response_format: Any) -> ResponseStream[ChatResponseUpdate, Any]:
    async def updates() -> AsyncIterator[ChatResponseUpdate]:
        for update in response.to_updates():
            yield update

    return ResponseStream(
        updates(), finalizer=lambda found: ChatResponse.from_updates(found, output_format_type=response_format)
    )


class _ToolMiddleware(FunctionMiddleware):
    """Records each tool call as its policy says."""

    def __init__(self, policies: Policies) -> None:
        self._policies = policies

    async def process(self, context: FunctionInvocationContext, call_next: Next) -> None:
        run = current(_ADAPTER)
        if run is None:
            await call_next()
            return
        name, agent_run = context.function.name, _agent_run.get()
        call_id = context.metadata["call_id"]
        key = call_id if agent_run is None else agent_run.call_key(call_id)
        following = "" if agent_run is None else f"{agent_run.key} model {agent_run.model_calls + 1}"
        policy = self._policies.get(name) or DEFAULT
        call = ToolCall(key, name, _plain_arguments(context.arguments), policy, followed_by=following)
        if call.policy.record == "none":
            refuse_unreached_gate(run, call)
            token = _tool_path.set(key)
            try:
                await call_next()
            finally:
                _tool_path.reset(token)
            return

        async def call_tool() -> dict[str, Any]:
            before, is_last = _shared_state(context), False
            try:
                await call_next()
            except MiddlewareTermination:
                is_last = True
            contents = dump_or_lose(lambda: [each.to_dict() for each in FunctionTool.parse_result(context.result)])
            state = {key: value for key, value in _shared_state(context).items() if before.get(key) != value}
            return {"contents": contents, "state": state, "is_last": is_last}

        try:
            record = await perform(run, call, call_tool, raise_unproven=True, result_at=("contents",))
        except StepFailed as error:
            if error.error_type in _CONTROL_FLOW:
                hint = "if it runs another agent, give it the policy {'record': 'none'}"
                message = f"tool {name!r} raised {error.error_type} in a recorded call: {error.error_message}; {hint}"
                raise AgentStopped(message) from error
            refuse_unproven(run, error)
            raise
        if isinstance(record, Given):
            context.result = FunctionTool.parse_result(record.value)
            return
        context.result = [Content.from_dict(content) for content in record["contents"]]
        if context.session is not None:
            context.session.state.update(record["state"])
        if record["is_last"]:
            raise MiddlewareTermination


def _plain_arguments(arguments: BaseModel | Mapping[str, Any]) -> dict[str, Any]:
    given = arguments.model_dump() if isinstance(arguments, BaseModel) else dict(arguments)
    plain: dict[str, Any] = to_jsonable_python(given, fallback=str)
    return plain


def _shared_state(context: FunctionInvocationContext) -> dict[str, Any]:
    """A copy of what tools may have stored in the session; without the messages, which are not plain data."""
    state = {} if context.session is None else context.session.state
    return {
        key: copy.deepcopy(value)
        for key, value in state.items()
        if not key.startswith(_UNSHARED_STATE) and _is_plain(value)
    }


def _is_plain(value: object) -> bool:
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_plain(part) for key, part in value.items())
    if isinstance(value, list):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, (str, int, float, bool))
