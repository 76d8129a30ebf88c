"""The page of one gate, on which it is answered and reassigned. Links in notifications lead here."""

from __future__ import annotations

import json
import re
from typing import Any, Final
from urllib.parse import parse_qsl, unquote
from zlib import crc32

from starlette.responses import Response

from holdfast.engine.effect_outcome import outcome_problems
from holdfast.errors import Conflict, InvalidAnswer, InvalidInput, NotFound
from holdfast.forms import Problem
from holdfast.model.rows import RunRow
from holdfast.web.forms import FormView, edit_rows, parse
from holdfast.web.gate_history import events_of, find_answer, with_labels
from holdfast.web.gate_list import Entry, Filter, GateList
from holdfast.web.gate_view import GateView, gate_url, typed_gates
from holdfast.web.mask import Masker
from holdfast.web.routes import Page
from holdfast.web.run_actions import reassigner_groups
from holdfast.web.shown import show
from holdfast.web.site import Context

_NAMES: Final = re.compile(r"[,;\n]")
_BACK: Final = frozenset((*Filter._fields, "after"))


def find_entry(c: Context) -> Entry:
    """The gate of the path; NotFound if there is none."""
    run_id = c.run_id()
    name = unquote(str(c.request.path_params["gate"]))
    if name == "~":
        name = c.query("gate", name)
    found = GateList.of(c.site).find(run_id, name)
    if found is None:
        raise NotFound(f"run {run_id!r} has no gate {name!r}")
    return found


def show_gate(c: Context) -> Response:
    """Show a gate."""
    return _page(c, GateView(c, find_entry(c), whole=True))


def _page(c: Context, view: GateView, *, status: int = 200, typed: FormView | None = None, **more: Any) -> Response:
    """The page of a gate. `typed`: what the user typed although the gate does not accept it any more."""
    c.section = "Inbox"
    info = view.info
    run = c.store.access.core.port.run(view.entry.run_id)
    answer = find_answer(c.store.access.core, run, info) if run is not None and info is not None else None
    has_typed = (view.entry.run_id, view.entry.gate) in typed_gates(c)
    value = None if answer is None else Masker(c.site.mask).value(answer.value)
    value = value if info is None else with_labels(info.form, value)
    data = {
        "title": f"{view.title or view.name} · {view.entry.run_id}",
        "g": view,
        "answer": answer,
        "answer_shown": None if answer is None else show(value, heading=3),
        "events": events_of(info, answer) if info is not None else [],
        "typed": typed.typed if typed is not None else [],
        "keeps_form": has_typed and not view.is_open,
        "refused": "",
        "wrong_who": "",
        "who": "",
        "reason": "",
        "run_status": run.status if run is not None else "",
    }
    if c.request.method == "GET":
        data["mark"] = _mark(view.entry, run, GateList.of(c.site).now_us)
        data["live"] = gate_url(c, view.entry.run_id, view.entry.gate, "live", mark=data["mark"])
    return c.page("gate.html", data | more, status=status)


def _mark(entry: Entry, run: RunRow | None, now_us: int) -> str:
    """Changes when the page of the gate changes."""
    who = crc32("\n".join(entry.info.who).encode()) if entry.info is not None else 0
    return f"{entry.version}-{'' if run is None else run.status}-{entry.is_expired(now_us)}-{who:08x}"


def live(c: Context) -> Response:
    """Report changes of the gate."""
    entry = find_entry(c)
    gates, port, run_id, gate = GateList.of(c.site), c.store.access.core.port, entry.run_id, entry.gate

    def mark() -> str:
        found = gates.find(run_id, gate)
        return "gone" if found is None else _mark(found, port.run(run_id), gates.now_us)

    return c.site.live.response(json.dumps(["gate", run_id, gate]), mark, c.query("mark"))


# --- answers ---------------------------------------------------------------------------------------------------------


def answer(c: Context) -> Response:
    """Answer a gate with the submitted form."""
    entry = find_entry(c)
    info = entry.info
    if info is None or GateView(c, entry).is_interrupt:
        raise InvalidInput(f"gate {entry.gate!r} of run {entry.run_id!r} cannot be answered here")
    typed = FormView(info.form, c.form)
    asked = c.value("asked")
    if asked and asked != entry.question:
        text = "This question was replaced by another one while you were answering. Your answer was not used."
        return _page(c, GateView(c, entry, whole=True), status=409, typed=typed, refused=text)
    view = GateView(c, entry, whole=True)
    if info.state != "open":
        return _page(c, view, status=409, typed=typed)
    if view.refusal:
        return _page(c, view, status=403 if view.cancel is None else 409, typed=typed)
    edited = edit_rows(info.form, c.form)
    if edited is not None:
        return _page(c, GateView(c, entry, whole=True, values=edited[0], focus=edited[1]))
    value, problems = parse(info.form, c.form)
    problems = problems or outcome_problems(info.purpose, value)
    if not problems:
        try:
            c.app.answer(
                entry.run_id,
                value,
                by=c.user.name,
                groups=c.user.groups,
                gate=entry.gate,
                question=info.question,
                via="web",
                enqueue=True,
            )
        except InvalidAnswer as error:
            problems = [Problem("answer", text) for text in error.problems]
        except Conflict as error:  # another person was first, or the run has ended
            return _too_late(c, entry, typed, error)
        else:
            return _answered(c, entry)
    return _page(c, GateView(c, entry, whole=True, values=c.form, problems=problems), status=422)


def _too_late(c: Context, entry: Entry, typed: FormView, error: Conflict) -> Response:
    """The page for an answer that another person has preceded; what was typed can be copied."""
    now = GateList.of(c.site).find(entry.run_id, entry.gate) or entry
    view = GateView(c, now, whole=True, values=c.form if now.info and now.info.state == "open" else None)
    text = "" if not view.is_open else str(error)
    return _page(c, view, status=409, typed=typed, refused=text)


def _answered(c: Context, entry: Entry) -> Response:
    now = GateList.of(c.site).find(entry.run_id, entry.gate)
    info = now.info if now is not None else None
    text = f"Answered {entry.workflow} {entry.run_id}."
    if info is not None and info.state == "open" and info.approvals > 1:
        text = f"Approved {entry.workflow} {entry.run_id}: {len(info.approved)} of {info.approvals} approvals."
    return go_back(c, entry, text)


def go_back(c: Context, entry: Entry, notice: str) -> Response:
    """Go to the list from which the gate was answered, or to its page."""
    if "back" in c.form:
        query = {name: text for name, text in parse_qsl(c.value("back")) if name in _BACK}
        return c.redirect("/", notice, **query)
    path = gate_url(c, entry.run_id, entry.gate)
    return c.redirect(path.removeprefix(c.root), notice)


# --- reassign --------------------------------------------------------------------------------------------------------


def reassign(c: Context) -> Response:
    """Name other people that may answer a gate."""
    entry = find_entry(c)
    view = GateView(c, entry, whole=True)
    who, reason = c.value("who"), c.value("reason").strip()
    kept: dict[str, Any] = {"who": who, "reason": reason}
    if not view.can_reassign:
        if not view.is_open:
            return _page(c, view, status=409, refused="It is not open, so it was not reassigned.")
        text = "Only an operator, or a person that may answer it, can reassign it."
        return _page(c, view, status=403, refused=text)
    names = [name.strip() for name in _NAMES.split(who) if name.strip()]
    if not names:
        return _page(c, view, status=422, wrong_who="Name at least one person or group.", **kept)
    try:
        groups = reassigner_groups(c)
        c.app.reassign(entry.run_id, names, gate=entry.gate, by=c.user.name, groups=groups, reason=reason, via="web")
    except InvalidInput as error:
        return _page(c, view, status=422, wrong_who=str(error), **kept)
    except Conflict as error:
        return _page(c, GateView(c, find_entry(c), whole=True), status=409, refused=str(error))
    return go_back(c, entry, f"Reassigned to {', '.join(names)}.")


PAGES = [
    Page("GET", "/runs/{run_id}/gates/{gate}", show_gate),
    Page("GET", "/runs/{run_id}/gates/{gate}/live", live),
    Page("POST", "/runs/{run_id}/gates/{gate}/answer", answer, role="approver"),
    Page("POST", "/runs/{run_id}/gates/{gate}/reassign", reassign, role="approver"),
]
