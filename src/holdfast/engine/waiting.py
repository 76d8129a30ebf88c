"""Sleeping, waiting for events, sending them."""

from __future__ import annotations

import datetime as dt
from typing import Any

from holdfast.engine.commands import Now, Plan, Send
from holdfast.engine.execution import SHORT_WAIT_US, US, Execution
from holdfast.engine.scope import Scope
from holdfast.engine.steps import wait_here
from holdfast.errors import InvalidInput
from holdfast.ids import check_id

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def seconds_us(what: str, seconds: Any) -> int:
    """Seconds, or a timedelta, as microseconds."""
    if isinstance(seconds, dt.timedelta):
        seconds = seconds.total_seconds()
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 <= seconds < 10**10:
        raise InvalidInput(f"{what} must be a number of seconds, 0 or more, not {seconds!r}")
    return int(seconds * US)


def moment_us(when: Any) -> int:
    """A moment, with its time zone, as microseconds since 1970."""
    if not isinstance(when, dt.datetime) or when.tzinfo is None:
        raise InvalidInput(f"sleep_until needs a datetime with a time zone, not {when!r}")
    return (when - _EPOCH) // dt.timedelta(microseconds=1)


def sleep(exe: Execution, scope: Scope, span_us: int | None, until_us: int | None, key: str | None) -> Plan[None]:
    """Go on when the time has come. Long sleeps give the run back; nothing is held meanwhile."""
    keyed = key is not None
    with scope.call("sleep", key, ("sleep",)) as (call, entries):
        if entries:
            due_us, now_us = entries[0]["due_us"], (yield Now())
            if due_us <= now_us:
                return
            yield from exe.attend(scope, call, keyed, lasting=True)
            if due_us - now_us > SHORT_WAIT_US:  # a fork has the entry, and not the timer
                yield from exe.wait(scope, [], timers=((_timer(exe, scope, call), due_us),))
            yield from wait_here(exe, scope, due_us)
            return
        yield from exe.attend(scope, call, keyed, lasting=(span_us or 0) > SHORT_WAIT_US)
        now_us = yield Now()
        due_us = now_us + span_us if span_us is not None else until_us
        assert due_us is not None
        entry = scope.entry("sleep", call, keyed, due_us=due_us)
        if due_us - now_us > SHORT_WAIT_US:
            entry["timer"] = timer = _timer(exe, scope, call)
            yield from exe.wait(scope, [entry], timers=((timer, due_us),))
        yield from exe.write(scope, [entry])
        if due_us > now_us:
            yield from wait_here(exe, scope, due_us)


def _timer(exe: Execution, scope: Scope, call: str) -> str:
    name = scope.named(call)
    exe.record.timers.add(name)
    return name


def wait_for(exe: Execution, scope: Scope, event: str, timeout: Any, default: Any, key: str | None) -> Plan[Any]:
    """The next event of that name, or `default` if none has come in time."""
    check_id("event", event)
    keyed = key is not None
    with scope.call(f"wait_for:{event}", key, ("wait", "received")) as (call, entries):
        if entries and entries[-1]["kind"] == "received":
            return default if "timeout" in entries[-1] else entries[-1]["value"]
        yield from exe.attend(scope, call, keyed, lasting=True)
        read = exe.inbox_read
        item = exe.find_item(("event",), event)
        if item is not None:
            scope.take.append(item.number)
            entry = scope.entry("received", call, keyed, event=event, value=item.value, by=item.by, item=item.number)
            scope.pending.append(entry)
            if entries and "timer" in entries[0]:
                exe.record.timers.discard(entries[0]["timer"])
                yield from exe.write(scope, [], drop_timers=(entries[0]["timer"],))
            return item.value
        if entries:
            return (yield from _still_waiting(exe, scope, call, keyed, entries[0], default, read))
        entry, more = scope.entry("wait", call, keyed, event=event), {}
        if timeout is not None:
            due_us = (yield Now()) + seconds_us("timeout", timeout)
            entry["due_us"] = due_us
            entry["timer"] = timer = _timer(exe, scope, call)
            more = {"timers": ((timer, due_us),)}
        return (yield from exe.wait(scope, [entry], read, **more))


def _still_waiting(
    exe: Execution, scope: Scope, call: str, keyed: bool, first: dict[str, Any], default: Any, read: int
) -> Plan[Any]:
    if "due_us" in first and first["due_us"] <= (yield Now()):
        scope.pending.append(scope.entry("received", call, keyed, event=first["event"], timeout=True))
        return default
    timers = ((first["timer"], first["due_us"]),) if "timer" in first else ()
    return (yield from exe.wait(scope, [], read, timers=timers))


def send(exe: Execution, scope: Scope, target: str, event: str, value: Any, key: str | None) -> Plan[None]:
    """Send an event to another run. It arrives at least once and is recognised by its key, so it counts once."""
    check_id("run_id", target)
    check_id("event", event)
    keyed = key is not None
    with scope.call("send", key, ("sent",)) as (call, entries):
        if entries:
            return
        yield from exe.attend(scope, call, keyed)
        token = exe.codec.effect_token(exe.incarnation, scope.named(call), exe.line.epoch)
        message = Send(target, "event", event, f"{token}", exe.codec.settled(value))
        entry = scope.entry("sent", call, keyed, to=target, event=event)
        yield from exe.write(scope, [entry], send=(message,))
