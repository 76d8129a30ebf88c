"""Calls of an agent framework inside a run: model calls as steps, tool calls as effects, approvals as gates.

Keys come only from what is recorded, such as the id of a tool call in the model's response, so that a replay of the
framework's own loop finds every record again. Without a run all adapters are transparent: `current` returns None.
"""

from __future__ import annotations

import asyncio
import contextvars
import dataclasses
import functools
import weakref
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

from holdfast.adapters.shared.call_keys import QUESTIONS, entries_of, find_unreached, is_over, plain_key, tool_key
from holdfast.engine.approvals import Escalate
from holdfast.engine.commands import EntryData
from holdfast.engine.failures import NOT_DONE, Classifier, Verdict
from holdfast.engine.scope import Scope
from holdfast.errors import EffectFailed, HoldfastError, InvalidInput, StepFailed
from holdfast.forms import field
from holdfast.runtime.async_run import AsyncRun
from holdfast.runtime.run_base import DoubtPolicy, Errors, RetryLike, current_run, in_recorded_call

Body = Callable[[], Awaitable[object]]
_RECORDED: Final = "recorded"
EXPIRED: Final = "The approval expired: no person answered in time."
"""The note of an approval that was not answered in time, for the model."""
_APPROVAL_OPTIONS: Final = ("who", "approvals", "not_by", "escalate", "expires")
_PROMPT_CHARS_MAX: Final = 400
_VALUE_CHARS_MAX: Final = 80
_MARKUP: Final = frozenset('`*[]<>\\#|~&!_"')

_unit: contextvars.ContextVar[str | None] = contextvars.ContextVar("holdfast_unit", default=None)
"""The idempotency key of the recorded call that the calling code belongs to; empty if it has none."""
_counters: weakref.WeakKeyDictionary[Scope, Counter[str]] = weakref.WeakKeyDictionary()


class AgentStopped(BaseException):
    """The run cannot go on, and the model must not be told: it might call the tool again. `__cause__` is the error.

    Frameworks turn every `Exception` of a tool into a message for the model, so this is not an `Exception`. It fails
    the run.
    """


@dataclasses.dataclass(frozen=True, kw_only=True)
class ToolPolicy:
    """How the calls of a tool are recorded, and who approves them. Adapters take it as a dict of these names.

    `record="effect"`: the intent is recorded, then the call, then its outcome; the other options are those of
    `run.effect`. `"step"`: the result is recorded, and a call that was interrupted is repeated; for tools that only
    read. `"none"`: nothing is recorded, and the tool is called again on every resume; for tools that run another agent
    whose calls are recorded themselves. `check` and `undo` get the arguments of the call as one dict.
    """

    record: Literal["effect", "step", "none"] = "effect"
    in_doubt: DoubtPolicy = "ask"
    check: Callable[..., Any] | None = None
    undo: Callable[..., Any] | str | None = None
    retry: RetryLike = None
    timeout: float | None = None
    not_done: Errors = ()
    doubtful: Errors = ()
    classify: Classifier | None = None
    who: str | Iterable[str] | None = None
    approvals: int = 1
    not_by: str | Iterable[str] | None = None
    escalate: Escalate | None = None
    expires: float | None = None

    def __post_init__(self) -> None:
        for name, allowed in (("record", ("effect", "step", "none")), ("in_doubt", ("ask", "retry", "fail"))):
            if getattr(self, name) not in allowed:
                raise InvalidInput(f"{name} of a tool must be one of {', '.join(allowed)}, not {getattr(self, name)!r}")

    def refuse_unused_gate(self, tool: str, way_out: str) -> None:
        """Raise InvalidInput if the policy describes an approval. The caller knows that this tool asks for none."""
        given = [name for name in _APPROVAL_OPTIONS if getattr(self, name) != getattr(ToolPolicy, name)]
        if given:
            raise InvalidInput(
                f"the policy of tool {tool!r} has {', '.join(given)}, but its calls are performed without an approval; "
                f"{way_out}, or remove {'it' if len(given) == 1 else 'them'}"
            )

    @classmethod
    def of(cls, given: ToolPolicy | Mapping[str, Any] | None, tool: str) -> ToolPolicy:
        """The policy that a user has given for a tool."""
        if given is None:
            return DEFAULT
        if isinstance(given, ToolPolicy):
            return given
        if not isinstance(given, Mapping):
            raise InvalidInput(f"the policy of tool {tool!r} must be a dict, not {type(given).__name__}")
        names = [each.name for each in dataclasses.fields(cls)]
        unknown = [str(name) for name in given if name not in names]
        if unknown:
            raise InvalidInput(f"the policy of tool {tool!r} has no option {unknown[0]!r}; it has {', '.join(names)}")
        try:
            return cls(**given)
        except InvalidInput as error:
            raise InvalidInput(f"the policy of tool {tool!r}: {error}") from None


DEFAULT: Final = ToolPolicy()


class ToolCall(NamedTuple):
    """A tool call that the model's recorded response asks for."""

    id: str
    """Recorded in the response; unique within the run."""
    name: str
    arguments: Mapping[str, Any]
    policy: ToolPolicy = DEFAULT
    note: Mapping[str, Any] | None = None
    """What the framework knows about its approval; the gate shows it as `metadata`."""
    asked_as: str = ""
    """The words that the ids of its approvals begin with, if not with its own."""
    followed_by: str = ""
    """The key of the model call that gets the result."""


class Decision(NamedTuple):
    """The answer to an approval."""

    approved: bool
    note: str


class OnlyAsked(Exception):
    """Raised by a body whose tool has asked for an approval and done nothing; `perform` returns `record`."""

    def __init__(self, record: object) -> None:
        super().__init__("the tool only asked for an approval; nothing was done")
        self.record = record


class Given(NamedTuple):
    """A result that a person or `check` has given for a call in doubt: a plain value, not in the recorded form."""

    value: object


def current(adapter: str) -> AsyncRun | None:
    """The run to record calls in; None if there is none, or the calling code is already inside a recorded call."""
    run = current_run()
    if run is None or _unit.get() is not None:
        return None
    if not isinstance(run, AsyncRun):
        raise InvalidInput(f"{adapter} needs an `async def` workflow; run {run.run_id!r} is of a `def` workflow")
    return run


def idempotency_key() -> str | None:
    """The idempotency key of the tool call that the calling code belongs to; None outside a recorded tool call.

    It is the same for every attempt of this call.

    Example:
        requests.post(url, headers={"Idempotency-Key": idempotency_key()})
    """
    return _unit.get() or None


def next_key(run: AsyncRun, name: str) -> str:
    """A key for the next call of this name in this flow: `model 3`. Calls of one name must not be parallel.

    Branches of `run.gather` and turns of `run.loop` are flows of their own, as they are for calls without a key.
    """
    counter = _counters.setdefault(run.scope, Counter())
    counter[name] += 1
    return f"{name} {counter[name]}"


def following_key(run: AsyncRun, name: str) -> str:
    """The key that `next_key` will return for this name."""
    return f"{name} {_counters.get(run.scope, Counter())[name] + 1}"


def stop(run: AsyncRun, error: Exception) -> AgentStopped:
    """What to raise for an error that the model must not see. The run fails, even if the framework swallows it."""
    record = run.execution.record
    record.fatal = record.fatal or error
    return AgentStopped(str(error))


async def record_call(
    run: AsyncRun, key: str, body: Body, *, name: str, request: object = None, after: Sequence[str] = ()
) -> Any:
    """Call a model, or anything else that only computes or reads, once. A replay returns the record.

    `body` returns what can be stored. `request` identifies the input: a replay with another one is refused as Diverged.
    `after`: how the ids of the agent's tool calls begin. The model is not called while one of them, or its gate, is
    recorded and was not reached: it would read that a payment was not made.
    """
    if after and not is_over(entries_of(run, key)):
        gates = [f"{verb} {each}" for verb in QUESTIONS for each in after]
        missed = find_unreached(run, [*gates, *(tool_key(run, each) for each in after)])
        if missed is not None:
            raise _out_of_order(run, missed, key, "step", name)

    async def call(request: object) -> object:  # noqa: ARG001 - errors name it
        token = _unit.set("")
        try:
            with in_recorded_call(name):
                return await body()
        finally:
            _unit.reset(token)

    try:
        return await run.step(call, request, key=key, name=name)
    except StepFailed:
        raise
    except HoldfastError as error:
        raise stop(run, error) from error


async def perform(
    run: AsyncRun, call: ToolCall, body: Body, *, raise_unproven: bool = False, result_at: tuple[str, ...] = ()
) -> Any:
    """Call a tool, as its policy says. `body` returns what can be stored.

    Returns what `body` returned, or a `Given`. StepFailed, and an EffectFailed that proves that nothing happened, are
    for the model. Every other error stops the agent, because the model might call the tool again. `raise_unproven`: the
    framework raises an EffectFailed to its caller, or the user decides what the model reads of it. `result_at`: the
    keys that lead to the tool's own result in what `body` returns; an undo gets only that.
    """
    policy = call.policy
    if policy.record == "none":
        return await body()
    key = tool_key(run, call.id)
    entries = entries_of(run, key)
    is_repeated = bool(entries) and not is_over(entries)
    if not is_over(entries):
        refuse_unreached_gate(run, call)
    later = entries_of(run, call.followed_by) if not entries else []
    if later:
        raise _out_of_order(run, later[0], key, "intent", call.name)
    if policy.record == "step":
        return await record_call(run, key, body, name=call.name, request=dict(call.arguments))

    question = tool_key(run, call.id, "asked")
    asked: list[object] = []

    async def act(arguments: Mapping[str, Any], *, idempotency_key: str) -> dict[str, object]:  # noqa: ARG001
        token = _unit.set(idempotency_key)
        try:
            with in_recorded_call(call.name):
                return {_RECORDED: await body()}
        except OnlyAsked as only:
            if is_repeated:  # an earlier attempt is in doubt, so this one proves nothing
                return {_RECORDED: only.record}
            asked.append(await run.step(_returns(only.record), key=question, name=f"question of {call.name}"))
            raise
        finally:
            _unit.reset(token)

    act.result_at = (_RECORDED, *result_at)  # type: ignore[attr-defined]  # for the undo
    act.only_passes_key = True  # type: ignore[attr-defined]  # a retry needs in_doubt="retry", as without a key
    names = ("in_doubt", "check", "undo", "retry", "timeout", "not_done", "doubtful", "classify")
    options = {name: getattr(policy, name) for name in names}
    options["classify"] = functools.partial(_classify, policy.classify)
    try:
        result = await run.effect(act, dict(call.arguments), key=key, name=call.name, **options)
    except EffectFailed as error:
        if error.error_type == OnlyAsked.__name__:
            return asked[0] if asked else await run.step(_returns(None), key=question, name=f"question of {call.name}")
        if not raise_unproven:
            refuse_unproven(run, error)
        raise
    except HoldfastError as error:
        raise stop(run, error) from error
    if isinstance(result, dict) and list(result) == [_RECORDED]:
        return result[_RECORDED]
    return Given(result)


def _returns(value: object) -> Callable[[], object]:
    return lambda: value


def _classify(given: Classifier | None, error: BaseException) -> Verdict | None:
    return NOT_DONE if isinstance(error, OnlyAsked) else None if given is None else given(error)


def refuse_unproven(run: AsyncRun, error: StepFailed) -> None:
    """Stop the agent if an effect failed without proof that nothing happened."""
    if isinstance(error, EffectFailed) and not error.is_proven:
        raise stop(run, error) from error


def refuse_unreached_gate(run: AsyncRun, call: ToolCall) -> None:
    """Raise Diverged if the run has asked about this call, and this execution does not come to that gate first.

    The code asked when the gate was opened and does not ask now. The call would be performed whatever the answer is.
    """
    ids = {call.id, call.asked_as or call.id}
    missed = find_unreached(run, [f"{verb} {each}" for verb in QUESTIONS for each in ids])
    if missed is not None:
        raise _out_of_order(run, missed, f"tool {call.id}", "intent", call.name)


def _out_of_order(run: AsyncRun, entry: EntryData, call: str, kind: str, name: str) -> AgentStopped:
    """The error for a call that does not follow, or comes after, what the record has of its agent."""
    hint = (
        f"the code no longer asks or acts as before it calls {name!r}, so it was not called; restore the approval or "
        "hook that decides about it, or roll the run back to before that"
    )
    error = run.scope.diverged(entry, call, (kind,), hint=hint)
    stopped = stop(run, error)
    stopped.__cause__ = error
    return stopped


def dump_or_lose(dump: Callable[[], object]) -> object:
    """The recorded form of a tool's result. The tool has acted: without such a form its result is lost (ResultLost)."""
    try:
        return dump()
    except Exception as error:
        return error  # it cannot be stored


async def ask_approvals(run: AsyncRun, calls: Sequence[ToolCall]) -> list[Decision]:
    """Ask for the approval of these calls, all at once, and wait until every one is answered."""

    async def ask(call: ToolCall) -> Decision:
        policy = call.policy
        fields = {"approve": bool, "note": field(str, required=False, multiline=True)}
        answer = await run.ask(
            describe_call(call),
            fields,
            show={**({"metadata": dict(call.note)} if call.note else {}), **call.arguments},
            who=policy.who,
            approvals=policy.approvals,
            not_by=policy.not_by,
            escalate=policy.escalate,
            expires=policy.expires,
            expired={"approve": False, "note": EXPIRED},
            key=plain_key(f"approve {call.id}"),
        )
        return Decision(answer["approve"], answer["note"] or "")

    for call in calls:
        _check_undo(run, call)
    # Each opens its gate before any of them stops the run.
    answers = await asyncio.gather(*map(ask, calls), return_exceptions=True)
    found = []
    for answer in answers:
        if isinstance(answer, HoldfastError):
            raise stop(run, answer) from answer
        if isinstance(answer, BaseException):
            raise answer
        found.append(answer)
    return found


def _check_undo(run: AsyncRun, call: ToolCall) -> None:
    """Refuse an unknown undo before a person decides about the call."""
    undo = call.policy.undo
    name = undo if undo is None or isinstance(undo, str) else getattr(undo, "__name__", repr(undo))
    if name is not None and name not in run.execution.undos:
        error = InvalidInput(f"undo {name!r} of tool {call.name!r} is not registered; put @app.undo above the function")
        raise stop(run, error) from error


def describe_call(call: ToolCall) -> str:
    """The question about a call: `Allow pay(order='A-17', amount=40)?`.

    The model chooses the values, and the page renders Markdown: values that could be markup are left out here. The gate
    shows all of them.
    """
    parts = [f"{name}={_brief(value)}" if name.isidentifier() else "…" for name, value in call.arguments.items()]
    text = ", ".join(parts)
    return f"Allow {call.name}({text if len(text) <= _PROMPT_CHARS_MAX else '…'})?"


def _brief(value: object) -> str:
    text = repr(value)
    is_plain = not _MARKUP.intersection(text) and "://" not in text and "www." not in text
    return text if is_plain and len(text) <= _VALUE_CHARS_MAX else "…"
