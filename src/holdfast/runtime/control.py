"""Control of a run from outside: answer, send, pause, cancel, resume.

These never write the journal of the run. Each is one commit to its inbox. If that makes the run ready and this process
knows the workflow, the same commit takes the claim, so the caller can execute the run at once.
"""

from __future__ import annotations

import getpass
import time
from typing import TYPE_CHECKING, Final, Literal

from holdfast.drivers import Plan
from holdfast.engine.record import record_of
from holdfast.errors import (
    AlreadyAnswered,
    GateClosed,
    InvalidAnswer,
    InvalidInput,
    NotFound,
    RunClaimed,
    RunEnded,
    RunError,
    RunNotFound,
)
from holdfast.forms import Form
from holdfast.ids import check_id, find_gates, gate_labels
from holdfast.model.commit import OUTSIDER, Commit, Committed, Guard, NewItem, Reason
from holdfast.model.rows import CANCELLED, PAUSED, READY, TERMINAL, WAITING, GateRow, RunRow, TimerRow
from holdfast.model.views import GateInfo
from holdfast.operations.claims import release
from holdfast.operations.context import refusal, require_committed
from holdfast.operations.views import encode_body, moment
from holdfast.runtime.reaper import timer_item
from holdfast.runtime.replay_input import CODEC, first_entry, gate_body, read_replay_input
from holdfast.runtime.start import Claimed, claim, new_take, take_claim, to_claimed
from holdfast.store.checksum import verify_run

if TYPE_CHECKING:
    from holdfast.runtime.app_core import AppCore


def default_actor(by: str | None) -> str:
    """The actor to record: `by`, or the user of this process."""
    if by is not None:
        return check_id("by", by)
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return "unknown"


def require_run(app: AppCore, run_id: str) -> Plan[RunRow]:
    """The run's row, verified; RunNotFound if there is none."""
    check_id("run_id", run_id)
    row: RunRow | None = yield lambda: app.core.port.run(run_id)
    if row is None:
        raise RunNotFound(run_id)
    return verify_run(row)


def deliver(app: AppCore, row: RunRow, item: NewItem, *, here: bool) -> Plan[Claimed | None]:
    """Put an item into the run's inbox and, if the run can be executed here, take the claim with it."""
    if here and app.known(row.workflow) is not None and row.status in (WAITING, READY):
        taken_at, guard = time.monotonic(), Guard(incarnation=row.incarnation)
        both = Commit(row.run_id, app.token(8), guard, deliver=(item,), take=new_take(app))
        outcome = yield from take_claim(app, both)
        if isinstance(outcome, Committed):
            return to_claimed(app, outcome.run, taken_at)
        if outcome.reason == Reason.PAUSED and item.kind == "pause":  # another request was first
            return None
        if outcome.reason not in (Reason.CLAIMED, Reason.PAUSED):
            raise refusal(app.access, both, outcome)
    commit = Commit(row.run_id, app.token(8), Guard(OUTSIDER, incarnation=row.incarnation), deliver=(item,))
    require_committed(app.access, commit, (yield commit))
    return None


# --- gates -----------------------------------------------------------------------------------------------------------


def gate_info(run: RunRow, row: GateRow) -> GateInfo:
    """A gate as users see it."""
    body = gate_body(run, row)
    return GateInfo(
        run_id=run.run_id,
        workflow=run.workflow,
        gate=row.gate,
        state=row.state,
        prompt=body["prompt"],
        form=Form.from_data(body["form"]),
        show=body["show"],
        who=tuple(body["who"]),
        purpose=body["purpose"],
        opened_at=moment(row.opened_us),
        expires_at=None if row.expires_us is None else moment(row.expires_us),
        answered_at=None if row.answered_us is None else moment(row.answered_us),
        answered_by=row.answered_by,
    )


GATE_STATES: Final = ("open", "answered", "expired", "closed")


def gates(
    app: AppCore, run_id: str | None = None, state: str | None = "open", limit: int = 1000
) -> Plan[list[GateInfo]]:
    """The gates of one run or of all, longest open first."""
    if state not in (None, *GATE_STATES):
        raise InvalidInput(f"state must be one of {', '.join(GATE_STATES)}, or None for all, not {state!r}")
    if run_id is None:
        found = yield lambda: app.core.port.gates(state, limit)
        return [gate_info(run, row) for run, row in found]
    run = yield from require_run(app, run_id)
    rows = yield lambda: app.core.gates_of(run.run, state)
    return [gate_info(run, row) for row in rows[:limit]]


def answer(
    app: AppCore, run_id: str, value: object, by: str | None, gate: str | None, *, here: bool
) -> Plan[tuple[RunRow, Claimed | None]]:
    """Answer a gate. The first answer counts; an answer that does not fit changes nothing."""
    actor = default_actor(by)
    row = yield from require_run(app, run_id)
    known: list[GateRow] = yield lambda: app.core.gates_of(row.run, None)
    fits = find_gates(known, gate) if gate is not None else known
    hint: str = (yield lambda: _child_gates(app, row)) if not fits and row.status not in TERMINAL else ""
    chosen = _choose_gate(row, known, gate, hint)
    info = gate_info(row, chosen)
    if info.who and actor not in info.who:
        raise InvalidAnswer(run_id, info.gate, [f"{actor!r} may not answer it; it is for {', '.join(info.who)}"])
    checked = info.form.check(value)
    if checked.problems and chosen.state == "open":
        raise InvalidAnswer(run_id, info.gate, [str(problem) for problem in checked.problems])
    body = encode_body(app.core, CODEC.round_trip(checked.value), "an answer")
    item = NewItem("answer", info.gate, f"answer/{app.token(12).hex()}", actor, body)
    try:
        return row, (yield from deliver(app, row, item, here=here))
    except RunEnded:  # the run may have ended with an earlier answer to this gate, which is the better reason
        answered = yield lambda: app.core.gates_of(row.run, "answered")
        first = next((gate_info(row, gate_row) for gate_row in answered if gate_row.gate == info.gate), None)
        if first is None or first.answered_at is None:
            raise
        raise AlreadyAnswered(run_id, info.gate, first.answered_by or "", first.answered_at.isoformat()) from None


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


# --- events and requests ---------------------------------------------------------------------------------------------


def send(
    app: AppCore, run_id: str, event: str, value: object, by: str | None, key: str | None, *, here: bool
) -> Plan[tuple[RunRow, Claimed | None]]:
    """Send an event to a run."""
    check_id("event", event)
    body = encode_body(app.core, CODEC.round_trip(value), "an event")
    row = yield from require_run(app, run_id)
    name = f"event/{app.token(12).hex()}" if key is None else f"sent/{check_id('key', key)}"
    item = NewItem("event", event, name, default_actor(by), body)
    return row, (yield from deliver(app, row, item, here=here))


def request(
    app: AppCore, run_id: str, kind: Literal["pause", "cancel"], by: str | None, *, here: bool
) -> Plan[tuple[RunRow, Claimed | None]]:
    """Ask a run to pause or to cancel. A run that is paused or cancelled already is left as it is."""
    row = yield from require_run(app, run_id)
    if row.status == (CANCELLED if kind == "cancel" else PAUSED):
        return row, None
    if row.status in TERMINAL:
        raise RunEnded(run_id, row.status)
    item = NewItem(kind, kind, f"{kind}/{app.token(12).hex()}", default_actor(by), encode_body(app.core, None, kind))
    if kind == "pause":
        return row, (yield from deliver(app, row, item, here=here))
    yield from deliver(app, row, item, here=False)  # alone and first: a crash now leaves nothing half cancelled
    yield from _cancel_children(app, row, item.by)
    if row.status == PAUSED:
        return row, (yield from _claim_or_release(app, row, here=here))
    is_idle = here and row.status in (WAITING, READY) and app.known(row.workflow) is not None
    return row, (yield from claim(app, run_id, paused=True)) if is_idle else None


def _cancel_children(app: AppCore, row: RunRow, by: str) -> Plan[None]:
    """Cancel the children at once: the parent only waits for a child that is executed in its process."""
    past = yield lambda: read_replay_input(app.core, row)
    for child, entry in record_of(past.entries).children.items():
        found = None if entry["detached"] else (yield lambda child=child: app.core.port.run(child))
        if found is None or found.status in TERMINAL:
            continue
        item = NewItem("cancel", "cancel", f"parent/{row.run_id}/{child}", by, encode_body(app.core, None, "cancel"))
        yield Commit(child, app.token(8), Guard(OUTSIDER, incarnation=found.incarnation), deliver=(item,))
        yield from _cancel_children(app, found, by)


def resume(app: AppCore, run_id: str, *, here: bool) -> Plan[tuple[RunRow, Claimed | None]]:
    """Continue a paused or ready run. A waiting run continues if what it waits for has arrived."""
    row = yield from require_run(app, run_id)
    if row.status in TERMINAL:
        raise RunEnded(run_id, row.status)
    yield lambda: _check_resumable(app, row)
    yield from fire_due(app, row)
    return row, (yield from _claim_or_release(app, row, here=here))


def _check_resumable(app: AppCore, row: RunRow) -> None:
    """Refuse a run that no workflow started. An imported one may wait at a gate, which must be answered first."""
    if first_entry(app.core, row):
        return
    for gate in app.core.gates_of(row.run):
        info = gate_info(row, gate)
        raise RunError(
            f"run {row.run_id!r} waits for an answer to its gate {info.gate!r} ({info.prompt}); answer it first"
        )
    raise RunError(
        f"run {row.run_id!r} was not started by a workflow, so there is nothing to resume; read it with store.load and "
        "continue in the program that saves it"
    )


def _claim_or_release(app: AppCore, row: RunRow, *, here: bool) -> Plan[Claimed | None]:
    """Claim a run that can continue; if it cannot be executed here, make it ready for a worker."""
    claimed = yield from claim(app, row.run_id, paused=True)
    if claimed is None:
        found: RunRow | None = yield lambda: app.core.port.run(row.run_id)
        if found is not None and found.owner:
            left_us = max(0, found.lease_us - app.core.clock.lease_time().us)
            raise RunClaimed(row.run_id, found.owner, left_us / 1e6)
        return None
    if here and app.known(row.workflow) is not None:
        return claimed
    yield from release_ready(app, claimed)
    return None


def release_ready(app: AppCore, claimed: Claimed) -> Plan[None]:
    """Release a run as ready for any process that can execute it."""
    app.nonces.discard(claimed.row.nonce)
    yield release(claimed.access, claimed.row.run_id)


def fire_due(app: AppCore, row: RunRow) -> Plan[None]:
    """Deliver to a run its timers that are due and its gates that have expired."""
    now_us = app.core.clock.now_us()
    guard = Guard(OUTSIDER, incarnation=row.incarnation)
    for timer in (yield lambda: app.core.port.rows(TimerRow, row.run)):
        if timer.due_us <= now_us:
            yield Commit(row.run_id, app.token(8), guard, deliver=(timer_item(row, timer),))
    for gate in (yield lambda: app.core.gates_of(row.run)):
        if gate.expires_us is not None and gate.expires_us <= now_us:
            key = f"expiry/{gate.gate}"
            yield Commit(row.run_id, app.token(8), guard, deliver=(NewItem("expiry", gate.gate, key, "", b""),))
