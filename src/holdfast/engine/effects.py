"""Effects: steps that touch the world. The intent is recorded first, then it runs, then its outcome is recorded.

An effect is *in doubt* when its intent is recorded and its outcome is not: the process died in between, or the call
timed out or raised something that leaves open whether it happened (`engine.verdicts`). Then the outside world is asked
(`check`), and where that cannot tell, `in_doubt` decides: a person is asked, it is tried again (the caller says it is
idempotent), or it fails.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, Final

from holdfast.engine.call_arguments import changed_argument
from holdfast.engine.commands import Call, EffectKnown, Mark, Performed, Plan, ReadFamily, TimedOut
from holdfast.engine.doubt import is_repeatable, resolve
from holdfast.engine.execution import Execution
from holdfast.engine.failures import summary_of
from holdfast.engine.outcome import (
    AGAIN,
    EffectCall,
    World,
    describe_call,
    give_outcome,
    known_result,
    record_done,
    record_outcome,
    try_later,
)
from holdfast.engine.results import typed_result
from holdfast.engine.retry import ONCE, retry_of
from holdfast.engine.scope import Scope
from holdfast.engine.steps import Spec, await_turn
from holdfast.engine.tokens import with_token
from holdfast.engine.verdicts import DOUBTFUL, NOT_DONE, Classifier, classifier_of, judge
from holdfast.errors import InvalidInput, KeyReused

EFFECT_KINDS = ("intent", "outcome")
POLICIES: Final = ("ask", "retry", "fail")
_DIED: Final = "the process died while it was under way"


def world_of(
    exe: Execution, undo: Any, in_doubt: str, check: Callable[..., Any] | None, target: str | None, name: str,
    *, not_done: Any = (), doubtful: Any = (), classify: Classifier | None = None,
) -> World:  # fmt: skip
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
    return World(undo, in_doubt, check, target, name, classifier_of(not_done, doubtful, classify))


def effect(exe: Execution, scope: Scope, spec: Spec, world: World) -> Plan[Any]:
    """Perform an effect, or return what is recorded of it."""
    with scope.call(spec.name, spec.key, EFFECT_KINDS, again=True) as (call, entries):
        this = EffectCall(exe, scope, spec, world, call, entries)
        try:
            if entries:
                if entries[0].get("digest") != this.digest:
                    changed = yield from _changed_argument(this)
                    if spec.key is not None:
                        raise KeyReused(exe.run_id, spec.key, changed)
                    raise scope.diverged(entries[0], call, EFFECT_KINDS, changed)
                if entries[-1]["kind"] == "outcome":
                    return give_outcome(this, entries[-1])
            return (yield from _live(this))
        finally:
            if this.flying:
                exe.flying.discard(this.key)


def _changed_argument(this: EffectCall) -> Plan[str]:
    """Which argument is not the recorded one; the ledger has the values of then."""
    first = this.entries[0]
    lines: list[Performed] = yield ReadFamily(first.get("key") or this.key)
    own = next((line.call for line in lines if line.run_id == this.exe.run_id), None)
    place = f"effect {this.scope.named(this.call)!r}"
    return changed_argument(this.exe.codec, place, this.spec.given, first, own)


def _live(this: EffectCall) -> Plan[Any]:
    exe, entries = this.exe, this.entries
    yield from exe.attend(this.scope, this.call, this.keyed)
    if this.key in exe.flying:
        raise InvalidInput(f"an effect with the key {this.key!r} is under way in another branch of run {exe.run_id!r}")
    exe.flying.add(this.key)
    this.flying = True
    if not entries:
        found = (yield from _from_family(this)) if exe.forked else AGAIN
        return found if found is not AGAIN else (yield from _intend(this))
    last = entries[-1]
    if last["kind"] != "attempt":
        return (yield from _resolved(this, _reason(this)))
    if last.get("doubt") and not is_repeatable(this):  # the code has changed since
        return (yield from _resolved(this, f"it raised {last['error']['type']}: {last['error']['message']}"))
    yield from await_turn(exe, this.scope, this.call, this.keyed, last)
    yield from _intend_again(this)
    return (yield from _perform(this))


def _intend(this: EffectCall) -> Plan[Any]:
    """Record the intent and perform it. If the ledger has this key already, that decides."""
    world = this.world
    mark = Mark(this.key, "intent", world.tool, world.target, world.undo is not None, call=describe_call(this))
    is_doubtful = this.reason is not None and not is_repeatable(this)
    entry = this.first("intent", token=this.token, **({"doubt": this.reason} if is_doubtful else {}))
    try:
        yield from this.exe.write(this.scope, [entry], marks=(mark,))
    except EffectKnown as known:
        return (yield from _known(this, known.state, known.result, known.call))
    this.entries = [entry]
    return (yield from _resolved(this, _reason(this)) if is_doubtful else _perform(this))


def _known(this: EffectCall, state: str, result: Any, call: Any) -> Plan[Any]:
    """The ledger has this explicit key: the run has called it elsewhere, or it was marked without a call.

    A line without a call, marked by hand or imported, says nothing of arguments; its key alone decides.
    """
    if not _is_same_call(this, call):
        changed = changed_argument(this.exe.codec, f"effect {this.key!r}", this.spec.given, {}, call)
        raise KeyReused(this.exe.run_id, this.key, changed)
    if state == "done":
        facts = known_result(result, call) if "digest" in (call or {}) else _marked_result(this, result)
        entry = this.first("outcome", how="recorded", **facts)
        yield from this.exe.write(this.scope, [entry])
        return give_outcome(this, entry)
    this.token = (call or {}).get("token", this.token)
    entry = this.first("intent", token=this.token)
    yield from this.exe.write(this.scope, [entry])
    this.entries = [entry]
    return (yield from _resolved(this, _DIED))


def _is_same_call(this: EffectCall, call: Any) -> bool:
    """Whether a ledger line may be of this call: it has the same arguments, or was marked without any."""
    return "digest" not in (call or {}) or call["digest"] == this.digest


def _marked_result(this: EffectCall, result: Any) -> dict[str, Any]:
    """The result of an effect that was marked without a call, if it fits the function; else it is lost."""
    try:
        typed_result(this.spec.fn, result, this.call)
    except InvalidInput as error:
        message = f"it was marked as done without a result of its type: {error}"
        return {"error": {"type": "ResultLost", "message": message}, "done": True}
    return {"result": result}


def _from_family(this: EffectCall) -> Plan[Any]:
    """A fork meets an effect its family has performed after the fork point: the ledger decides. `AGAIN`: nobody has.

    What another fork has only taken over tells nothing, as long as the one that performed it is there to be asked.
    """
    exe = this.exe
    lines: list[Performed] = yield ReadFamily(this.key)
    own = next((line for line in lines if line.run_id == exe.run_id), None)
    if own is not None and own.state == "undone" and not (own.call or {}).get("reused"):
        return AGAIN  # performed and undone here: what the family did is not the one that counts
    if own is not None and own.state in ("done", "intent"):
        return (yield from _known(this, own.state, own.result, own.call))
    others = [line for line in lines if line.run_id != exe.run_id]
    others = [line for line in others if _is_same_call(this, line.call)]
    others = [line for line in others if not (line.call or {}).get("reused")] or others
    line = next((line for line in others if line.state in ("done", "intent")), None)
    if exe.forked == "perform" or line is None:
        return AGAIN
    call = line.call or {}
    told = {"digest": this.digest, "reused": line.run_id, "token": call.get("token", this.token)}
    world = this.world
    if line.state == "done" and exe.forked == "reuse":
        facts = known_result(line.result, call) if "digest" in call else _marked_result(this, line.result)
        entry = this.first("outcome", how="reused", by=line.run_id, **facts)
        told |= {"lost": facts["error"]} if "error" in facts else {}
        mark = Mark(this.key, "done", world.tool, world.target, False, line.result, told)
        yield from exe.write(this.scope, [entry], marks=(mark,))
        return give_outcome(this, entry)
    this.token = told["token"]
    why = f"run {line.run_id!r}, which began it, has recorded no outcome" if line.state == "intent" else _DIED
    doubt = {"doubt": why} if line.state == "intent" else {}
    entry = this.first("intent", of=line.run_id, token=this.token, **doubt)
    mark = Mark(this.key, "intent", world.tool, world.target, False, call=told)
    yield from exe.write(this.scope, [entry], marks=(mark,))
    this.entries = [entry]
    return (yield from _resolved(this, why))


def _done_meanwhile(this: EffectCall) -> Plan[Any]:
    """What the run that began it has recorded since; `AGAIN` if it has not performed it.

    A fork that was told to ask although it was done keeps to the answer.
    """
    if this.in_doubt or not this.is_of_another:
        return AGAIN
    source = next(entry["of"] for entry in this.entries if "of" in entry)
    lines: list[Performed] = yield ReadFamily(this.key)
    line = next((line for line in lines if line.run_id == source and line.state == "done"), None)
    if line is None or (line.call or {}).get("digest") != this.digest:
        return AGAIN
    if this.exe.forked == "ask" and not any(entry.get("doubt") for entry in this.entries):
        return AGAIN
    facts = known_result(line.result, line.call)
    entry = this.entry("outcome", how="reused", by=source, **facts)
    told = {"digest": this.digest, "reused": source, "token": this.token}
    told |= {"lost": line.call["lost"]} if "lost" in line.call else {}
    mark = Mark(this.key, "done", result=line.result, call=told)
    yield from this.exe.write(this.scope, [entry], marks=(mark,))
    return give_outcome(this, entry)


def _intend_again(this: EffectCall) -> Plan[None]:
    """About to be called once more: if the process dies now, nobody knows again.

    If another run did not perform it, this run performs it as its own, under an idempotency key of its own.
    """
    facts: dict[str, Any] = {"doubt": True} if this.in_doubt else {}
    marks: tuple[Mark, ...] = ()
    if this.is_of_another and not this.in_doubt:
        with contextlib.suppress(EffectKnown):  # it is recorded so already if the process died behind this commit
            yield from this.exe.write(this.scope, [], marks=(Mark(this.key, "failed"),))
        this.token = this.exe.codec.effect_token(this.exe.incarnation, this.key, this.exe.line.epoch)
        facts = {"token": this.token, "own": True}
        world = this.world
        undo = world.undo is not None
        marks = (Mark(this.key, "intent", world.tool, world.target, undo, call=describe_call(this)),)
    entry = this.entry("intent", again=True, **facts)
    yield from this.exe.write(this.scope, [entry], marks=marks)
    this.entries = [*this.entries, entry]


def _perform(this: EffectCall) -> Plan[Any]:
    """Call it, and record what came of it."""
    exe, spec = this.exe, this.spec
    while True:
        kwargs = with_token(spec.fn, spec.kwargs, this.token)
        command = Call(spec.fn, spec.args, kwargs, spec.timeout_s, world=True)
        try:
            raw = yield command
        except TimedOut:
            late = TimeoutError(f"{spec.name} took longer than {spec.timeout_s} s")
            found = yield from resolve(this, f"it took longer than {spec.timeout_s} s", late)
        except (Exception, SystemExit) as error:
            found = yield from _after_error(this, error, command.took_us)
        else:
            recording = record_done(this, raw, command.took_us)
            del raw  # a large one is not held twice while it is committed
            return (yield from recording)
        if found is AGAIN:
            found = yield from _done_meanwhile(this)
        if found is not AGAIN:
            return found
        yield from exe.attend(this.scope, this.call, this.keyed)
        yield from _intend_again(this)


def _after_error(this: EffectCall, error: BaseException, us: int) -> Plan[Any]:
    """After the function raised: its outcome, or `AGAIN` when it is time for the next try."""
    verdict = judge(error, (this.world.classify, this.exe.classify))
    raised = f"raised {summary_of(error)}"
    if verdict == DOUBTFUL:
        return (yield from resolve(this, f"it {raised}", error))
    final = this.world.is_conclusive is not None and this.world.is_conclusive()
    if this.in_doubt and not (final and verdict == NOT_DONE):
        return (yield from resolve(this, f"an earlier try of it is in doubt, and the last one {raised}", error))
    retry, hint = retry_of(this.spec.retry, ONCE), ""
    if this.attempt < retry.attempts and retry.covers(error):
        if verdict == NOT_DONE or is_repeatable(this):
            yield from try_later(this, retry, error)
            return AGAIN
        hint = (
            f"it was not retried, since {type(error).__name__} does not prove that nothing happened: list it in "
            f'not_done=, give {this.spec.name!r} a parameter idempotency_key, or pass in_doubt="retry"'
        )
    proven = verdict == NOT_DONE and (this.attempt == 1 or not is_repeatable(this))  # else an earlier try proved less
    return (yield from record_outcome(this, error=error, us=us, hint=hint, proven=proven))


def _reason(this: EffectCall) -> str:
    """Why it is in doubt: as recorded, else a process began to perform it and recorded no outcome."""
    return this.reason or _DIED


def _resolved(this: EffectCall, why: str) -> Plan[Any]:
    """Find out what became of it, and perform it if that is what is to be done."""
    found = yield from resolve(this, why)
    if found is AGAIN:
        found = yield from _done_meanwhile(this)
    if found is not AGAIN:
        return found
    yield from this.exe.attend(this.scope, this.call, this.keyed)
    yield from _intend_again(this)
    return (yield from _perform(this))
