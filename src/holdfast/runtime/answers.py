"""Gates from outside: list them, answer them, change the people that may answer.

The rules are those in the stored body of a gate, as it was read. An answer and a change of the body name the checksum
of that gate, so neither is accepted once another process has changed the gate.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Final, NamedTuple

from holdfast.drivers import Plan
from holdfast.engine.approvals import add_approval, is_approval, people, reassign
from holdfast.engine.commands import EntryData
from holdfast.engine.effect_outcome import outcome_problems
from holdfast.engine.record import record_of
from holdfast.errors import (
    AlreadyAnswered,
    GateClosed,
    InvalidAnswer,
    InvalidCursor,
    InvalidInput,
    LimitExceeded,
    NotFound,
    RunEnded,
)
from holdfast.ids import check_id, check_via, find_gates, gate_labels, item_key
from holdfast.limits import ASSIGNMENTS_MAX
from holdfast.model.commit import OUTSIDER, Commit, Guard, NewGate, NewItem, Refused
from holdfast.model.rows import TERMINAL, GateRow, RunRow
from holdfast.model.views import GateInfo
from holdfast.operations.gates import GATE_STATES, gate_body, gate_info, question_of
from holdfast.operations.views import encode_body, moment
from holdfast.runtime import control
from holdfast.runtime.control import GateChanged, default_actor, deliver, raise_refusal
from holdfast.runtime.replay_input import CODEC, first_entry, read_replay_input
from holdfast.runtime.start import Claimed
from holdfast.store.checksum import verify_run

if TYPE_CHECKING:
    from holdfast.runtime.app_core import AppCore

_TRIES: Final = 32
"""How often a gate is read again because another process has changed it."""


class Actor(NamedTuple):
    """A person that acts on a gate, and where the action came from."""

    by: str | None = None
    groups: Collection[str] = ()
    via: str = ""

    def checked(self) -> Actor:
        """With the default name; InvalidInput if a part is invalid."""
        if isinstance(self.groups, str) or not all(isinstance(name, str) and name for name in self.groups):
            raise InvalidInput(f"groups must be a list of names, not {self.groups!r}")
        return Actor(default_actor(self.by), tuple(self.groups), check_via(self.via))


Place = tuple[int, int, str]
"""Where a page of gates begins: time of opening, number of the run, and gate of the last one of the page before."""


def place_of(cursor: str | None) -> Place | None:
    """The place that `GateInfo.cursor` names."""
    if cursor is None:
        return None
    opened, _, rest = cursor.partition("/") if isinstance(cursor, str) else ("", "", "")
    run, _, gate = rest.partition("/")
    if not gate or not all(part.isascii() and part.isdigit() and len(part) < 20 for part in (opened, run)):
        raise InvalidCursor(f"after must be the cursor of a gate, as GateInfo.cursor has it, not {cursor!r}")
    return int(opened), int(run), gate


def gates(
    app: AppCore, run_id: str | None = None, state: str | None = "open", limit: int = 1000, after: str | None = None
) -> Plan[list[GateInfo]]:
    """The gates of one run or of all, longest open first; only those after the cursor `after`."""
    if state not in (None, *GATE_STATES):
        raise InvalidInput(f"state must be one of {', '.join(GATE_STATES)}, or None for all, not {state!r}")
    place, now_us = place_of(after), app.core.clock.now_us()
    if run_id is None:
        found = yield lambda: app.core.port.gates(state, limit, place)
        return [gate_info(run, row, now_us) for run, row in found]
    run = yield from control.require_run(app, run_id)
    rows: list[GateRow] = yield lambda: app.core.gates_of(run.run, state)
    if place is not None:
        rows = [row for row in rows if (row.opened_us, run.run, row.gate) > place]
    return [gate_info(run, row, now_us) for row in rows[:limit]]


# --- answers ---------------------------------------------------------------------------------------------------------


def answer(
    app: AppCore, run_id: str, value: object, actor: Actor, gate: str | None, question: str | None, *, here: bool
) -> Plan[tuple[RunRow, Claimed | None]]:
    """Answer a gate. The first answer counts; an answer that does not fit changes nothing.

    If several people must approve, an approval before the last one is recorded in the gate and does not wake the run.
    An answer to a `question` is refused if the gate asks another one.
    """
    actor, tries = actor.checked(), 0
    while True:
        tries += 1
        row, chosen = yield from _find_gate(app, run_id, gate)
        gate = chosen.gate  # not another one that the run has opened since
        if question is not None and question != question_of(row, chosen):
            raise GateClosed(run_id, gate, "replaced", "it asks another question now; read it again")
        try:
            return row, (yield from _answer_once(app, row, chosen, value, actor, here=here))
        except GateChanged:
            if tries >= _TRIES:
                raise
        except RunEnded:  # the run may have ended with an earlier answer to this gate, which is the better reason
            answered: list[GateRow] = yield lambda row=row: app.core.gates_of(row.run, "answered")
            first = next((other for other in answered if other.gate == chosen.gate), None)
            if first is None or first.answered_us is None:
                raise
            at = moment(first.answered_us).isoformat()
            raise AlreadyAnswered(run_id, chosen.gate, first.answered_by or "", at) from None


def _answer_once(
    app: AppCore, row: RunRow, chosen: GateRow, value: object, actor: Actor, *, here: bool
) -> Plan[Claimed | None]:
    """Record an answer to the gate as it was read. Raises GateChanged if it was changed since."""
    now_us = app.core.clock.now_us()
    info = gate_info(row, chosen, now_us)
    by = default_actor(actor.by)
    is_open = chosen.state == "open"
    refused = info.may_answer(by, actor.groups) if is_open else None
    if refused is not None:
        raise InvalidAnswer(row.run_id, info.gate, [refused])
    checked = info.form.check(value)
    problems = checked.problems or outcome_problems(info.purpose, checked.value)
    if problems and is_open:
        raise InvalidAnswer(row.run_id, info.gate, [str(problem) for problem in problems])
    plain = CODEC.round_trip(checked.value)
    if is_open and len(info.approved) + 1 < info.approvals and is_approval(info.form, plain):
        approval = {"by": by, "at_us": now_us, "via": actor.via, "answer": plain}
        yield from _replace_body(app, row, chosen, add_approval(gate_body(row, chosen), approval))
        return None
    body = encode_body(app.core, plain, "an answer")
    item = NewItem("answer", info.gate, item_key("answer", actor.via, app.token(12)), by, body, chosen.seal)
    claimed = yield from deliver(app, row, item, here=here)
    return None if claimed is None else claimed._replace(answered=(chosen.gate, gate_body(row, chosen)))


def _replace_body(app: AppCore, row: RunRow, chosen: GateRow, body: EntryData) -> Plan[None]:
    """Replace the body of an open gate that has not changed since it was read."""
    new = NewGate(chosen.gate, encode_body(app.core, body, "a gate"), chosen.expires_us, replaces=chosen.seal)
    commit = Commit(row.run_id, app.token(8), Guard(OUTSIDER, incarnation=row.incarnation), gates=(new,))
    outcome = yield commit
    if isinstance(outcome, Refused):
        raise_refusal(app, commit, outcome)


def reassign_gate(
    app: AppCore, run_id: str, who: object, actor: Actor, gate: str | None, reason: str, *, must_answer: bool
) -> Plan[GateInfo]:
    """Change the people that may answer an open gate; return the gate as it is then.

    `must_answer`: only a person that may answer it may do so, as the gate is when it is changed.
    """
    actor, names, tries = actor.checked(), people("who", who), 0
    if not names:
        raise InvalidInput("reassign needs at least one name in who")
    if not isinstance(reason, str):
        raise InvalidInput(f"the reason must be text, not {reason!r}")
    while True:
        tries += 1
        row, chosen = yield from _find_gate(app, run_id, gate)
        gate = chosen.gate
        now_us, body = app.core.clock.now_us(), gate_body(row, chosen)
        refused = gate_info(row, chosen, now_us).may_answer(default_actor(actor.by), actor.groups)
        if must_answer and refused is not None:
            place = f"gate {chosen.gate!r} of run {run_id!r}"
            raise InvalidInput(f"{place} was not reassigned: only a person that may answer it can do that; {refused}")
        if len(body.get("assigned", ())) >= ASSIGNMENTS_MAX:
            place = f"gate {chosen.gate!r} of run {run_id!r}"
            raise LimitExceeded(f"{place} was already reassigned {ASSIGNMENTS_MAX} times; answer it")
        facts = {"by": actor.by, "at_us": now_us, "via": actor.via, "reason": reason}
        try:
            yield from _replace_body(app, row, chosen, reassign(body, chosen.opened_us, names, facts))
            break
        except GateChanged:
            if tries >= _TRIES:
                raise
    found: list[GateRow] = yield lambda: app.core.gates_of(row.run, None)
    return next(gate_info(row, other, now_us) for other in found if other.gate == chosen.gate)


def _find_gate(app: AppCore, run_id: str, gate: str | None) -> Plan[tuple[RunRow, GateRow]]:
    """The run, and the gate of it that is meant."""
    row = yield from control.require_run(app, run_id)
    known: list[GateRow] = yield lambda: app.core.gates_of(row.run, None)
    fits = find_gates(known, gate) if gate is not None else known
    hint: str = (yield lambda: _child_gates(app, row)) if not fits and row.status not in TERMINAL else ""
    return row, _choose_gate(row, known, gate, hint)


def _child_gates(app: AppCore, row: RunRow) -> str:
    """A hint that names the open gates of the run's children; empty if there are none."""
    if not first_entry(app.core, row):  # a journal of another program
        return ""
    for child, entry in record_of(read_replay_input(app.core, row).entries).children.items():
        found = None if entry["detached"] else app.core.port.run(child)
        if found is None:
            continue
        rows = app.core.gates_of(found.run)
        if rows:
            return f"; its child run {child!r} has the open gate {_labels(rows)}, so answer that run"
        inner = _child_gates(app, verify_run(found))
        if inner:
            return inner
    return ""


def _labels(gates: list[GateRow]) -> str:
    labels = gate_labels([row.gate for row in gates if row.state == "open"]).values()
    return ", ".join(repr(label) for label in labels)


def _describe_open(gates: list[GateRow]) -> str:
    return f"its open gates are {labels}" if (labels := _labels(gates)) else "it has no open gates"


def _choose_gate(run: RunRow, gates: list[GateRow], gate: str | None, hint: str) -> GateRow:
    """The gate that is meant. `hint`: what an error adds if the run has none that fits."""
    if gate is not None:
        check_id("gate", gate)
        named = find_gates(gates, gate)
        if not named:
            raise GateClosed(run.run_id, gate, "unknown", f"{_describe_open(gates)}{hint}")
        if len(named) > 1:
            listed = ", ".join(repr(row.gate) for row in named)
            raise InvalidInput(f"{gate!r} names {len(named)} open gates of run {run.run_id!r}; give one of: {listed}")
        return named[0]
    still_open = [row for row in gates if row.state == "open"]
    if len(still_open) == 1:
        return still_open[0]
    if still_open:
        names = _labels(still_open)
        raise InvalidInput(f"run {run.run_id!r} has {len(still_open)} open gates; choose one with gate=: {names}")
    if gates:  # the newest names the actor that was first
        return max(gates, key=lambda row: (row.answered_us or 0, row.opened_us))
    if run.status in TERMINAL:
        raise RunEnded(run.run_id, run.status)
    raise NotFound(f"run {run.run_id!r} has no gate to answer; it is {run.status}{hint}")
