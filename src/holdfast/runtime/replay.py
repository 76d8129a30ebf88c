"""Replay of a stored run against the current code, without any call or commit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.drivers import Plan
from holdfast.engine import commands as c
from holdfast.engine.completion import describe_end
from holdfast.engine.failures import failure_of
from holdfast.engine.record import describe_entry
from holdfast.errors import Diverged, Interrupt, Suspended
from holdfast.model.rows import CANCELLED, COMPLETED, FAILED, RunRow
from holdfast.model.views import View
from holdfast.operations.context import Access, Holder
from holdfast.runtime.control import require_run
from holdfast.runtime.execute import Invoke, execution_of, set_edits
from holdfast.runtime.interpreter import Interpreter
from holdfast.runtime.replay_input import CODEC, ReplayInput, read_edits, read_replay_input
from holdfast.runtime.start import Claimed

if TYPE_CHECKING:
    from holdfast.runtime.app import App
    from holdfast.runtime.app_core import AppCore


class Replayed(View, frozen=True, kw_only=True):
    """The result of a replay: the code does what the journal records."""

    run_id: str
    status: str
    position: int
    """The end of the journal."""
    entries: int
    """How many entries were replayed; finished turns of loops are not replayed."""


class _EndOfRecord(Suspended):
    """The code has reached the end of what is recorded."""


class _ReadOnlyInterpreter(Interpreter):
    """Executes commands that only read, and stops at the first that would act."""

    def _execute(self, command: object) -> Plan[object]:
        if isinstance(command, c.RunChild) and command.detached:
            return None  # its start is recorded, and nothing is read of it
        if isinstance(command, (c.Write, c.Call, c.Wait, c.RunChild)):
            self.exe.waits_read = 0
            raise _EndOfRecord("the replay has reached the end of what is recorded")
        return (yield from super()._execute(command))


def replay(app: App, run_id: str) -> Replayed:
    """Replay a stored run against the current code; nothing is called, committed or changed.

    Raises Diverged, with both sides and the place, if the code does not do what the journal records. A run that has
    ended must end in the same way.

    Example:
        holdfast.testing.replay(app, "order-17").entries
    """
    core = app._core
    row: RunRow = app._run("replay", require_run(core, run_id))
    if core.registry.find(row.workflow).is_async:
        return core.loop.run(core.awaiting.run(_replay(core, row)))
    return core.blocking.run(_replay(core, row))


def _replay(app: AppCore, row: RunRow) -> Plan[Replayed]:
    workflow = app.registry.find(row.workflow)
    past: ReplayInput = yield lambda: read_replay_input(app.core, row)
    access = Access(app.core, Holder("rehearsal", row.incarnation, 0, b""))
    interpreter = _ReadOnlyInterpreter(app, Claimed(row, access, 0.0))
    exe = interpreter.exe = execution_of(app, workflow, row, past)
    workflow.check_run(row.run_id, exe.record.definition)
    if past.line.edits:
        set_edits(exe, (yield lambda: read_edits(app.core, row, past.line)))
    exe.inbox_newest = 0  # the items in the inbox have not been read yet
    started, result, error = exe.record.started, None, None
    args, kwargs = workflow.typed_input(started["args"], started["kwargs"])
    try:
        result = yield Invoke(workflow, interpreter, args, kwargs)
    except (Exception, Interrupt, SystemExit) as raised:
        error = raised
    if exe.record.diverged is not None:
        raise exe.record.diverged
    missing = exe.find_missing_await(error)
    if missing is not None and exe.record.ended is None:
        raise missing
    error = missing or error
    if not exe.is_waiting:
        left = exe.record.unseen()
        if left is not None:
            raise Diverged(exe.run_id, describe_entry(left), f"nothing more: {describe_end(error)}", left["position"])
        _check_end(exe.record.ended, row, result, error)
    elif exe.record.ended is not None and not _is_unfinished(exe.record.ended):
        raise Diverged(exe.run_id, f"the end of the run, {row.status}", "something more", row.position)
    return Replayed(run_id=row.run_id, status=row.status, position=row.position, entries=len(past.entries))


def _is_unfinished(ended: c.EntryData) -> bool:
    """Whether the run ended before its code did: cancelled, or stopped at a call that was not awaited."""
    return ended["kind"] == CANCELLED or (ended.get("error") or {}).get("type") == "MissingAwait"


def _check_end(ended: c.EntryData | None, row: RunRow, result: object, error: BaseException | None) -> None:
    """Raise Diverged if a run that has ended does not end in the same way."""
    if ended is None or ended["kind"] == CANCELLED:
        return
    if error is not None:
        found = f"{FAILED} with {failure_of(error)['type']}"
    else:
        found = f"{COMPLETED} with {CODEC.round_trip(result)!r}"
    expected = f"{ended['kind']} with "
    expected += repr(ended["result"]) if ended["kind"] == COMPLETED else ended["error"]["type"]
    if found != expected:
        raise Diverged(row.run_id, expected, found, row.position)
