"""One call of an effect, and the record of its outcome.

Journal and ledger record an outcome in one commit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal

import msgspec

from holdfast.drivers import Plan
from holdfast.engine.approvals import GateRules, people
from holdfast.engine.arguments import parts_of, position_names, takes_token, with_token
from holdfast.engine.commands import Call, EntryData, LedgerMark, TimedOut, UserFunction
from holdfast.engine.execution import Execution
from holdfast.engine.failures import Classifier, failure_of, summary_of, with_recorded_trace
from holdfast.engine.gates import Gate, wait_for_answer
from holdfast.engine.results import typed_result
from holdfast.engine.retry import Retry, retry_of
from holdfast.engine.scope import Scope
from holdfast.engine.steps import StepSpec, schedule_retry
from holdfast.errors import EffectFailed, EffectInDoubt, InvalidInput, MissingAwait, ResultLost, StepFailed
from holdfast.forms import Problem, field, form_of
from holdfast.ids import check_id


class Happened(msgspec.Struct, frozen=True):
    """What a `check` function returns if the effect did happen, with its result.

    Example:
        Happened({"receipt": 17})
    """

    result: object = None


class _DidNotHappen:
    """What a `check` function returns if the effect did not happen; the engine then performs it."""

    def __repr__(self) -> str:
        return "DidNotHappen"


DidNotHappen: Final = _DidNotHappen()
POLICIES: Final = ("ask", "retry", "fail")
AGAIN: Final = object()
"""The effect did not happen, or may happen twice: perform it."""


class EffectSpec(msgspec.Struct, kw_only=True):
    """What the user declared about an effect, checked."""

    undo: UserFunction | str | None = None
    in_doubt: str = "ask"
    ask_who: object = None
    """The people that may decide what happened; everyone by default."""
    check: UserFunction | None = None
    target: str | None = None
    tool: str = ""
    classify: Classifier | None = None
    is_conclusive: Callable[[], bool] | None = None
    """Whether an exception that proves that nothing happened proves it for all attempts, not only for the last."""

    def __post_init__(self) -> None:
        if self.in_doubt not in POLICIES:
            raise InvalidInput(f"in_doubt must be one of {', '.join(POLICIES)}, not {self.in_doubt!r}")
        if self.check is not None and not callable(self.check):
            raise InvalidInput(f"check must be a function, not {self.check!r}")
        self.ask_who = people("ask_who", self.ask_who)

    @property
    def undo_name(self) -> str | None:
        """The name under which the undo function is registered."""
        undo = self.undo
        return undo if undo is None or isinstance(undo, str) else getattr(undo, "__name__", repr(undo))


class EffectCall:
    """One call of an effect."""

    def __init__(
        self, exe: Execution, scope: Scope, spec: StepSpec, options: EffectSpec, call: str, entries: list[EntryData]
    ):
        self.exe = exe
        self.scope = scope
        self.spec = spec
        self.options = options
        self.call = call
        self.keyed = spec.key is not None
        self.entries = entries
        self.attempt = 1 + sum(entry["kind"] == "attempt" for entry in entries)
        tries = [entry for entry in entries if entry["kind"] in ("intent", "attempt")]
        self.in_doubt = bool(tries and tries[-1].get("doubt"))
        """An earlier attempt may have happened."""
        self.took_us = 0
        """How long the last attempt of this process took."""
        self.owns_key = False
        """This call is the one in flight under its key."""
        self.digest = exe.codec.digest(spec.args, spec.kwargs)
        key = spec.key or scope.full_name(scope.next_occurrence(f"{spec.name}:{self.digest or '?'}"))
        epoch = exe.resume_point.epoch
        if entries and "key" in entries[0]:  # begun before a rollback that left it as it is
            key, epoch = entries[0]["key"], entries[0].get("epoch", 0)
        elif key in exe.resume_point.left:
            key = f"{key}@{exe.resume_point.left[key]}"
        self.key = check_id("effect key", key)
        tokens = [entry["token"] for entry in entries if "token" in entry]
        doubt = tries[-1].get("doubt") if tries else None
        self.reason: str | None = doubt if isinstance(doubt, str) else None
        """Why it is in doubt, if recorded."""
        self.is_retried = self.reason is not None and "of" not in tries[-1]
        """The run failed because of it and was retried, and has not performed it since."""
        facts = exe.resume_point.tokens.get(key, ())
        if facts and facts[0] == self.digest:
            if not entries and self.digest is not None:
                tokens, epoch = [facts[1]] if facts[1] is not None else [], facts[2]
            if len(facts) > 3 and facts[4] == sum(entry["kind"] == "intent" for entry in entries):
                self.reason, self.is_retried = facts[3], True
        self.token: str = tokens[-1] if tokens else exe.codec.effect_token(exe.incarnation, key, epoch)

    @property
    def is_of_another(self) -> bool:
        """Whether another run performed it, under the idempotency key of that run."""
        return any("of" in entry for entry in self.entries) and not any("own" in entry for entry in self.entries)

    def entry(self, kind: str, **data: Any) -> EntryData:
        return self.scope.entry(kind, self.call, self.keyed, **data)

    def first_entry(self, kind: str, **data: Any) -> EntryData:
        """The first entry of the call, with the facts that identify it."""
        facts = {"name": self.spec.name, "digest": self.digest, "key": self.key, **data}
        facts |= parts_of(self.exe.codec, self.spec.given)
        facts |= {"epoch": self.exe.resume_point.epoch} if self.exe.resume_point.epoch else {}
        return self.entry(kind, **facts)


def replay_outcome(this: EffectCall, entry: EntryData, cause: BaseException | None = None) -> object:
    """Return or raise the recorded outcome, as every replay does."""
    if "error" in entry:
        kind: type[StepFailed] = EffectFailed
        kind = EffectInDoubt if entry.get("doubt") else ResultLost if entry.get("done") else kind
        failed = kind(this.scope.full_name(this.call), entry["error"], entry.get("attempts", 1))
        if isinstance(failed, EffectFailed):
            failed.is_proven = bool(entry.get("proven"))
        raise (failed if cause is not None else with_recorded_trace(failed)) from cause
    return typed_result(this.spec.fn, entry["result"], this.call)


def describe_call(this: EffectCall) -> EntryData:
    """The call as the ledger has it, for its undo."""
    spec, options = this.spec, this.options
    if this.digest is None and options.undo is not None:
        raise InvalidInput(f"effect {this.call!r} has an undo, so its arguments must be storable, and they are not")
    args, kwargs = ([], {}) if this.digest is None else (list(spec.args), spec.kwargs)
    facts = {"args": args, "kwargs": kwargs, "undo": options.undo_name, "digest": this.digest, "token": this.token}
    path = getattr(spec.fn, "result_at", None) if options.undo is not None else None  # of a function of an adapter
    return facts if path is None else {**facts, "result_at": list(path)}


_RECORDED: Final = "recorded"
"""The only key of a result that an adapter has recorded."""
_OLD_FORMS: Final = ({"result", "kind"}, {"result", "actions"}, {"result", "state"}, {"result", "variables"})
"""What adapters recorded with a result before the ledger had `result_at`."""


def plain_result(key: str, result: object, call: EntryData | None) -> object:
    """The result of an effect for its undo. An adapter records more than that, and the ledger has the path to it.

    A result that a person or `check` has given is not in the recorded form.
    """
    path = (call or {}).get("result_at")
    if not isinstance(result, dict) or list(result) != [_RECORDED] or (path is None and not key.startswith("tool ")):
        return result
    found: object = result[_RECORDED]
    if path is None:
        path = [_RECORDED, "result"] if isinstance(found, dict) and set(found) in _OLD_FORMS else [_RECORDED]
    for name in path[1:]:
        if not isinstance(found, dict) or name not in found:
            return found
        found = found[name]
    return found


def known_result(result: object, call: EntryData | None) -> EntryData:
    """The outcome of an effect that the ledger has as done: its result, or why that could not be stored."""
    return {"error": call["lost"], "done": True} if call and "lost" in call else {"result": result}


def try_later(this: EffectCall, retry: Retry, error: BaseException) -> Plan[None]:
    """Record a failed attempt, and wait for the next one."""
    facts: EntryData = {"us": this.took_us, **({"doubt": True} if this.in_doubt else {})}
    yield from schedule_retry(this.exe, this.scope, this.call, this.keyed, retry, this.attempt, error, facts)
    this.attempt += 1


def record_done(this: EffectCall, raw: object, us: int, how: str = "") -> Plan[object]:
    """Record that it happened. It counts as done even if its result cannot be stored."""
    try:
        result, encoding = this.exe.codec.record(raw)
    except (InvalidInput, MissingAwait) as unstorable:
        return (yield from record_outcome(this, error=unstorable, us=us, how=how, done=True))
    del raw
    return (yield from record_outcome(this, result=result, us=us, how=how, encoding=encoding))


def record_outcome(
    this: EffectCall,
    result: object = None,
    error: BaseException | None = None,
    how: str = "",
    us: int = 0,
    doubt: str = "",
    by: str = "",
    done: bool = False,
    hint: str = "",
    proven: bool = False,
    encoding: bytes = b"",
) -> Plan[object]:
    """Record the outcome, in journal and ledger, and return or raise it.

    `doubt`: why it counts as failed although its outcome is unknown. `done`: it happened although there is an error.
    `hint`: an addition to its error. `proven`: it certainly did not happen, so a retry of the run may perform it.
    `encoding`: that of the result, if known.
    """
    facts: EntryData = {"result": result} if error is None else {"error": failure_of(error)}
    facts |= {"attempts": this.attempt} if this.attempt > 1 else {}
    facts |= {"how": how} if how else {}
    facts |= {"by": by} if by else {}
    facts |= {"done": True} if done else {}
    facts |= {"proven": True} if proven else {}
    if hint:
        facts["error"]["hint"] = hint
    if doubt:
        cause = {} if error is None else {"cause": failure_of(error)}
        facts |= {"error": {"type": "InDoubt", "message": doubt, **cause}, "doubt": True}
    entry = this.entry("outcome", us=us, **facts)
    marks: tuple[LedgerMark, ...] = ()
    if not doubt:  # in the ledger it stays in doubt
        state: Literal["done", "failed"] = "done" if error is None or done else "failed"
        call, reversible = None, False
        others = [entry["of"] for entry in this.entries if "of" in entry]
        if this.is_of_another and done:
            call = {"digest": this.digest, "reused": others[0], "token": this.token, "lost": facts["error"]}
        elif not this.is_of_another and (done or (others and not how)):  # begun by another run, but done here
            call = {**describe_call(this), **({"lost": facts["error"]} if done else {})}
            reversible = this.options.undo is not None
        marks = (LedgerMark(this.key, state, reversible=reversible, result=result, call=call),)
    yield from this.exe.write(this.scope, [entry], result=encoding, marks=marks)
    return replay_outcome(this, entry, error)


def is_repeatable(this: EffectCall) -> bool:
    """Whether the user declared that a second call does no harm."""
    passes_on = getattr(this.spec.fn, "only_passes_key", False)  # a function of an adapter, whose tool may ignore it
    return this.options.in_doubt == "retry" or (takes_token(this.spec.fn) and not passes_on)


def resolve(this: EffectCall, why: str, error: BaseException | None = None) -> Plan[object]:
    """Determine the outcome of an effect in doubt, or apply its policy: returns the outcome, or `AGAIN`.

    `error` is the error of this execution. After a crash it is None, and the number of attempts is not limited.
    """
    policy = "ask" if this.exe.forked == "ask" and this.is_of_another else this.options.in_doubt
    if policy == "fail" and error is None and this.is_retried:
        policy = "ask"  # the same policy has failed before, and would fail in every retry
    retry = retry_of(this.spec.retry, Retry())
    may_retry = error is None or (this.attempt < retry.attempts and retry.covers(error))
    found, checked = None, ""
    if this.options.check is not None and not _is_asking(this):
        found, checked = yield from _check(this)
    if isinstance(found, Happened):
        return (yield from record_done(this, found.result, 0, how="checked"))
    this.in_doubt = found is not DidNotHappen
    if not this.in_doubt and not may_retry:
        return (yield from record_outcome(this, error=error, how="checked", proven=True))
    by_key = error is not None and this.spec.retry is not None and takes_token(this.spec.fn)
    if may_retry and (not this.in_doubt or policy == "retry" or by_key):
        if error is not None:
            yield from try_later(this, retry, error)
        return AGAIN
    if policy == "ask":
        return (yield from _ask_outcome(this, why, checked))
    return (yield from record_outcome(this, error=error, doubt=why + checked))


def _check(this: EffectCall) -> Plan[tuple[object, str]]:
    """The result of its check, and a text for the prompt if that is inconclusive."""
    check, spec = this.options.check, this.spec
    assert check is not None
    try:
        found = yield Call(check, spec.args, with_token(check, spec.kwargs, this.token), spec.timeout_s)
    except TimedOut:
        return None, f", and its check took longer than {spec.timeout_s} s"
    except (Exception, SystemExit) as error:
        return None, f", and its check raised {summary_of(error)}"
    if isinstance(found, Happened) or found is DidNotHappen:
        return found, ""
    return None, f", and its check returned {repr(found)[:200]} instead of Happened(…) or DidNotHappen"


OUTCOME_FORM = {
    "outcome": field(
        str,
        choices={
            "happened": "Happened: it is recorded as done, with this result",
            "did not happen": "Did not happen: it is performed again now",
            "fail": "Fail: the run fails, unless it handles the error",
        },
        label="What happened?",
    ),
    "result": field(Any, label="Its result, if it happened", required=False, default=None),
}


def outcome_problems(purpose: str, answer: Any) -> list[Problem]:
    """What is contradictory in a checked answer about an effect in doubt; nothing for other gates."""
    if purpose != "in_doubt" or answer.get("outcome") not in ("did not happen", "fail") or answer.get("result") is None:
        return []
    return [Problem("result", f"must be left out if the outcome is {answer['outcome']!r}")]


def _is_asking(this: EffectCall) -> bool:
    return this.entries[-1]["kind"] in ("asked", "answered")


def _ask_outcome(this: EffectCall, why: str, checked: str) -> Plan[object]:
    """Open a gate for the outcome."""
    spec = this.spec
    shown = {
        "effect": spec.name,
        "key": this.key,
        "idempotency_key": this.token,
        "arguments": _describe_arguments(spec),
    }
    shown |= {"why": why} | ({"check": checked.removeprefix(", and its check ")} if checked else {})
    intents = sum(entry["kind"] == "intent" for entry in this.entries)
    name = f"{this.scope.full_name(this.call)}?{intents}" + (
        f"@{this.exe.resume_point.epoch}" if this.exe.resume_point.epoch else ""
    )
    prompt = f"Did {spec.name} happen? {why[:1].upper()}{why[1:]}{checked}."
    rules = GateRules(who=people("ask_who", this.options.ask_who))
    gate = Gate(name, prompt, form_of(OUTCOME_FORM), show=shown, rules=rules, purpose="in_doubt")
    since = max(i for i, entry in enumerate(this.entries) if entry["kind"] == "intent")
    asked = [entry for entry in this.entries[since + 1 :] if entry["kind"] in ("asked", "answered")]
    while True:
        answer = yield from wait_for_answer(this.exe, this.scope, this.call, this.keyed, asked[:2], gate)
        problem = _result_problem(this, answer["answer"])
        if not problem:
            break
        asked = asked[2:]
        gate.name += "+"
        gate.prompt = f"{prompt} The last answer was not accepted: {problem}; give a result= that fits."
    outcome, by = answer["answer"]["outcome"], answer["by"]
    if outcome == "happened":
        return (yield from record_outcome(this, result=answer["answer"]["result"], how="answered", by=by))
    if outcome == "fail":
        doubt = f"{by} decided that it counts as failed"
        return (yield from record_outcome(this, doubt=doubt, how="answered", by=by))
    this.in_doubt = False
    return AGAIN


def _result_problem(this: EffectCall, answer: EntryData) -> str:
    """Why the given result cannot be that of the effect; empty if it can."""
    if answer["outcome"] != "happened":
        return ""
    try:
        typed_result(this.spec.fn, answer["result"], this.call)
    except InvalidInput as error:
        return str(error)
    return ""


def _describe_arguments(spec: StepSpec) -> list[str]:
    """The arguments as readable text."""
    names = position_names(spec.fn)[: len(spec.args)]
    named = [*zip(names, spec.args, strict=False), *spec.kwargs.items()]
    texts = [f"{name}={arg!r}"[:500] for name, arg in named]
    texts[len(names) : len(names)] = [repr(arg)[:500] for arg in spec.args[len(names) :]]
    return texts
