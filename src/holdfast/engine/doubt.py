"""Effects in doubt: begun, and nobody knows whether they happened. Finding out, and deciding what to do."""

from __future__ import annotations

from typing import Any

from holdfast.engine.asking import Gate, answered
from holdfast.engine.commands import Call, Plan, TimedOut
from holdfast.engine.failures import summary_of
from holdfast.engine.forms import field, form_of
from holdfast.engine.outcome import AGAIN, DidNotHappen, EffectCall, Happened, record_done, record_outcome, try_later
from holdfast.engine.results import typed_result
from holdfast.engine.retry import Retry, retry_of
from holdfast.engine.steps import Spec
from holdfast.engine.tokens import takes_token, with_token
from holdfast.errors import InvalidInput


def is_repeatable(this: EffectCall) -> bool:
    """Whether doing it twice does no harm, as far as the user declared."""
    return this.world.in_doubt == "retry" or takes_token(this.spec.fn)


def resolve(this: EffectCall, why: str, error: BaseException | None = None) -> Plan[Any]:
    """Find out what became of it, or decide what to do: its outcome, or `AGAIN`.

    `error` is what this execution has met. After a crash it is None, and the effect may be tried however often it was.
    """
    policy = "ask" if this.exe.forked == "ask" and this.is_of_another else this.world.in_doubt
    if policy == "fail" and error is None and this.is_retried:
        policy = "ask"  # it has failed so before, and would fail with every retry
    retry = retry_of(this.spec.retry, Retry())
    may_retry = error is None or (this.attempt < retry.attempts and retry.covers(error))
    found, checked = None, ""
    if this.world.check is not None and not _is_asking(this):
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


def _check(this: EffectCall) -> Plan[tuple[Any, str]]:
    """What its check finds, and what to say if it finds nothing."""
    check, spec = this.world.check, this.spec
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
    "outcome": field(str, choices=["happened", "did not happen", "fail"], label="What became of it?"),
    "result": field(Any, label="Its result, if it happened", required=False, default=None),
}


def _is_asking(this: EffectCall) -> bool:
    return this.entries[-1]["kind"] in ("asked", "answered")


def _ask_outcome(this: EffectCall, why: str, checked: str) -> Plan[Any]:
    """Ask a person what became of it."""
    spec = this.spec
    shown = {"effect": spec.name, "key": this.key, "idempotency_key": this.token, "arguments": _shown_arguments(spec)}
    shown |= {"why": why} | ({"check": checked.removeprefix(", and its check ")} if checked else {})
    intents = sum(entry["kind"] == "intent" for entry in this.entries)
    name = f"{this.scope.named(this.call)}?{intents}" + (f"@{this.exe.line.epoch}" if this.exe.line.epoch else "")
    prompt = f"Did {spec.name} happen? It was begun, and {why}{checked}."
    gate = Gate(name, prompt, form_of(OUTCOME_FORM), show=shown, purpose="in_doubt")
    since = max(i for i, entry in enumerate(this.entries) if entry["kind"] == "intent")
    asked = [entry for entry in this.entries[since + 1 :] if entry["kind"] in ("asked", "answered")]
    while True:
        answer = yield from answered(this.exe, this.scope, this.call, this.keyed, asked[:2], gate)
        problem = _misfit(this, answer.value)
        if not problem:
            break
        asked = asked[2:]
        gate.name += "+"
        gate.prompt = f"{prompt} The last answer was not taken: {problem}; give a result= that fits."
    outcome, by = answer.value["outcome"], answer.by
    if outcome == "happened":
        return (yield from record_outcome(this, result=answer.value["result"], how="answered", by=by))
    if outcome == "fail":
        doubt = f"{by} decided that it counts as failed"
        return (yield from record_outcome(this, doubt=doubt, how="answered", by=by))
    this.in_doubt = False
    return AGAIN


def _misfit(this: EffectCall, answer: dict[str, Any]) -> str:
    """Why the result that was given cannot be that of the effect; empty if it can."""
    if answer["outcome"] != "happened":
        return ""
    try:
        typed_result(this.spec.fn, answer["result"], this.call)
    except InvalidInput as error:
        return str(error)
    return ""


def _shown_arguments(spec: Spec) -> list[str]:
    """The arguments for people to look at."""
    return [repr(arg)[:500] for arg in spec.args] + [f"{name}={arg!r}"[:500] for name, arg in spec.kwargs.items()]
