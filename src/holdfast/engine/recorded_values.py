"""Values recorded once: time, random values, code versions, log lines, checkpoints."""

from __future__ import annotations

import datetime as dt
import random as randomness
import uuid as uuids
from typing import Any

from holdfast.drivers import Plan
from holdfast.engine.commands import Command, Now, RandomBytes, Snapshot
from holdfast.engine.execution import Execution
from holdfast.engine.scope import Scope
from holdfast.errors import InvalidInput
from holdfast.ids import check_id

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
LEVELS = ("debug", "info", "warning", "error")


def now(exe: Execution, scope: Scope) -> Plan[dt.datetime]:
    """The time of the first execution, in UTC."""
    us: int = yield from _record_once(exe, scope, "now", Now())
    return _EPOCH + dt.timedelta(microseconds=us)


def random(exe: Execution, scope: Scope) -> Plan[randomness.Random]:
    """A random generator that a replay repeats."""
    seed: bytes = yield from _record_once(exe, scope, "random", RandomBytes(16))
    return randomness.Random(seed)  # noqa: S311 - not for secrets


def uuid(exe: Execution, scope: Scope) -> Plan[uuids.UUID]:
    """A new id that a replay repeats."""
    drawn: bytes = yield from _record_once(exe, scope, "uuid", RandomBytes(16))
    return uuids.UUID(bytes=drawn, version=4)


def _record_once(exe: Execution, scope: Scope, name: str, command: Command) -> Plan[Any]:
    call, entries = scope.enter(name, None, ("value",))
    scope.leave()
    if entries:
        return entries[0]["value"]
    if exe.stopped is not None:
        raise exe.stopped
    value = yield command
    scope.pending.append(scope.entry("value", call, False, value=value))
    return value


def version(exe: Execution, scope: Scope, name: str, number: int) -> Plan[int]:
    """The version of the code for this run: `number`, or 0 for a run that passed here before the change."""
    check_id("version name", name)
    if type(number) is not int or number < 1:
        raise InvalidInput(f"version must be a whole number from 1, not {number!r}")
    if scope.stopped is not None:
        raise scope.stopped
    versions = exe.record.versions
    if name not in versions:
        versions[name] = 0 if scope.has_unreplayed else number
        scope.pending.append({"kind": "version", "name": name, "number": versions[name]})
    yield from ()
    return versions[name]


def log(exe: Execution, scope: Scope, message: str, level: str, data: dict[str, object]) -> Plan[bool]:
    """Write a log line to the journal, once. False if the journal already has it."""
    if level not in LEVELS:
        raise InvalidInput(f"level must be one of {', '.join(LEVELS)}, not {level!r}")
    if scope.stopped is not None:
        raise scope.stopped
    if scope.logged > 0:
        scope.logged -= 1
        return False
    entry = {"kind": "log", "call": "log", "level": level, "message": str(message)}
    if data:
        entry["data"] = exe.codec.round_trip(data)
    if scope.path:
        entry["in"] = scope.path
    scope.pending.append(entry)
    yield from ()
    return True


def checkpoint(exe: Execution, scope: Scope, metadata: dict[str, object] | None, key: str | None) -> Plan[None]:
    """Save the state, for history, rollback and fork. It does not shorten a replay."""
    with scope.call("checkpoint", key, ("saved",)) as (call, entries):
        if entries:
            return
        yield from exe.check_interrupts(scope, call, key is not None)
        resume = exe.resume_point.metadata_at(exe.position, exe.version)
        snapshot = Snapshot(exe.state, resume, exe.position, metadata)
        yield from exe.write(scope, [scope.entry("saved", call, key is not None)], snapshot=snapshot)
