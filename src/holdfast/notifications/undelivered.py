"""The notifications that were not delivered: waiting for the next attempt, not begun, or failed."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

from holdfast.model.rows import COMPLETED, STATUSES, EntryRow, RunRow, TimerRow
from holdfast.model.views import View
from holdfast.notifications.events import WORKFLOW
from holdfast.operations.views import entry_view, moment, run_info
from holdfast.store.port import RunQuery

if TYPE_CHECKING:
    from holdfast.operations.store import Store

_LEFT = tuple(sorted(STATUSES - {COMPLETED}))


class Undelivered(View, frozen=True, kw_only=True):
    """A notification that was not delivered."""

    notification: str
    """The id of its run: `holdfast show` lists its attempts, `holdfast retry` makes another one."""
    status: str
    event: str
    target: str
    run_id: str
    gate: str | None
    created_at: dt.datetime
    attempts: int
    reason: str
    """Why the last attempt failed."""
    next_at: dt.datetime | None
    """When the next attempt is made."""


def read_undelivered(store: Store, limit: int = 100) -> list[Undelivered]:
    """The newest notifications that were not delivered."""
    found = store.port.runs(RunQuery(_LEFT, workflow=WORKFLOW, limit=limit))
    return [_read(store, run) for run in found]


def _read(store: Store, run: RunRow) -> Undelivered:
    facts = run_info(run).metadata
    attempts, reason = 0, ""
    for row in store.port.rows(EntryRow, run.run):
        entry = entry_view(run, row).data
        if entry.get("kind") == "intent" and not entry.get("again"):
            attempts += 1
        reason = _reason(entry) or reason
    timers = store.port.rows(TimerRow, run.run, limit=1)
    return Undelivered(
        notification=run.run_id,
        status=run.status,
        event=str(facts.get("event", "")),
        target=str(facts.get("target", "")),
        run_id=str(facts.get("run", "")),
        gate=facts.get("gate"),
        created_at=moment(run.created_us),
        attempts=attempts,
        reason=reason,
        next_at=moment(timers[0].due_us) if timers else None,
    )


def _reason(entry: dict[str, Any]) -> str:
    """Why an attempt failed, if the entry records that."""
    if entry.get("kind") != "outcome":
        return ""
    result, error = entry.get("result"), entry.get("error")
    found = result if isinstance(result, dict) else error if isinstance(error, dict) else {}
    return str(found.get("reason") or found.get("message") or "")
