"""Removes old notifications, page by page.

A notification of a gate that is still open is kept, however old it is: without it, the gate would be announced again.
For the same reason a failure that is older than what is kept is not announced.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from holdfast.clock import US
from holdfast.errors import Conflict
from holdfast.model.rows import FAILED, TERMINAL, RunRow
from holdfast.notifications.events import PREFIX, RUN_FAILED, SINCE, WORKFLOW
from holdfast.operations.views import run_info
from holdfast.store.port import RunQuery

if TYPE_CHECKING:
    from holdfast.operations.store import Store

PAGE: Final = 100
_MARGIN_US: Final = 3600 * US
"""More than the clocks of two machines may differ."""


def prune_pages(store: Store, keep_us: int) -> Iterator[int]:
    """Remove the notifications that ended more than `keep_us` ago; yields for each page how many were removed."""
    core, before = store.access.core, None
    while True:
        found = core.port.runs(RunQuery(tuple(TERMINAL), workflow=WORKFLOW, before=before, limit=PAGE))
        limit_us = core.clock.now_us() - keep_us
        yield sum(_prune(store, run, limit_us) for run in found if run.updated_us < limit_us)
        if len(found) < PAGE:
            return
        before = found[-1].run


def _prune(store: Store, run: RunRow, limit_us: int) -> bool:
    if not run.run_id.startswith(PREFIX) or run.run_id.startswith(SINCE) or _is_needed(store, run, limit_us):
        return False
    try:
        return store.delete(run.run_id)
    except Conflict:  # it is being retried
        return False


def _is_needed(store: Store, run: RunRow, limit_us: int) -> bool:
    """Whether the event would be announced again without this notification."""
    core, facts = store.access.core, run_info(run).metadata
    found = core.port.run(str(facts.get("run", "")))
    if found is None:
        return False
    if facts.get("event") == RUN_FAILED:
        return found.status == FAILED and run.updated_us >= limit_us - _MARGIN_US
    return any(gate.gate == facts.get("gate") for gate in core.gates_of(found.run))
