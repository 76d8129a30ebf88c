"""The end of a run: completed, failed or cancelled, in one commit with everything that ends with it."""

from __future__ import annotations

from typing import Any

from holdfast.engine.children import farewell, wake_parent
from holdfast.engine.commands import EntryData, Plan, Send
from holdfast.engine.execution import Execution
from holdfast.engine.failures import failure_of
from holdfast.engine.record import shown
from holdfast.errors import Diverged, Halted, InvalidInput, LeaseLost, MissingAwait, RunError
from holdfast.model.status import CANCELLED, COMPLETED, FAILED, PAUSED


def finish(exe: Execution, result: Any, error: BaseException | None, *, passing: bool = False) -> Plan[None]:
    """After the workflow's function has ended, in whatever way: end the run, or give it back.

    `passing`: the process or the task is being ended, and the run goes on elsewhere.
    """
    if exe.released:
        return
    if isinstance(exe.stopped, (LeaseLost, Halted)):
        return  # it is not ours any more, or nobody can write to it now
    missing = None if passing else exe.find_missing_await(error) or exe.record.misused
    if missing is not None:  # what was done after it would be done in another order by code that awaits it
        error = missing
        exe.root.pending.clear()
        exe.root.take.clear()
    if passing:
        exe.stop()
    diverged = exe.record.diverged
    if diverged is None and not (passing or exe.is_waiting or exe.cancel is not None):
        left = exe.record.unseen()
        if left is not None:
            diverged = Diverged(exe.run_id, shown(left), f"nothing more: {_how(error)}", left["position"])
            diverged.__cause__ = error
    if diverged is not None:
        yield from _diverged(exe, diverged)
    elif passing or (exe.is_waiting and missing is None):
        yield from exe.give_back()
    else:
        if error is not None and exe.inbox_newest > exe.inbox_read:  # perhaps a cancellation, which came by a child
            yield from exe.read_inbox(exe.root)
        yield from _end(exe, _last_entry(exe, result, error))


def _how(error: BaseException | None) -> str:
    """How the workflow's function came to its end."""
    return "the workflow has ended" if error is None else f"the workflow raised {type(error).__name__}: {error}"


def _last_entry(exe: Execution, result: Any, error: BaseException | None) -> EntryData:
    if exe.root.cleanup or exe.cancel is not None:
        by = exe.cancel.by if exe.cancel is not None else ""
        entry: EntryData = {"kind": CANCELLED, "by": by}
        if isinstance(error, Exception):
            entry["error"] = failure_of(error)
        return entry
    if error is None:
        try:
            last = {"unsatisfied": exe.unsatisfied} if exe.unsatisfied else {}
            return {"kind": COMPLETED, "result": exe.codec.settled(result), **last}
        except Exception as unstorable:
            error = unstorable
    return {"kind": FAILED, "error": failure_of(error)}


def _end(exe: Execution, entry: EntryData) -> Plan[None]:
    parent = exe.record.started.get("parent")
    send: tuple[Send, ...] = farewell(exe)
    if parent is not None and not parent.get("detached"):
        send = (*send, wake_parent(exe, parent))
    record = exe.record
    more: dict[str, Any] = {
        "release": True, "send": send, "close_gates": sorted(record.gates), "drop_timers": sorted(record.timers),
    }  # fmt: skip
    try:
        written = yield from exe.write(exe.root, [entry], status=entry["kind"], snapshot=exe.snapshot([entry]), **more)
    except (
        InvalidInput,
        MissingAwait,
    ) as refused:  # result or state cannot be stored: the run ends all the same
        if entry["kind"] == COMPLETED:
            entry = {"kind": FAILED, "error": failure_of(refused)}
        exe.root.pending.clear()
        written = yield from exe.write(exe.root, [entry], status=entry["kind"], **more)
    exe.released = written.status
    exe.record.ended = entry


def _diverged(exe: Execution, error: RunError) -> Plan[None]:
    """Pause the run: its journal is fine, the code is not. Nothing that was pending is written."""
    exe.root.pending.clear()
    exe.record.diverged = error
    entry: EntryData = {"kind": "diverged", "message": str(error)}
    if isinstance(error, Diverged):
        entry |= {"expected": error.expected, "found": error.found, "at": error.position}
    written = yield from exe.write(exe.root, [entry], status=PAUSED, release=True)
    exe.released = written.status
