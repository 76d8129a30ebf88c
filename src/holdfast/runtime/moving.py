"""Moving a run on: from being claimed until it waits or ends."""

from __future__ import annotations

import contextlib
import copy
import logging
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from holdfast.engine import ending
from holdfast.engine.commands import Send
from holdfast.engine.definitions import refused
from holdfast.engine.edits import Edits, Replacement, changed
from holdfast.engine.execution import Execution
from holdfast.engine.failures import call_of, failure_of, place_of
from holdfast.engine.line import Line
from holdfast.engine.loops import restore
from holdfast.engine.record import record_of
from holdfast.errors import (
    ClaimLost,
    Halted,
    HoldfastError,
    Interrupt,
    InvalidInput,
    LeaseLost,
    RunError,
    StorageError,
    UnknownWorkflow,
)
from holdfast.errors.runs import traceback_text
from holdfast.model.commit import OUTSIDER, Commit, Committed, Guard, NewEntry, NewItem
from holdfast.model.rows import RunRow
from holdfast.model.status import FAILED, PAUSED, READY
from holdfast.runtime.carrier import Carrier
from holdfast.runtime.codec import CODEC
from holdfast.runtime.reads import Past, edited, past_of
from holdfast.runtime.starting import Acts, Claimed
from holdfast.verbs.values import value_body

if TYPE_CHECKING:
    from holdfast.runtime.core import AppCore
    from holdfast.runtime.registry import Workflow

_log: Final = logging.getLogger("holdfast.run")


class Invoke(NamedTuple):
    """For a driver: call the workflow's function with a run object for this execution."""

    workflow: Workflow
    carrier: Carrier
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class Settle(NamedTuple):
    """For a driver: wait until no call of the run is under way any more, in whatever task or thread."""

    carrier: Carrier


class Passing(BaseException):
    """Thrown by a driver when the process or the task is being ended; `__cause__` says by what."""


def is_passing(error: BaseException) -> bool:
    """Whether what a workflow raised ends the process rather than the run, which `sys.exit()` does not."""
    return isinstance(error, KeyboardInterrupt)


def told(error: BaseException) -> BaseException:
    """What a user's function raised, as the engine is told: what is no error of any known kind is one all the same."""
    if isinstance(error, (Exception, Interrupt, KeyboardInterrupt, SystemExit, GeneratorExit, Passing)):
        return error
    return RuntimeError(f"the function raised {error!r}, which is no Exception")


class Moved(NamedTuple):
    """What came of moving a run on."""

    run_id: str
    status: str
    """The status it was given back in; empty if this process lost it."""
    woken: tuple[str, ...] = ()
    """Other runs that became ready by it."""
    error: BaseException | None = None
    """What the caller should be told: the store failed, the code diverged, the process is being ended."""


def move(app: AppCore, claimed: Claimed) -> Acts[Moved]:
    """Move a run on."""
    row = claimed.row
    carrier = Carrier(app, claimed.place, row, app.lease_s, claimed.taken_at, force=claimed.force)
    unfit = False
    try:
        workflow = app.known(row.workflow)
        if workflow is None:
            raise UnknownWorkflow(row.workflow, list(app.registry.workflows))
        past = Past([(1, claimed.started)], Line()) if claimed.fresh else (yield lambda: past_of(app.core, row))
        exe = carrier.exe = execution_of(app, workflow, row, past)
        if past.line.edits:
            edits = yield lambda: edited(app.core, row, past.line)
            set_edits(exe, edits)
        started, unfit = exe.record.started, True
        given = ((), {}) if exe.record.rollback else workflow.typed_input(started["args"], started["kwargs"])
    except GeneratorExit:
        raise
    except BaseException as broken:
        # Damaged, not a workflow's, or its input cannot be made here: it would be taken again at once, for ever.
        hopeless = isinstance(broken, Exception) and not isinstance(broken, (StorageError, UnknownWorkflow))
        with contextlib.suppress(StorageError):
            yield from _put_back(carrier, PAUSED if hopeless else READY, _reason(app, broken) if unfit else ())
        app.nonces.discard(row.nonce)
        if hopeless and not isinstance(broken, HoldfastError):
            text = f"run {row.run_id!r} cannot be executed here and is paused: {type(broken).__name__}: {broken}"
            raise RunError(text) from broken
        raise
    app.heart.hold(carrier)
    app.executions.add(exe)
    try:
        error = yield from _executed(carrier, Invoke(workflow, carrier, *given))
    finally:
        app.executions.discard(exe)
        app.heart.let_go(carrier)
        app.nonces.discard(row.nonce)
    if exe.released == FAILED:
        log_failure(row, (exe.record.ended or {})["error"])
    woken = yield from deliver(app, row, carrier.messages)
    return Moved(row.run_id, exe.released, (*carrier.woken, *woken), error)


def log_failure(row: RunRow, failure: dict[str, Any]) -> None:
    """Log that a run failed: where in it, and where in the user's code. Arguments are not logged."""
    call, where = call_of(failure), place_of(failure)
    _log.error(
        "run %r of workflow %r failed%s: %s: %s%s",
        row.run_id, row.workflow, call and f" at {call!r}", failure["type"], failure["message"],
        where and f" ({where})",
        extra={
            "run_id": row.run_id, "workflow": row.workflow, "call": call, "where": where,
            "error_type": failure["type"], "trace": traceback_text(failure),
        },
    )  # fmt: skip


def execution_of(app: AppCore, workflow: Workflow, row: RunRow, past: Past) -> Execution:
    """The execution of a run with this past."""
    record = record_of(past.entries)
    if not record.started:
        raise InvalidInput(f"run {row.run_id!r} was not started as a workflow; it has no input to run with")
    workflow.check_run(row.run_id, record.definition)
    exe = Execution(
        row.run_id, row.incarnation, CODEC, record, past.line, attempt=row.fence, version=workflow.version,
        retry=workflow.retry, cleanup_s=app.cleanup_s, branches=app.branches,
        upgrade=workflow.upgraded, undos=frozenset(app.registry.undos), classify=app.classify,
    )  # fmt: skip
    exe.position = exe.began_at = row.position
    exe.inbox_newest = row.inbox
    return exe


def set_edits(exe: Execution, edits: list[Replacement]) -> None:
    """Let the execution apply changes of the state that were made from outside."""
    calls = [entries for scope in exe.record.scopes.values() for entries in scope.calls.values()]

    def apply(edit: Replacement) -> None:
        if edit.state is not None:
            restore(exe, copy.deepcopy(edit.state), exe.version if edit.version is None else edit.version)
        try:
            changed(exe.state, copy.deepcopy(edit.changes))
        except InvalidInput as error:
            text = f"run {exe.run_id!r} cannot go on with the values set in its state: {error}; fork it again"
            raise refused(exe, RunError(text)) from error

    exe.record.edits = Edits(edits, calls, apply)


def _executed(carrier: Carrier, invoke: Invoke) -> Acts[BaseException | None]:
    """Call the workflow's function and bring the run to its end, or give it back. What the caller should be told."""
    exe = carrier.exe
    known_unreached = exe.record.unreached
    if exe.record.rollback:
        from holdfast.runtime.rollback import go_on  # rare

        told: BaseException | None = yield from go_on(carrier)
        return told
    result: Any = None
    error: BaseException | None = None
    passing = False
    try:
        result = yield invoke
    except GeneratorExit:
        raise
    except Passing as ended:
        error, passing = ended.__cause__, True
    except BaseException as raised:
        error = raised
    with contextlib.suppress(Interrupt):
        yield Settle(carrier)
        yield from carrier.carry(ending.finish(exe, result, error, passing=passing))
    if exe.record.unreached and exe.record.unreached != known_unreached:
        _log.warning(
            "run %r waits, but its code does not reach the open gates %s any more: their answers will not be used; "
            "bring the calls back, or roll the run back to before them",
            exe.run_id, ", ".join(map(repr, exe.record.unreached)),
        )  # fmt: skip
    if isinstance(exe.stopped, Halted):
        yield from _try_to_put_back(carrier)
        return exe.stopped.__cause__
    if exe.record.diverged is not None:
        return exe.record.diverged
    if isinstance(exe.stopped, LeaseLost) and not exe.released:  # given back: a renewal that came late lost nothing
        return ClaimLost(exe.run_id, carrier.row.owner, carrier.taken_by or None)
    return error if passing else None


def _try_to_put_back(carrier: Carrier) -> Acts[None]:
    """The store failed once; perhaps it takes the run back, so that nobody must wait for the lease."""
    with contextlib.suppress(StorageError):
        yield from _put_back(carrier, READY)


def _put_back(carrier: Carrier, status: str, entries: tuple[NewEntry, ...] = ()) -> Acts[None]:
    """Give back a run this process cannot move on."""
    guard = carrier.place.guard()
    yield Commit(carrier.row.run_id, carrier.core.ids.token(8), guard, status=status, release=True, entries=entries)


def _reason(app: AppCore, error: BaseException) -> tuple[NewEntry, ...]:
    """The entry that says why a run with a sound journal is paused: its input does not fit the code of this process."""
    entry = {"kind": "diverged", "message": failure_of(error, causes=0)["message"]}
    return (NewEntry("diverged", value_body(app.core, entry, "a journal entry")),)


def deliver(app: AppCore, row: RunRow, messages: list[tuple[int, Send]]) -> Acts[tuple[str, ...]]:
    """Deliver what a run has put into its outbox. What fails here is delivered later, by whoever looks."""
    woken, sent = [], []
    for number, message in messages:
        body = value_body(app.core, message.value, "a message")
        item = NewItem(message.kind, message.name, message.key, row.run_id, body)
        outcome = yield Commit(message.target, app.token(8), Guard(OUTSIDER), deliver=(item,))
        sent.append(number)  # refused: the target is not there or has ended, so there is nobody to tell
        if type(outcome) is Committed and outcome.run.status == READY:
            woken.append(message.target)
    if sent:
        guard = Guard(OUTSIDER, incarnation=row.incarnation)
        yield Commit(row.run_id, app.token(8), guard, sent=tuple(sent))
    return tuple(woken)
