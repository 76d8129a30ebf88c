"""The call of an effect, and how what became of it is recorded: in the journal and in the ledger, in one commit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal

import msgspec

from holdfast.engine.call_arguments import parts_of
from holdfast.engine.commands import EntryData, Mark, Plan
from holdfast.engine.execution import Execution
from holdfast.engine.failures import failure_of, with_recorded_trace
from holdfast.engine.results import typed_result
from holdfast.engine.retry import Retry
from holdfast.engine.scope import Scope
from holdfast.engine.steps import Spec, again_later
from holdfast.engine.verdicts import Classifier
from holdfast.errors import EffectFailed, EffectInDoubt, InvalidInput, MissingAwait, ResultLost, StepFailed
from holdfast.ids import check_id


class Happened(msgspec.Struct, frozen=True):
    """What a `check` function returns if the effect did happen, with its result.

    Example:
        Happened({"receipt": 17})
    """

    result: Any = None


class _DidNotHappen:
    """What a `check` function returns if the effect did not happen: it is then performed."""

    def __repr__(self) -> str:
        return "DidNotHappen"


DidNotHappen: Final = _DidNotHappen()

AGAIN: Final = object()
"""It did not happen, or may happen twice: it is to be performed."""


class World(msgspec.Struct, gc=False):
    """How an effect touches the world, as the user declared it."""

    undo: str | None = None
    in_doubt: str = "ask"
    check: Callable[..., Any] | None = None
    target: str | None = None
    tool: str = ""
    classify: Classifier | None = None
    is_conclusive: Callable[[], bool] | None = None
    """Whether an exception that proves that nothing happened says so of all tries, not only of the last one."""


class EffectCall:
    """One call of an effect."""

    __slots__ = (
        "attempt", "call", "digest", "entries", "exe", "flying", "in_doubt", "is_retried", "key", "keyed", "reason",
        "scope", "spec", "token", "world",
    )  # fmt: skip

    def __init__(self, exe: Execution, scope: Scope, spec: Spec, world: World, call: str, entries: list[EntryData]):
        self.exe = exe
        self.scope = scope
        self.spec = spec
        self.world = world
        self.call = call
        self.keyed = spec.key is not None
        self.entries = entries
        self.attempt = 1 + sum(entry["kind"] == "attempt" for entry in entries)
        tries = [entry for entry in entries if entry["kind"] in ("intent", "attempt")]
        self.in_doubt = bool(tries and tries[-1].get("doubt"))
        """A try before the next one may have happened."""
        self.flying = False
        """It is this very call that is under way under its key."""
        self.digest = exe.codec.digest(spec.args, spec.kwargs)
        key = spec.key or scope.named(scope.counted(f"{spec.name}:{self.digest or '?'}"))
        epoch = exe.line.epoch
        if entries and "key" in entries[0]:  # begun before a rollback that kept it
            key, epoch = entries[0]["key"], entries[0].get("epoch", 0)
        elif key in exe.line.left:
            key = f"{key}@{exe.line.left[key]}"
        self.key = check_id("effect key", key)
        told = [entry["token"] for entry in entries if "token" in entry]
        doubt = tries[-1].get("doubt") if tries else None
        self.reason: str | None = doubt if isinstance(doubt, str) else None
        """Why it is in doubt, if that is recorded."""
        self.is_retried = self.reason is not None and "of" not in tries[-1]
        """The run failed because of it and was retried, and it has not been performed since."""
        facts = exe.line.tokens.get(key, ())
        if facts and facts[0] == self.digest:
            if not entries and self.digest is not None:
                told, epoch = [facts[1]] if facts[1] is not None else [], facts[2]
            if len(facts) > 3 and facts[4] == sum(entry["kind"] == "intent" for entry in entries):
                self.reason, self.is_retried = facts[3], True
        self.token: str = told[-1] if told else exe.codec.effect_token(exe.incarnation, key, epoch)

    @property
    def is_of_another(self) -> bool:
        """Whether what is recorded is about another run's performance of it, under that run's idempotency key."""
        return any("of" in entry for entry in self.entries) and not any("own" in entry for entry in self.entries)

    def entry(self, kind: str, **data: Any) -> EntryData:
        return self.scope.entry(kind, self.call, self.keyed, **data)

    def first(self, kind: str, **data: Any) -> EntryData:
        """The call's first entry, which says what it is."""
        facts = {"name": self.spec.name, "digest": self.digest, "key": self.key, **data}
        facts |= parts_of(self.exe.codec, self.spec.given)
        facts |= {"epoch": self.exe.line.epoch} if self.exe.line.epoch else {}
        return self.entry(kind, **facts)


def give_outcome(this: EffectCall, entry: EntryData, cause: BaseException | None = None) -> Any:
    """The outcome, as every replay will tell it."""
    if "error" in entry:
        kind: type[StepFailed] = EffectFailed
        kind = EffectInDoubt if entry.get("doubt") else ResultLost if entry.get("done") else kind
        failed = kind(this.scope.named(this.call), entry["error"], entry.get("attempts", 1))
        raise (failed if cause is not None else with_recorded_trace(failed)) from cause
    return typed_result(this.spec.fn, entry["result"], this.call)


def describe_call(this: EffectCall) -> dict[str, Any]:
    """How it is called, for its undo."""
    spec, world = this.spec, this.world
    if this.digest is None and world.undo is not None:
        raise InvalidInput(f"effect {this.call!r} has an undo, so its arguments must be storable; they are not")
    args, kwargs = ([], {}) if this.digest is None else (list(spec.args), spec.kwargs)
    return {"args": args, "kwargs": kwargs, "undo": world.undo, "digest": this.digest, "token": this.token}


def known_result(result: Any, call: Any) -> dict[str, Any]:
    """What the ledger tells of an effect that was done: its result, or why that could not be kept."""
    return {"error": call["lost"], "done": True} if "lost" in (call or {}) else {"result": result}


def try_later(this: EffectCall, retry: Retry, error: BaseException) -> Plan[None]:
    """Record a try after which there will be another, and wait for that."""
    facts = {"doubt": True} if this.in_doubt else {}
    yield from again_later(this.exe, this.scope, this.call, this.keyed, retry, this.attempt, error, facts)
    this.attempt += 1


def record_done(this: EffectCall, raw: Any, us: int, how: str = "") -> Plan[Any]:
    """It happened. If its result cannot be kept it still counts as done."""
    try:
        result = this.exe.codec.settled(raw)
    except (InvalidInput, MissingAwait) as unstorable:
        return (yield from record_outcome(this, error=unstorable, us=us, how=how, done=True))
    del raw
    return (yield from record_outcome(this, result=result, us=us, how=how))


def record_outcome(
    this: EffectCall, result: Any = None, error: BaseException | None = None, how: str = "", us: int = 0,
    doubt: str = "", by: str = "", done: bool = False, hint: str = "", proven: bool = False,
) -> Plan[Any]:  # fmt: skip
    """Record the outcome, in journal and ledger, and tell it. `doubt` says why it fails without being known.

    `done`: it happened although there is an error. `hint`: what its error says besides.
    `proven`: it is certain that it did not happen, so a retry of the run may perform it.
    """
    facts: dict[str, Any] = {"result": result} if error is None else {"error": failure_of(error)}
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
    marks: tuple[Mark, ...] = ()
    if not doubt:  # what is in doubt stays so in the ledger
        state: Literal["done", "failed"] = "done" if error is None or done else "failed"
        call, reversible = None, False
        others = [entry["of"] for entry in this.entries if "of" in entry]
        if this.is_of_another and done:
            call = {"digest": this.digest, "reused": others[0], "token": this.token, "lost": facts["error"]}
        elif not this.is_of_another and (done or (others and not how)):  # begun by another run, but done here
            call = {**describe_call(this), **({"lost": facts["error"]} if done else {})}
            reversible = this.world.undo is not None
        marks = (Mark(this.key, state, reversible=reversible, result=result, call=call),)
    yield from this.exe.write(this.scope, [entry], marks=marks)
    return give_outcome(this, entry, error)
