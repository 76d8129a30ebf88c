"""Gates: planned stops for an answer from a person."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from holdfast.engine.commands import EntryData, Now, Open, Plan
from holdfast.engine.execution import US, Execution
from holdfast.engine.forms import Form, form_of, typed
from holdfast.engine.scope import Scope
from holdfast.errors import GateExpired, InvalidInput

ASK_KINDS = ("asked",)


class Gate(msgspec.Struct, gc=False):
    """A gate as it is opened."""

    name: str
    prompt: str
    form: Form
    show: Any = None
    who: tuple[str, ...] = ()
    expires_s: float | None = None
    expired: Any = "deny"
    purpose: Literal["ask", "in_doubt"] = "ask"

    def body(self) -> dict[str, Any]:
        """What is stored: everything another process needs to show it and to check an answer."""
        return {
            "v": 1, "prompt": self.prompt, "form": self.form.as_data(), "show": self.show, "who": list(self.who),
            "purpose": self.purpose, "expired": self.expired,
        }  # fmt: skip


class Answer(msgspec.Struct, gc=False):
    """An answer as it is recorded."""

    value: Any
    by: str
    expired: bool


def ask(
    exe: Execution, scope: Scope, prompt: str, fields: Any, *, show: Any, who: Any, expires: float | None,
    expired: Any, key: str | None, name: str = "ask",
) -> Plan[Any]:  # fmt: skip
    """Stop for an answer, or return the one that was given."""
    with scope.call(name, key, ASK_KINDS) as (call, entries):
        gate_name = scope.named(call) + (f"@{exe.line.epoch}" if exe.line.epoch else "")
        if entries and entries[-1]["kind"] == "answered":
            return _told(exe, entries[-1], fields)
        gate = Gate(gate_name, prompt, form_of(fields), exe.codec.settled(show), _names(who), expires, expired)
        if not entries:
            _check_expiry(gate, fields)
        yield from answered(exe, scope, call, key is not None, entries, gate)
        return _told(exe, scope.pending[-1], fields)


def _told(exe: Execution, entry: EntryData, fields: Any) -> Any:
    if entry.get("failed"):
        raise GateExpired(exe.run_id, entry["gate"])
    return typed(entry["answer"], fields)


def answered(
    exe: Execution, scope: Scope, call: str, keyed: bool, entries: list[EntryData], gate: Gate
) -> Plan[Answer]:
    """The gate's answer. If there is none yet the gate is opened and the run waits.

    `entries` are the call's entries since the question arose. The answer's own entry travels with the next commit; the
    answer itself is safe in the inbox until then.
    """
    if entries and entries[-1]["kind"] == "answered":
        entry = entries[-1]
        return Answer(entry["answer"], entry["by"], "expired" in entry)
    yield from exe.attend(scope, call, keyed, lasting=True)
    if not entries:
        yield from _open(exe, scope, call, keyed, gate)
    name: str = entries[-1]["gate"]
    read = exe.inbox_read
    item = exe.find_item(("answer", "expiry"), name)
    if item is None:
        yield from exe.wait(scope, [], read)
    assert item is not None
    scope.take.append(item.number)
    exe.record.gates.discard(name)
    entry = scope.entry("answered", call, keyed, gate=name, by=item.by, at_us=item.at_us)
    if item.kind == "expiry":
        entry["expired"] = True
        entry["failed"] = gate.expired == "fail"
        entry["answer"] = None if entry["failed"] else _by_default(gate)
    else:
        entry["answer"] = item.value
    scope.pending.append(entry)
    return Answer(entry["answer"], item.by, item.kind == "expiry")


def _open(exe: Execution, scope: Scope, call: str, keyed: bool, gate: Gate) -> Plan[None]:
    expires_us = None
    if gate.expires_s is not None:
        now_us: int = yield Now()
        expires_us = now_us + int(gate.expires_s * US)
    exe.record.gates.add(gate.name)
    entry = scope.entry("asked", call, keyed, gate=gate.name, prompt=gate.prompt)
    yield from exe.wait(scope, [entry], gates=(Open(gate.name, gate.body(), expires_us),))


def _by_default(gate: Gate) -> Any:
    """What counts as the answer when nobody gave one in time."""
    if gate.expired == "deny":
        return gate.form.denied()
    return gate.form.check(gate.expired).value


def _check_expiry(gate: Gate, fields: Any) -> None:
    if gate.expires_s is None:
        return
    if isinstance(gate.expires_s, bool) or not gate.expires_s > 0:
        raise InvalidInput(f"expires must be a number of seconds above 0, not {gate.expires_s!r}")
    if gate.expired == "fail":
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


def check_denial(form: Form) -> Any:
    """The answer that means "no", if the form takes it: each of its fields has a value for that."""
    denied = form.denied()
    problems = form.check(denied).problems
    if problems:
        name = problems[0].field
        raise InvalidInput(
            f"the gate cannot count as denied when it expires, since field {name!r} would have no value that fits "
            f"({name} {problems[0].reason}); give expired= or a default for {name!r}"
        )
    return denied


def _names(who: Any) -> tuple[str, ...]:
    if who is None:
        return ()
    names = (who,) if isinstance(who, str) else tuple(who)
    if not all(isinstance(name, str) and name for name in names):
        raise InvalidInput(f"who must be a name or a list of names, not {who!r}")
    return names
