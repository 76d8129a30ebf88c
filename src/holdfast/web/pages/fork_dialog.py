"""The fork dialog: choose a place, see what runs again, change the state, then start the new run."""

from __future__ import annotations

import json
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from starlette.responses import Response

from holdfast.errors import Conflict, HoldfastError, InvalidInput, NotFound, PlanChanged, RunError, RunExists
from holdfast.ids import check_id
from holdfast.inspect.family import split_origin
from holdfast.model.rollback_plan import RollbackPlan
from holdfast.model.rows import RunRow
from holdfast.web.mask import MASKED, Masker
from holdfast.web.pages.act import VIA, describe, refused, to_run, workflow_run
from holdfast.web.pages.rollback_dialog import effect_row, message_of, names_again
from holdfast.web.routes import Page
from holdfast.web.run_actions import hidden_text, missing_worker, read_run, visible_plan, with_warning
from holdfast.web.run_places import (
    STATE_CHARS_MAX,
    StateAt,
    masked_edit,
    parse_place,
    places_of,
    state_at,
)
from holdfast.web.run_start import new_run_id
from holdfast.web.site import Context
from holdfast.web.text_values import parse_lines

_TITLE: Final = "Fork"
POLICIES: Final = (
    ("reuse", "Reuse", "The fork takes the recorded outcome. Nothing happens twice."),
    ("ask", "Ask", "A gate asks a person each time whether to reuse the outcome or to perform the effect again."),
    ("perform", "Perform again", "The fork performs the effect again, with a new idempotency key: it happens twice."),
)


class Edit(NamedTuple):
    """How the state of the fork is changed, and what is wrong with that by field."""

    state: dict[str, Any] | None
    update: dict[str, Any] | None
    problems: dict[str, str]


def show_fork(c: Context) -> Response:
    """Show the places of a run and, for the chosen one, the form of a fork. Nothing is changed."""
    row = workflow_run(c, _TITLE)
    return row if isinstance(row, Response) else _dialog(c, row, c.query("at").strip(), {})


def fork(c: Context) -> Response:
    """Start the fork. A worker executes it."""
    row = workflow_run(c, _TITLE)
    if isinstance(row, Response):
        return row
    run_id = row.run_id
    at = c.value("at").strip()
    new_id = c.value("new_run_id").strip() or c.value("generated").strip() or new_run_id(row.workflow)
    effects: Any = c.value("effects", "reuse")
    edit = _edit(c, row, at)
    problems = dict(edit.problems)
    try:
        check_id("the id", new_id)
    except InvalidInput as error:
        problems["new_run_id"] = message_of(error)
    if not problems:
        try:
            c.app.fork(
                run_id,
                new_id,
                at=parse_place(at) if at else None,
                effects=effects,
                state=edit.state,
                update=edit.update,
                basis=c.value("basis") or None,
                by=c.user.name,
                via=VIA,
                enqueue=True,
            )
        except RunExists as error:
            if _is_fork_of(c, new_id, run_id) and not c.value("new_run_id").strip():
                return to_run(c, new_id, "This form was sent before; the fork exists.")
            problems["new_run_id"] = message_of(error)
        except (InvalidInput, NotFound) as error:
            problems["set" if edit.update else "state" if edit.state is not None else "at"] = message_of(error)
        except PlanChanged:
            row = read_run(c, run_id)
            problems["at"] = "The run has changed since this page was shown. Nothing was done; read the plan again."
        except (Conflict, RunError) as error:
            return refused(c, run_id, _TITLE, error)
    if problems:
        return _dialog(c, row, at, problems)
    sentence = f"Forked from {run_id}; a worker continues it"
    return to_run(c, new_id, with_warning(c, row.workflow, sentence) + ".")


def _is_fork_of(c: Context, new_id: str, run_id: str) -> bool:
    origin = c.app.handle(new_id).info().forked_from
    return split_origin(origin, (run_id,))[0] == run_id


def _edit(c: Context, row: RunRow, at: str) -> Edit:
    """Read how the state is to be changed. Masked values are never written back."""
    mode = c.value("edit", "keep")
    unused = _unused(c, mode)
    if unused:
        return Edit(None, None, unused)
    if mode == "set":
        found, problem = parse_lines(c.value("set"))
        if not problem and not found:
            problem = "Write at least one line, such as order.amount=30"
        if not problem and MASKED in json.dumps(found, ensure_ascii=False):
            problem = f"{MASKED} stands for a value that is not shown; write the value itself"
        if not problem and c.site.mask:
            problem = _masked_problem(c, row, at, found)
        return Edit(None, found, {"set": problem} if problem else {})
    if mode == "replace":
        return _replacement(c, row, at)
    return Edit(None, None, {})


def _masked_problem(c: Context, row: RunRow, at: str, update: dict[str, Any]) -> str:
    try:
        problem = masked_edit(c, row.run_id, parse_place(at) if at else None, None, update)
    except (Conflict, RunError, InvalidInput, NotFound) as error:
        return message_of(error)
    return f"{problem[:1].upper()}{problem[1:]}"


def _unused(c: Context, mode: str) -> dict[str, str]:
    """The fields that were filled in although the chosen way to begin does not use them."""
    found = {}
    if mode != "set" and c.value("set").strip():
        found["set"] = "These values would not be used: choose “Some values changed”, or empty this field"
    if mode != "replace" and "state_shown" in c.form and c.value("state_shown") != _digest(c.value("state")):
        found["state"] = "This state would not be used: choose “Another state”, or restore what was shown"
    return found


def _digest(text: str) -> str:
    """Identifies the text of the state, however a browser writes its line breaks."""
    return blake2b("\n".join(text.strip().splitlines()).encode(), digest_size=9).hexdigest()


def _replacement(c: Context, row: RunRow, at: str) -> Edit:
    text = c.value("state").replace("\r\n", "\n")
    try:
        value = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        return Edit(None, None, {"state": f"This is not JSON: {error}"})
    if not isinstance(value, dict):
        return Edit(None, None, {"state": 'The state is a JSON object, such as {"order": "A-17"}'})
    position, _, problem = _place(c, row, at)
    if problem:
        return Edit(None, None, {"at": problem})
    now = state_at(c, row, position, Masker(c.site.mask))
    if now.why_not_whole:
        return Edit(None, None, {"state": now.why_not_whole})
    return Edit(None if value == now.shown and text == _as_text(now.shown) else value, None, {})


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


def _place(c: Context, row: RunRow, at: str) -> tuple[int, RollbackPlan | None, str]:
    """The position of a place, what has happened since, and what is wrong with the place."""
    try:
        plan = c.app.rollback_plan(row.run_id, parse_place(at) if at else None)
    except HoldfastError as error:
        if not isinstance(error, (Conflict, RunError, InvalidInput, NotFound)):
            raise
        return row.position, None, message_of(error)
    return plan.to, plan, ""


def _as_text(state: object) -> str:
    return json.dumps(state, ensure_ascii=False, indent=2)


def _dialog(c: Context, row: RunRow, at: str, problems: dict[str, str]) -> Response:
    position, plan, problem = _place(c, row, at)
    if problem:
        problems = {**problems, "at": problem}
    masker = Masker(c.site.mask)
    found = state_at(c, row, position, masker)
    text = _as_text(found.shown)
    if not found.why_not_whole and len(text) > STATE_CHARS_MAX:
        found = StateAt(None, "", 0, "The state is too large to be edited here. Single values can be set.")
    shown, hidden = visible_plan(c, plan) if plan is not None else (None, 0)
    since = (*shown.undo, *shown.irreversible, *shown.in_doubt) if shown is not None else ()
    data: dict[str, Any] = {
        "title": f"Fork {row.run_id}",
        "run_id": row.run_id,
        "now": describe(c, row.run_id),
        "at": at,
        "position": position,
        "places": places_of(c, row),
        "effects_since": [effect_row(masker, row.run_id, one) for one in since],
        "again": names_again(shown.fork_calls, shown.fork_gates) if shown is not None else names_again((), ()),
        "effects_hidden": hidden_text(hidden),
        "is_place_wrong": bool(problem),
        "basis": plan.basis if plan is not None else "",
        "policies": POLICIES,
        "policy": c.value("effects", "reuse"),
        "mode": c.value("edit", "keep"),
        "state": found,
        "state_text": c.value("state") or text,
        "state_shown": c.value("state_shown") or _digest(text),
        "shown_text": text if len(text) <= STATE_CHARS_MAX else "",
        "set_text": c.value("set"),
        "new_run_id": c.value("new_run_id"),
        "generated": c.value("generated") or new_run_id(row.workflow),
        "problems": problems,
        "missing": missing_worker(c, row.workflow),
    }
    return c.page("fork.html", data, status=400 if problems else 200)


PAGES: Final = [
    Page("GET", "/runs/{run_id}/fork", show_fork, "operator"),
    Page("POST", "/runs/{run_id}/fork", fork, "operator"),
]
