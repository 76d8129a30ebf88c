"""Decisions about gates, timers, inbox and outbox."""

from __future__ import annotations

import msgspec

from holdfast.limits import NUMBER_MAX
from holdfast.model.commit import Commit, NewItem, Reason, Refused, Restored, ReturnedItem
from holdfast.model.rows import PAUSED, READY, TERMINAL, WAITING, GateRow, ItemRow, MessageRow
from holdfast.store.decide.draft import Draft, become

_replace = msgspec.structs.replace


def deliver(draft: Draft, items: tuple[NewItem, ...]) -> Refused | None:
    """Add items to the inbox, each key once, and wake a waiting run."""
    if draft.run.status in TERMINAL:
        return Refused(Reason.ENDED, draft.run)
    if draft.run.inbox + len(items) > NUMBER_MAX:
        return Refused(Reason.LIMIT, draft.run, f"a run has at most {NUMBER_MAX} inbox items")
    number, rows = draft.run.inbox, []
    for new in items:
        old = draft.reads.item(draft.run.run, new.key) if draft.reads else None
        if old is None:
            refused = _admit(draft, new)
            if refused is not None:
                return refused
            number += 1
            rows.append(draft.seal(ItemRow(number, new.kind, new.name, new.key, new.by, draft.now_us, False, new.body)))
        draft.numbers = (*draft.numbers, old.number if old else number)
    draft.items = rows
    if rows:
        draft.changes["inbox"] = number
        cancelled = draft.run.status == PAUSED and any(row.kind == "cancel" for row in rows)
        if draft.run.status == WAITING or cancelled:  # a cancelled run must not wait for its resume
            become(draft, READY)
    return None


def _admit(draft: Draft, new: NewItem) -> Refused | None:
    """Check the gate or timer of an item: a gate must be open, a timer must be due."""
    if new.kind == "timer":
        timer = draft.reads.timer(draft.run.run, new.name) if draft.reads else None
        if timer is None or timer.due_us > draft.now_us:
            return Refused(Reason.NOT_EXPIRED, draft.run)
        draft.drop_timers = [*draft.drop_timers, new.name]
        return None
    if new.kind not in ("answer", "expiry"):
        return None
    if new.kind == "answer":
        gate = _open_gate(draft, new.name, new.expects)
        if isinstance(gate, Refused):
            return gate
        gate = _replace(gate, state="answered", answered_us=draft.now_us, answered_by=new.by, seal=0)
    else:
        gate = _open_gate(draft, new.name, None, expired=True)
        if isinstance(gate, Refused):
            return gate
        gate = _replace(gate, state="expired", seal=0)
    draft.gates = [*draft.gates, draft.seal(gate)]
    return None


def _open_gate(draft: Draft, name: str, expected: int | None, *, expired: bool = False) -> GateRow | Refused:
    """The open gate of that name, with the `expected` checksum; one that has expired only if `expired`."""
    gate = draft.verified(draft.reads.gate(draft.run.run, name)) if draft.reads else None
    if gate is None:
        return Refused(Reason.GATE_CLOSED, draft.run, "unknown", name)
    if gate.state == "answered":
        return Refused(Reason.ANSWERED, draft.run, name, gate)
    is_late = gate.expires_us is not None and gate.expires_us <= draft.now_us
    if gate.state != "open" or (is_late and not expired):
        return Refused(Reason.GATE_CLOSED, draft.run, "expired" if gate.state == "open" else gate.state, name)
    if expired and not is_late:
        return Refused(Reason.NOT_EXPIRED, draft.run)
    if expected is not None and gate.seal != expected:
        return Refused(Reason.CHANGED, draft.run, name, gate)
    return gate


def set_gates(draft: Draft, commit: Commit) -> Refused | None:
    """Open gates, each name once in a run; replace the bodies of open gates; close gates that are still open."""
    rows = []
    for new in commit.gates:
        if new.replaces is not None:
            if draft.run.status in TERMINAL:
                return Refused(Reason.ENDED, draft.run)
            found = _open_gate(draft, new.gate, new.replaces)
            if isinstance(found, Refused):
                return found
            rows.append(draft.seal(_replace(found, body=new.body, expires_us=new.expires_us, seal=0)))
            continue
        old = draft.reads.gate(draft.run.run, new.gate) if draft.reads else None
        if old is not None:
            return Refused(Reason.GATE_CLOSED, draft.run, f"already there ({old.state})", new.gate)
        rows.append(draft.seal(GateRow(new.gate, "open", draft.now_us, new.expires_us, None, None, new.body)))
    for name in commit.close_gates:
        old = draft.verified(draft.reads.gate(draft.run.run, name)) if draft.reads else None
        if old is not None and old.state == "open":
            rows.append(draft.seal(_replace(old, state="closed", seal=0)))
    draft.gates = [*draft.gates, *rows]
    return None


def apply_outbox(draft: Draft, commit: Commit) -> None:
    """Remove items from the inbox, add messages to the outbox, drop timers."""
    outbox = draft.run.outbox
    if commit.send:
        draft.messages = [
            draft.seal(MessageRow(number, new.target, new.kind, new.name, new.key, draft.now_us, new.body))
            for number, new in enumerate(commit.send, start=outbox + 1)
        ]
        draft.changes["outbox"] = outbox + len(commit.send)
    if commit.take_items and draft.reads:
        found = [draft.verified(item) for item in draft.reads.items(draft.run.run, commit.take_items)]
        draft.taken = [
            draft.seal(_replace(item, taken=True, body=b"", seal=0)) for item in found if item and not item.taken
        ]
    draft.drop_timers = [*draft.drop_timers, *commit.drop_timers]


def return_items(draft: Draft, items: tuple[ReturnedItem, ...]) -> None:
    """Return events to the inbox: each at its old number, or as the newest one if that does not exist."""
    numbers = [item.number for item in items]
    found = draft.reads.items(draft.run.run, numbers) if draft.reads else []
    there = {row.number: row for row in found if draft.verified(row) and row.kind == "event"}
    newest, rows = draft.now("inbox"), []
    for item in items:
        old = there.get(item.number)
        if old is None:
            newest += 1
            key = f"returned/{draft.commit.commit_id.hex()}/{newest}"
            row = ItemRow(newest, "event", item.name, key, item.by, draft.now_us, False, item.body)
            draft.items = [*draft.items, draft.seal(row)]
        elif old.taken:
            rows.append(draft.seal(_replace(old, taken=False, body=item.body, seal=0)))
    draft.taken = [*draft.taken, *rows]
    if newest > draft.now("inbox"):
        draft.changes["inbox"] = newest


def restore(draft: Draft, restored: Restored) -> None:
    """Copy the gates, items and messages of another run into a new one, with their numbers and dates."""
    assert draft.created, "only a run that is created can be restored"
    assert [item.number for item in restored.items] == list(range(1, len(restored.items) + 1)), "items have gaps"
    draft.gates = [draft.seal(_replace(row, seal=0)) for row in restored.gates]
    draft.items = [draft.seal(_replace(row, seal=0)) for row in restored.items]
    draft.messages = [draft.seal(_replace(row, seal=0)) for row in restored.messages]
    draft.changes["inbox"] = len(restored.items)
    draft.changes["outbox"] = max((row.number for row in restored.messages), default=0)
