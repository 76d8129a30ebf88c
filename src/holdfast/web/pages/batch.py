"""Approve several gates at once, after a page that lists them with everything they show.

The confirmation names each gate as it was shown. A gate that has changed since is not answered.
"""

from __future__ import annotations

from typing import Final, NamedTuple
from urllib.parse import parse_qsl, unquote

from starlette.responses import Response

from holdfast.errors import AlreadyAnswered, GateClosed, HoldfastError, InvalidAnswer
from holdfast.web.gate_list import PAGE, Entry, Filter, GateList
from holdfast.web.gate_view import GateView, decision_of
from holdfast.web.routes import Page
from holdfast.web.site import Context

_BACK: Final = frozenset((*Filter._fields, "after"))


class Result(NamedTuple):
    """What became of one gate."""

    run_id: str
    gate: str
    entry: Entry | None
    text: str
    state: str
    """`done`, `late` or `refused`."""


class Selected(NamedTuple):
    """A gate that was selected."""

    token: str
    version: str
    run_id: str
    gate: str


def _selected(c: Context) -> list[Selected]:
    """The selected gates; never more than a page shows."""
    found = []
    for token in dict.fromkeys(c.form.get("gate", [])):
        version, _, rest = token.partition(" ")
        run_id, _, gate = rest.partition("/")
        found.append(Selected(token, version, unquote(run_id), unquote(gate)))
    return found[:PAGE]


def _find(c: Context, one: Selected) -> Entry | None:
    entry = GateList.of(c.site).find(one.run_id, one.gate)
    return entry if entry is not None and c.user.can_see(entry.workflow) else None


def _refusal(c: Context, one: Selected, entry: Entry | None) -> tuple[str, str]:
    """Why a selected gate cannot be approved, as a state and a sentence; empty if it can."""
    if entry is None or entry.info is None:
        return "refused", "There is no such gate."
    info, view = entry.info, GateView(c, entry, whole=True)
    if info.state == "answered":
        return "late", f"It was already answered by {info.answered_by}."
    if info.state != "open" or view.is_expired:
        return "late", f"It is {'expired' if view.is_expired else info.state}."
    if entry.version != one.version:
        return "refused", "It has changed since it was shown."
    if view.refusal:
        return "refused", f"You cannot answer it: {view.refusal}."
    if not view.can_batch:
        return "refused", "It needs more than a yes; open it to answer it."
    return "", ""


def confirm(c: Context) -> Response:
    """List what would be approved. Nothing is changed."""
    c.section = "Inbox"
    chosen, views, results = _selected(c), [], []
    for one in chosen:
        entry = _find(c, one)
        state, text = _refusal(c, one, entry)
        if entry is not None and not state:
            views.append(GateView(c, entry, whole=True))
        else:
            results.append(Result(one.run_id, one.gate, entry, text, state))
    status = 200 if chosen else 422
    return c.page("batch.html", _data(c, gates=views, results=results, is_done=False), status=status)


def approve(c: Context) -> Response:
    """Approve the gates that were listed, each with an answer of its own."""
    c.section = "Inbox"
    results = []
    for one in _selected(c):
        entry = _find(c, one)
        state, text = _refusal(c, one, entry)
        if entry is not None and not state:
            state, text = _approve(c, entry)
        results.append(Result(one.run_id, one.gate, entry, text, state))
    return c.page("batch.html", _data(c, gates=[], results=results, is_done=True))


def _approve(c: Context, entry: Entry) -> tuple[str, str]:
    form = entry.info.form if entry.info is not None else None
    name = decision_of(form) if form is not None else None
    try:
        c.app.answer(
            entry.run_id,
            {name: True},
            by=c.user.name,
            groups=c.user.groups,
            gate=entry.gate,
            question=entry.question,
            via="web",
            enqueue=True,
        )
    except AlreadyAnswered as error:
        return "late", f"It was already answered by {error.by}."
    except GateClosed as error:
        return "late", f"It is {error.state}."
    except InvalidAnswer as error:
        return "refused", f"{'; '.join(error.problems)}."
    except HoldfastError as error:  # the others are answered all the same
        return "refused", str(error)
    now = GateList.of(c.site).find(entry.run_id, entry.gate)
    info = now.info if now is not None else None
    if info is not None and info.state == "open" and info.approvals > 1:
        return "done", f"Approved: {len(info.approved)} of {info.approvals} approvals."
    return "done", "Approved."


def _data(c: Context, *, gates: list[GateView], results: list[Result], is_done: bool) -> dict[str, object]:
    back = {name: text for name, text in parse_qsl(c.value("back")) if name in _BACK}
    counts = {state: sum(one.state == state for one in results) for state in ("done", "late", "refused")}
    return {
        "title": "Approved" if is_done else "Approve",
        "gates": gates,
        "results": results,
        "counts": counts,
        "is_done": is_done,
        "back": c.url("/", **back),
        "back_query": c.value("back"),
    }


PAGES = [
    Page("POST", "/batch", confirm, role="approver"),
    Page("POST", "/batch/confirm", approve, role="approver"),
]
