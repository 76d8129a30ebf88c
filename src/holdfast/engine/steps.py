"""Steps: computations whose result is recorded. On replay the record is returned instead of calling again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from holdfast.engine.call_arguments import Given, changed_argument, parts_of
from holdfast.engine.commands import Call, Chance, EntryData, Now, Plan, TimedOut, Wait
from holdfast.engine.execution import SHORT_WAIT_US, Execution
from holdfast.engine.failures import failure_of, with_recorded_trace
from holdfast.engine.results import typed_result
from holdfast.engine.retry import Retry, retry_of
from holdfast.engine.scope import Scope, check_key
from holdfast.errors import InvalidInput, MissingAwait, StepFailed

STEP_KINDS = ("step", "attempt")
TIMEOUT_S_MAX: Final = 10**9
"""Longer than any wait a system can be asked for without trouble."""


class Spec(msgspec.Struct, gc=False):
    """A call as the user wrote it."""

    fn: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    name: str
    key: str | None = None
    retry: Any = None
    timeout_s: float | None = None

    @property
    def given(self) -> Given:
        return Given(self.fn, self.args, self.kwargs)


def spec_of(
    fn: object,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    name: str | None,
    key: str | None,
    retry: Any,
    timeout: float | None,
) -> Spec:
    """A user's call, checked."""
    if not callable(fn):
        raise InvalidInput(f"a step is a function and its arguments; {fn!r} cannot be called")
    if name is None:
        name = getattr(fn, "__name__", None) or getattr(getattr(fn, "func", None), "__name__", None) or "call"
        name = "lambda" if name == "<lambda>" else name
    if timeout is not None and (isinstance(timeout, bool) or not 0 < timeout <= TIMEOUT_S_MAX):
        raise InvalidInput(f"timeout must be a number of seconds above 0, at most {TIMEOUT_S_MAX}, not {timeout!r}")
    return Spec(fn, args, kwargs, check_key("name", name), key, retry, timeout)


def step(exe: Execution, scope: Scope, spec: Spec) -> Plan[Any]:
    """Run a step, or return what is recorded of it."""
    with scope.call(spec.name, spec.key, STEP_KINDS) as (call, entries):
        digest = exe.codec.digest(spec.args, spec.kwargs)
        if entries:
            if entries[0].get("digest") != digest:
                changed = changed_argument(exe.codec, f"step {scope.named(call)!r}", spec.given, entries[0])
                raise scope.diverged(entries[0], call, STEP_KINDS, changed)
            last = entries[-1]
            if last["kind"] == "step":
                return _recorded(scope, call, spec, last)
        return (yield from _live(exe, scope, spec, call, digest, entries))


def _recorded(scope: Scope, call: str, spec: Spec, entry: EntryData) -> Any:
    if "error" in entry:
        raise with_recorded_trace(StepFailed(scope.named(call), entry["error"], entry["attempts"]))
    return typed_result(spec.fn, entry["result"], call)


def _live(
    exe: Execution, scope: Scope, spec: Spec, call: str, digest: str | None, entries: list[EntryData]
) -> Plan[Any]:
    keyed = spec.key is not None
    retry = retry_of(spec.retry, exe.retry)
    attempt = len(entries)
    if attempt:
        yield from await_turn(exe, scope, call, keyed, entries[-1])
    while True:
        if exe.alarm or exe.stopped is not None or exe.inbox_newest > exe.inbox_read:
            yield from exe.attend(scope, call, keyed)
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
                result = exe.codec.settled(raw)
                del raw  # a large one is not held twice while it is committed
                break
            except (InvalidInput, MissingAwait) as unstorable:
                error, final = unstorable, True
        if final or attempt >= retry.attempts or not retry.covers(error):
            yield from _failed(exe, scope, call, keyed, spec, digest, error, attempt, command.took_us)
        facts = {"name": spec.name, "digest": digest, **parts_of(exe.codec, spec.given)} if attempt == 1 else {}
        yield from again_later(exe, scope, call, keyed, retry, attempt, error, facts)
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
    yield from exe.write(scope, [entry])
    return typed_result(spec.fn, result, call)


def _failed(
    exe: Execution, scope: Scope, call: str, keyed: bool, spec: Spec, digest: str | None, error: BaseException,
    attempts: int, took_us: int,
) -> Plan[None]:  # fmt: skip
    failure = failure_of(error)
    entry = scope.entry(
        "step", call, keyed, name=spec.name, digest=digest, error=failure, attempts=attempts, us=took_us,
        **parts_of(exe.codec, spec.given),
    )  # fmt: skip
    yield from exe.write(scope, [entry])
    raise StepFailed(scope.named(call), failure, attempts) from error


def again_later(
    exe: Execution, scope: Scope, call: str, keyed: bool, retry: Retry, attempt: int, error: BaseException,
    facts: dict[str, Any],
) -> Plan[None]:  # fmt: skip
    """Record a failed attempt and wait for the next one: here if it is soon, else give the run back."""
    now_us: int = yield Now()
    wait_us = retry.wait_us(attempt, (yield Chance(4)))
    if scope.cleanup and wait_us > SHORT_WAIT_US:
        wait_us = 0  # a cancelled run is not given back to wait: it would be taken up again at once to be ended
    due_us = now_us + wait_us
    entry = scope.entry("attempt", call, keyed, number=attempt, error=failure_of(error), due_us=due_us, **facts)
    if due_us - now_us > SHORT_WAIT_US:
        entry["timer"] = timer = scope.named(call)
        exe.record.timers.add(timer)
        yield from exe.wait(scope, [entry], timers=((timer, due_us),))
    yield from exe.write(scope, [entry])
    yield from wait_here(exe, scope, due_us)


def wait_here(exe: Execution, scope: Scope, due_us: int) -> Plan[None]:
    """Wait in this process; a wait that is broken off because the process ends goes on elsewhere."""
    yield Wait(due_us)
    if exe.stopped is not None:
        raise exe.stopped
    if exe.give_way and due_us > (yield Now()):
        raise exe.suspended(scope)


def await_turn(exe: Execution, scope: Scope, call: str, keyed: bool, last: EntryData) -> Plan[None]:
    """After a restart: wait until the next attempt may begin."""
    due_us = last.get("due_us")
    if due_us is None:
        return
    now_us: int = yield Now()
    if due_us - now_us > SHORT_WAIT_US:
        yield from exe.attend(scope, call, keyed)
        timer = last.get("timer") or scope.named(call)
        yield from exe.wait(scope, [], timers=((timer, due_us),))
    if due_us > now_us:
        yield from wait_here(exe, scope, due_us)
