"""A gate as a user sees it: question, shown values, people that may answer, and fields of the answer."""

from __future__ import annotations

import datetime as dt
import functools
from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import quote, unquote

from markupsafe import Markup

from holdfast.clock import US
from holdfast.forms import Form, Problem
from holdfast.inspect.status import pending_cancel
from holdfast.inspect.threads import INTERRUPT
from holdfast.inspect.views import PendingCancel
from holdfast.model.views import Effect, GateInfo
from holdfast.operations.views import moment
from holdfast.web.forms import FormView
from holdfast.web.gate_list import Entry, GateList, refusal_of
from holdfast.web.markdown import CHARS_MAX, plain_line, render
from holdfast.web.shown import CHARS_MAX as SHOWN_CHARS_MAX
from holdfast.web.shown import Shown, show
from holdfast.web.site import Context

CARD_CHARS: Final = 4_000
"""What a card of the inbox shows of the question, and of what is shown with it. The page of the gate shows more."""
QUICK_FIELDS_MAX: Final = 3
TYPED_MAX: Final = 8
IN_DOUBT: Final = "in_doubt"
_DOUBT_LABELS: Final = {
    "effect": "Effect",
    "target": "Target",
    "arguments": "Arguments",
    "idempotency_key": "Idempotency key",
    "key": "Key in the ledger",
    "why": "Why it is in doubt",
    "check": "What its check did",
}


def gate_url(c: Context, run_id: str, gate: str, *parts: str, **query: object) -> str:
    """A link to a gate's page, or to a part of it. Names may contain any sign, also a slash.

    Browsers resolve dots in paths, even if they are encoded.
    """
    if gate in (".", "..", "~"):
        return c.run_url(run_id, "gates", "~", *parts, gate=gate, **query)
    return c.run_url(run_id, "gates", quote(gate, safe=""), *parts, **query)


def typed_gates(c: Context) -> list[tuple[str, str]]:
    """The run and the name of the gates whose forms the user has typed into; app.js sends them with a live update."""
    found = [place.partition("/") for place in c.request.headers.get("X-Typed", "").split()[:TYPED_MAX]]
    return [(unquote(run_id), unquote(gate)) for run_id, _, gate in found]


def info_url(c: Context, gate: GateInfo) -> str:
    """The page of a gate; empty for an interrupt of LangGraph, which only its graph can answer."""
    return "" if gate.purpose == INTERRUPT else gate_url(c, gate.run_id, gate.gate)


class GateView:
    """A gate for the templates. `whole`: on its own page, with all of it."""

    def __init__(
        self,
        c: Context,
        entry: Entry,
        *,
        whole: bool = False,
        values: Mapping[str, list[str]] | None = None,
        problems: Iterable[Problem] = (),
        focus: str = "",
    ) -> None:
        self._c = c
        self.entry = entry
        self.info = entry.info
        self.id = entry.id
        self.problem = entry.problem
        self.is_whole = whole
        self._values, self._problems, self._focus = values, problems, focus
        self._form: FormView | None = None
        parts = entry.parts.get("card") if not whole else None
        if parts is None:
            parts = self._parts()
        self.is_cut: bool = parts["is_cut"]
        self.body: Markup = parts["body"]
        """The question and what is shown with it."""
        self.title: str = parts["title"]
        """The question in one line."""
        if not whole:
            entry.parts["card"] = parts

    def _parts(self) -> dict[str, Any]:
        """What does not depend on the user and the time. A gate that changes is another entry."""
        info, whole, heading = self.info, self.is_whole, 2 if self.is_whole else 3
        if info is None:
            return {"is_cut": False, "body": Markup(), "title": self.name}
        prompt = render(info.prompt, heading=heading, chars_max=CHARS_MAX if whole else CARD_CHARS)
        shown = self._shown(info, whole=whole, heading=heading)
        body = self._render("_gate_body.html", id=self.id, prompt=prompt.html, shown=shown)
        return {"is_cut": prompt.is_cut or shown.is_cut, "body": body, "title": plain_line(info.prompt)}

    def _render(self, template: str, **data: object) -> Markup:
        return Markup(self._c.site.renderer.render(template, self._c, data))  # noqa: S704 - the template escapes

    def _shown(self, info: GateInfo, *, whole: bool, heading: int) -> Shown:
        value = info.show
        if info.purpose == INTERRUPT and info.prompt and not isinstance(value, str) and not whole:
            return Shown(kind="nothing")  # the question is this value
        if info.purpose == IN_DOUBT and isinstance(value, Mapping):
            value = self._doubt(value)
        return show(value, chars_max=SHOWN_CHARS_MAX if whole else CARD_CHARS, heading=heading)

    def _doubt(self, value: Mapping[str, Any]) -> dict[str, Any]:
        """What is known of an effect in doubt, with its target from the ledger."""
        effect = self.effect
        known = {**value, "target": effect.target} if effect is not None and effect.target else dict(value)
        if "check" not in known:
            known["check"] = "it has no check function, or that was not called"
        named = {label: known.pop(name) for name, label in _DOUBT_LABELS.items() if name in known}
        return {**named, **known}

    @property
    def effect(self) -> Effect | None:
        """The effect that is in doubt, as the ledger has it."""
        show_value = self.info.show if self.info is not None else None
        key = show_value.get("key") if isinstance(show_value, Mapping) else None
        if self.info is None or self.info.purpose != IN_DOUBT or not isinstance(key, str):
            return None
        found = self._c.store.effects(self.info.run_id, key=key)
        return found[0] if found else None

    # --- texts -------------------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        return self.info.name if self.info is not None else self.entry.gate

    @property
    def url(self) -> str:
        return gate_url(self._c, self.entry.run_id, self.entry.gate)

    @property
    def answer_url(self) -> str:
        return gate_url(self._c, self.entry.run_id, self.entry.gate, "answer")

    @property
    def reassign_url(self) -> str:
        return gate_url(self._c, self.entry.run_id, self.entry.gate, "reassign")

    @property
    def opened_at(self) -> dt.datetime:
        return moment(self.entry.opened_us)

    @property
    def is_interrupt(self) -> bool:
        return self.info is not None and self.info.purpose == INTERRUPT

    @property
    def is_open(self) -> bool:
        return self.info is not None and self.info.state == "open"

    @property
    def is_expired(self) -> bool:
        """Whether its time is over. Until a worker closes it, it is still open in the store."""
        now_us = GateList.of(self._c.site).now_us
        return self.entry.is_expired(now_us) or (self.info is not None and self.info.state == "expired")

    @property
    def seconds_left(self) -> float:
        until = self.info.expires_at if self.info is not None else None
        return (until.timestamp() * US - GateList.of(self._c.site).now_us) / US if until else 0.0

    # --- answering ---------------------------------------------------------------------------------------------------

    @property
    def refusal(self) -> str:
        """Why the user cannot answer it; empty if it can."""
        info, user = self.info, self._c.user
        if info is None:
            return "it cannot be read"
        if self.is_interrupt:
            return "it is an interrupt of a LangGraph thread, which is answered through its graph"
        if self.cancel is not None:
            return f"{self.cancel.by!r} has requested to cancel the run, which reads no answer after that"
        return refusal_of(user, info, GateList.of(self._c.site).now_us)

    @functools.cached_property
    def cancel(self) -> PendingCancel | None:
        """The cancel of the run that is not carried out yet; read on the page of the gate only."""
        return pending_cancel(self._c.store, self.entry.run_id) if self.is_whole and self.is_open else None

    @property
    def can_reassign(self) -> bool:
        """Whether the user may name other people."""
        user = self._c.user
        if not self.is_open or self.is_interrupt or not user.has_role("approver"):
            return False
        return user.has_role("operator") or not self.refusal

    @property
    def form(self) -> FormView:
        """The fields of the answer."""
        if self._form is None:
            fields = self.info.form if self.info is not None else Form(())
            self._form = FormView(fields, self._values, self._problems, ids=f"{self.id}-f", focus=self._focus)
        return self._form

    @property
    def fields(self) -> Markup:
        """The fields as HTML; those of a new answer are rendered once."""
        is_new = self._values is None and not self._focus
        found: Markup | None = self.entry.parts.get("fields") if is_new else None
        if found is None:
            found = self._render("_gate_fields.html", view=self.form)
            if is_new and not self.form.problems:
                self.entry.parts["fields"] = found
        return found

    @property
    def has_problems(self) -> bool:
        return self._values is not None and bool(self.form.problems)

    @property
    def is_quick(self) -> bool:
        """Whether it can be answered in its card, which shows all of it.

        Its form is a yes or no, and perhaps a note, or that of an effect in doubt.
        """
        if self.info is None or self.is_interrupt or self.is_cut:
            return False
        fields = self.info.form.fields
        if self.info.purpose == IN_DOUBT:
            return len(fields) <= QUICK_FIELDS_MAX
        kinds = [field.kind for field in fields if field.kind not in ("list", "object", "any", "choices")]
        return decision_of(self.info.form) is not None and len(kinds) == len(fields) <= QUICK_FIELDS_MAX

    @property
    def can_batch(self) -> bool:
        """Whether it can be approved together with others: only a yes or no is needed."""
        if self.info is None or not self.is_open or self.refusal:
            return False
        return not self.is_cut and decision_of(self.info.form) is not None

    @property
    def place(self) -> str:
        """What names the gate: its run and its name."""
        return f"{quote(self.entry.run_id, safe='')}/{quote(self.entry.gate, safe='')}"

    @property
    def token(self) -> str:
        """What names the gate as it is now, for a batch."""
        return f"{self.entry.version} {self.place}"


def decision_of(form: Form) -> str | None:
    """The only field that must be answered, if it is a yes or no; else None."""
    needed = [field for field in form.fields if field.required]
    return needed[0].name if len(needed) == 1 and needed[0].kind == "yes_no" else None
