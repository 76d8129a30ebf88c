"""Child runs: runs of their own, with their own journal, that a parent starts and waits for.

The parent first records that it starts the child, then makes sure that the child is there, then waits. So a crash at
any moment strands neither: on resume the parent makes sure again. When a child ends it wakes its parent, which then
looks at the child itself; the message carries nothing. Once a detached child is known to be there, `child_started`
records it, and the parent never touches it again: it may have been deleted since.

The child of a fork is itself a fork, from the beginning, of the child its family started by the same call. So it takes
over the outcomes of effects performed there.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final

from holdfast.engine.call_arguments import Given, changed_argument, parts_of
from holdfast.engine.commands import Ended, EntryData, Plan, ReadFamilyChild, RunChild, Send
from holdfast.engine.execution import Execution
from holdfast.engine.failures import with_recorded_trace
from holdfast.engine.scope import Scope
from holdfast.errors import ChildFailed, InvalidInput, UnknownWorkflow
from holdfast.ids import check_id
from holdfast.model.status import COMPLETED


def child(
    exe: Execution, scope: Scope, workflow: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any],
    key: str | None, detached: bool, definition: Any = None, enqueue: bool = False,
    unknown: UnknownWorkflow | None = None,
) -> Plan[Any]:  # fmt: skip
    """Start a child run and return its result; detached, start it and return its id.

    `unknown` refuses a child that is not recorded yet, since no process might ever execute it.
    """
    keyed = key is not None
    with scope.call(f"child:{name}", key, ("child",)) as (call, entries):
        if entries and entries[-1]["kind"] == "child_ended":
            return _told(entries[-1])
        if entries and entries[-1]["kind"] == "child_started":
            return entries[0]["child"]
        digest, given = exe.codec.digest(args, kwargs), Given(None, args, kwargs)
        if digest is None:
            raise InvalidInput(f"the input of child {name!r} must be storable, since it may run in another process")
        if entries and entries[0]["digest"] != digest:
            changed = changed_argument(exe.codec, f"child {scope.named(call)!r}", given, entries[0])
            raise scope.diverged(entries[0], call, ("child",), changed)
        yield from exe.attend(scope, call, keyed, lasting=True)
        if entries:
            child_id = entries[0]["child"]
        elif unknown is not None:
            raise unknown
        else:
            epoch = f"@{exe.line.epoch}" if exe.line.epoch else ""
            child_id = check_id("child run_id", _child_id(f"{exe.run_id}/{scope.named(call)}{epoch}"))
            entry = scope.entry("child", call, keyed, child=child_id, workflow=name, digest=digest, detached=detached)
            entry |= parts_of(exe.codec, given)
            if exe.forked in ("reuse", "ask"):
                of: str | None = yield ReadFamilyChild(scope.named(call))
                entry |= {"of": of} if of is not None else {}
            yield from exe.write(scope, [entry])
            exe.record.children[child_id] = entry
        source = entries[0].get("of") if entries else entry.get("of")
        read = exe.inbox_read
        ended: Ended | None = yield RunChild(
            child_id, workflow, args, kwargs, scope.named(call), detached, definition, source, exe.forked, enqueue
        )
        if detached:
            scope.pending.append(scope.entry("child_started", call, keyed, child=child_id))
            return child_id
        if ended is None:
            yield from exe.wait(scope, [], read)
        return (yield from _ended(exe, scope, call, keyed, child_id, ended))


def _child_id(name: str) -> str:
    """The id of a child; that of one deep inside others is shortened, so that there is room for those inside it."""
    if len(name.encode()) <= _ID_BYTES:
        return name
    return f"{name[: _ID_BYTES // 8]}…{hashlib.blake2s(name.encode(), digest_size=12).hexdigest()}"


_ID_BYTES: Final = 400


def _ended(exe: Execution, scope: Scope, call: str, keyed: bool, child_id: str, ended: Ended | None) -> Plan[Any]:
    assert ended is not None
    facts: dict[str, Any] = {"result": ended.result} if ended.status == COMPLETED else {"error": ended.failure}
    entry = scope.entry("child_ended", call, keyed, child=child_id, status=ended.status, **facts)
    wake = exe.find_item(("event",), wake_name(scope.named(call)))
    if wake is not None:
        scope.take.append(wake.number)
    yield from exe.write(scope, [entry])
    exe.record.children.pop(child_id, None)
    return _told(entry)


def _told(entry: EntryData) -> Any:
    if "error" in entry:
        raise with_recorded_trace(ChildFailed(entry["child"], entry["error"]))
    return entry["result"]


def wake_name(call: str) -> str:
    """The name of the event by which a child wakes its parent."""
    return f"holdfast.child/{call}"


def farewell(exe: Execution) -> tuple[Send, ...]:
    """When a run ends: its children that have not ended are cancelled, unless they are on their own."""
    return tuple(
        Send(child_id, "cancel", "cancel", f"parent/{exe.run_id}/{child_id}")
        for child_id, entry in exe.record.children.items()
        if not entry["detached"]
    )


def wake_parent(exe: Execution, parent: dict[str, Any]) -> Send:
    """What a child sends when it ends. The key names this end: a child that is rolled back ends more than once."""
    key = f"ended/{exe.run_id}/{exe.incarnation.hex()}/{exe.position}"
    return Send(parent["run"], "event", wake_name(parent["call"]), key)
