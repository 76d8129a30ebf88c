"""Actions on runs: pause, resume, cancel and retry, of one run or of many at once.

An action is recorded here and carried out by a worker. Cancel, retry and everything about several runs is confirmed
first; the confirmation names the incarnation of each run, so a run that was deleted and created again is not changed.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from starlette.responses import RedirectResponse, Response

from holdfast.errors import Conflict, HoldfastError, InvalidInput, NotFound, RunError, RunNotFound
from holdfast.inspect.timeline import timeline
from holdfast.inspect.views import Timeline
from holdfast.model.rows import RunRow
from holdfast.web.api.failure import error_text
from holdfast.web.mask import Masker
from holdfast.web.routes import Page
from holdfast.web.run_actions import ACTIONS, TITLES, Action, act, forecast, missing_worker, read_run
from holdfast.web.run_filter import matching_runs
from holdfast.web.run_places import require_workflow
from holdfast.web.site import Context

BULK_MAX: Final = 500
"""How many runs one request may change."""
_ENTRIES: Final = 200
VIA: Final = "web"


def to_run(c: Context, run_id: str, notice: str = "") -> Response:
    """Go to the page of a run, which shows `notice` once."""
    response = RedirectResponse(c.run_url(run_id), 303)
    if notice:
        c.site.access.set_notice(c.request, response, notice)
    return response


def refused(c: Context, run_id: str, title: str, error: HoldfastError) -> Response:
    """The page for an action that was refused: why, and the state of the run now."""
    status = 409 if isinstance(error, (Conflict, RunError)) else 404 if isinstance(error, NotFound) else 400
    now = describe(c, run_id)
    data = {"title": f"{title}: not possible", "run_id": run_id, "text": error_text(error), "now": now}
    return c.page("act_refused.html", data, status=status)


def workflow_run(c: Context, title: str) -> RunRow | Response:
    """The run of the path; the page of a refusal if no workflow executes it."""
    c.section = "Runs"
    run_id = c.run_id()
    row = read_run(c, run_id)
    try:
        require_workflow(c, row)
    except RunError as error:
        return refused(c, run_id, title, error)
    return row


class Now(NamedTuple):
    """A run at this moment."""

    status: str
    sentence: str
    workflow: str
    found: Timeline


def describe(c: Context, run_id: str) -> Now:
    """The state of a run, for people."""
    found = timeline(c.store, run_id, newest=_ENTRIES)
    masker = Masker(c.site.mask)
    for row in found.rows if masker.is_active else ():
        masker.learn(row.result)
    return Now(found.run.status, masker.text(found.standing.sentence), found.run.workflow, found)


# --- one run ---------------------------------------------------------------------------------------------------------


def perform(c: Context, action: Action) -> Response:
    """Record an action on the run of the path."""
    run_id = c.run_id()
    try:
        sentence = act(c, action, run_id, via=VIA, incarnation=c.value("incarnation"))
    except RunNotFound:
        raise
    except (Conflict, RunError, InvalidInput) as error:
        return refused(c, run_id, TITLES[action], error)
    return to_run(c, run_id, f"{sentence[:1].upper()}{sentence[1:]}.")


def confirm(c: Context, action: Action) -> Response:
    """Show what an action would do to the run of the path, and ask."""
    c.section = "Runs"
    run_id = c.run_id()
    row = read_run(c, run_id)
    now = describe(c, run_id)
    expected = forecast(action, row.status)
    data: dict[str, Any] = {
        "title": f"{TITLES[action]} {run_id}",
        "action": action,
        "label": f"{TITLES[action]} the run",
        "run_id": run_id,
        "now": now,
        "forecast": expected,
        "missing": missing_worker(c, row.workflow),
        "incarnation": row.incarnation.hex(),
        "gates": len(now.found.gates),
        "children": [one.what for one in now.found.standing.waiting if one.reason == "child"],
    }
    return c.page("act.html", data)


def pause(c: Context) -> Response:
    """Ask a run to pause."""
    return perform(c, "pause")


def resume(c: Context) -> Response:
    """Let a run continue."""
    return perform(c, "resume")


def cancel(c: Context) -> Response:
    """Cancel a run."""
    return perform(c, "cancel")


def retry(c: Context) -> Response:
    """Let a failed run continue from the call that failed."""
    return perform(c, "retry")


def confirm_cancel(c: Context) -> Response:
    """Ask before a run is cancelled."""
    return confirm(c, "cancel")


def confirm_retry(c: Context) -> Response:
    """Ask before a run is retried."""
    return confirm(c, "retry")


# --- several runs ----------------------------------------------------------------------------------------------------


class Planned(NamedTuple):
    """A run of a selection, and what will happen to it."""

    run_id: str
    workflow: str
    status: str
    incarnation: str
    text: str
    is_refused: bool


class Outcome(NamedTuple):
    """What became of a run of a selection."""

    run_id: str
    text: str
    is_done: bool


def bulk(c: Context) -> Response:
    """Change several runs: first show each of them and what will happen, then do it."""
    c.section = "Runs"
    action = next((one for one in ACTIONS if one == c.value("action")), None)
    if action is None:
        raise InvalidInput(f"choose an action: {', '.join(ACTIONS)}")
    if c.value("confirm") == "1":
        return _perform_bulk(c, action)
    run_ids, more = _selection(c)
    planned = [one for run_id in run_ids if (one := _plan(c, action, run_id)) is not None]
    data = {
        "title": f"{TITLES[action]} {len(planned)} run{'s' if len(planned) != 1 else ''}",
        "action": action,
        "label": TITLES[action],
        "planned": planned,
        "refused": sum(one.is_refused for one in planned),
        "count": sum(not one.is_refused for one in planned),
        "more": more,
        "limit": BULK_MAX,
        "missing": [text for name in sorted({one.workflow for one in planned}) if (text := missing_worker(c, name))],
    }
    return c.page("bulk.html", data)


def _selection(c: Context) -> tuple[list[str], bool]:
    """The runs that were chosen, one by one or by the filter of the list; and whether there are more."""
    if c.value("all") == "1":
        return matching_runs(c, c.form, BULK_MAX)
    chosen = list(dict.fromkeys(c.form.get("run", ())))
    if len(chosen) > BULK_MAX:
        raise InvalidInput(f"at most {BULK_MAX} runs can be changed at once, not {len(chosen)}")
    return chosen, False


def _plan(c: Context, action: Action, run_id: str) -> Planned | None:
    """What will happen to a run; None if there is none, or the user may not see it."""
    try:
        row = read_run(c, run_id)
    except RunNotFound:
        return None
    if not c.user.can_see(row.workflow):
        return None
    expected = forecast(action, row.status)
    incarnation = row.incarnation.hex()
    return Planned(run_id, row.workflow, row.status, incarnation, expected.text, expected.is_refused)


def _perform_bulk(c: Context, action: Action) -> Response:
    run_ids, seen = c.form.get("run", []), c.form.get("incarnation", [])
    if len(run_ids) != len(seen) or len(run_ids) > BULK_MAX:
        raise InvalidInput("the form is not complete; choose the runs again")
    outcomes = [_outcome(c, action, run_id, incarnation) for run_id, incarnation in zip(run_ids, seen, strict=True)]
    done = sum(one.is_done for one in outcomes)
    data = {
        "title": f"{TITLES[action]}: {done} done, {len(outcomes) - done} refused",
        "done": [one for one in outcomes if one.is_done],
        "refused": [one for one in outcomes if not one.is_done],
    }
    return c.page("bulk_results.html", data)


def _act_on(c: Context, action: Action, run_id: str, incarnation: str) -> str:
    """Record an action on a run that was confirmed; an empty incarnation is none."""
    return act(c, action, run_id, via=VIA, incarnation=incarnation or "-", warn=False)


def _outcome(c: Context, action: Action, run_id: str, incarnation: str) -> Outcome:
    try:
        c.visible(run_id)
        return Outcome(run_id, _act_on(c, action, run_id, incarnation), is_done=True)
    except (Conflict, RunError, InvalidInput, NotFound) as error:
        return Outcome(run_id, error_text(error), is_done=False)


PAGES: Final = [
    Page("POST", "/runs/bulk", bulk, "operator"),
    Page("POST", "/runs/{run_id}/pause", pause, "operator"),
    Page("POST", "/runs/{run_id}/resume", resume, "operator"),
    Page("GET", "/runs/{run_id}/cancel", confirm_cancel, "operator"),
    Page("POST", "/runs/{run_id}/cancel", cancel, "operator"),
    Page("GET", "/runs/{run_id}/retry", confirm_retry, "operator"),
    Page("POST", "/runs/{run_id}/retry", retry, "operator"),
]
