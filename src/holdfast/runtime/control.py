"""Control of a run from outside: send, pause, cancel, resume. `answers` has what concerns gates.

These never write the journal of the run. Each is one commit to its inbox. If that makes the run ready and this process
knows the workflow, the same commit takes the claim, so the caller can execute the run at once.
"""

from __future__ import annotations

import getpass
import time
from typing import TYPE_CHECKING, Literal, NoReturn

from holdfast.drivers import Plan
from holdfast.engine.commands import EntryData
from holdfast.engine.record import record_of
from holdfast.errors import (
    Conflict,
    RunClaimed,
    RunEnded,
    RunError,
    RunNotFound,
)
from holdfast.ids import check_id, check_via, item_key
from holdfast.model.commit import OUTSIDER, Commit, Committed, Guard, NewItem, Reason, Refused
from holdfast.model.rows import CANCELLED, PAUSED, READY, TERMINAL, WAITING, GateRow, RunRow, TimerRow
from holdfast.operations.claims import release
from holdfast.operations.context import refusal
from holdfast.operations.gates import gate_body
from holdfast.operations.views import encode_body
from holdfast.runtime.reaper import timer_item
from holdfast.runtime.replay_input import CODEC, first_entry, read_replay_input
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
            raise_refusal(app, both, outcome)
    commit = Commit(row.run_id, app.token(8), Guard(OUTSIDER, incarnation=row.incarnation), deliver=(item,))
    outcome = yield commit
    if isinstance(outcome, Refused):
        raise_refusal(app, commit, outcome)
    return None


class GateChanged(Conflict):
    """A gate was changed by another process while it was being answered."""


def raise_refusal(app: AppCore, commit: Commit, refused: Refused) -> NoReturn:
    """Raise the reason why a commit from outside was refused."""
    if refused.reason == Reason.CHANGED and isinstance(refused.extra, GateRow):
        raise GateChanged(
            f"gate {refused.extra.gate!r} of run {commit.run_id!r} was changed by another process while it was being "
            "answered; try again"
        )
    raise refusal(app.access, commit, refused)


# --- events and requests ---------------------------------------------------------------------------------------------


def send(
    app: AppCore,
    run_id: str,
    event: str,
    value: object,
    by: str | None,
    key: str | None,
    *,
    here: bool,
    via: str = "",
) -> Plan[tuple[RunRow, Claimed | None]]:
    """Send an event to a run. The key of the item names where it came from, unless the caller gives a key."""
    check_id("event", event)
    check_via(via)
    body = encode_body(app.core, CODEC.round_trip(value), "an event")
    row = yield from require_run(app, run_id)
    name = item_key("event", via, app.token(12)) if key is None else f"sent/{check_id('key', key)}"
    item = NewItem("event", event, name, default_actor(by), body)
    return row, (yield from deliver(app, row, item, here=here))


def request(
    app: AppCore, run_id: str, kind: Literal["pause", "cancel"], by: str | None, *, here: bool, via: str = ""
) -> Plan[tuple[RunRow, Claimed | None]]:
    """Ask a run to pause or to cancel. A run that is paused or cancelled already is left as it is."""
    check_via(via)
    row = yield from require_run(app, run_id)
    if row.status == (CANCELLED if kind == "cancel" else PAUSED):
        return row, None
    if row.status in TERMINAL:
        raise RunEnded(run_id, row.status)
    key = item_key(kind, via, app.token(12))
    item = NewItem(kind, kind, key, default_actor(by), encode_body(app.core, None, kind))
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


def resume(
    app: AppCore, run_id: str, *, here: bool, by: str | None = None, via: str = ""
) -> Plan[tuple[RunRow, Claimed | None]]:
    """Continue a paused or ready run. A waiting run continues if what it waits for has arrived.

    The resume of a paused run is recorded in its journal if `by` or `via` is given.
    """
    check_via(via)
    is_named = by is not None or bool(via)
    entry: EntryData | None = {"kind": "resumed", "by": default_actor(by)} if is_named else None
    if entry is not None and via:
        entry["via"] = via
    row = yield from require_run(app, run_id)
    if row.status in TERMINAL:
        raise RunEnded(run_id, row.status)
    yield lambda: _check_resumable(app, row)
    yield from fire_due(app, row)
    return row, (yield from _claim_or_release(app, row, here=here, entry=entry if row.status == PAUSED else None))


def _check_resumable(app: AppCore, row: RunRow) -> None:
    """Refuse a run that no workflow started. An imported one may wait at a gate, which must be answered first."""
    if first_entry(app.core, row):
        return
    for gate in app.core.gates_of(row.run):
        prompt = gate_body(row, gate)["prompt"]
        raise RunError(f"run {row.run_id!r} waits for an answer to its gate {gate.gate!r} ({prompt}); answer it first")
    raise RunError(
        f"run {row.run_id!r} was not started by a workflow, so there is nothing to resume; read it with store.load and "
        "continue in the program that saves it"
    )


def _claim_or_release(app: AppCore, row: RunRow, *, here: bool, entry: EntryData | None = None) -> Plan[Claimed | None]:
    """Claim a run that can continue; if it cannot be executed here, make it ready for a worker.

    `entry` is recorded with the claim.
    """
    claimed = yield from claim(app, row.run_id, paused=True, entry=entry)
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
