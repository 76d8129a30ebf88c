"""Child runs, each with its own journal, that a parent starts and waits for.

The parent records the start, then ensures that the child exists, then waits. After a crash at any point the resumed
parent ensures it again. When a child ends it wakes its parent, which then reads the child; the message has no content.
Once a detached child exists, `child_started` records it, and the parent never accesses it again: it may be deleted.

The child of a fork is itself a fork, from the beginning, of the child that its family started by the same call. So it
reuses the outcomes of effects performed there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from holdfast.drivers import Plan
from holdfast.engine.arguments import Given, changed_argument, parts_of
from holdfast.engine.commands import Ended, EntryData, ReadFamilyChild, RunChild, Send
from holdfast.engine.execution import Execution
from holdfast.engine.failures import with_recorded_trace
from holdfast.engine.scope import Scope
from holdfast.errors import ChildFailed, InvalidInput, UnknownWorkflow
from holdfast.ids import check_id
from holdfast.model.rows import COMPLETED


class ChildSpec(msgspec.Struct, kw_only=True):
    """A child run as the user declared it."""

    workflow: Any
    name: str
    args: tuple[object, ...] = ()
    kwargs: dict[str, object] = {}
    key: str | None = None
    detached: bool = False
    enqueue: bool = False
    definition: Any = None


def child(exe: Execution, scope: Scope, spec: ChildSpec, unknown: UnknownWorkflow | None = None) -> Plan[Any]:
    """Start a child run and return its result; detached, start it and return its id.

    `unknown` refuses a child that is not recorded yet, because no process may ever execute it.
    """
    name, args, kwargs, key, detached = spec.name, spec.args, spec.kwargs, spec.key, spec.detached
    keyed = key is not None
    with scope.call(f"child:{name}", key, ("child",)) as (call, entries):
        if entries and entries[-1]["kind"] == "child_ended":
            return _replay_child(entries[-1])
        if entries and entries[-1]["kind"] == "child_started":
            return entries[0]["child"]
        digest, given = exe.codec.digest(args, kwargs), Given(None, args, kwargs)
        if digest is None:
            raise InvalidInput(f"the input of child {name!r} must be storable, because it may run in another process")
        if entries and entries[0]["digest"] != digest:
            changed = changed_argument(exe.codec, f"child {scope.full_name(call)!r}", given, entries[0])
            raise scope.diverged(entries[0], call, ("child",), changed)
        yield from exe.check_interrupts(scope, call, keyed, lasting=True)
        source: str | None = entries[0].get("of") if entries else None
        if source is None and exe.forked in ("reuse", "ask"):  # also if the process died before the child was created
            source = yield ReadFamilyChild(scope.full_name(call))
        if entries:
            child_id = entries[0]["child"]
        elif unknown is not None:
            raise unknown
        else:
            epoch = f"@{exe.resume_point.epoch}" if exe.resume_point.epoch else ""
            child_id = check_id("child run_id", _child_id(f"{exe.run_id}/{scope.full_name(call)}{epoch}"))
            entry = scope.entry("child", call, keyed, child=child_id, workflow=name, digest=digest, detached=detached)
            entry |= parts_of(exe.codec, given)
            entry |= {"of": source} if source is not None else {}
            yield from exe.write(scope, [entry])
            exe.record.children[child_id] = entry
        read = exe.inbox_read
        ended: Ended | None = yield RunChild(
            run_id=child_id,
            workflow=spec.workflow,
            args=args,
            kwargs=kwargs,
            call=scope.full_name(call),
            detached=detached,
            definition=spec.definition,
            source=source,
            forked=exe.forked,
            enqueue=spec.enqueue,
        )
        if detached:
            scope.pending.append(scope.entry("child_started", call, keyed, child=child_id))
            return child_id
        if ended is None:
            yield from exe.suspend_on(scope, [], read)
        return (yield from _record_end(exe, scope, call, keyed, child_id, ended))


def _child_id(name: str) -> str:
    """The id of a child. A long id is shortened, so that the ids of its own children still fit."""
    if len(name.encode()) <= _ID_BYTES:
        return name
    return f"{name[: _ID_BYTES // 8]}…{hashlib.blake2s(name.encode(), digest_size=12).hexdigest()}"


_ID_BYTES: Final = 400


def _record_end(
    exe: Execution, scope: Scope, call: str, keyed: bool, child_id: str, ended: Ended | None
) -> Plan[object]:
    assert ended is not None
    facts: EntryData = {"result": ended.result} if ended.status == COMPLETED else {"error": ended.failure}
    entry = scope.entry("child_ended", call, keyed, child=child_id, status=ended.status, **facts)
    wake = exe.find_item(("event",), wake_name(scope.full_name(call)))
    if wake is not None:
        scope.take.append(wake.number)
    yield from exe.write(scope, [entry])
    exe.record.children.pop(child_id, None)
    return _replay_child(entry)


def _replay_child(entry: EntryData) -> object:
    if "error" in entry:
        raise with_recorded_trace(ChildFailed(entry["child"], entry["error"]))
    return entry["result"]


def wake_name(call: str) -> str:
    """The name of the event by which a child wakes its parent."""
    return f"holdfast.child/{call}"


def cancel_children(exe: Execution) -> tuple[Send, ...]:
    """Cancellations for the attached children that have not ended when their parent ends."""
    return tuple(
        Send(child_id, "cancel", "cancel", f"parent/{exe.run_id}/{child_id}")
        for child_id, entry in exe.record.children.items()
        if not entry["detached"]
    )


def wake_parent(exe: Execution, parent: Mapping[str, str]) -> Send:
    """The event of a child that ends. The key names this end: a child that is rolled back ends more than once."""
    key = f"ended/{exe.run_id}/{exe.incarnation.hex()}/{exe.position}"
    return Send(parent["run"], "event", wake_name(parent["call"]), key)
