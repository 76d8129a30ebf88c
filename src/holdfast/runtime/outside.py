"""What outsiders do to a run: answer, send, pause, cancel, resume. They never write its journal.

Each is one commit. Where it wakes the run and this process knows the workflow, the claim is taken in the same commit,
so the caller can move the run on at once.
"""

from __future__ import annotations

import getpass
import time
from typing import TYPE_CHECKING, Any, Final

from holdfast.engine.forms import Form
from holdfast.engine.record import record_of
from holdfast.errors import (
    AlreadyAnswered,
    DamagedData,
    GateClosed,
    InvalidAnswer,
    InvalidInput,
    NotFound,
    RunClaimed,
    RunEnded,
    RunError,
    RunNotFound,
)
from holdfast.ids import check_id
from holdfast.limits import NUMBER_MAX
from holdfast.model import commit as why
from holdfast.model.commit import OUTSIDER, Commit, Committed, Guard, NewItem
from holdfast.model.gates import GateInfo
from holdfast.model.names import find_gates, gate_labels
from holdfast.model.rows import GateRow, RunRow
from holdfast.model.status import CANCELLED, PAUSED, READY, TERMINAL, WAITING
from holdfast.runtime.codec import CODEC
from holdfast.runtime.reads import first_entry, past_of
from holdfast.runtime.reaper import timer_item
from holdfast.runtime.starting import Acts, Claimed, claim, claimed_of, fence_of_dead, take_of, taking
from holdfast.store.seal import check_run, check_seal
from holdfast.verbs.refusals import refusal
from holdfast.verbs.values import body_value, moment, value_body

if TYPE_CHECKING:
    from holdfast.runtime.core import AppCore


def somebody(by: str | None) -> str:
    """Who does it, if the caller does not say: the user of this process."""
    if by is not None:
        return check_id("by", by)
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return "somebody"


def known_run(app: AppCore, run_id: str) -> Acts[RunRow]:
    """The run's row; RunNotFound if it is not there."""
    check_id("run_id", run_id)
    row: RunRow | None = yield lambda: app.core.port.run(run_id)
    if row is None:
        raise RunNotFound(run_id)
    return check_run(row)


def deliver(app: AppCore, row: RunRow, item: NewItem, *, here: bool) -> Acts[Claimed | None]:
    """Put an item into the run's inbox and, if it can be moved on here, take the claim with it."""
    commit = Commit(row.run_id, app.token(8), Guard(OUTSIDER, incarnation=row.incarnation), deliver=(item,))
    if here and app.known(row.workflow) is not None and row.status in (WAITING, READY):
        gone: int | None = None
        for _ in range(2):
            taken_at = time.monotonic()
            guard = Guard(incarnation=row.incarnation, gone=gone)
            both = Commit(row.run_id, app.token(8), guard, deliver=(item,), take=take_of(app))
            outcome = yield from taking(app, both)
            if type(outcome) is Committed:
                return claimed_of(app, outcome.run, taken_at)
            if outcome.why != why.CLAIMED:
                raise refusal(app.place, both, outcome)
            gone = yield from fence_of_dead(app, outcome)
            if gone is None:
                break
    outcome = yield commit
    if type(outcome) is not Committed:
        raise refusal(app.place, commit, outcome)
    return None


# --- gates -----------------------------------------------------------------------------------------------------------


def gate_info(run: RunRow, row: GateRow) -> GateInfo:
    """A gate as users see it."""
    place = f"gate {row.gate!r} of run {run.run_id!r}"
    check_seal(row, run.incarnation, place)
    body = body_value(row.body, place)
    if not isinstance(body, dict) or body.get("v") != 1:
        raise DamagedData(place, "it is not a gate this version can read")
    return GateInfo(
        run_id=run.run_id, workflow=run.workflow, gate=row.gate, state=row.state, prompt=body["prompt"],
        form=Form.from_data(body["form"]), show=body["show"], who=tuple(body["who"]), purpose=body["purpose"],
        opened_at=moment(row.opened_us), expires_at=None if row.expires_us is None else moment(row.expires_us),
        answered_at=None if row.answered_us is None else moment(row.answered_us), answered_by=row.answered_by,
    )  # fmt: skip


GATE_STATES: Final = ("open", "answered", "expired", "closed")


def gates(
    app: AppCore, run_id: str | None = None, state: str | None = "open", limit: int = 1000
) -> Acts[list[GateInfo]]:
    """Gates, longest open first: of one run, or of all."""
    if state not in (None, *GATE_STATES):
        raise InvalidInput(f"state must be one of {', '.join(GATE_STATES)}, or None for all, not {state!r}")
    number = None
    if run_id is not None:
        number = (yield from known_run(app, run_id)).run
    found = yield lambda: app.core.port.gates(number, state, limit)
    return [gate_info(run, row) for run, row in found]


def answer(
    app: AppCore, run_id: str, value: Any, by: str | None, gate: str | None, *, here: bool
) -> Acts[tuple[RunRow, Claimed | None]]:
    """Answer a gate. The first answer counts; one that does not fit changes nothing."""
    who = somebody(by)
    row = yield from known_run(app, run_id)
    found = yield lambda: app.core.port.gates(row.run, None, NUMBER_MAX)
    known = [gate_row for _, gate_row in found]
    fits = find_gates(known, gate) if gate is not None else known
    asking: str = (yield lambda: _asking_children(app, row)) if not fits and row.status not in TERMINAL else ""
    chosen = _chosen(row, known, gate, asking)
    info = gate_info(row, chosen)
    if info.who and who not in info.who:
        raise InvalidAnswer(run_id, info.gate, [f"{who!r} may not answer it; it is for {', '.join(info.who)}"])
    checked = info.form.check(value)
    if checked.problems and chosen.state == "open":
        raise InvalidAnswer(run_id, info.gate, [str(problem) for problem in checked.problems])
    body = value_body(app.core, CODEC.settled(checked.value), "an answer")
    item = NewItem("answer", info.gate, f"answer/{app.token(12).hex()}", who, body)
    try:
        return row, (yield from deliver(app, row, item, here=here))
    except RunEnded:  # whoever was first may have brought the run to its end already: then that is what to tell
        answered = yield lambda: app.core.port.gates(row.run, "answered", NUMBER_MAX)
        first = next((gate_info(row, gate_row) for _, gate_row in answered if gate_row.gate == info.gate), None)
        if first is None or first.answered_at is None:
            raise
        raise AlreadyAnswered(run_id, info.gate, first.answered_by or "", first.answered_at.isoformat()) from None


def _asking_children(app: AppCore, row: RunRow) -> str:
    """The open gates of the run's children, as what to answer instead; empty if there are none."""
    if not first_entry(app.core, row):  # a journal of another program
        return ""
    for child, entry in record_of(past_of(app.core, row).entries).children.items():
        found = None if entry["detached"] else app.core.port.run(child)
        if found is None:
            continue
        rows = [gate for _, gate in app.core.port.gates(found.run, "open", NUMBER_MAX)]
        if rows:
            return f"; its child run {child!r} has the open gate {_labels(rows)}, so answer that run"
        inner = _asking_children(app, check_run(found))
        if inner:
            return inner
    return ""


def _labels(gates: list[GateRow]) -> str:
    labels = gate_labels([row.gate for row in gates if row.state == "open"]).values()
    return ", ".join(repr(label) for label in labels)


def _chosen(run: RunRow, gates: list[GateRow], gate: str | None, asking: str) -> GateRow:
    """The gate meant. `asking`: what to say of the gates of children, if the run has none that fits."""
    if gate is not None:
        check_id("gate", gate)
        named = find_gates(gates, gate)
        if not named:
            raise GateClosed(run.run_id, gate, "unknown", f"its open gates are {_labels(gates) or 'none'}{asking}")
        if len(named) > 1:
            listed = ", ".join(repr(row.gate) for row in named)
            raise InvalidInput(f"{gate!r} names {len(named)} open gates of run {run.run_id!r}; give one of: {listed}")
        return named[0]
    still_open = [row for row in gates if row.state == "open"]
    if len(still_open) == 1:
        return still_open[0]
    if still_open:
        names = _labels(still_open)
        raise InvalidInput(f"run {run.run_id!r} has {len(still_open)} open gates; say which with gate=: {names}")
    if gates:  # the newest tells who was first
        return max(gates, key=lambda row: (row.answered_us or 0, row.opened_us))
    if run.status in TERMINAL:
        raise RunEnded(run.run_id, run.status)
    raise NotFound(f"run {run.run_id!r} has no gate to answer; it is {run.status}{asking}")


# --- events and requests ---------------------------------------------------------------------------------------------


def send(
    app: AppCore, run_id: str, event: str, value: Any, by: str | None, key: str | None, *, here: bool
) -> Acts[tuple[RunRow, Claimed | None]]:
    """Send an event to a run."""
    check_id("event", event)
    body = value_body(app.core, CODEC.settled(value), "an event")
    row = yield from known_run(app, run_id)
    name = f"event/{app.token(12).hex()}" if key is None else f"sent/{check_id('key', key)}"
    item = NewItem("event", event, name, somebody(by), body)
    return row, (yield from deliver(app, row, item, here=here))


def request(app: AppCore, run_id: str, kind: Any, by: str | None, *, here: bool) -> Acts[tuple[RunRow, Claimed | None]]:
    """Ask a run to pause or to cancel."""
    row = yield from known_run(app, run_id)
    if kind == "cancel" and row.status == CANCELLED:
        return row, None  # two who cancel it want the same
    if row.status in TERMINAL:
        raise RunEnded(run_id, row.status)
    if kind == "pause" and row.status == PAUSED:
        return row, None
    item = NewItem(kind, kind, f"{kind}/{app.token(12).hex()}", somebody(by), value_body(app.core, None, kind))
    if kind == "pause":
        return row, (yield from deliver(app, row, item, here=here))
    yield from deliver(app, row, item, here=False)  # first, and alone: a crash now leaves nothing half cancelled
    yield from _cancel_children(app, row, item.by)
    if row.status == PAUSED:
        return row, (yield from _woken(app, row, here=here))
    is_idle = here and row.status in (WAITING, READY) and app.known(row.workflow) is not None
    return row, (yield from claim(app, run_id)) if is_idle else None


def _cancel_children(app: AppCore, row: RunRow, by: str) -> Acts[None]:
    """A child that goes on inside its parent's process must hear of it at once, as the parent only waits for it."""
    past = yield lambda: past_of(app.core, row)
    for child, entry in record_of(past.entries).children.items():
        found = None if entry["detached"] else (yield lambda child=child: app.core.port.run(child))
        if found is None or found.status in TERMINAL:
            continue
        item = NewItem("cancel", "cancel", f"parent/{row.run_id}/{child}", by, value_body(app.core, None, "cancel"))
        yield Commit(child, app.token(8), Guard(OUTSIDER, incarnation=found.incarnation), deliver=(item,))
        yield from _cancel_children(app, found, by)


def resume(app: AppCore, run_id: str, *, here: bool) -> Acts[tuple[RunRow, Claimed | None]]:
    """Let a paused or ready run go on. A run that waits goes on if what it waits for has come."""
    row = yield from known_run(app, run_id)
    if row.status in TERMINAL:
        raise RunEnded(run_id, row.status)
    yield lambda: _check_resumable(app, row)
    yield from wake_due(app, row)
    return row, (yield from _woken(app, row, here=here))


def _check_resumable(app: AppCore, row: RunRow) -> None:
    """Refuse a run that no workflow started. If it waits at a gate, as one imported may, that is what to do first."""
    if first_entry(app.core, row):
        return
    for run, gate in app.core.port.gates(row.run, "open", 1):
        info = gate_info(run, gate)
        raise RunError(
            f"run {row.run_id!r} waits for an answer to its gate {info.gate!r} ({info.prompt}); answer it first"
        )
    raise RunError(
        f"run {row.run_id!r} was not started by a workflow, so there is nothing to resume; read it with store.load and "
        "go on in the program that saves it"
    )


def _woken(app: AppCore, row: RunRow, *, here: bool) -> Acts[Claimed | None]:
    """Take a run that could go on; if it cannot go on here, make it ready for a worker."""
    claimed = yield from claim(app, row.run_id)
    if claimed is None:
        found: RunRow | None = yield lambda: app.core.port.run(row.run_id)
        if found is not None and found.owner:
            left_us = max(0, found.lease_us - app.core.clock.lease_time().us)
            raise RunClaimed(row.run_id, found.owner, left_us / 1e6)
        return None
    if here and app.known(row.workflow) is not None:
        return claimed
    yield from leave(app, claimed)
    return None


def leave(app: AppCore, claimed: Claimed) -> Acts[None]:
    """Give a run back, ready, to whoever can move it on."""
    app.nonces.discard(claimed.row.nonce)
    yield Commit(claimed.row.run_id, app.token(8), claimed.place.guard(), status=READY, release=True)


def wake_due(app: AppCore, row: RunRow) -> Acts[None]:
    """Tell a run of its timers and gates whose time has come."""
    now_us = app.core.clock.now_us()
    guard = Guard(OUTSIDER, incarnation=row.incarnation)
    for timer in (yield lambda: app.core.port.timers(row.run)):
        if timer.due_us <= now_us:
            yield Commit(row.run_id, app.token(8), guard, deliver=(timer_item(row, timer),))
    for _, gate in (yield lambda: app.core.port.gates(row.run, "open", NUMBER_MAX)):
        if gate.expires_us is not None and gate.expires_us <= now_us:
            key = f"expiry/{gate.gate}"
            yield Commit(row.run_id, app.token(8), guard, deliver=(NewItem("expiry", gate.gate, key, "", b""),))
