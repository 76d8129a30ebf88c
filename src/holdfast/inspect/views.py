"""The views of a run: rows of its timeline, its status, and both as JSON."""

from __future__ import annotations

import datetime as dt
import functools
from typing import Any

import msgspec

from holdfast.forms.form import Form
from holdfast.model.views import Effect, GateInfo, RunInfo, View
from holdfast.state.json_preview import to_jsonable


class AttemptRow(View, frozen=True, kw_only=True):
    """One attempt of a step or an effect that was retried."""

    number: int
    started_at: dt.datetime | None = None
    ended_at: dt.datetime | None = None
    duration_us: int | None = None
    """How long it took; it and the start are None if that is not recorded."""
    error: Any = None
    waited_us: int | None = None
    """The time until the next attempt began; None if there is none, or if it is not known."""


class Row(View, frozen=True, kw_only=True):
    """One thing a run did, or a stretch of time in which it did nothing."""

    kind: str
    """`started`, `step`, `effect`, `ask`, `sleep`, `wait`, `child`, `map`, `gather`, `loop`, `turn`, `turns`, `stage`,
    `stages`, `value`, `log`, `version`, `send`, `checkpoint`, `call`, `breakpoint`, `compensate`, `definition`,
    `paused`, `resumed`, `diverged`, `rollback`, `forked`, `ended`, `pruned`, `unreached`, `entry` for an entry that is
    not a workflow's, `skipped` for entries that a page leaves out, and `gap`."""
    name: str
    """The function, event, workflow or stage it is about; `retry` for a `rollback` that is a retry of the run."""
    call: str = ""
    """The full name of the call, which a rollback accepts; empty if the row is not a call."""
    scope: str = ""
    depth: int = 0
    """The number of enclosing scopes."""
    state: str = "done"
    """`done`, `failed`, `waiting`, `running`, `in_doubt`, `undone`, `expired`, `cancelled`, `stopped`, `taken_back`,
    `unsatisfied`: a `loop_until` that ended before its condition was met, and in a part of a timeline `continues`: its
    end is not in that part."""
    first: int = 0
    last: int = 0
    """Its journal positions; 0 if it has none."""
    attempts: int = 1
    attempt_rows: tuple[AttemptRow, ...] = ()
    """The attempts of a call that was retried."""
    started_at: dt.datetime | None = None
    ended_at: dt.datetime | None = None
    duration_us: int | None = None
    """How long it took, with the waits between attempts, or how long the gap was; None if that is not known."""
    text: str = ""
    """A description in one line."""
    by: str | None = None
    """The actor that answered, sent, paused, resumed or cancelled."""
    via: str = ""
    """Where the action of that actor came from, as `web` or `cli`; empty for code."""
    result: Any = None
    error: Any = None
    effect: Effect | None = None
    """Its line in the ledger."""
    checkpoint_id: str | None = None
    """The checkpoint that was committed with it."""
    next_node: str | None = None
    reason: str = ""
    """Of a gap: `person`, `event`, `timer`, `child`, `retry`, `paused`, or `unclaimed` if no process worked on it."""
    count: int = 0
    """The number of branches of a map, turns of a loop, or pruned entries."""


class Waiting(View, frozen=True, kw_only=True):
    """Something a run waits for."""

    reason: str
    """`person`, `event`, `timer`, `child` or `retry`."""
    what: str
    """The gate, event, call or child run."""
    text: str
    since: dt.datetime | None = None
    until: dt.datetime | None = None
    """When it expires, or when it is over."""


class PendingAnswer(View, frozen=True, kw_only=True):
    """An answer that was given and that the run has not read yet."""

    by: str
    at_us: int
    answer: Any
    via: str = ""


class PendingCancel(View, frozen=True, kw_only=True):
    """A request to cancel a run that was not carried out yet."""

    by: str
    at: dt.datetime


class RunStatus(View, frozen=True, kw_only=True):
    """The status of a run, what it waits for, and which command comes next."""

    status: str
    sentence: str
    since: dt.datetime | None
    waiting: tuple[Waiting, ...] = ()
    owner: str | None = None
    lease_left_s: float | None = None
    """How long the lease still lasts; 0 if it has expired or the owner is dead."""
    next_node: str | None = None
    """The next node or stage, if the newest checkpoint names it and the run has not ended."""
    cancel: PendingCancel | None = None
    """A cancel that was requested; the next process that executes the run carries it out."""
    commands: tuple[tuple[str, ...], ...] = ()
    """The next commands, as lists of arguments."""


class Timeline(View, frozen=True, kw_only=True):
    """A run, everything it did, and its status."""

    run: RunInfo
    rows: tuple[Row, ...]
    standing: RunStatus
    effects: tuple[Effect, ...]
    gates: tuple[GateInfo, ...]
    """The open ones."""
    checkpoints: int
    left_out: int
    """How many entries at the beginning of the journal were not read."""
    worked_us: int
    """How long a step or an effect was executing, as far as that is recorded; several at once count once."""
    idle_us: int
    """All gaps together; of a fork those since it was made. Never part of the time it worked."""
    waited_us: int
    """How much of the idle time it waited for an answer, an event, a timer, a child or to be resumed."""


def as_data(value: object) -> Any:
    """Convert a view, or a list or dict of views, to JSON data.

    Fields declared as `Any` or `dict[str, Any]` hold values of the user; all others are Holdfast's.

    Example:
        json.dumps(as_data(timeline(store, "order-17")))
    """
    if isinstance(value, Form):
        return _form(value)
    if isinstance(value, msgspec.Struct):
        users = _users(type(value))
        return {
            name: (_user_value if name in users else as_data)(getattr(value, name)) for name in value.__struct_fields__
        }
    if isinstance(value, dt.datetime):
        return value.isoformat()
    if isinstance(value, (list, tuple)):
        return [as_data(part) for part in value]
    if isinstance(value, dict):
        return {str(key): as_data(part) for key, part in value.items()}
    return to_jsonable(value)


def _form(form: Form) -> dict[str, object]:
    """Convert a form. Choices, defaults and schemas are values of the user."""
    data = form.as_data()
    fields = [
        {
            name: [{**choice, "value": to_jsonable(choice["value"])} for choice in part]
            if name == "choices"
            else to_jsonable(part)
            for name, part in each.items()
        }
        for each in data["fields"]
    ]
    return {**data, "fields": fields, "schema": to_jsonable(data["schema"])}


def _user_value(value: object) -> object:
    return as_data(value) if isinstance(value, Form) else to_jsonable(value)


@functools.cache
def _users(kind: type[msgspec.Struct]) -> frozenset[str]:
    """Return the fields that hold values of the user."""
    found = msgspec.structs.fields(kind)
    return frozenset(field.name for field in found if field.type is Any or field.type == dict[str, Any])
