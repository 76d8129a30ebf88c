"""The history of a gate: the people asked, the approvals, and the answer."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from holdfast.errors import HoldfastError
from holdfast.forms import Field, Form
from holdfast.ids import via_of
from holdfast.limits import NUMBER_MAX
from holdfast.model.rows import EntryRow, ItemRow, RunRow
from holdfast.model.views import GateInfo
from holdfast.operations.context import StoreContext
from holdfast.operations.views import decode_body, moment
from holdfast.runtime.replay_input import entry_data

_PAGE: Final = 500
_ENTRIES_MAX: Final = 20_000
"""How far back the journal is searched for an answer."""


class GateAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer that counts."""

    by: str
    at: dt.datetime
    via: str
    value: Any
    is_expiry: bool = False
    """No answer came in time; the value is what the gate then counts as."""


class GateEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the history of a gate."""

    at: dt.datetime
    text: str
    by: str = ""
    via: str = ""
    note: str = ""


def find_answer(core: StoreContext, run: RunRow, info: GateInfo) -> GateAnswer | None:
    """The answer to a gate: in the inbox of the run, or in its journal; None if there is none, or it was pruned."""
    if info.state not in ("answered", "expired"):
        return None
    place = f"the answer to gate {info.gate!r} of run {run.run_id!r}"
    try:
        for item in core.port.rows(ItemRow, run.run, 0, NUMBER_MAX):
            if item.kind == "answer" and item.name == info.gate:
                value = decode_body(item.body, place)
                return GateAnswer(by=item.by, at=moment(item.created_us), via=via_of(item), value=value)
        for row in _newest_first(core, run):
            if row.kind == "answered":
                entry = entry_data(run, row)
                if entry.get("gate") == info.gate:
                    return GateAnswer(
                        by=entry.get("by") or "",
                        at=moment(entry.get("at_us") or row.created_us),
                        via=entry.get("via", ""),
                        value=entry.get("answer"),
                        is_expiry=bool(entry.get("expired")),
                    )
    except HoldfastError:  # damaged data is reported by verify; the rest of the page can be shown
        return None
    return None


def _newest_first(core: StoreContext, run: RunRow) -> Iterator[EntryRow]:
    last = run.position
    while last > max(0, run.position - _ENTRIES_MAX):
        first = max(0, last - _PAGE)
        rows = core.port.rows(EntryRow, run.run, first, last - first)
        yield from reversed([row for row in rows if row.position <= last])
        last = first


def events_of(info: GateInfo, answer: GateAnswer | None) -> list[GateEvent]:
    """The history of a gate, oldest first."""
    escalated = {name for one in info.escalations if one.due for name in one.who}
    first = [name for name in info.who if name not in escalated] or info.who
    asked = ", ".join(first) or "anyone"
    found = [GateEvent(at=info.opened_at, text="Opened" if info.assigned else f"Opened for {asked}")]
    found += [
        GateEvent(at=one.at, text=f"Reassigned to {', '.join(one.who)}", by=one.by, via=one.via, note=one.reason)
        for one in info.assigned
    ]
    found += [
        GateEvent(at=one.at, text=f"Escalated to {', '.join(one.who)}")
        for one in info.escalations
        if one.due and (info.answered_at is None or one.at <= info.answered_at)
    ]
    found += [
        GateEvent(at=one.at, text=f"Approved ({number} of {info.approvals})", by=one.by, via=one.via)
        for number, one in enumerate(info.approved, 1)
    ]
    if info.state == "answered" and info.answered_at is not None:
        via = answer.via if answer is not None else ""
        found.append(GateEvent(at=info.answered_at, text="Answered", by=info.answered_by or "", via=via))
    elif info.state == "expired":
        found.append(GateEvent(at=info.answered_at or info.expires_at or info.opened_at, text="Expired"))
    return sorted(found, key=lambda one: one.at)


def with_labels(form: Form, answer: Any) -> Any:
    """An answer with the labels of its fields and choices."""
    if form.single:
        return _choice_labels(form.fields[0], answer)
    fields = {field.name: field for field in form.fields}
    labels = {name: field.label for name, field in fields.items()}
    if not isinstance(answer, dict) or len(set(labels.values())) < len(labels) or not set(answer) <= set(fields):
        return answer
    return {labels[name]: _choice_labels(fields[name], value) for name, value in answer.items()}


def _choice_labels(field: Field, value: Any) -> Any:
    if field.kind == "choices" and isinstance(value, list):
        return [_choice_label(field, one) for one in value]
    return _choice_label(field, value)


def _choice_label(field: Field, value: Any) -> Any:
    same = [one.label for one in field.choices if type(one.value) is type(value) and one.value == value]
    return same[0] if same else value
