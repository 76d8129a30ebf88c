"""Steps: calls whose result is recorded, with retries.

A replay returns the recorded result and does not call the function again.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from holdfast.drivers import Plan
from holdfast.engine.arguments import Given, changed_argument, parts_of
from holdfast.engine.commands import Call, EntryData, Now, RandomBytes, TimedOut, UserFunction, Wait
from holdfast.engine.execution import SHORT_WAIT_US, Execution
from holdfast.engine.failures import failure_of, with_recorded_trace
from holdfast.engine.results import typed_result
from holdfast.engine.retry import Retry, retry_of
from holdfast.engine.scope import Scope, check_key
from holdfast.errors import InvalidInput, MissingAwait, StepFailed

STEP_KINDS = ("step", "attempt")
TIMEOUT_S_MAX: Final = 10**9
"""Operating systems support waits of this length."""


class StepSpec(msgspec.Struct):
    """A call as the user declared it; `step_spec` makes one."""

    fn: UserFunction
    args: tuple[object, ...]
    kwargs: dict[str, object]
    name: str
    key: str | None = None
    retry: Retry | int | None = None
    timeout_s: float | None = None
    joins: bool = False
    """Its result joins the next commit of its scope. Until then a crash repeats it, as one during the call does."""

    @property
    def given(self) -> Given:
        return Given(self.fn, self.args, self.kwargs)


def step_spec(
    fn: object,
    *,
    args: tuple[object, ...] = (),
    kwargs: dict[str, object] | None = None,
    name: str | None = None,
    key: str | None = None,
    retry: Retry | int | None = None,
    timeout: float | None = None,
) -> StepSpec:
    """Check a user's call and name it."""
    if not callable(fn):
        raise InvalidInput(f"the call needs a function and its arguments; {fn!r} cannot be called")
    if name is None:
        name = getattr(fn, "__name__", None) or getattr(getattr(fn, "func", None), "__name__", None) or "call"
        name = "lambda" if name == "<lambda>" else name
    is_number = isinstance(timeout, (int, float)) and not isinstance(timeout, bool)
    if timeout is not None and not (is_number and 0 < timeout <= TIMEOUT_S_MAX):
        raise InvalidInput(f"timeout must be a number of seconds above 0, at most {TIMEOUT_S_MAX}, not {timeout!r}")
    return StepSpec(fn, args, kwargs or {}, check_key("name", name), key, retry, timeout)


def step(exe: Execution, scope: Scope, spec: StepSpec) -> Plan[Any]:
    """Run a step, or return its recorded result."""
    with scope.call(spec.name, spec.key, STEP_KINDS) as (call, entries):
        digest = exe.codec.digest(spec.args, spec.kwargs)
        if entries:
            if entries[0].get("digest") != digest:
                changed = changed_argument(exe.codec, f"step {scope.full_name(call)!r}", spec.given, entries[0])
                raise scope.diverged(entries[0], call, STEP_KINDS, changed)
            last = entries[-1]
            if last["kind"] == "step":
                return _replay_outcome(scope, call, spec, last)
        return (yield from _execute(exe, scope, spec, call, digest, entries))


def _replay_outcome(scope: Scope, call: str, spec: StepSpec, entry: EntryData) -> object:
    if "error" in entry:
        raise with_recorded_trace(StepFailed(scope.full_name(call), entry["error"], entry["attempts"]))
    return typed_result(spec.fn, entry["result"], call)


def _execute(
    exe: Execution, scope: Scope, spec: StepSpec, call: str, digest: str | None, entries: list[EntryData]
) -> Plan[object]:
    keyed = spec.key is not None
    retry = retry_of(spec.retry, exe.retry)
    attempt = len(entries)
    if attempt:
        yield from wait_until_due(exe, scope, call, keyed, entries[-1])
    while True:
        if exe.interrupt_pending or exe.stopped is not None or exe.inbox_newest > exe.inbox_read:
            yield from exe.check_interrupts(scope, call, keyed)
        attempt += 1
        command = Call(spec.fn, spec.args, spec.kwargs, spec.timeout_s)
        final = False
        try:
            raw = yield command
        except TimedOut:
            error: BaseException = TimeoutError(f"{spec.name} took longer than {spec.timeout_s} s")
        except (Exception, SystemExit) as raised:
            error = raised
        else:
            try:
                result, encoding = exe.codec.record(raw)
                del raw  # keeps only one copy of a large result during the commit
                break
            except (InvalidInput, MissingAwait) as unstorable:
                error, final = unstorable, True
        if final or attempt >= retry.attempts or not retry.covers(error):
            failure = failure_of(error)
            facts = {"name": spec.name, "digest": digest, "error": failure, "attempts": attempt, "us": command.took_us}
            yield from exe.write(scope, [scope.entry("step", call, keyed, **facts, **parts_of(exe.codec, spec.given))])
            raise StepFailed(scope.full_name(call), failure, attempt) from error
        facts = {"name": spec.name, "digest": digest, **parts_of(exe.codec, spec.given)} if attempt == 1 else {}
        facts["us"] = command.took_us
        yield from schedule_retry(exe, scope, call, keyed, retry, attempt, error, facts)
    entry: EntryData = {"kind": "step", "call": call, "digest": digest, "result": result, "us": command.took_us}
    entry |= parts_of(exe.codec, spec.given)
    if attempt > 1:
        entry["attempts"] = attempt
    if keyed:
        entry["keyed"] = True
        entry["name"] = spec.name
    if scope.path:
        entry["in"] = scope.path
    scope.made.add(call)
    if spec.joins:
        scope.pending.append(entry)
    else:
        yield from exe.write(scope, [entry], result=encoding)
    return typed_result(spec.fn, result, call)


def schedule_retry(
    exe: Execution,
    scope: Scope,
    call: str,
    keyed: bool,
    retry: Retry,
    attempt: int,
    error: BaseException,
    facts: EntryData,
) -> Plan[None]:
    """Record a failed attempt and wait for the next one: in this process if it is soon, else release the run."""
    now_us: int = yield Now()
    wait_us = retry.wait_us(attempt, (yield RandomBytes(4)))
    if scope.cleanup and wait_us > SHORT_WAIT_US:
        wait_us = 0  # a cancelled run is not released to wait: a worker would claim it at once to end it
    due_us = now_us + wait_us
    entry = scope.entry("attempt", call, keyed, number=attempt, error=failure_of(error), due_us=due_us, **facts)
    if due_us - now_us > SHORT_WAIT_US:
        entry["timer"] = timer = scope.full_name(call)
        exe.record.timers.add(timer)
        yield from exe.suspend_on(scope, [entry], timers=((timer, due_us),))
    yield from exe.write(scope, [entry])
    yield from wait_here(exe, scope, due_us)


def wait_here(exe: Execution, scope: Scope, due_us: int) -> Plan[None]:
    """Wait in this process; if it shuts down, the wait continues elsewhere."""
    yield Wait(due_us)
    if exe.stopped is not None:
        raise exe.stopped
    if exe.should_yield and due_us > (yield Now()):
        raise exe.suspended(scope)


def wait_until_due(exe: Execution, scope: Scope, call: str, keyed: bool, last: EntryData) -> Plan[None]:
    """Wait, after a restart, until the next attempt is due."""
    due_us = last.get("due_us")
    if due_us is None:
        return
    now_us: int = yield Now()
    if due_us - now_us > SHORT_WAIT_US:
        yield from exe.check_interrupts(scope, call, keyed)
        timer = last.get("timer") or scope.full_name(call)
        yield from exe.suspend_on(scope, [], timers=((timer, due_us),))
    if due_us > now_us:
        yield from wait_here(exe, scope, due_us)
