"""What the JSON API accepts: the queries and the bodies of its operations. Unknown names are refused."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from holdfast.limits import NUMBER_MAX
from holdfast.web.api.schemas import Effects, GateState, Id, Moment, Status

Limit = Annotated[int, Meta(ge=1, le=200)]
Position = Annotated[int, Meta(ge=0, le=NUMBER_MAX)]
Text = Annotated[str, Meta(max_length=512)]
Mark = Annotated[str, Meta(max_length=64)]
"""Identifies what a client has read."""


class Query(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Base of all queries."""


class RunQuery(Query, kw_only=True):
    """Of an operation on one run."""

    run: Text = ""
    """The run, if the path has `~` in its place: for the ids `.`, `..` and `~`, which clients change in paths."""


class RunsQuery(Query, kw_only=True):
    """Which runs."""

    status: list[Status] = []
    """Any of these; may be repeated."""
    workflow: Text = ""
    prefix: Text = ""
    """How the ids begin."""
    metadata: Annotated[list[Annotated[str, Meta(pattern="^[^=]+=", max_length=2000)]], Meta(max_length=20)] = []
    """`key=value`, where the value is JSON or else text; may be repeated, and all must match."""
    limit: Limit = 50
    after: Text = ""
    """The `next` of the page before."""


class GatesQuery(Query, kw_only=True):
    """Which gates."""

    state: GateState = "open"
    workflow: Text = ""
    mine: bool = False
    """Only those that the user of this request may answer."""
    limit: Limit = 50
    after: Annotated[str, Meta(max_length=1024)] = ""
    """The `next` of the page before."""


class JournalQuery(RunQuery, kw_only=True):
    """Which entries."""

    after: Position = 0
    """Only entries above this position."""
    limit: Annotated[int, Meta(ge=1, le=1000)] = 200


class TimelineQuery(RunQuery, kw_only=True):
    """Which part of the timeline."""

    newest: Annotated[int, Meta(ge=1, le=10_000)] = 1000
    """How many journal entries are read, from the end."""


class CheckpointsQuery(RunQuery, kw_only=True):
    """Which checkpoints."""

    lane: Text = ""
    before: Position = 0
    """The `next` of the page before; 0: from the newest."""
    limit: Limit = 50


class CheckpointQuery(RunQuery, kw_only=True):
    """Which lane."""

    lane: Text = ""


class DiffQuery(RunQuery, kw_only=True):
    """Two checkpoints, by their ids."""

    a: Id
    b: Id
    lane: Text = ""


class PlanQuery(RunQuery, kw_only=True):
    """Where to go back to."""

    to: Id
    """A journal position, a checkpoint's id, or a call or stage: to just before it."""


class EventsQuery(Query, kw_only=True):
    """What to watch."""

    view: Literal["gates", "runs", "run"]
    run: Text = ""
    """The run, if `view` is `run`."""
    mark: Annotated[str, Meta(max_length=100)] = ""
    """The mark of the last event that was received: if it has changed since, an event follows at once."""


# --- bodies ----------------------------------------------------------------------------------------------------------


class Body(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Base of all bodies."""


class Nothing(Body, kw_only=True):
    """An empty object. The body may also be left out."""


class StartBody(Body, kw_only=True):
    """A run to start."""

    workflow: Id
    input: dict[str, Any] = {}
    """The arguments of the workflow by name, or the input object of a declared workflow."""
    run_id: Id | None = None
    """The same id with the same input starts one run, however often it is sent. By default a new id."""
    metadata: dict[str, Any] = {}
    at: Moment | None = None
    """When it begins; by default at once."""
    after: Annotated[float, Meta(ge=0, lt=10**10)] | None = None
    """In how many seconds it begins, instead of `at`."""


class AnswerBody(Body, kw_only=True):
    """An answer to a gate."""

    answer: Any
    """It must fit the gate's `answer_schema`."""
    question: Mark | None = None
    """The `question` of the gate: refused with 409 if the gate asks another one now."""


class RunAnswerBody(Body, kw_only=True):
    """An answer to a gate of a run."""

    answer: Any
    gate: Id | None = None
    """The gate, by its full name or the name people see. May be left out if the run has one open gate."""
    question: Mark | None = None
    """The `question` of the gate: refused with 409 if it asks another one now."""


class ReassignBody(Body, kw_only=True):
    """The people that may answer a gate from now on."""

    who: Annotated[list[Id], Meta(min_length=1, max_length=50)]
    """Names, or groups as `group:finance`."""
    reason: Annotated[str, Meta(max_length=2000)] = ""


class RunReassignBody(ReassignBody, kw_only=True):
    """The people that may answer a gate of a run from now on."""

    gate: Id | None = None
    """May be left out if the run has one open gate."""


class SendBody(Body, kw_only=True):
    """An event for `run.wait_for`."""

    event: Id
    value: Any = None
    key: Id | None = None
    """An event with the same key has no effect if it is sent again."""


class RollbackBody(Body, kw_only=True):
    """Where to roll back to."""

    to: Position | Id
    """A journal position, a checkpoint's id, or a call or stage: to just before it."""
    force: bool = False
    """Roll back although some effects cannot be undone; these are left as they are."""
    basis: Mark | None = None
    """The `basis` of the plan: refused with 409 if the run or a child has changed since."""


class ForkBody(Body, kw_only=True):
    """Where a new run begins, and how."""

    at: Position | Id | None = None
    """A journal position, a checkpoint's id, or a call: the fork begins before it. By default at the end."""
    run_id: Id | None = None
    """The id of the fork; by default a new one."""
    effects: Effects = "reuse"
    """For effects that the family has performed since: use the recorded outcome, perform them again, or ask."""
    state: dict[str, Any] | None = None
    """Replaces the state. Masked values are not known to a client; use `update` if there are any."""
    update: dict[str, Any] | None = None
    """Values to set in the state, by paths such as `order.amount` or `/order/amount`."""
    basis: Mark | None = None
    """The `basis` of the rollback plan for the same place: refused with 409 if the run or a child has changed since."""
