"""Calls that wait for time, events and answers, and the call that sends an event.

A call that waits records what it waits for in the commit that suspends the run. An item of the inbox is taken in the
commit that records it, so it is neither lost nor used twice.
"""

from __future__ import annotations

import datetime as dt
from typing import Any, Literal

import msgspec

from holdfast.drivers import Plan
from holdfast.engine.approvals import GateRules, is_approval, people
from holdfast.engine.commands import EntryData, Item, Now, OpenGate, ReadGate, Send
from holdfast.engine.execution import SHORT_WAIT_US, US, Execution
from holdfast.engine.scope import Scope
from holdfast.engine.steps import wait_here
from holdfast.errors import GateExpired, InvalidInput
from holdfast.forms import Form, form_of, typed
from holdfast.ids import check_id

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def seconds_us(what: str, seconds: object, least: str = "0 or more") -> int:
    """Seconds, or a timedelta, as microseconds; `least` is "0 or more" or "above 0"."""
    if isinstance(seconds, dt.timedelta):
        seconds = seconds.total_seconds()
    if (
        isinstance(seconds, bool)
        or not isinstance(seconds, (int, float))
        or not 0 <= seconds < 10**10
        or (least == "above 0" and not seconds)
    ):
        raise InvalidInput(f"{what} must be a number of seconds, {least}, not {seconds!r}")
    return int(seconds * US)


def moment_us(when: object, what: str = "sleep_until") -> int:
    """A datetime with a time zone, as microseconds since 1970."""
    if not isinstance(when, dt.datetime) or when.tzinfo is None:
        raise InvalidInput(f"{what} needs a datetime with a time zone, not {when!r}")
    return (when - _EPOCH) // dt.timedelta(microseconds=1)


def sleep(exe: Execution, scope: Scope, span_us: int | None, until_us: int | None, key: str | None) -> Plan[None]:
    """Continue when the time has come. Long sleeps release the run."""
    keyed = key is not None
    with scope.call("sleep", key, ("sleep",)) as (call, entries):
        if entries:
            due_us, now_us = entries[0]["due_us"], (yield Now())
            if due_us <= now_us:
                return
            yield from exe.check_interrupts(scope, call, keyed, lasting=True)
            if due_us - now_us > SHORT_WAIT_US:  # a fork has the entry, but not the timer
                yield from exe.suspend_on(scope, [], timers=((_timer(exe, scope, call), due_us),))
            yield from wait_here(exe, scope, due_us)
            return
        yield from exe.check_interrupts(scope, call, keyed, lasting=(span_us or 0) > SHORT_WAIT_US)
        now_us = yield Now()
        due_us = now_us + span_us if span_us is not None else until_us
        assert due_us is not None
        entry = scope.entry("sleep", call, keyed, due_us=due_us)
        if due_us - now_us > SHORT_WAIT_US:
            entry["timer"] = timer = _timer(exe, scope, call)
            yield from exe.suspend_on(scope, [entry], timers=((timer, due_us),))
        yield from exe.write(scope, [entry])
        if due_us > now_us:
            yield from wait_here(exe, scope, due_us)


def _timer(exe: Execution, scope: Scope, call: str) -> str:
    name = scope.full_name(call)
    exe.record.timers.add(name)
    return name


def wait_for(exe: Execution, scope: Scope, event: str, timeout: object, default: object, key: str | None) -> Plan[Any]:
    """The next event of that name, or `default` if none arrives in time."""
    check_id("event", event)
    keyed = key is not None
    with scope.call(f"wait_for:{event}", key, ("wait", "received")) as (call, entries):
        if entries and entries[-1]["kind"] == "received":
            return default if "timeout" in entries[-1] else entries[-1]["value"]
        yield from exe.check_interrupts(scope, call, keyed, lasting=True)
        read = exe.inbox_read
        item = exe.find_item(("event",), event)
        if item is not None:
            scope.take.append(item.number)
            entry = scope.entry("received", call, keyed, event=event, value=item.value, by=item.by, item=item.number)
            entry |= item.source
            scope.pending.append(entry)
            if entries and "timer" in entries[0]:
                exe.record.timers.discard(entries[0]["timer"])
                yield from exe.write(scope, [], drop_timers=(entries[0]["timer"],))
            return item.value
        if entries:
            return (yield from _keep_waiting(exe, scope, call, keyed, entries[0], default, read))
        entry, more = scope.entry("wait", call, keyed, event=event), {}
        if timeout is not None:
            due_us = (yield Now()) + seconds_us("timeout", timeout)
            entry["due_us"] = due_us
            entry["timer"] = timer = _timer(exe, scope, call)
            more = {"timers": ((timer, due_us),)}
        return (yield from exe.suspend_on(scope, [entry], read, **more))


def _keep_waiting(
    exe: Execution, scope: Scope, call: str, keyed: bool, first: EntryData, default: object, read: int
) -> Plan[object]:
    if "due_us" in first and first["due_us"] <= (yield Now()):
        scope.pending.append(scope.entry("received", call, keyed, event=first["event"], timeout=True))
        return default
    timers = ((first["timer"], first["due_us"]),) if "timer" in first else ()
    return (yield from exe.suspend_on(scope, [], read, timers=timers))


def send(exe: Execution, scope: Scope, target: str, event: str, value: object, key: str | None) -> Plan[None]:
    """Send an event to another run. Delivery is at least once; its key makes it count once."""
    check_id("run_id", target)
    check_id("event", event)
    keyed = key is not None
    with scope.call("send", key, ("sent",)) as (call, entries):
        if entries:
            return
        yield from exe.check_interrupts(scope, call, keyed)
        token = exe.codec.effect_token(exe.incarnation, scope.full_name(call), exe.resume_point.epoch)
        message = Send(target, "event", event, f"{token}", exe.codec.round_trip(value))
        entry = scope.entry("sent", call, keyed, to=target, event=event)
        yield from exe.write(scope, [entry], send=(message,))


ASK_KINDS = ("asked",)


class Gate(msgspec.Struct):
    """A gate to open."""

    name: str
    prompt: str
    form: Form
    show: object = None
    rules: GateRules = GateRules()
    expires_s: float | None = None
    expired: object = "deny"
    purpose: Literal["ask", "in_doubt"] = "ask"

    def body(self) -> EntryData:
        """The stored gate: everything that another process needs to show it and to check an answer."""
        rules = self.rules.to_body()
        return {
            "v": rules.pop("v"),
            "prompt": self.prompt,
            "form": self.form.as_data(),
            "show": self.show,
            "who": list(self.rules.who),
            "purpose": self.purpose,
            "expired": self.expired,
            **rules,
        }


class AskSpec(msgspec.Struct, kw_only=True):
    """The arguments of `ask`, checked."""

    prompt: str
    fields: object = None
    show: object = None
    who: object = None
    expires: float | dt.timedelta | None = None
    expired: object = "deny"
    key: str | None = None
    name: str = "ask"
    rules: GateRules = GateRules()

    def __post_init__(self) -> None:
        if not isinstance(self.prompt, str) or not self.prompt:
            raise InvalidInput(f"ask needs a question as text, not {self.prompt!r}")
        if self.expires is not None:
            self.expires = seconds_us("expires", self.expires, "above 0") / US
        self.rules = GateRules(people("who", self.who))

    def set_rules(self, approvals: int, not_by: object, escalate: object) -> None:
        """Set how many must approve, the people that may not answer, and the levels of escalation."""
        self.rules = GateRules(self.rules.who, people("not_by", not_by), approvals, _levels(escalate))

    def gate(self, exe: Execution, name: str) -> Gate:
        """The gate for this question."""
        expires_s = self.expires
        assert not isinstance(expires_s, dt.timedelta)
        show, form = exe.codec.round_trip(self.show), form_of(self.fields)
        self.rules.check_form(form)
        return Gate(name, self.prompt, form, show, self.rules, expires_s, self.expired)


def ask(exe: Execution, scope: Scope, spec: AskSpec) -> Plan[Any]:
    """Wait for an answer, or return the recorded one."""
    with scope.call(spec.name, spec.key, ASK_KINDS) as (call, entries):
        gate_name = scope.full_name(call) + (f"@{exe.resume_point.epoch}" if exe.resume_point.epoch else "")
        if entries and entries[-1]["kind"] == "answered":
            answer = entries[-1]
        else:
            gate = spec.gate(exe, gate_name)
            if entries:
                yield from _check_fields(scope, call, entries[-1], gate.form)
            else:
                _check_expiry(gate, spec.fields)
            answer = yield from wait_for_answer(exe, scope, call, spec.key is not None, entries, gate)
        if answer.get("failed"):
            raise GateExpired(exe.run_id, answer["gate"])
        return typed(answer["answer"], spec.fields)


def _check_fields(scope: Scope, call: str, asked: EntryData, form: Form) -> Plan[None]:
    """Raise Diverged if the open gate has other fields than the code: its answer would not fit."""
    body = yield ReadGate(asked["gate"])
    if body and not form.fits_answers_of(Form.from_data(body["form"])):
        raise scope.diverged(asked, call, ASK_KINDS, changed="fields")


def wait_for_answer(
    exe: Execution, scope: Scope, call: str, keyed: bool, entries: list[EntryData], gate: Gate
) -> Plan[EntryData]:
    """The entry of the gate's answer. If there is none yet, open the gate and suspend the run.

    `entries` are the entries of the call since the question arose. The entry of the answer joins the next commit; until
    then the inbox keeps the answer.
    """
    if entries and entries[-1]["kind"] == "answered":
        return entries[-1]
    yield from exe.check_interrupts(scope, call, keyed, lasting=True)
    if not entries:
        yield from _open(exe, scope, call, keyed, gate)
    asked, read = entries[-1], exe.inbox_read
    name: str = asked["gate"]
    item = exe.find_item(("answer", "expiry"), name)
    if item is None:
        yield from exe.suspend_on(scope, [], read)
    assert item is not None
    approved = (yield from _approvals(gate, name, item)) if "approvals" in asked else []
    scope.take.append(item.number)
    exe.record.gates.discard(name)
    entry = scope.entry("answered", call, keyed, gate=name, by=item.by, at_us=item.at_us)
    if item.kind == "expiry":
        entry["expired"] = True
        entry["failed"] = gate.expired == "fail"
        own = gate.form.denial() if gate.expired == "deny" else gate.form.check(gate.expired).value
        entry["answer"] = None if entry["failed"] else own
    else:
        entry["answer"] = item.value
        entry |= item.source
    entry |= {"approved": approved} if approved else {}
    scope.pending.append(entry)
    return entry


def _approvals(gate: Gate, name: str, item: Item) -> Plan[list[EntryData]]:
    """The approvals of a gate that needed several, in order; the last may be the answer itself."""
    body: EntryData = yield ReadGate(name)
    approved = list(body.get("approved", ()))
    if item.kind == "answer" and is_approval(gate.form, item.value):
        approved.append({"by": item.by, "at_us": item.at_us, "via": item.via, "answer": item.value})
    return approved


def _open(exe: Execution, scope: Scope, call: str, keyed: bool, gate: Gate) -> Plan[None]:
    expires_us = None
    if gate.expires_s is not None:
        now_us: int = yield Now()
        expires_us = now_us + int(gate.expires_s * US)
    exe.record.gates.add(gate.name)
    entry = scope.entry("asked", call, keyed, gate=gate.name, prompt=gate.prompt)
    entry |= {"approvals": gate.rules.approvals} if gate.rules.approvals > 1 else {}
    yield from exe.suspend_on(scope, [entry], gates=(OpenGate(gate.name, gate.body(), expires_us),))


def _check_expiry(gate: Gate, fields: object) -> None:
    if gate.expires_s is None or gate.expired == "fail":
        return
    if gate.expired == "deny":
        typed(check_denial(gate.form), fields)
        return
    problems = gate.form.check(gate.expired).problems
    if problems:
        raise InvalidInput(
            "the answer given for expiry does not fit the gate's own fields: "
            + "; ".join(f"{problem.field} {problem.reason}" for problem in problems)
        )


def check_denial(form: Form) -> object:
    """The answer that means "no"; raises InvalidInput if the form does not accept it."""
    denied = form.denial()
    problems = form.check(denied).problems
    if problems:
        name = problems[0].field
        raise InvalidInput(
            f"the gate cannot count as denied when it expires, because field {name!r} would have no value that fits "
            f"({name} {problems[0].reason}); give expired= or a default for {name!r}"
        )
    return denied


def _levels(escalate: object) -> tuple[tuple[int, tuple[str, ...]], ...]:
    """The levels of escalation, checked, soonest first."""
    found = []
    for level in escalate if isinstance(escalate, (list, tuple)) else () if escalate is None else (escalate,):
        if not isinstance(level, (list, tuple)) or len(level) != 2 or not people("escalate", level[1]):
            raise InvalidInput(f"escalate must be a list of (seconds, who), and {level!r} is not such a pair")
        found.append((seconds_us("the time in escalate", level[0], "above 0"), people("escalate", level[1])))
    return tuple(sorted(found, key=lambda level: level[0]))
