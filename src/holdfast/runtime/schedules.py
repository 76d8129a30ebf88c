"""Schedules: each is a run of the workflow `holdfast.schedule`, which any worker executes.

Its durable loop finds the ticks that are due, starts a run for each, and waits for the next one. What is due is
recorded before a run is started, and the run's id contains the tick, so no tick is lost or executed twice.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast.clock import US
from holdfast.drivers import Plan
from holdfast.engine.retry import Retry
from holdfast.errors import ChildFailed, Conflict, InputConflict, InvalidInput
from holdfast.ids import check_id
from holdfast.model.rows import PAUSED, TERMINAL, WAITING, ItemRow, RunRow
from holdfast.model.views import View
from holdfast.operations.catalog import read_catalog
from holdfast.operations.context import StoreContext
from holdfast.operations.read import load_checkpoint
from holdfast.operations.views import moment
from holdfast.runtime import control
from holdfast.runtime.execute import start_run
from holdfast.runtime.replay_input import CODEC, first_entry
from holdfast.runtime.schedule_ticks import Missed, Overlap, Rule
from holdfast.runtime.start import Claimed, Start
from holdfast.store.checksum import verify_run
from holdfast.store.port import RunQuery, Select

if TYPE_CHECKING:
    from holdfast.runtime.app_core import AppCore
    from holdfast.runtime.run import Run

WORKFLOW: Final = "holdfast.schedule"
PREFIX: Final = "schedule/"
_CHANGED: Final = "holdfast.schedule/changed"
_RETRY: Final = Retry(attempts=1_000_000, initial_delay=0.1, max_delay=60)
"""A store that fails for an hour, or a machine without the time zone, ends no schedule."""
_log: Final = logging.getLogger("holdfast.schedule")


class ScheduleInfo(View, frozen=True, kw_only=True):
    """A schedule, as `app.schedules` lists it."""

    name: str
    run_id: str
    """The run that is the schedule. It can be paused, resumed and cancelled like any other."""
    workflow: str
    when: str
    """Its cron expression or interval."""
    missed: Missed
    overlap: Overlap
    status: str
    next: dt.datetime | None
    """When it is due next; None if it has ended."""
    last_run: str | None
    """The run that it started last."""
    last_status: str | None
    skipped: int
    """How many ticks it has skipped because a run had not ended."""


Spec = dict[str, Any]
"""A schedule as it is stored: its rule, and the workflow to start with its arguments."""


def register(app: AppCore) -> None:
    """Let this process execute schedules."""
    if app.known(WORKFLOW) is None:
        app.registry.add_workflow(_workflow_of(app), WORKFLOW, 1, _RETRY)


def _workflow_of(app: AppCore) -> Callable[[Run, Spec], None]:
    def created_us(run_id: str) -> int:
        row = app.core.port.run(run_id)
        assert row is not None, "it is executing"
        return row.created_us

    def ended_us(prefix: str) -> int:
        rows = app.core.port.runs(RunQuery(prefix=prefix, limit=1))
        return rows[0].updated_us if rows else 0

    def is_unfinished(run_id: str) -> bool:
        row = app.core.port.run(run_id)
        return row is not None and row.status not in TERMINAL

    def due(rule: Spec, after_us: int, queued_us: int) -> dict[str, Any]:
        made, now_us = msgspec.convert(rule, Rule), app.core.clock.now_us()
        ticks, after = made.due(after_us, now_us, queued_us)
        return {"ticks": ticks, "after_us": after, "wait_us": max(0, made.next(after) - now_us)}

    def start_tick(run: Run, spec: Spec, tick: int) -> None:
        key, state, overlap = _name_of(tick), run.state, spec["rule"].get("overlap", "skip")
        if overlap == "skip" and state["last"] and run.step(is_unfinished, state["last"], key=f"before {key}"):
            state["skipped"] += 1
            return
        # Not `run.child`, whose options would hide arguments of the same name.
        start = run._plan_child(
            spec["workflow"], tuple(spec["args"]), spec["kwargs"], key, detached=overlap != "queue", enqueue=True
        )
        try:
            state["last"] = run.drive(start)
        except ChildFailed:
            pass  # only with `queue`; a failed run is listed like any other
        except (InvalidInput, Conflict) as error:  # the workflow has changed, or a run of that id exists
            run.log(f"no run was started at {key}: {error}", level="error")
        if overlap == "queue":
            state["queued_us"] = run.step(ended_us, f"{run.run_id}/{run.scope.full_name(key)}", key=f"end of {key}")

    def schedule(run: Run, spec: Spec) -> None:
        """Start a run at each tick."""
        state = run.state
        for _ in run.loop():
            if not state:
                state |= _first_state(spec, run.step(created_us, run.run_id, key="created"))
            present = state["spec"]
            found = run.step(due, present["rule"], state["after_us"], state["queued_us"], key="due")
            for tick in found["ticks"]:
                start_tick(run, present, tick)
            state["after_us"] = found["after_us"]
            # With ticks, time has passed: with `queue`, perhaps days.
            changed = run.wait_for(_CHANGED, timeout=0 if found["ticks"] else found["wait_us"] / US, key="wait")
            while changed is not None:
                if changed["spec"]["rule"] != state["spec"]["rule"]:
                    state["after_us"] = max(state["after_us"], changed["at_us"])
                state["spec"] = changed["spec"]
                changed = run.wait_for(_CHANGED, timeout=0)

    return schedule


def _name_of(tick: int) -> str:
    """A tick in the id of its run."""
    return f"{moment(tick).replace(tzinfo=None).isoformat()}Z"


def begin(app: AppCore, name: str, workflow: object, given: tuple[Any, ...], rule: Rule) -> Plan[str]:
    """Create the schedule, or change it if it is another one; return the id of its run."""
    run_id = _run_id_of(name)
    if workflow == WORKFLOW:
        raise InvalidInput("a schedule cannot start schedules")
    published = [info.name for info in (yield lambda: read_catalog(app.core))]
    if isinstance(workflow, str) and app.known(workflow) is None and workflow in published:
        named, args, kwargs = workflow, *given
    else:
        known = app.registry.find(workflow)
        start = known.prepare(Start(run_id, known.name, known.version, *given))
        named, args, kwargs = start.workflow, start.args, start.kwargs
    register(app)
    spec: Spec = {"rule": msgspec.to_builtins(rule), "workflow": named, "args": list(args), "kwargs": kwargs}
    spec = CODEC.round_trip(spec)
    with contextlib.suppress(InputConflict):
        yield from start_run(app, WORKFLOW, ((spec,), {}), run_id, None, here=False)
    row = yield from control.require_run(app, run_id)
    if row.status in TERMINAL:
        text = "schedule %r is %s; remove it with app.unschedule(%r) to begin it again"
        _log.warning(text, name, row.status, name)
        return run_id
    newest = yield lambda: _newest_spec(app, row)
    if CODEC.digest((newest,), {}) != CODEC.digest((spec,), {}):  # True is not 1
        change = {"spec": spec, "at_us": app.core.clock.now_us()}
        yield from control.send(app, run_id, _CHANGED, change, None, None, here=False)
    return run_id


def _run_id_of(name: object) -> str:
    """The run of a schedule. A name with a slash would look like a run of another schedule."""
    if "/" in check_id("the name of a schedule", name):
        raise InvalidInput(f"the name of a schedule must have no slash, unlike {name!r}")
    return f"{PREFIX}{name}"


def _newest_spec(app: AppCore, row: RunRow) -> Spec | None:
    """What was last asked for; None if a change is pending or its run is executing."""
    items = app.core.port.rows(ItemRow, row.run)
    executing = row.position > 1 and row.status not in (WAITING, PAUSED)
    if executing or any(item.name == _CHANGED and not item.taken for item in items):
        return None
    spec: Spec = _read(app.core, row)["spec"]
    return spec


def _read(core: StoreContext, row: RunRow) -> dict[str, Any]:
    """The state of a schedule: what it does, its last tick, and how many it has skipped."""
    found = load_checkpoint(core, row.run_id, Select())
    state: Any = None if found is None else found.state
    if state:
        return state  # type: ignore[no-any-return]
    return _first_state(first_entry(core, row)["args"][0], row.created_us)


def _first_state(spec: Spec, after_us: int) -> dict[str, Any]:
    return {"spec": spec, "after_us": after_us, "queued_us": 0, "last": "", "skipped": 0}


def remove(app: AppCore, name: str) -> Plan[tuple[RunRow, Claimed | None]]:
    """Cancel the run of a schedule unless it has ended; it may be deleted then."""
    register(app)
    row = yield from control.require_run(app, _run_id_of(name))
    if row.status in TERMINAL:
        return row, None
    return (yield from control.request(app, row.run_id, "cancel", None, here=True))


def listed(app: AppCore) -> Plan[list[ScheduleInfo]]:
    """The schedules of the app's store."""
    return (yield lambda: schedules_of(app.core))  # type: ignore[no-any-return]


def schedules_of(core: StoreContext) -> list[ScheduleInfo]:
    """All schedules, by name."""
    rows = core.port.runs(RunQuery(workflow=WORKFLOW, prefix=PREFIX, limit=-1))
    return sorted([_info(core, verify_run(row)) for row in rows], key=lambda info: info.name)


def _info(core: StoreContext, row: RunRow) -> ScheduleInfo:
    state = _read(core, row)
    spec = state["spec"]
    rule = msgspec.convert(spec["rule"], Rule)
    last = core.port.runs(RunQuery(workflow=spec["workflow"], prefix=f"{row.run_id}/", limit=1))
    return ScheduleInfo(
        name=row.run_id.removeprefix(PREFIX),
        run_id=row.run_id,
        workflow=spec["workflow"],
        when=rule.describe(),
        missed=rule.missed,
        overlap=rule.overlap,
        status=row.status,
        next=None if row.status in TERMINAL else moment(rule.next(state["after_us"])),
        last_run=last[0].run_id if last else None,
        last_status=last[0].status if last else None,
        skipped=state["skipped"],
    )
