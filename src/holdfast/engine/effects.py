"""Effects: steps that touch the world. The intent is recorded first, then it runs, then its outcome is recorded.

An effect is *in doubt* when its intent is recorded and its outcome is not: the process died in between, or the call
timed out. Then the outside world is asked (`check`), and where that cannot tell, `in_doubt` decides: a person is asked,
it is tried again (the caller says it is idempotent), or it fails.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal

import msgspec

from holdfast.engine.asking import Gate, answered
from holdfast.engine.commands import Call, EffectKnown, EntryData, Mark, Performed, Plan, ReadFamily, TimedOut
from holdfast.engine.execution import Execution
from holdfast.engine.failures import failure_of
from holdfast.engine.forms import field, form_of
from holdfast.engine.results import typed_result
from holdfast.engine.retry import ONCE, retry_of
from holdfast.engine.scope import Scope
from holdfast.engine.steps import Spec, again_later, await_turn, check_digest
from holdfast.engine.tokens import takes_token
from holdfast.errors import EffectFailed, EffectInDoubt, InvalidInput, KeyReused
from holdfast.ids import check_id

EFFECT_KINDS = ("intent", "outcome")
POLICIES: Final = ("ask", "retry", "fail")


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

_AGAIN: Final = object()
"""It did not happen, or may happen twice: it is to be performed."""


class World(msgspec.Struct, gc=False):
    """How an effect touches the world, as the user declared it."""

    undo: str | None = None
    in_doubt: str = "ask"
    check: Callable[..., Any] | None = None
    target: str | None = None
    tool: str = ""


class _Effect:
    """One call of an effect."""

    __slots__ = ("call", "digest", "entries", "exe", "flying", "key", "keyed", "scope", "spec", "token", "world")

    def __init__(self, exe: Execution, scope: Scope, spec: Spec, world: World, call: str, entries: list[EntryData]):
        self.exe = exe
        self.scope = scope
        self.spec = spec
        self.world = world
        self.call = call
        self.keyed = spec.key is not None
        self.entries = entries
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
        self.token: str = told[0] if told else exe.codec.effect_token(exe.incarnation, key, epoch)

    def entry(self, kind: str, **data: Any) -> EntryData:
        return self.scope.entry(kind, self.call, self.keyed, **data)

    def first(self, kind: str, **data: Any) -> EntryData:
        """The call's first entry, which says what it is."""
        facts = {"name": self.spec.name, "digest": self.digest, "key": self.key, **data}
        facts |= {"epoch": self.exe.line.epoch} if self.exe.line.epoch else {}
        return self.entry(kind, **facts)


def world_of(
    exe: Execution, undo: Any, in_doubt: str, check: Callable[..., Any] | None, target: str | None, name: str
) -> World:
    """What the user declared, checked."""
    if in_doubt not in POLICIES:
        raise InvalidInput(f"in_doubt must be one of {', '.join(POLICIES)}, not {in_doubt!r}")
    if check is not None and not callable(check):
        raise InvalidInput(f"check must be a function, not {check!r}")
    if undo is not None:
        undo = undo if isinstance(undo, str) else getattr(undo, "__name__", repr(undo))
        if undo not in exe.undos:
            raise InvalidInput(
                f"undo function {undo!r} is not registered, so it could not be found after a restart; "
                "put @app.undo above it"
            )
    return World(undo, in_doubt, check, target, name)


def effect(exe: Execution, scope: Scope, spec: Spec, world: World) -> Plan[Any]:
    """Perform an effect, or return what is recorded of it."""
    with scope.call(spec.name, spec.key, EFFECT_KINDS, again=True) as (call, entries):
        this = _Effect(exe, scope, spec, world, call, entries)
        try:
            if entries:
                if spec.key is not None and entries[0].get("digest") != this.digest:
                    raise KeyReused(exe.run_id, spec.key)
                check_digest(scope, entries[0], call, this.digest, EFFECT_KINDS)
                if entries[-1]["kind"] == "outcome":
                    return _told(this, entries[-1])
            return (yield from _live(this))
        finally:
            if this.flying:
                exe.flying.discard(this.key)


def _told(this: _Effect, entry: EntryData, cause: BaseException | None = None) -> Any:
    """The outcome, as every replay will tell it."""
    if "error" in entry:
        kind = EffectInDoubt if entry.get("doubt") else EffectFailed
        raise kind(this.scope.named(this.call), entry["error"], entry.get("attempts", 1)) from cause
    return typed_result(this.spec.fn, entry["result"], this.call)


def _live(this: _Effect) -> Plan[Any]:
    exe, entries = this.exe, this.entries
    yield from exe.attend(this.scope, this.call, this.keyed)
    if this.key in exe.flying:
        raise InvalidInput(f"an effect with the key {this.key!r} is under way in another branch of run {exe.run_id!r}")
    exe.flying.add(this.key)
    this.flying = True
    if not entries:
        found = (yield from _from_family(this)) if exe.forked else _AGAIN
        return found if found is not _AGAIN else (yield from _intend(this))
    attempts = [entry for entry in entries if entry["kind"] == "attempt"]
    if entries[-1]["kind"] == "attempt":
        yield from await_turn(exe, this.scope, this.call, this.keyed, entries[-1])
        yield from _intend_again(this)
        return (yield from _perform(this, len(attempts) + 1))
    return (yield from _resolved(this, len(attempts) + 1))


def _intend(this: _Effect) -> Plan[Any]:
    """Record the intent and perform it. If the ledger has this key already, that decides."""
    world = this.world
    mark = Mark(this.key, "intent", world.tool, world.target, world.undo is not None, call=_called(this))
    entry = this.first("intent", token=this.token)
    try:
        yield from this.exe.write(this.scope, [entry], marks=(mark,))
    except EffectKnown as known:
        return (yield from _known(this, known.state, known.result, known.call))
    this.entries = [entry]
    return (yield from _perform(this, 1))


def _called(this: _Effect) -> dict[str, Any]:
    """How it is called, for its undo."""
    spec, world = this.spec, this.world
    if this.digest is None and world.undo is not None:
        raise InvalidInput(f"effect {this.call!r} has an undo, so its arguments must be storable; they are not")
    args, kwargs = ([], {}) if this.digest is None else (list(spec.args), spec.kwargs)
    return {"args": args, "kwargs": kwargs, "undo": world.undo, "digest": this.digest, "token": this.token}


def _known(this: _Effect, state: str, result: Any, call: Any) -> Plan[Any]:
    """The run has called this explicit key elsewhere."""
    if (call or {}).get("digest") != this.digest:
        raise KeyReused(this.exe.run_id, this.key)
    if state == "done":
        entry = this.first("outcome", how="recorded", **_result(result, call))
        yield from this.exe.write(this.scope, [entry])
        return _told(this, entry)
    this.token = (call or {}).get("token", this.token)
    entry = this.first("intent", token=this.token)
    yield from this.exe.write(this.scope, [entry])
    this.entries = [entry]
    return (yield from _resolved(this, 1))


def _result(result: Any, call: Any) -> dict[str, Any]:
    """What the ledger tells of an effect that was done: its result, or why that could not be kept."""
    return {"error": call["lost"]} if "lost" in (call or {}) else {"result": result}


def _from_family(this: _Effect) -> Plan[Any]:
    """A fork meets an effect its family has performed after the fork point: the ledger decides. `_AGAIN`: nobody has.

    What another fork has only taken over tells nothing, as long as the one that performed it is there to be asked.
    """
    exe = this.exe
    lines: list[Performed] = yield ReadFamily(this.key)
    own = next((line for line in lines if line.run_id == exe.run_id), None)
    if own is not None and own.state == "undone" and not (own.call or {}).get("reused"):
        return _AGAIN  # performed and undone here: what the family did is not the one that counts
    if own is not None and own.state in ("done", "intent"):
        return (yield from _known(this, own.state, own.result, own.call))
    others = [line for line in lines if line.run_id != exe.run_id]
    others = [line for line in others if line.call and line.call.get("digest") == this.digest]
    others = [line for line in others if not line.call.get("reused")] or others
    line = next((line for line in others if line.state in ("done", "intent")), None)
    if exe.forked == "perform" or line is None:
        return _AGAIN
    told = {"digest": this.digest, "reused": line.run_id, "token": line.call.get("token", this.token)}
    world = this.world
    if line.state == "done" and exe.forked == "reuse":
        entry = this.first("outcome", how="reused", by=line.run_id, **_result(line.result, line.call))
        told |= {"lost": line.call["lost"]} if "lost" in line.call else {}
        mark = Mark(this.key, "done", world.tool, world.target, False, line.result, told)
        yield from exe.write(this.scope, [entry], marks=(mark,))
        return _told(this, entry)
    this.token = told["token"]
    entry = this.first("intent", of=line.run_id, token=this.token)
    mark = Mark(this.key, "intent", world.tool, world.target, False, call=told)
    yield from exe.write(this.scope, [entry], marks=(mark,))
    this.entries = [entry]
    return (yield from _resolved(this, 1))


def _intend_again(this: _Effect) -> Plan[None]:
    """About to be called once more: if the process dies now, nobody knows again."""
    entry = this.entry("intent", again=True)
    yield from this.exe.write(this.scope, [entry])
    this.entries = [*this.entries, entry]


def _perform(this: _Effect, attempt: int) -> Plan[Any]:
    """Call it, and record what came of it."""
    exe, spec = this.exe, this.spec
    retry = retry_of(spec.retry, ONCE)
    kwargs = spec.kwargs
    if takes_token(spec.fn) and "idempotency_key" not in kwargs:
        kwargs = {**kwargs, "idempotency_key": this.token}
    while True:
        command = Call(spec.fn, spec.args, kwargs, spec.timeout_s, world=True)
        try:
            raw = yield command
        except TimedOut:
            found = yield from _in_doubt(this, attempt, f"it took longer than {spec.timeout_s} s")
            if found is not _AGAIN:
                return found
        except (Exception, SystemExit) as error:
            if attempt >= retry.attempts or not retry.covers(error):
                yield from _outcome(this, attempt, error=error, us=command.took_us)
            yield from again_later(exe, this.scope, this.call, this.keyed, retry, attempt, error, {})
        else:
            return (yield from _performed(this, attempt, raw, command.took_us))
        attempt += 1
        yield from exe.attend(this.scope, this.call, this.keyed)
        yield from _intend_again(this)


def _performed(this: _Effect, attempt: int, raw: Any, us: int, how: str = "") -> Plan[Any]:
    """It happened. If its result cannot be kept it still counts as done."""
    try:
        result = this.exe.codec.settled(raw)
    except InvalidInput as unstorable:
        return (yield from _outcome(this, attempt, error=unstorable, us=us, how=how, done=True))
    return (yield from _outcome(this, attempt, result=result, us=us, how=how))


def _outcome(
    this: _Effect, attempt: int, result: Any = None, error: BaseException | None = None, how: str = "", us: int = 0,
    doubt: str = "", by: str = "", done: bool = False,
) -> Plan[Any]:  # fmt: skip
    """Record the outcome, in journal and ledger, and tell it. `doubt` says why it fails without being known.

    `done`: it happened although there is an error.
    """
    facts: dict[str, Any] = {"result": result} if error is None else {"error": failure_of(error)}
    facts |= {"attempts": attempt} if attempt > 1 else {}
    facts |= {"how": how} if how else {}
    facts |= {"by": by} if by else {}
    facts = {**facts, "error": {"type": "InDoubt", "message": doubt}, "doubt": True} if doubt else facts
    entry = this.entry("outcome", us=us, **facts)
    marks: tuple[Mark, ...] = ()
    if not doubt:  # what is in doubt stays so in the ledger
        state: Literal["done", "failed"] = "done" if error is None or done else "failed"
        call = None
        if done or (not how and any("of" in entry for entry in this.entries)):  # begun by another run, but done here
            call = {**_called(this), **({"lost": facts["error"]} if done else {})}
        reversible = call is not None and this.world.undo is not None
        marks = (Mark(this.key, state, reversible=reversible, result=result, call=call),)
    yield from this.exe.write(this.scope, [entry], marks=marks)
    return _told(this, entry, error)


# --- in doubt --------------------------------------------------------------------------------------------------------


def _resolved(this: _Effect, attempt: int) -> Plan[Any]:
    """Find out what became of it, and perform it if that is what is to be done."""
    found = yield from _in_doubt(this, attempt, "the process died while it was under way")
    if found is not _AGAIN:
        return found
    yield from this.exe.attend(this.scope, this.call, this.keyed)
    yield from _intend_again(this)
    return (yield from _perform(this, attempt))


def _in_doubt(this: _Effect, attempt: int, why: str) -> Plan[Any]:
    """Find out what became of it, or decide what to do: its outcome, or `_AGAIN`."""
    of_another = any("of" in entry for entry in this.entries)
    policy = "ask" if this.exe.forked == "ask" and of_another else this.world.in_doubt
    if this.world.check is not None and not _asking(this):
        try:
            found = yield Call(this.world.check, this.spec.args, this.spec.kwargs, this.spec.timeout_s)
        except (Exception, SystemExit) as error:
            why = f"{why}, and its check raised {type(error).__name__}: {error}"
        else:
            if isinstance(found, Happened):
                return (yield from _performed(this, attempt, found.result, 0, how="checked"))
            if found is DidNotHappen:
                return _AGAIN
            raise InvalidInput(f"check of effect {this.call!r} must return Happened(…) or DidNotHappen, not {found!r}")
    if policy == "retry":
        return _AGAIN
    if policy == "fail":
        return (yield from _outcome(this, attempt, doubt=why))
    return (yield from _ask_outcome(this, attempt, why))


OUTCOME_FORM = {
    "outcome": field(str, choices=["happened", "did not happen", "fail"], label="What became of it?"),
    "result": field(Any, label="Its result, if it happened", required=False, default=None),
}


def _asking(this: _Effect) -> bool:
    return this.entries[-1]["kind"] in ("asked", "answered")


def _ask_outcome(this: _Effect, attempt: int, why: str) -> Plan[Any]:
    """Ask a person what became of it."""
    spec = this.spec
    intents = sum(entry["kind"] == "intent" for entry in this.entries)
    gate = Gate(
        name=f"{this.scope.named(this.call)}?{intents}" + (f"@{this.exe.line.epoch}" if this.exe.line.epoch else ""),
        prompt=f"Did {spec.name} happen? It was begun, and {why}.",
        form=form_of(OUTCOME_FORM),
        show={"effect": spec.name, "key": this.key, "arguments": _shown_arguments(spec)},
        purpose="in_doubt",
    )
    since = max(i for i, entry in enumerate(this.entries) if entry["kind"] == "intent")
    answer = yield from answered(this.exe, this.scope, this.call, this.keyed, this.entries[since + 1 :], gate)
    outcome, by = answer.value["outcome"], answer.by
    if outcome == "happened":
        return (yield from _outcome(this, attempt, result=answer.value["result"], how="answered", by=by))
    if outcome == "fail":
        doubt = f"{by} decided that it counts as failed"
        return (yield from _outcome(this, attempt, doubt=doubt, how="answered", by=by))
    return _AGAIN


def _shown_arguments(spec: Spec) -> list[str]:
    """The arguments for people to look at."""
    return [repr(arg)[:500] for arg in spec.args] + [f"{name}={arg!r}"[:500] for name, arg in spec.kwargs.items()]
