"""Start: the list of workflows, and a form made of the signature of one."""

from __future__ import annotations

import json
from typing import Any, Final
from urllib.parse import quote, unquote

from starlette.responses import Response

from holdfast.errors import Conflict, InputConflict, InvalidId, InvalidInput
from holdfast.forms import Problem
from holdfast.ids import check_id
from holdfast.model.views import WorkflowInfo
from holdfast.store.capabilities import WorkerRegistry
from holdfast.web.forms import FormView, Values, edit_rows, parse
from holdfast.web.markdown_inline import inline
from holdfast.web.pages.act import to_run
from holdfast.web.pages.rollback_dialog import message_of
from holdfast.web.routes import Page
from holdfast.web.run_actions import missing_worker, with_warning
from holdfast.web.run_start import InputRefused, new_run_id, start
from holdfast.web.site import Context
from holdfast.web.text_values import parse_lines
from holdfast.web.workflow_catalog import find_known, list_known

_LABELS: Final = {"run_id": "Id", "metadata": "Metadata"}


def list_workflows(c: Context) -> Response:
    """List the workflows that can be started."""
    c.section = "Start"
    port = c.store.port
    running = (
        {name for names in port.workers().values() for name in names} if isinstance(port, WorkerRegistry) else None
    )
    rows = [
        {"name": one.name, "doc": inline(one.doc), "url": workflow_url(c, one.name), "fields": len(one.form.fields)}
        | {"is_executed": running is None or one.name in running}
        for one in list_known(c)
    ]
    return c.page("start.html", {"title": "Start", "workflows": rows})


def workflow_url(c: Context, name: str) -> str:
    """A link to the form of a workflow. Browsers resolve dots in paths, even if they are encoded."""
    if name in (".", "..", "~"):
        return c.url("/start/~", workflow=name)
    return c.url(f"/start/{quote(name, safe='')}")


def _workflow(c: Context) -> WorkflowInfo:
    name = unquote(str(c.request.path_params["workflow"]))
    return find_known(c, c.query("workflow", name) if name == "~" else name)


def show_form(c: Context) -> Response:
    """Show the form of a workflow's input."""
    return _form(c, _workflow(c), None)


def start_run(c: Context) -> Response:
    """Start a run with the values of the form. The same form sent twice starts one run."""
    info = _workflow(c)
    edited = edit_rows(info.form, c.form)
    if edited is not None:
        return _form(c, info, edited[0], focus=edited[1])
    values, found = _values(c, info)
    own_id = c.value("run_id").strip()
    run_id = own_id or c.value("generated").strip() or new_run_id(info.name)
    metadata, wrong = parse_lines(c.value("metadata"))
    problems = {"metadata": wrong} if wrong else {}
    try:
        check_id("the id", run_id)
    except InvalidId as error:
        problems["run_id"] = message_of(error)
    if not found and not problems:
        try:
            started = start(c, info.name, values, run_id=run_id, metadata=metadata)
            return _started(c, info, started.run_id, is_new=started.is_new)
        except InputRefused as error:
            found = error.fields
        except InputConflict as error:
            if own_id:
                problems["run_id"] = message_of(error)
            else:
                problems["before"] = run_id
        except Conflict as error:
            problems["run_id"] = message_of(error)
        except InvalidInput as error:
            found = [Problem("answer", message_of(error))]
    return _form(c, info, c.form, found, problems)


def _started(c: Context, info: WorkflowInfo, run_id: str, *, is_new: bool) -> Response:
    if not is_new:
        return to_run(c, run_id, "This run was started before with the same input; here it is.")
    return to_run(c, run_id, with_warning(c, info.name, "Started; a worker executes it") + ".")


def _is_free(info: WorkflowInfo) -> bool:
    """Whether the workflow takes an object of which nothing is known."""
    return info.declared and not info.form.fields


def _values(c: Context, info: WorkflowInfo) -> tuple[dict[str, Any], list[Problem]]:
    if not _is_free(info):
        values, problems = parse(info.form, c.form)
        empty = [
            Problem(field.name, "must not be empty")
            for field in info.form.fields
            if field.kind == "text" and field.required and not field.has_default and not field.nullable
            if not problems and not str(values[field.name]).strip()
        ]
        return values, problems or empty
    text = c.value("input").strip() or "{}"
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        return {}, [Problem("input", f"is not JSON: {error}")]
    if not isinstance(value, dict):
        return {}, [Problem("input", 'must be a JSON object, such as {"order": "A-17"}')]
    return value, []


def _form(
    c: Context,
    info: WorkflowInfo,
    values: Values | None,
    found: list[Problem] | None = None,
    problems: dict[str, str] | None = None,
    focus: str = "",
) -> Response:
    """The form of a workflow: new, or as it was typed, with what is wrong."""
    c.section = "Start"
    problems = dict(problems or {})
    before = problems.pop("before", "")
    has_failed = bool(found or problems or before)
    generated = c.value("generated")
    view = FormView(info.form, values, found or (), focus=focus)
    input_problems = [text for _, text in view.problems]
    view.problems += [(name, f"{_LABELS[name]}: {text}") for name, text in problems.items()]
    data = {
        "title": f"Start {info.name}",
        "workflow": info,
        "action": workflow_url(c, info.name),
        "doc": inline(info.doc),
        "view": view,
        "input_problems": input_problems,
        "is_free": _is_free(info),
        "input_text": c.value("input"),
        "run_id": c.value("run_id"),
        "generated": generated if generated and not before else new_run_id(info.name),
        "metadata": c.value("metadata"),
        "problems": problems,
        "before": before,
        "missing": missing_worker(c, info.name),
    }
    return c.page("start_form.html", data, status=400 if has_failed else 200)


PAGES: Final = [
    Page("GET", "/start", list_workflows),
    Page("GET", "/start/{workflow}", show_form, "operator"),
    Page("POST", "/start/{workflow}", start_run, "operator"),
]
