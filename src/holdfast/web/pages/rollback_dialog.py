"""The rollback dialog: choose a place, read the plan, then roll back.

The plan is bound to the state of the run and its children. If one of them has changed since, the new plan is shown.
"""

from __future__ import annotations

from typing import Any, Final

from starlette.responses import Response

from holdfast.errors import Conflict, HoldfastError, InvalidInput, NotFound, PlanChanged, RollbackRefused, RunError
from holdfast.ids import display_name
from holdfast.model.rollback_plan import EffectPlan, RollbackPlan
from holdfast.model.rows import ROLLING_BACK, RunRow
from holdfast.web.api.failure import error_text
from holdfast.web.mask import Masker
from holdfast.web.pages.act import VIA, describe, refused, to_run, workflow_run
from holdfast.web.routes import Page
from holdfast.web.run_actions import (
    REFUSED,
    app_without_workflows,
    hidden_text,
    missing_worker,
    read_run,
    visible_plan,
    with_warning,
)
from holdfast.web.run_places import parse_place, places_of
from holdfast.web.site import Context

_TITLE: Final = "Roll back"
_CALLS_SHOWN: Final = 50
_CHANGED: Final = "The run has changed since the plan was shown. Nothing was done; this is the plan now."


def show_rollback(c: Context) -> Response:
    """Show the places of a run and, for the chosen one, what a rollback would do. Nothing is changed."""
    row = workflow_run(c, _TITLE)
    return row if isinstance(row, Response) else _dialog(c, row, c.query("to").strip())


def roll_back(c: Context) -> Response:
    """Begin the rollback that was shown. A worker performs it."""
    row = workflow_run(c, _TITLE)
    if isinstance(row, Response):
        return row
    run_id, app, force = row.run_id, app_without_workflows(c), c.value("force") == "1"
    to, basis = c.value("to"), c.value("basis")
    try:
        if c.value("continue") == "1":
            app.rollback(run_id, by=c.user.name, force=force, enqueue=True, via=VIA)
            sentence = "The rollback continues; a worker performs it"
            return to_run(c, run_id, with_warning(c, row.workflow, sentence) + ".")
        plan = app.rollback_plan(run_id, parse_place(to))
        if visible_plan(c, plan)[1]:
            raise RunError(f"run {run_id!r} was not rolled back: {REFUSED}")
        app.rollback(run_id, plan.to, by=c.user.name, force=force, basis=basis, enqueue=True, via=VIA)
    except RollbackRefused as error:
        text = "The rollback was refused, because some effects cannot be undone. Nothing was done."
        return _dialog(c, read_run(c, run_id), str(error.plan.to), changed=text, status=409)
    except PlanChanged:
        return _dialog(c, read_run(c, run_id), to, changed=_CHANGED, status=409)
    except (Conflict, RunError, InvalidInput, NotFound) as error:
        return refused(c, run_id, _TITLE, error)
    count = len(plan.undo)
    does = f"undoes {count} effect{'s' if count != 1 else ''}" if count else "takes back what was recorded"
    sentence = f"The rollback to position {plan.to} has begun; a worker {does} and then continues the run"
    return to_run(c, run_id, with_warning(c, row.workflow, sentence) + ".")


def _dialog(c: Context, row: RunRow, to: str, *, changed: str = "", status: int = 200) -> Response:
    plan, problem = _plan(c, row.run_id, to)
    data: dict[str, Any] = {
        "title": f"Roll back {row.run_id}",
        "run_id": row.run_id,
        "now": describe(c, row.run_id),
        "to": to,
        "places": places_of(c, row),
        "problem": problem,
        "changed": changed,
        "is_open": row.status == ROLLING_BACK,
        "missing": missing_worker(c, row.workflow),
    }
    if plan is not None:
        plan, hidden = visible_plan(c, plan)
        data |= _sections(c, plan)
        if hidden:
            data["changed"] = " ".join([changed, f"It concerns {hidden_text(hidden)}, so it would be refused."]).strip()
    return c.page("rollback.html", {"plan": plan, **data}, status=400 if problem and status == 200 else status)


def _plan(c: Context, run_id: str, to: str) -> tuple[RollbackPlan | None, str]:
    """The plan for a place, or what is wrong with the place."""
    if not to:
        return None, ""
    try:
        return c.app.rollback_plan(run_id, parse_place(to)), ""
    except (Conflict, RunError, InvalidInput, NotFound) as error:
        return None, message_of(error)


def message_of(error: HoldfastError) -> str:
    """The message of an error, as a sentence."""
    text = error_text(error)
    return f"{text[:1].upper()}{text[1:]}"


def _sections(c: Context, plan: RollbackPlan) -> dict[str, Any]:
    """The parts of a plan, in the order in which they are shown."""
    masker = Masker(c.site.mask)

    def effects(found: tuple[EffectPlan, ...]) -> list[dict[str, Any]]:
        return [effect_row(masker, plan.run_id, one) for one in found]

    return {
        "undo": effects(plan.undo),
        "blocking": [
            ("Cannot be undone", "No function undoes them. They stay as they are.", effects(plan.irreversible)),
            ("In doubt", "It is not known whether they happened.", effects(plan.in_doubt)),
            ("Undone by the run itself", "The run would treat them as done.", effects(plan.compensated)),
            ("Of detached children", "They would be performed again.", effects(plan.detached_effects)),
        ],
        "again": names_again(plan.calls, plan.gates),
    }


def names_again(calls: tuple[str, ...], gates: tuple[str, ...]) -> dict[str, Any]:
    """The calls of a plan that run again and the gates among them, as both dialogs show them."""
    return {
        "count": len(calls),
        "calls": [display_name(call) for call in calls[:_CALLS_SHOWN]],
        "more": max(0, len(calls) - _CALLS_SHOWN),
        "gates": [display_name(gate) for gate in gates[:_CALLS_SHOWN]],
    }


def effect_row(masker: Masker, run_id: str, effect: EffectPlan) -> dict[str, Any]:
    """An effect for a table: what it was called with, and what it returned."""
    return {
        "name": display_name(effect.key),
        "tool": effect.tool,
        "undo": effect.undo,
        "run_id": effect.run_id if effect.run_id != run_id else "",
        "arguments": [
            *masker.arguments(effect.arguments),
            *([masker.value(effect.keywords)] if effect.keywords else []),
        ],
        "result": masker.value(effect.result),
    }


PAGES: Final = [
    Page("GET", "/runs/{run_id}/rollback", show_rollback, "operator"),
    Page("POST", "/runs/{run_id}/rollback", roll_back, "operator"),
]
