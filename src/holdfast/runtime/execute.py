"""Execution of a claimed run until it waits or ends.

A run that cannot be executed here is released, so that its lease need not expire. If it could not be executed in any
process, it is paused.
"""

from __future__ import annotations

import contextlib
import copy
import logging
from typing import TYPE_CHECKING, Final, NamedTuple

from holdfast.drivers import Plan
from holdfast.engine import completion
from holdfast.engine.arguments import Typed
from holdfast.engine.commands import EntryData, Send
from holdfast.engine.declared import pause_with
from holdfast.engine.execution import Execution
from holdfast.engine.failures import call_of, place_of
from holdfast.engine.parallel import restore
from holdfast.engine.record import record_of
from holdfast.engine.resume_point import ResumePoint
from holdfast.engine.state_edits import Edits, Replacement, apply_changes
from holdfast.errors import (
    ClaimLost,
    Halted,
    HoldfastError,
    Interrupt,
    InvalidInput,
    LeaseLost,
    RunError,
    RunExists,
    StorageError,
    UnknownWorkflow,
)
from holdfast.errors.workflow import traceback_text
from holdfast.model.commit import OUTSIDER, Commit, Committed, Guard, NewItem, Outcome
from holdfast.model.rows import CANCELLED, FAILED, PAUSED, READY, TERMINAL, RunRow
from holdfast.operations.views import encode_body
from holdfast.runtime.interpreter import Interpreter
from holdfast.runtime.replay_input import CODEC, ReplayInput, read_edits, read_replay_input
from holdfast.runtime.run_base import current_interpreter
from holdfast.runtime.start import (
    Claimed,
    Execute,
    Start,
    claim,
    claim_unfinished,
    create,
    create_later,
    find_created,
    new_run_id,
)
from holdfast.state.tracked import TrackedDict

if TYPE_CHECKING:
    from holdfast.runtime.app_core import AppCore
    from holdfast.runtime.registry import Workflow

_log: Final = logging.getLogger("holdfast.run")


class Invoke(NamedTuple):
    """Command for a driver: call the workflow's function with a run object for this execution."""

    workflow: Workflow
    interpreter: Interpreter
    args: tuple[object, ...]
    kwargs: dict[str, object]


class WaitInFlight(NamedTuple):
    """Command for a driver: wait until no call of the run is in flight, in any task or thread."""

    interpreter: Interpreter


class ProcessExiting(BaseException):
    """Thrown by a driver when the process or the task is exiting; `__cause__` is the reason."""


def is_exit(error: BaseException) -> bool:
    """Whether an error raised by a workflow ends the process and not the run; `sys.exit()` ends only the run."""
    return isinstance(error, KeyboardInterrupt)


def normalize_error(error: BaseException) -> BaseException:
    """Convert what a user's function raised to an error that the engine can handle."""
    if isinstance(error, (Exception, Interrupt, KeyboardInterrupt, SystemExit, GeneratorExit, ProcessExiting)):
        return error
    return RuntimeError(f"the function raised {error!r}, which is not an Exception")


class EditRefused(RunError):
    """The state of the run does not have the paths of an edit; nothing was executed after it."""


class ExecutionResult(NamedTuple):
    """The result of executing a run."""

    run_id: str
    status: str
    """The status in which the run was released; empty if this process lost its claim."""
    woken: tuple[str, ...] = ()
    """Other runs that it made ready."""
    error: BaseException | None = None
    """What to raise in the caller: the store failed, the code diverged, or the process is exiting."""


def execute_run(app: AppCore, claimed: Claimed) -> Plan[ExecutionResult]:
    """Execute a run until it waits or ends."""
    row = claimed.row
    interpreter = Interpreter(app, claimed)
    unfit = False
    try:
        workflow = app.known(row.workflow)
        if workflow is None:
            raise UnknownWorkflow(row.workflow, list(app.registry.workflows))
        past = (
            ReplayInput([(1, claimed.started)], ResumePoint())
            if claimed.started is not None
            else (yield lambda: read_replay_input(app.core, row))
        )
        exe = interpreter.exe = execution_of(app, workflow, row, past)
        if past.line.edits:
            edits = yield lambda: read_edits(app.core, row, past.line)
            set_edits(exe, edits)
        started, unfit = exe.record.started, True
        workflow.check_run(row.run_id, exe.record.definition)
        given = ((), {}) if exe.record.rollback else workflow.typed_input(started["args"], started["kwargs"])
    except GeneratorExit:
        raise
    except BaseException as broken:
        # Damaged, not of a workflow, or with input that does not fit: a ready run would be taken again at once.
        hopeless = isinstance(broken, Exception) and not isinstance(broken, (StorageError, UnknownWorkflow))
        with contextlib.suppress(StorageError):
            if unfit and isinstance(broken, Exception) and hopeless:
                exe.record.diverged = broken
                yield from interpreter.translate(completion.finish(exe, None, broken))
            else:
                yield from _put_back(interpreter, PAUSED if hopeless else READY)
        app.nonces.discard(row.nonce)
        if unfit and exe.released == CANCELLED:
            return ExecutionResult(row.run_id, CANCELLED, (yield from deliver(app, row, interpreter.messages)))
        if hopeless and not isinstance(broken, HoldfastError):
            text = f"run {row.run_id!r} cannot be executed here and is paused: {type(broken).__name__}: {broken}"
            raise RunError(text) from broken
        raise
    begin_us = started.get("begin_us", 0)
    if begin_us and (yield from interpreter.translate(completion.postpone(exe, begin_us))):
        app.nonces.discard(row.nonce)
        return ExecutionResult(row.run_id, exe.released, (yield from deliver(app, row, interpreter.messages)))
    if row.position == 1 and (yield from _parent_has_ended(app, started)):
        entry: EntryData = {"kind": CANCELLED, "by": started["parent"]["run"]}
        yield from interpreter.translate(exe.write(exe.root, [entry], status=CANCELLED, release=True))
        app.nonces.discard(row.nonce)
        return ExecutionResult(row.run_id, CANCELLED, ())
    app.lease_renewer.hold(interpreter)
    app.executions.add(exe)
    try:
        error = yield from _invoke_workflow(interpreter, Invoke(workflow, interpreter, *given))
    finally:
        app.executions.discard(exe)
        app.lease_renewer.remove(interpreter)
        app.nonces.discard(row.nonce)
    if exe.released == FAILED:
        log_failure(row, (exe.record.ended or {})["error"])
    woken = yield from deliver(app, row, interpreter.messages)
    return ExecutionResult(row.run_id, exe.released, (*interpreter.woken, *woken), error)


def _parent_has_ended(app: AppCore, started: EntryData) -> Plan[bool]:
    """Whether an attached child is executed for the first time although its parent has ended.

    A process that was suspended just before it created the child did so after a takeover, when the end of the parent
    could not cancel it any more.
    """
    parent = started.get("parent")
    if parent is None or parent.get("detached"):
        return False
    row: RunRow | None = yield lambda: app.core.port.run(parent["run"])
    return row is not None and row.status in TERMINAL


def log_failure(row: RunRow, failure: EntryData) -> None:
    """Log that a run failed: where in it, and where in the user's code. Arguments are not logged."""
    call, where = call_of(failure), place_of(failure)
    kind, message, at, place = failure["type"], failure["message"], call and f" at {call!r}", where and f" ({where})"
    extra = {"run_id": row.run_id, "workflow": row.workflow, "call": call, "where": where}
    extra |= {"error_type": kind, "trace": traceback_text(failure)}
    _log.error(
        "run %r of workflow %r failed%s: %s: %s%s", row.run_id, row.workflow, at, kind, message, place, extra=extra
    )


def execution_of(app: AppCore, workflow: Workflow, row: RunRow, past: ReplayInput) -> Execution:
    """The execution of a run, with what it has done before."""
    record = record_of(past.entries)
    if not record.started:
        raise InvalidInput(f"run {row.run_id!r} was not started as a workflow; it has no input to run with")
    exe = Execution(
        row.run_id,
        row.incarnation,
        CODEC,
        record,
        past.line,
        attempt=row.fence,
        version=workflow.version,
        retry=workflow.retry,
        cleanup_s=app.cleanup_s,
        branches=app.branches,
        upgrade=workflow.upgrade_state,
        undos=frozenset(app.registry.undos),
        classify=app.classify,
    )
    exe.state = TrackedDict()
    exe.position = exe.began_at = row.position
    exe.inbox_newest = row.inbox
    return exe


def set_edits(exe: Execution, edits: list[Replacement]) -> None:
    """Let the execution apply the edits of its state at the positions where they were made."""
    calls = [entries for scope in exe.record.scopes.values() for entries in scope.calls.values()]

    def apply(edit: Replacement) -> None:
        if edit.state is not None:
            restore(exe, copy.deepcopy(edit.state), exe.version if edit.version is None else edit.version)
        try:
            apply_changes(exe.state, copy.deepcopy(edit.changes))
        except InvalidInput as error:
            text = f"run {exe.run_id!r} cannot continue with the values set in its state: {error}; fork it again"
            raise pause_with(exe, EditRefused(text)) from error

    exe.record.edits = Edits(edits, calls, apply)


def _invoke_workflow(interpreter: Interpreter, invoke: Invoke) -> Plan[BaseException | None]:
    """Call the workflow's function and end or release the run. Returns what to raise in the caller."""
    exe = interpreter.exe
    known_unreached = exe.record.unreached
    if exe.record.rollback:
        from holdfast.runtime.rollback import continue_rollback  # rare

        return (yield from continue_rollback(interpreter))
    result: object = None
    error: BaseException | None = None
    exiting = False
    try:
        result = yield invoke
    except GeneratorExit:
        raise
    except ProcessExiting as ended:
        error, exiting = ended.__cause__, True
    except BaseException as raised:
        error = raised
    with contextlib.suppress(Interrupt):
        yield WaitInFlight(interpreter)
        yield from interpreter.translate(completion.finish(exe, result, error, passing=exiting))
    if exe.record.unreached and exe.record.unreached != known_unreached:
        gates = ", ".join(map(repr, exe.record.unreached))
        text = (
            "run %r waits, but its code does not reach the open gates %s any more: their answers will not be used; "
            "bring the calls back, or roll the run back to before them"
        )
        _log.warning(text, exe.run_id, gates)
    if isinstance(exe.stopped, Halted):
        with contextlib.suppress(StorageError):
            yield from _put_back(interpreter, READY)
        return exe.stopped.__cause__
    if exe.record.diverged is not None and exe.released != CANCELLED:
        return exe.record.diverged
    if isinstance(exe.stopped, LeaseLost) and not exe.released:  # released: the late renewal lost nothing
        return ClaimLost(exe.run_id, interpreter.row.owner, interpreter.new_owner or None)
    return error if exiting else None


def _put_back(interpreter: Interpreter, status: str) -> Plan[None]:
    """Release a run that this process cannot execute, if it exists."""
    if interpreter.creation is not None:
        return
    run_id, token, guard = interpreter.row.run_id, interpreter.core.ids.token(8), interpreter.access.guard()
    yield Commit(run_id, token, guard, status=status, release=True)


def deliver(app: AppCore, row: RunRow, messages: list[tuple[int, Send]]) -> Plan[tuple[str, ...]]:
    """Deliver the outbox messages of a run. The reaper redelivers those that fail here."""
    woken, sent = [], []
    for number, message in messages:
        body = encode_body(app.core, message.value, "a message")
        item = NewItem(message.kind, message.name, message.key, row.run_id, body)
        outcome: Outcome = yield Commit(message.target, app.token(8), Guard(OUTSIDER), deliver=(item,))
        sent.append(number)  # refused: the target is not there or has ended, so there is nothing to deliver
        if type(outcome) is Committed and outcome.run.status == READY:
            woken.append(message.target)
    if sent:
        guard = Guard(OUTSIDER, incarnation=row.incarnation)
        yield Commit(row.run_id, app.token(8), guard, sent=tuple(sent))
    return tuple(woken)


def start_run(
    app: AppCore,
    workflow: object,
    given: Typed,
    run_id: str | None,
    metadata: dict[str, object] | None,
    *,
    here: bool,
    begin_us: int = 0,
    elsewhere: bool = False,
) -> Plan[tuple[str, Claimed | None]]:
    """Create or find the run with the arguments `given`, and claim it if it is executed here.

    `elsewhere`: this app may not know its workflow.
    """
    is_new = run_id is None
    starter = current_interpreter()
    if starter is not None and starter.app is app:
        yield from starter.create_first()
    if elsewhere and isinstance(workflow, str) and app.known(workflow) is None:
        run_id = run_id if run_id is not None else new_run_id(app, workflow)
        start = Start(run_id, workflow, 1, *given, metadata, begin_us=begin_us)
    else:
        known = app.registry.find(workflow, may_enqueue=True)
        run_id = run_id if run_id is not None else new_run_id(app, known.name)
        start = known.prepare(Start(run_id, known.name, known.version, *given, metadata, begin_us=begin_us))
    if not here:
        yield from create(app, start, take=False)
        return run_id, None
    found = yield from create_later(app, start, is_new=is_new)
    return run_id, found if isinstance(found, Claimed) else (yield from claim_unfinished(app, found))


def claim_known(app: AppCore, run_id: str) -> Plan[Claimed | None]:
    """Claim a run that was made ready, if this process can execute it."""
    row: RunRow | None = yield lambda: app.core.port.run(run_id)
    if row is None or row.status != READY or app.known(row.workflow) is None:
        return None
    return (yield from claim(app, run_id))


def run_until_idle(app: AppCore, claimed: Claimed, *, once: bool = False) -> Plan[None]:
    """Execute a run until it waits or ends, then the runs it made ready. Errors of the others are only logged."""
    result: ExecutionResult = yield Execute(claimed)
    if claimed.creation is not None and isinstance(result.error, RunExists):
        again = yield from find_created(app, claimed.creation)
        if again is None:
            return
        result = yield Execute(again)
    if result.error is not None:
        raise result.error
    todo = [] if once else _next(result)
    while todo:
        run_id = todo.pop(0)
        try:
            woken = yield from claim_known(app, run_id)
            if woken is None:
                continue
            result = yield Execute(woken)
        except HoldfastError as error:
            _log.warning("run %r, which was woken, stopped: %s", run_id, error)
            continue
        if result.error is not None and (run_id == claimed.row.run_id or not isinstance(result.error, Exception)):
            raise result.error
        if result.error is not None:
            _log.warning("run %r, which was woken, stopped: %s", run_id, result.error)
        todo += _next(result)


def _next(result: ExecutionResult) -> list[str]:
    """What to execute next: the run itself if its inbox has new items, and the runs it made ready."""
    itself = [result.run_id] if result.status == READY else []
    return [*itself, *result.woken]
