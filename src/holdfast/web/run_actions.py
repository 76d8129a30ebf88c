"""What users do to a run from the page and the API: pause, resume, cancel, retry, roll back.

An action is only recorded here; a worker carries it out. The sentences say what will happen.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, get_args
from weakref import WeakKeyDictionary

import msgspec

from holdfast.errors import Conflict, RunNotFound
from holdfast.model.rollback_plan import EffectPlan, RollbackPlan
from holdfast.model.rows import AT_WORK, CANCELLED, FAILED, PAUSED, READY, TERMINAL, WAITING, RunRow
from holdfast.store.capabilities import WorkerRegistry
from holdfast.store.checksum import verify_run

if TYPE_CHECKING:
    from holdfast.runtime.app import App
    from holdfast.web.site import Context, Site

Action = Literal["pause", "resume", "cancel", "retry"]
ACTIONS: Final[tuple[Action, ...]] = get_args(Action)
TITLES: Final[dict[Action, str]] = {"pause": "Pause", "resume": "Resume", "cancel": "Cancel", "retry": "Retry"}

_bare: WeakKeyDictionary[Site, App] = WeakKeyDictionary()
_lock = threading.Lock()


class Forecast(NamedTuple):
    """What an action will do to a run in its present state."""

    text: str
    is_refused: bool = False


def forecast(action: Action, status: str) -> Forecast:
    """What an action will do to a run of this status."""
    if action == "retry":
        if status == FAILED:
            return Forecast("the call that failed runs again when a worker takes the run; finished work is kept")
        return Forecast("only a failed run can be retried", is_refused=True)
    if status in TERMINAL:
        if action == "cancel" and status == CANCELLED:
            return Forecast("it is cancelled already; nothing changes")
        return Forecast(f"it has ended ({status})", is_refused=True)
    return Forecast(_FORECASTS[action].get(status) or _FORECASTS[action][""])


_FORECASTS: Final[dict[Action, dict[str, str]]] = {
    "pause": {
        PAUSED: "it is paused already; nothing changes",
        **dict.fromkeys(AT_WORK, "its worker stops it before its next call"),
        "": "a worker stops it before its next call",
    },
    "resume": {
        PAUSED: "a worker continues it",
        READY: "it is ready already; a worker continues it",
        WAITING: "a worker continues it if what it waits for has arrived",
        "": "a worker continues it if its process has died; otherwise it is refused",
    },
    "cancel": {
        **dict.fromkeys(AT_WORK, "its worker stops it at its next call and lets its cleanup run"),
        "": "a worker stops it at its next call and lets its cleanup run",
    },
}


def read_run(c: Context, run_id: str, incarnation: str = "") -> RunRow:
    """The row of a run. Conflict if it is another run than the one with this incarnation."""
    row = c.store.port.run(run_id)
    if row is None:
        raise RunNotFound(run_id)
    if incarnation and row.incarnation.hex() != incarnation:
        raise Conflict(f"run {run_id!r} was deleted and created again since you opened the page; nothing was done")
    return verify_run(row)


def act(c: Context, action: Action, run_id: str, *, via: str, incarnation: str = "", warn: bool = True) -> str:
    """Record an action on a run. Returns what happens next; with `warn` also a warning if no worker can do it."""
    row = read_run(c, run_id, incarnation)
    expected = forecast(action, row.status)
    by = c.user.name
    if action == "pause":
        c.app.pause(run_id, by=by, enqueue=True, via=via)
    elif action == "cancel":
        c.app.cancel(run_id, by=by, enqueue=True, via=via)
    elif action == "resume":
        c.app.resume(run_id, by=by, enqueue=True, via=via)
    else:
        app_without_workflows(c).retry(run_id, by=by, enqueue=True, via=via)
    sentence = f"{_ASKED[action]}; {expected.text}"
    return with_warning(c, row.workflow, sentence) if warn else sentence


_ASKED: Final[dict[Action, str]] = {
    "pause": "asked to pause",
    "resume": "asked to resume",
    "cancel": "asked to cancel",
    "retry": "asked to retry",
}


def app_without_workflows(c: Context) -> App:
    """An app on the same store that executes nothing: a rollback that it begins is performed by a worker."""
    from holdfast.runtime.app import App

    if not c.app.registry.workflows:
        return c.app
    with _lock:
        found = _bare.get(c.site)
        if found is None:
            found = _bare[c.site] = App(c.store)
        return found


def missing_worker(c: Context, workflow: str) -> str:
    """A warning if no running worker executes a workflow; empty if one does, or if that is not known."""
    port = c.store.port
    if not isinstance(port, WorkerRegistry) or any(workflow in names for names in port.workers().values()):
        return ""
    return f"No running worker knows {workflow!r}; start one with “holdfast worker”"


def with_warning(c: Context, workflow: str, sentence: str) -> str:
    """A sentence without its end, with a warning behind it if no running worker executes the workflow."""
    warning = missing_worker(c, workflow)
    return f"{sentence}. {warning}" if warning else sentence


def reassigner_groups(c: Context) -> tuple[str, ...] | None:
    """The groups with which the user reassigns a gate that it may answer; None: an operator may reassign every gate."""
    return None if c.user.has_role("operator") else c.user.groups


# --- plans ---------------------------------------------------------------------------------------------------------

REFUSED: Final = "it concerns effects of runs that you may not see; a user that sees their workflows can do it"


def visible_plan(c: Context, plan: RollbackPlan) -> tuple[RollbackPlan, int]:
    """The plan without effects and ids of runs that the user may not see, and how many effects were left out."""
    if c.user.sees_all:
        return plan, 0

    @cache
    def is_visible(run_id: str) -> bool:
        try:
            c.visible(run_id)
        except RunNotFound:
            return False
        return True

    def effects(found: Iterable[EffectPlan]) -> tuple[EffectPlan, ...]:
        return tuple(one for one in found if one.run_id == plan.run_id or is_visible(one.run_id))

    def runs(found: Iterable[str]) -> tuple[str, ...]:
        return tuple(run_id for run_id in found if is_visible(run_id))

    seen = msgspec.structs.replace(
        plan,
        undo=effects(plan.undo),
        irreversible=effects(plan.irreversible),
        in_doubt=effects(plan.in_doubt),
        compensated=effects(plan.compensated),
        detached_effects=effects(plan.detached_effects),
        children=runs(plan.children),
        detached=runs(plan.detached),
        forks=runs(plan.forks),
    )
    return seen, _count(plan) - _count(seen)


def _count(plan: RollbackPlan) -> int:
    parts = (plan.undo, plan.irreversible, plan.in_doubt, plan.compensated, plan.detached_effects)
    return sum(map(len, parts))


def hidden_text(count: int) -> str:
    """A sentence about the effects that were left out; empty if there are none."""
    if not count:
        return ""
    return f"{count} effect{'s' if count != 1 else ''} of runs that you may not see"
