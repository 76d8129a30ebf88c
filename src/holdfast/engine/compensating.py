"""Compensation: a run undoes what it has done to the world, newest first, and says what became of it.

Unlike a rollback it is part of the run's own way, which does not go back: the journal and the ledger tell both that an
effect was done and that it was undone. An undo that was begun when the process died is called again, under the same
idempotency key. One that fails is recorded, and the others are undone all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from holdfast.engine.commands import Call, EntryData, Mark, Plan
from holdfast.engine.definitions import refused
from holdfast.engine.execution import Execution
from holdfast.engine.failures import failure_of
from holdfast.engine.goingback import LedgerLine, ReadLedger, undo_call
from holdfast.engine.scope import Scope
from holdfast.errors import RunError


def compensate(exe: Execution, scope: Scope, undos: Mapping[str, Callable[..., Any]]) -> Plan[dict[str, list[str]]]:
    """Undo all effects of this run that are done and can be undone.

    Tells which were undone, which undo failed, which have none (`left`), and of which nobody knows whether they
    happened. A process that lacks one of the undos does nothing of it: the run is paused for one that has them.
    """
    with scope.call("compensate", None, ("compensating",)) as (call, recorded):
        entries = list(recorded)
        if entries and entries[-1]["kind"] == "compensated":
            return _report(entries)
        if not entries:  # once it has begun it is brought to its end, whoever cancels or pauses
            yield from exe.attend(scope, call, keyed=False)
        lines: dict[str, LedgerLine] = {line.key: line for line in (yield ReadLedger())}
        plan = (
            entries[0] if entries else scope.entry("compensating", call, keyed=False, **_sorted(list(lines.values())))
        )
        ended = {entry["key"] for entry in entries if entry["kind"] in ("undone", "undo_failed")}
        todo = [key for key in plan["undo"] if key not in ended]
        _check_known(exe, [lines[key].call["undo"] for key in todo], undos)
        if not entries:
            entries = [plan]
            yield from exe.write(scope, entries)
        for key in todo:
            entries.append((yield from _undone(exe, scope, call, lines[key], undos)))
        yield from exe.write(scope, [scope.entry("compensated", call, keyed=False)])
        return _report(entries)


def _check_known(exe: Execution, names: list[str], undos: Mapping[str, Callable[..., Any]]) -> None:
    missing = sorted({name for name in names if name not in undos})
    if missing:
        listed = ", ".join(repr(name) for name in missing)
        raise refused(exe, RunError(
            f"run {exe.run_id!r} is to undo what it did, and {listed} is not registered in this process; put @app.undo "
            "above it, or resume the run in a process that knows it"
        ))  # fmt: skip


def _sorted(lines: list[LedgerLine]) -> dict[str, list[str]]:
    """What is to be undone, newest first, what cannot be, and what nobody knows of."""
    newest_first = sorted(lines, key=lambda line: (line.after_position, line.number), reverse=True)
    own = [line for line in newest_first if not (line.call or {}).get("reused")]
    done = [line for line in own if line.state == "done"]
    return {
        "undo": [line.key for line in done if (line.call or {}).get("undo")],
        "left": [line.key for line in done if not (line.call or {}).get("undo")],
        "doubt": [line.key for line in own if line.state == "intent"],
    }


def _undone(
    exe: Execution, scope: Scope, call: str, line: LedgerLine, undos: Mapping[str, Callable[..., Any]]
) -> Plan[EntryData]:
    name = line.call["undo"]
    yield from exe.write(scope, [scope.entry("undoing", call, keyed=False, key=line.key, undo=name)])
    try:
        fn, args, kwargs = undo_call(exe, line, undos)
        yield Call(fn, args, kwargs, world=True)
    except (Exception, SystemExit) as error:
        entry = scope.entry("undo_failed", call, keyed=False, key=line.key, error=failure_of(error))
        yield from exe.write(scope, [entry])
    else:
        entry = scope.entry("undone", call, keyed=False, key=line.key)
        yield from exe.write(scope, [entry], marks=(Mark(line.key, "undone"),))
    return entry


def _report(entries: list[EntryData]) -> dict[str, list[str]]:
    found = {kind: [entry["key"] for entry in entries if entry["kind"] == kind] for kind in ("undone", "undo_failed")}
    first = entries[0]
    return {
        "undone": found["undone"], "failed": found["undo_failed"], "left": first["left"], "in_doubt": first["doubt"],
    }  # fmt: skip
