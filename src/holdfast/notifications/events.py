"""Events that are announced, and the identity of each notification.

An event is derived from stored facts alone, so every process derives the same one. The id of a notification is a hash
of its event and its target: starting it twice starts one run.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from typing import Any, Final

import msgspec

from holdfast.model.rows import FAILED, EntryRow, GateRow, RunRow
from holdfast.model.views import GateInfo

WORKFLOW: Final = "holdfast.notify"
"""The name of the built-in workflow. Its runs are notifications; they are never announced themselves."""
PREFIX: Final = "notify/"
"""How the id of a notification's run begins."""
SINCE: Final = "notify/since/"
"""How the id of a run begins that records when a target was configured first."""

GATE_OPENED: Final = "gate_opened"
GATE_EXPIRING: Final = "gate_expiring"
GATE_ESCALATED: Final = "gate_escalated"
RUN_FAILED: Final = "run_failed"
EVENTS: Final = (GATE_OPENED, GATE_EXPIRING, GATE_ESCALATED, RUN_FAILED)
TEST: Final = "test"
CONFIGURED: Final = "configured"
"""The event of a run that records when a target was configured; it is not sent."""

NEVER_US: Final = 2**62


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something that happened to a run or a gate, and the target that is notified of it."""

    event: str
    target: str
    run_id: str = ""
    incarnation: str = ""
    """Hexadecimal. A later run of the same id has another."""
    gate: str = ""
    opened_us: int = 0
    at_us: int = 0
    detail: str = ""
    """What distinguishes it from other events of this kind: the expiry, the level of escalation, the failure."""
    who: tuple[str, ...] = ()
    """The people that are asked from now on; empty: those of the gate."""

    @property
    def id(self) -> str:
        """The same for every attempt and every process, in every store."""
        facts = [self.incarnation, self.event, self.gate, self.opened_us, self.detail, self.target]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]

    @property
    def notification(self) -> str:
        """The id of the notification's run."""
        return f"{SINCE}{self.target}" if self.event == CONFIGURED else f"{PREFIX}{self.id}"

    @property
    def metadata(self) -> dict[str, Any]:
        """The metadata of the notification's run."""
        facts = {"run": self.run_id, "gate": self.gate, "event": self.event, "target": self.target}
        return {key: value for key, value in facts.items() if value}


class GateEvents(msgspec.Struct, frozen=True):
    """The events of a gate that have happened, for no target yet, and when the next one happens."""

    happened: list[Event]
    next_us: int


def gate_events(run: RunRow, row: GateRow, info: GateInfo, now_us: int, lead_us: int) -> GateEvents:
    """The events of an open gate. `lead_us`: how long before its expiry it is announced as expiring.

    A gate that is open for less than twice the lead is announced half-way, not together with its opening.
    """
    facts: dict[str, Any] = {"target": "", "run_id": run.run_id, "incarnation": run.incarnation.hex()}
    facts |= {"gate": row.gate, "opened_us": row.opened_us}
    found = [Event(event=GATE_OPENED, at_us=row.opened_us, **facts)]
    if row.expires_us is not None:
        at_us = max(row.expires_us - lead_us, (row.opened_us + row.expires_us) // 2)
        found.append(Event(event=GATE_EXPIRING, at_us=at_us, detail=str(row.expires_us), **facts))
    for level in info.escalations:
        at_us = us_of(level.at)
        detail = json.dumps(["level", at_us, *level.who])
        found.append(Event(event=GATE_ESCALATED, at_us=at_us, detail=detail, who=level.who, **facts))
    if info.assigned:  # those before the last are not asked any more
        change, detail = info.assigned[-1], f"assigned/{len(info.assigned)}"
        found.append(Event(event=GATE_ESCALATED, at_us=us_of(change.at), detail=detail, who=change.who, **facts))
    later = [event.at_us for event in found if event.at_us > now_us]
    return GateEvents([event for event in found if event.at_us <= now_us], min(later, default=NEVER_US))


def failure_event(run: RunRow, last: EntryRow | None) -> Event:
    """The event of a failed run. `last` is its newest entry; a run that a workflow did not execute may have none."""
    is_end = last is not None and last.kind == FAILED
    at_us = last.created_us if last is not None and is_end else run.updated_us
    position = run.position if is_end else f"{run.position}/{run.serial}"
    incarnation = run.incarnation.hex()
    return Event(
        event=RUN_FAILED, target="", run_id=run.run_id, incarnation=incarnation, at_us=at_us, detail=str(position)
    )


_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def us_of(moment: dt.datetime) -> int:
    """A time as microseconds since 1970."""
    return (moment - _EPOCH) // dt.timedelta(microseconds=1)
