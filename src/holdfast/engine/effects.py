"""Effects: calls with side effects outside, recorded before and after.

The engine records the intent, calls the function, then records the outcome. An effect is *in doubt* if its intent is
recorded and its outcome is not: the process died in between, or the call timed out or raised an exception that does
not prove whether it happened (`engine.failures`). Then the engine calls `check`. If that is inconclusive, `in_doubt`
decides: a gate asks for the outcome, the effect is performed again (the caller declares it idempotent), or it fails.
"""

from __future__ import annotations

import contextlib
from typing import Any, Final

from holdfast.drivers import Plan
from holdfast.engine.arguments import changed_argument, with_token
from holdfast.engine.commands import Call, EffectKnown, EntryData, LedgerMark, Performed, ReadFamily, TimedOut, Wait
from holdfast.engine.effect_outcome import (
    AGAIN,
    EffectCall,
    EffectSpec,
    describe_call,
    is_repeatable,
    known_result,
    record_done,
    record_outcome,
    replay_outcome,
    resolve,
    try_later,
)
from holdfast.engine.execution import Execution
from holdfast.engine.failures import DOUBTFUL, NOT_DONE, judge, summary_of
from holdfast.engine.results import typed_result
from holdfast.engine.retry import ONCE, retry_of
from holdfast.engine.scope import Scope
from holdfast.engine.steps import StepSpec, wait_until_due
from holdfast.errors import InvalidInput, KeyReused

EFFECT_KINDS = ("intent", "outcome")
_DIED: Final = "the process died during the call"
_TURNS_OF_OTHERS: Final = 200
"""How many turns of the event loop other tasks get to reach a recorded gate."""


def effect(exe: Execution, scope: Scope, spec: StepSpec, options: EffectSpec) -> Plan[Any]:
    """Perform an effect, or return its recorded outcome."""
    if options.undo is not None and options.undo_name not in exe.undos:
        raise InvalidInput(
            f"undo function {options.undo_name!r} is not registered, so it could not be found after a restart; "
            "put @app.undo above it"
        )
    with scope.call(spec.name, spec.key, EFFECT_KINDS, again=True) as (call, entries):
        this = EffectCall(exe, scope, spec, options, call, entries)
        try:
            if entries:
                if entries[0].get("digest") != this.digest:
                    changed = yield from _changed_argument(this)
                    if spec.key is not None:
                        raise KeyReused(exe.run_id, spec.key, changed)
                    raise scope.diverged(entries[0], call, EFFECT_KINDS, changed)
                if entries[-1]["kind"] == "outcome":
                    return replay_outcome(this, entries[-1])
            return (yield from _execute(this))
        finally:
            if this.owns_key:
                exe.in_flight.discard(this.key)


def _changed_argument(this: EffectCall) -> Plan[str]:
    """Which argument differs from the recorded one; the ledger has the recorded values."""
    first = this.entries[0]
    lines: list[Performed] = yield ReadFamily(first.get("key") or this.key)
    own = next((line.call for line in lines if line.run_id == this.exe.run_id), None)
    place = f"effect {this.scope.full_name(this.call)!r}"
    return changed_argument(this.exe.codec, place, this.spec.given, first, own)


def _execute(this: EffectCall) -> Plan[object]:
    exe, entries = this.exe, this.entries
    yield from exe.check_interrupts(this.scope, this.call, this.keyed)
    if this.key in exe.in_flight:
        raise InvalidInput(f"an effect with the key {this.key!r} is in flight in another branch of run {exe.run_id!r}")
    exe.in_flight.add(this.key)
    this.owns_key = True
    if not entries:
        yield from _require_gate_reached(this)
        found = (yield from _reuse_from_family(this)) if exe.forked else AGAIN
        return found if found is not AGAIN else (yield from _intend(this))
    last = entries[-1]
    if last["kind"] != "attempt":
        return (yield from _resolve_and_perform(this, _reason(this)))
    if last.get("doubt") and not is_repeatable(this):  # the code has changed since then
        return (yield from _resolve_and_perform(this, f"it raised {last['error']['type']}: {last['error']['message']}"))
    yield from wait_until_due(exe, this.scope, this.call, this.keyed, last)
    yield from _intend_again(this)
    return (yield from _perform(this))


def _require_gate_reached(this: EffectCall) -> Plan[None]:
    """Refuse a new effect if the code no longer asks the question that the run waited for before it.

    Calls with keys may be concurrent, so another task may be about to reach the gate: first let the other tasks run.
    """
    for _ in range(_TURNS_OF_OTHERS):
        if this.scope.missed_gate is None:
            return
        yield Wait(0)
    missed = this.scope.missed_gate
    if missed is not None:
        raise this.scope.diverged(missed, this.call, EFFECT_KINDS)


def _intend(this: EffectCall) -> Plan[object]:
    """Record the intent and perform it. If the ledger already has the key, its line decides."""
    mark = _intent_mark(this)  # it may raise, so it comes before the entry
    is_doubtful = this.reason is not None and not is_repeatable(this)
    entry = this.first_entry("intent", token=this.token, **({"doubt": this.reason} if is_doubtful else {}))
    try:
        yield from this.exe.write(this.scope, [entry], marks=(mark,))
    except EffectKnown as known:
        return (yield from _resolve_from_ledger(this, known.state, known.result, known.call))
    this.entries = [entry]
    return (yield from _resolve_and_perform(this, _reason(this)) if is_doubtful else _perform(this))


def _intent_mark(this: EffectCall) -> LedgerMark:
    options = this.options
    reversible = options.undo is not None
    return LedgerMark(this.key, "intent", options.tool, options.target, reversible, call=describe_call(this))


def _resolve_from_ledger(this: EffectCall, state: str, result: object, call: EntryData | None) -> Plan[object]:
    """Resolve an explicit key that the ledger has: the run called it elsewhere, or it was marked without a call.

    A line without a call, marked by hand or imported, has no arguments; its key alone decides.
    """
    if not _is_same_call(this, call):
        changed = changed_argument(this.exe.codec, f"effect {this.key!r}", this.spec.given, {}, call)
        raise KeyReused(this.exe.run_id, this.key, changed)
    if state == "done":
        facts = known_result(result, call) if call and "digest" in call else _marked_result(this, result)
        entry = this.first_entry("outcome", how="recorded", **facts)
        yield from this.exe.write(this.scope, [entry])
        return replay_outcome(this, entry)
    this.token = (call or {}).get("token", this.token)
    entry = this.first_entry("intent", token=this.token)
    yield from this.exe.write(this.scope, [entry])
    this.entries = [entry]
    return (yield from _resolve_and_perform(this, _DIED))


def _is_same_call(this: EffectCall, call: EntryData | None) -> bool:
    """Whether a ledger line may belong to this call: it has the same arguments, or was marked without any."""
    return not call or "digest" not in call or call["digest"] == this.digest


def _marked_result(this: EffectCall, result: object) -> EntryData:
    """The result of an effect that was marked without a call, if it fits the function; else it is lost."""
    try:
        typed_result(this.spec.fn, result, this.call)
    except InvalidInput as error:
        message = f"it was marked as done without a result of its type: {error}"
        return {"error": {"type": "ResultLost", "message": message}, "done": True}
    return {"result": result}


def _reuse_from_family(this: EffectCall) -> Plan[object]:
    """Reuse, in a fork, an effect that its family performed after the fork point; `AGAIN` if there is none.

    An effect that a run has done is reused even if another run of the family has begun it and knows no outcome. A line
    that another fork only reused counts only if the run that performed the effect cannot be read.
    """
    exe = this.exe
    lines: list[Performed] = yield ReadFamily(this.key)
    own = next((line for line in lines if line.run_id == exe.run_id), None)
    if own is not None and own.state == "undone" and not (own.call or {}).get("reused"):
        return AGAIN  # performed and undone here: the lines of the family do not count
    if own is not None and own.state in ("done", "intent"):
        return (yield from _resolve_from_ledger(this, own.state, own.result, own.call))
    others = [line for line in lines if line.run_id != exe.run_id]
    others = [line for line in others if _is_same_call(this, line.call)]
    others = [line for line in others if not (line.call or {}).get("reused")] or others
    by_state = [line for state in ("done", "intent") for line in others if line.state == state]
    line = next(iter(by_state), None)
    if exe.forked == "perform" or line is None:
        return AGAIN
    call = line.call or {}
    call_facts = {"digest": this.digest, "reused": line.run_id, "token": call.get("token", this.token)}
    options = this.options
    if line.state == "done" and exe.forked == "reuse":
        facts = known_result(line.result, call) if "digest" in call else _marked_result(this, line.result)
        entry = this.first_entry("outcome", how="reused", by=line.run_id, **facts)
        call_facts |= {"lost": facts["error"]} if "error" in facts else {}
        mark = LedgerMark(this.key, "done", options.tool, options.target, False, line.result, call_facts)
        yield from exe.write(this.scope, [entry], marks=(mark,))
        return replay_outcome(this, entry)
    this.token = call_facts["token"]
    why = f"run {line.run_id!r}, which began it, has recorded no outcome" if line.state == "intent" else _DIED
    doubt = {"doubt": why} if line.state == "intent" else {}
    entry = this.first_entry("intent", of=line.run_id, token=this.token, **doubt)
    mark = LedgerMark(this.key, "intent", options.tool, options.target, False, call=call_facts)
    yield from exe.write(this.scope, [entry], marks=(mark,))
    this.entries = [entry]
    return (yield from _resolve_and_perform(this, why))


def _reuse_done_meanwhile(this: EffectCall) -> Plan[object]:
    """Reuse the outcome that the run that began it has recorded since; `AGAIN` if there is none.

    A fork that asks although the effect was done uses the answer.
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
    call_facts = {"digest": this.digest, "reused": source, "token": this.token}
    call_facts |= {"lost": facts["error"]} if "error" in facts else {}
    mark = LedgerMark(this.key, "done", result=line.result, call=call_facts)
    yield from this.exe.write(this.scope, [entry], marks=(mark,))
    return replay_outcome(this, entry)


def _intend_again(this: EffectCall) -> Plan[None]:
    """Record the intent of another attempt: if the process dies now, the effect is in doubt again.

    If another run did not perform it, this run performs it as its own, under its own idempotency key.
    """
    facts: EntryData = {"doubt": True} if this.in_doubt else {}
    marks: tuple[LedgerMark, ...] = ()
    if this.is_of_another and not this.in_doubt:
        with contextlib.suppress(EffectKnown):  # already recorded if the process died after this commit
            yield from this.exe.write(this.scope, [], marks=(LedgerMark(this.key, "failed"),))
        this.token = this.exe.codec.effect_token(this.exe.incarnation, this.key, this.exe.resume_point.epoch)
        facts = {"token": this.token, "own": True}
        marks = (_intent_mark(this),)
    entry = this.entry("intent", again=True, **facts)
    yield from this.exe.write(this.scope, [entry], marks=marks)
    this.entries = [*this.entries, entry]


def _perform(this: EffectCall) -> Plan[object]:
    """Call the function and record the outcome."""
    exe, spec = this.exe, this.spec
    while True:
        kwargs = with_token(spec.fn, spec.kwargs, this.token)
        command = Call(spec.fn, spec.args, kwargs, spec.timeout_s, external=True)
        try:
            raw = yield command
        except TimedOut:
            this.took_us = command.took_us
            late = TimeoutError(f"{spec.name} took longer than {spec.timeout_s} s")
            found = yield from resolve(this, f"it took longer than {spec.timeout_s} s", late)
        except (Exception, SystemExit) as error:
            this.took_us = command.took_us
            found = yield from _after_error(this, error)
        else:
            recording = record_done(this, raw, command.took_us)
            del raw  # keeps only one copy of a large result during the commit
            return (yield from recording)
        if found is AGAIN:
            found = yield from _reuse_done_meanwhile(this)
        if found is not AGAIN:
            return found
        yield from exe.check_interrupts(this.scope, this.call, this.keyed)
        yield from _intend_again(this)


def _after_error(this: EffectCall, error: BaseException) -> Plan[object]:
    """The outcome after the function raised, or `AGAIN` when the next attempt is due."""
    verdict = judge(error, (this.options.classify, this.exe.classify))
    raised = f"raised {summary_of(error)}"
    if verdict == DOUBTFUL:
        return (yield from resolve(this, f"it {raised}", error))
    final = this.options.is_conclusive is not None and this.options.is_conclusive()
    if this.in_doubt and not (final and verdict == NOT_DONE):
        return (yield from resolve(this, f"an earlier attempt is in doubt, and the last one {raised}", error))
    retry, hint = retry_of(this.spec.retry, ONCE), ""
    if this.attempt < retry.attempts and retry.covers(error):
        if verdict == NOT_DONE or is_repeatable(this):
            yield from try_later(this, retry, error)
            return AGAIN
        hint = (
            f"it was not retried, because {type(error).__name__} does not prove that nothing happened: list it in "
            f'not_done=, give {this.spec.name!r} a parameter idempotency_key, or pass in_doubt="retry"'
        )
    proven = verdict == NOT_DONE and (
        this.attempt == 1 or not is_repeatable(this)
    )  # else an earlier attempt proved less
    return (yield from record_outcome(this, error=error, us=this.took_us, hint=hint, proven=proven))


def _reason(this: EffectCall) -> str:
    """Why it is in doubt: the recorded reason, else a process began it and recorded no outcome."""
    return this.reason or _DIED


def _resolve_and_perform(this: EffectCall, why: str) -> Plan[object]:
    """Resolve an effect in doubt, and perform it if it has to be performed."""
    found = yield from resolve(this, why)
    if found is AGAIN:
        found = yield from _reuse_done_meanwhile(this)
    if found is not AGAIN:
        return found
    yield from this.exe.check_interrupts(this.scope, this.call, this.keyed)
    yield from _intend_again(this)
    return (yield from _perform(this))
