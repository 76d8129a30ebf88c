"""Calls that only declared workflows make: definitions, breakpoints, compensation.

The definition is stored with the run: in its first entry, or, if the process that started the run did not have it, in
an entry "definition" of the run's first commit. A later "definition" entry replaces it: the run was migrated.
"""

from __future__ import annotations

from typing import Any

from holdfast.drivers import Plan
from holdfast.engine.arguments import Undos
from holdfast.engine.commands import EntryData, LedgerMark
from holdfast.engine.execution import Execution
from holdfast.engine.failures import failure_of
from holdfast.engine.rollback import LedgerLine, ReadLedger, undo_call
from holdfast.engine.scope import Scope
from holdfast.errors import InvalidInput, RunError


def definition_of(exe: Execution, scope: Scope, registered: object) -> Any:
    """The run's definition; if it has none yet, `registered`, which is then recorded."""
    if exe.record.definition is None:
        if registered is None:
            raise pause_with(exe, RunError(f"run {exe.run_id!r} has no definition, and this process has none for it"))
        exe.record.definition = registered
        scope.pending.append({"kind": "definition", "definition": registered})
    return exe.record.definition


def pause_with(exe: Execution, error: RunError) -> RunError:
    """Pause the run with this error, because it cannot continue in this process. Nothing is lost."""
    exe.record.diverged = error
    exe.interrupt_pending = True
    return error


def breakpoint_here(exe: Execution, scope: Scope, message: str) -> Plan[None]:
    """Pause the run at its first arrival here; a resumed run passes.

    The entry and the pause are one commit, so a run that has the entry was paused and has been resumed since.
    """
    if not scope.main:
        raise InvalidInput("a breakpoint belongs in the main flow of a run, not in a branch of gather")
    with scope.call("breakpoint", None, ("breakpoint",)) as (call, entries):
        yield from exe.check_interrupts(scope, call, keyed=False)  # also if it passes: the run may be cancelled
        if entries:
            return
        yield from exe.pause_here(scope, [scope.entry("breakpoint", call, keyed=False, message=message)])


# --- compensation: a declared workflow that fails undoes the effects it has performed ---


def compensate(exe: Execution, scope: Scope, undos: Undos) -> Plan[dict[str, list[str]]]:
    """Undo all effects of this run that are done and have an undo.

    The report lists the effects that were undone, whose undo failed, that have no undo (`left`), and that are in doubt.
    A process that lacks one of the undo functions undoes nothing: it pauses the run for a process that has them.
    """
    with scope.call("compensate", None, ("compensating",)) as (call, recorded):
        entries = list(recorded)
        if entries and entries[-1]["kind"] == "compensated":
            return _report(entries)
        if not entries:  # once begun it finishes, even if the run is cancelled or paused
            yield from exe.check_interrupts(scope, call, keyed=False)
        lines: dict[str, LedgerLine] = {line.key: line for line in (yield ReadLedger())}
        if entries:
            plan = entries[0]
        else:
            plan = scope.entry("compensating", call, keyed=False, **_plan_compensation(list(lines.values())))
        ended = {entry["key"] for entry in entries if entry["kind"] in ("undone", "undo_failed")}
        todo = [key for key in plan["undo"] if key not in ended]
        _check_known(exe, [lines[key].undo for key in todo], undos)
        if not entries:
            entries = [plan]
            yield from exe.write(scope, entries)
        for key in todo:
            entries.append((yield from _undo_one(exe, scope, call, lines[key], undos)))
        yield from exe.write(scope, [scope.entry("compensated", call, keyed=False)])
        return _report(entries)


def _check_known(exe: Execution, names: list[str], undos: Undos) -> None:
    missing = sorted({name for name in names if name not in undos})
    if missing:
        listed = ", ".join(repr(name) for name in missing)
        message = (
            f"run {exe.run_id!r} must undo its effects, and {listed} is not registered in this process; "
            "put @app.undo above it, or resume the run in a process that has it"
        )
        raise pause_with(exe, RunError(message))


def _plan_compensation(lines: list[LedgerLine]) -> dict[str, list[str]]:
    """The effects to undo, newest first, those without an undo, and those in doubt."""
    newest_first = sorted(lines, key=lambda line: (line.after_position, line.number), reverse=True)
    own = [line for line in newest_first if not line.is_reused]
    done = [line for line in own if line.state == "done"]
    return {
        "undo": [line.key for line in done if line.undo],
        "left": [line.key for line in done if not line.undo],
        "doubt": [line.key for line in own if line.state == "intent"],
    }


def _undo_one(exe: Execution, scope: Scope, call: str, line: LedgerLine, undos: Undos) -> Plan[EntryData]:
    yield from exe.write(scope, [scope.entry("undoing", call, keyed=False, key=line.key, undo=line.undo)])
    try:
        yield undo_call(exe, line, undos)
    except (Exception, SystemExit) as error:
        entry = scope.entry("undo_failed", call, keyed=False, key=line.key, error=failure_of(error))
        yield from exe.write(scope, [entry])
    else:
        entry = scope.entry("undone", call, keyed=False, key=line.key)
        yield from exe.write(scope, [entry], marks=(LedgerMark(line.key, "undone"),))
    return entry


def _report(entries: list[EntryData]) -> dict[str, list[str]]:
    found = {kind: [entry["key"] for entry in entries if entry["kind"] == kind] for kind in ("undone", "undo_failed")}
    first = entries[0]
    return {
        "undone": found["undone"],
        "failed": found["undo_failed"],
        "left": first["left"],
        "in_doubt": first["doubt"],
    }
