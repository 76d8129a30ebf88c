"""Deliberately broken variants of the engine and the runtime. They are put into single processes, never the source."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

from holdfast.drivers import Plan
from holdfast.engine import effects, parallel, rollback, steps
from holdfast.engine.commands import Write, Written
from holdfast.engine.effect_outcome import AGAIN, EffectCall
from holdfast.engine.execution import Execution
from holdfast.engine.scope import Scope
from holdfast.model.commit import Reason
from holdfast.runtime import execute, reaper, start
from holdfast.runtime.interpreter import Interpreter
from holdfast.store.decide import inbox
from tests.faults.sqlite.mutants import mutated


@contextlib.contextmanager
def engine_mutated(name: str | None) -> Iterator[None]:
    """Put the mutant in for a while; None changes nothing."""
    make = _MUTANTS.get(name or "")
    with contextlib.nullcontext() if make is None else make(), mutated(name):
        yield


# --- effects ---------------------------------------------------------------------------------------------------------


def _effect_without_intent() -> Any:
    """An effect is performed, and only then recorded."""
    write = Interpreter._write

    def written(interpreter: Interpreter, command: Write) -> Any:
        command.entries = [entry for entry in command.entries if entry["kind"] != "intent"]
        command.marks = tuple(mark for mark in command.marks if mark.state != "intent")
        if command.is_plain and not command.entries:
            return Written(interpreter.exe.position, 0, "running")
        return (yield from write(interpreter, command))

    return mock.patch.object(Interpreter, "_write", written)


def _doubt_ignored() -> Any:
    """An effect whose outcome nobody knows is simply performed again, whatever its policy."""

    def resolve(this: Any, why: str, error: BaseException | None = None) -> Plan[Any]:
        yield from ()
        return AGAIN

    return mock.patch.object(effects, "resolve", resolve)


def _other_key_after_a_crash() -> Any:
    """The idempotency key is another one in every process."""
    made = EffectCall.__init__

    def other(this: EffectCall, *args: Any) -> None:
        made(this, *args)
        this.token = f"{this.token.partition('-')[0]}-{os.getpid()}"

    return mock.patch.object(EffectCall, "__init__", other)


# --- replay and rollback ---------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _recorded_steps_ignored() -> Iterator[None]:
    """A step runs although its result is recorded."""

    def step(exe: Execution, scope: Scope, spec: steps.StepSpec) -> Plan[Any]:
        call, entries = scope.enter(spec.name, spec.key, steps.STEP_KINDS)
        try:
            left = [entry for entry in entries if entry["kind"] != "step"]
            digest = exe.codec.digest(spec.args, spec.kwargs)
            return (yield from steps._execute(exe, scope, spec, call, digest, left))
        finally:
            scope.leave()

    with mock.patch.object(steps, "step", step), mock.patch.object(parallel, "step", step):
        yield


def _undo_not_recorded() -> Any:
    """An undo is carried out, and nobody writes that down."""
    undo = rollback._undo

    def unrecorded(exe: Execution, line: Any, undos: Any, **more: Any) -> Plan[None]:
        plan = undo(exe, line, undos, **more)
        with contextlib.suppress(StopIteration):
            command = next(plan)
            while not (isinstance(command, Write) and command.entries[0]["kind"] == "undone"):
                command = plan.send((yield command))

    return mock.patch.object(rollback, "_undo", unrecorded)


def _child_not_looked_for() -> Any:
    """A parent that goes on does not take its child from a process that died."""
    return mock.patch.object(start, "AT_WORK", frozenset())


# --- claims and answers ----------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _lease_loss_swallowed() -> Iterator[None]:
    """A process whose claim was lost goes on as if its writes had been accepted."""
    write = Interpreter._write

    def written(interpreter: Interpreter, command: Write) -> Any:
        try:
            return (yield from write(interpreter, command))
        except BaseException:
            interpreter.exe.stopped = None
            return Written(interpreter.exe.position + len(command.entries), 0, command.status or "running")

    def held(interpreter: Interpreter) -> Any:
        interpreter.exe.stopped = None
        yield from ()

    with mock.patch.object(Interpreter, "_write", written), mock.patch.object(Interpreter, "_ensure_lease", held):
        yield


def _answers_not_guarded() -> Any:
    """A gate takes every answer, not only the first."""
    admit = inbox._admit

    def admitted(draft: Any, new: Any) -> Any:
        refused = admit(draft, new)
        return None if refused is not None and refused.reason == Reason.ANSWERED else refused

    return mock.patch.object(inbox, "_admit", admitted)


def _wakes_slept_through() -> Any:
    """The commit with which a run begins to wait does not say what of the inbox was read."""
    commit = Interpreter._commit

    def committed(interpreter: Interpreter, write: Write) -> Any:
        write.inbox_read = None
        return commit(interpreter, write)

    return mock.patch.object(Interpreter, "_commit", committed)


@contextlib.contextmanager
def _parents_not_woken() -> Iterator[None]:
    """What a run puts into its outbox is never delivered."""

    def nothing(*_: Any) -> Plan[Any]:
        yield from ()
        return ()

    with mock.patch.object(execute, "deliver", nothing), mock.patch.object(reaper, "redeliver", nothing):
        yield


_MUTANTS: dict[str, Callable[[], Any]] = {
    "effect_without_intent": _effect_without_intent,
    "doubt_ignored": _doubt_ignored,
    "other_key_after_a_crash": _other_key_after_a_crash,
    "recorded_steps_ignored": _recorded_steps_ignored,
    "undo_not_recorded": _undo_not_recorded,
    "child_not_looked_for": _child_not_looked_for,
    "lease_loss_swallowed": _lease_loss_swallowed,
    "answers_not_guarded": _answers_not_guarded,
    "wakes_slept_through": _wakes_slept_through,
    "parents_not_woken": _parents_not_woken,
}
