"""The end of a run, completed, failed or cancelled, in one commit."""

from __future__ import annotations

from holdfast.drivers import Plan
from holdfast.engine.children import cancel_children, wake_parent
from holdfast.engine.commands import EntryData, Now, Send, WriteOptions
from holdfast.engine.execution import Execution
from holdfast.engine.failures import failure_of
from holdfast.engine.record import describe_entry
from holdfast.errors import Diverged, Halted, InvalidInput, LeaseLost, MissingAwait
from holdfast.model.rows import BEGIN, CANCELLED, COMPLETED, FAILED, PAUSED, WAITING


def postpone(exe: Execution, begin_us: int) -> Plan[bool]:
    """Release a run that was claimed before the time at which it begins. Returns whether it was."""
    if exe.record.scopes or (yield Now()) >= begin_us:
        return False
    yield from exe.read_inbox(exe.root)
    if exe.cancel is not None:
        yield from _end(exe, *_last_entry(exe, None, None))
    elif exe.pause is not None:
        yield from exe.release()
    else:
        timers = ((BEGIN, begin_us),)  # a fork does not have it
        written = yield from exe.write(
            exe.root, [], status=WAITING, release=True, inbox_read=exe.inbox_read, timers=timers
        )
        exe.released = written.status
    return True


def finish(exe: Execution, result: object, error: BaseException | None, *, passing: bool = False) -> Plan[None]:
    """End or release the run after the workflow's function has returned or raised.

    `passing`: the process or the task is shutting down, and the run continues elsewhere.
    """
    if exe.released:
        return
    if isinstance(exe.stopped, (LeaseLost, Halted)):
        return  # the claim is lost, or the store refuses writes
    missing = None if passing else exe.find_missing_await(error) or exe.record.fatal
    error = missing or error
    if passing:
        exe.stop()
    diverged = exe.record.diverged
    if diverged is None and not (passing or exe.is_waiting or exe.cancel is not None):
        left = exe.record.unseen()
        if left is not None:
            diverged = Diverged(
                exe.run_id, describe_entry(left), f"nothing more: {describe_end(error)}", left["position"]
            )
            diverged.__cause__ = error
    if missing is not None or diverged is not None:  # the right code may do what follows in another order
        exe.root.pending.clear()
        exe.root.take.clear()
    if diverged is not None and exe.inbox_newest > exe.inbox_read:
        yield from exe.read_inbox(exe.root)
    if diverged is not None and exe.cancel is None:  # a cancel needs no replay of what follows
        yield from _pause_diverged(exe, diverged)
    elif diverged is None and (passing or (exe.is_waiting and missing is None)):
        yield from exe.release()
    else:
        if error is not None and exe.inbox_newest > exe.inbox_read:  # perhaps a cancellation that a child received
            yield from exe.read_inbox(exe.root)
        yield from _end(exe, *_last_entry(exe, result, error))


def describe_end(error: BaseException | None) -> str:
    """A description of the end of the workflow's function."""
    return "the workflow has ended" if error is None else f"the workflow raised {type(error).__name__}: {error}"


def _last_entry(exe: Execution, result: object, error: BaseException | None) -> tuple[EntryData, bytes]:
    """The entry that ends the run, and the encoding of its result, if known."""
    if exe.root.cleanup or exe.cancel is not None:
        facts = {"by": exe.cancel.by, **exe.cancel.source} if exe.cancel is not None else {"by": ""}
        exe.take_requests(exe.root)  # else a rollback would be cancelled again
        entry: EntryData = {"kind": CANCELLED, **facts}
        if isinstance(error, Exception):
            entry["error"] = failure_of(error)
        return entry, b""
    if error is None:
        try:
            last = {"unsatisfied": exe.unsatisfied} if exe.unsatisfied else {}
            recorded, encoding = exe.codec.record(result)
            return {"kind": COMPLETED, "result": recorded, **last}, encoding
        except Exception as unstorable:
            error = unstorable
    return {"kind": FAILED, "error": failure_of(error)}, b""


def _end(exe: Execution, entry: EntryData, encoding: bytes) -> Plan[None]:
    parent = exe.record.started.get("parent")
    send: tuple[Send, ...] = cancel_children(exe)
    if parent is not None and not parent.get("detached"):
        send = (*send, wake_parent(exe, parent))
    record = exe.record
    more: WriteOptions = {
        "release": True,
        "send": send,
        "close_gates": sorted(record.gates),
        "drop_timers": sorted(record.timers),
    }
    try:
        written = yield from exe.write(
            exe.root, [entry], status=entry["kind"], snapshot=exe.snapshot([entry]), result=encoding, **more
        )
    except (InvalidInput, MissingAwait) as refused:  # result or state cannot be stored: the run ends nevertheless
        if entry["kind"] == COMPLETED:
            entry = {"kind": FAILED, "error": failure_of(refused)}
        exe.root.pending.clear()
        written = yield from exe.write(exe.root, [entry], status=entry["kind"], **more)
    exe.released = written.status
    exe.record.ended = entry


def _pause_diverged(exe: Execution, error: Exception) -> Plan[None]:
    """Pause the run: the journal is valid, but the code does not match it."""
    exe.record.diverged = error
    entry: EntryData = {"kind": "diverged", "message": str(error)}
    if isinstance(error, Diverged):
        entry |= {"expected": error.expected, "found": error.found, "at": error.position}
    written = yield from exe.write(exe.root, [entry], status=PAUSED, release=True)
    exe.released = written.status
