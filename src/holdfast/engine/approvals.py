"""The rules of a gate: the people that may answer, and how many must approve.

They are read from the stored body of the gate alone, so every process applies the same rules. Escalation is a function
of the time since the gate was opened; no timer fires for it.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from holdfast.errors import InvalidInput
from holdfast.forms.form import Form
from holdfast.limits import APPROVALS_MAX, ESCALATIONS_MAX
from holdfast.model.views import GROUP

if TYPE_CHECKING:
    from holdfast.engine.commands import EntryData

Escalate = Iterable[tuple[float | dt.timedelta, str | Iterable[str]]]
"""Levels of escalation: a time after the gate was opened, and the people asked from then on."""


class Level(NamedTuple):
    """A level of escalation, at a time in microseconds since 1970."""

    at_us: int
    who: tuple[str, ...]


class GateRules(msgspec.Struct, frozen=True):
    """The people that may answer a gate, and how many must approve."""

    who: tuple[str, ...] = ()
    not_by: tuple[str, ...] = ()
    approvals: int = 1
    escalate: tuple[tuple[int, tuple[str, ...]], ...] = ()
    """Microseconds after the gate was opened, and the people that are asked from then on."""

    def __post_init__(self) -> None:
        if type(self.approvals) is not int or not 1 <= self.approvals <= APPROVALS_MAX:
            raise InvalidInput(f"approvals must be 1 to {APPROVALS_MAX}, not {self.approvals!r}")
        if self.escalate and not self.who:
            raise InvalidInput("escalate needs who=: without it everyone may answer from the beginning")
        if len(self.escalate) > ESCALATIONS_MAX:
            raise InvalidInput(f"escalate has {len(self.escalate)} levels, at most {ESCALATIONS_MAX} are allowed")

    def check_form(self, form: Form) -> None:
        """Raise InvalidInput if several must approve and the form has no yes/no field to approve with."""
        if self.approvals > 1 and decision_field(form) is None:
            names = ", ".join(repr(field.name) for field in form.fields) or "none"
            raise InvalidInput(
                f"approvals={self.approvals} needs a yes/no field, and none of the fields ({names}) is one; add one"
            )

    def to_body(self) -> EntryData:
        """The parts of the gate's body, without those that have their default.

        A reader that does not know `approvals` or `not_by` must not accept an answer, so they raise the version.
        """
        body: EntryData = {"v": 2 if self.approvals > 1 or self.not_by else 1}
        body |= {"approvals": self.approvals} if self.approvals > 1 else {}
        body |= {"not_by": list(self.not_by)} if self.not_by else {}
        body |= {"escalate": [[after_us, list(who)] for after_us, who in self.escalate]} if self.escalate else {}
        return body


def people(what: str, names: object) -> tuple[str, ...]:
    """One name or several, as a tuple; `what` names the option in errors."""
    if names is None:
        return ()
    found = (names,) if isinstance(names, str) or not isinstance(names, Iterable) else tuple(names)
    if not all(isinstance(name, str) and name.removeprefix(GROUP) for name in found):
        raise InvalidInput(f"{what} must be a name, {GROUP}NAME, or a list of them, not {names!r}")
    return found


def decision_field(form: Form) -> str | None:
    """The name of the field that approves or denies: the first yes/no field; None if there is none."""
    return next((field.name for field in form.fields if field.kind == "yes_no"), None)


def is_approval(form: Form, answer: Any) -> bool:
    """Whether a checked answer says yes."""
    value = answer if form.single else answer.get(decision_field(form))
    return value is True


def levels(body: EntryData, opened_us: int) -> list[Level]:
    """The levels of escalation of a gate."""
    return [Level(opened_us + after_us, tuple(who)) for after_us, who in body.get("escalate", ())]


def who_at(body: EntryData, opened_us: int, now_us: int) -> tuple[str, ...]:
    """The people that may answer at a time: those asked first and those of all levels that are due."""
    due = [name for level in levels(body, opened_us) if level.at_us <= now_us for name in level.who]
    return tuple(dict.fromkeys([*body["who"], *due]))


def add_approval(body: EntryData, approval: EntryData) -> EntryData:
    """The body of a gate with one more approval."""
    return {**body, "approved": [*body.get("approved", ()), approval]}


def reassign(body: EntryData, opened_us: int, who: Sequence[str], facts: EntryData) -> EntryData:
    """The body of a gate that from now on is for other people. `facts`: by, at_us, via and reason.

    They replace all that may answer now, also by escalation. Levels that are not due yet stay.
    """
    later = [[after_us, names] for after_us, names in body.get("escalate", ()) if opened_us + after_us > facts["at_us"]]
    kept = {key: value for key, value in body.items() if key != "escalate"}
    assigned = [*body.get("assigned", ()), {**facts, "who": list(who)}]
    return {**kept, "who": list(who), "assigned": assigned, **({"escalate": later} if later else {})}
