"""What the JSON API returns. The OpenAPI document is made of these structs, with their docstrings.

Values of the user (states, results, arguments, metadata) are JSON; what JSON cannot express is an object with one key,
such as `{"$datetime": "2026-03-31T10:15:00+00:00"}`. Masked values are `"•••"`.
"""

from __future__ import annotations

import datetime as dt
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

Id = Annotated[str, Meta(min_length=1, max_length=512, pattern="^[^\\x00-\\x1f\\x7f-\\x9f]+$")]
Count = Annotated[int, Meta(ge=0)]
Moment = Annotated[dt.datetime, Meta(tz=True)]
Status = Literal["ready", "running", "waiting", "paused", "rolling_back", "completed", "failed", "cancelled"]
GateState = Literal["open", "answered", "expired", "closed"]
Effects = Literal["reuse", "perform", "ask"]
Role = Literal["viewer", "approver", "operator"]


class Result(msgspec.Struct, kw_only=True):
    """Base of all results."""


class Run(Result, kw_only=True):
    """A run."""

    run_id: str
    workflow: str
    status: Status
    metadata: dict[str, Any]
    created_at: Moment
    updated_at: Moment
    position: Count
    """The last position of its journal."""
    checkpoint_id: str | None
    """Its newest checkpoint on the default lane."""
    step: Count
    owner: str | None
    """The owner of its claim; the lease may have expired."""
    forked_from: str | None
    cursor: str
    """Pass it as `after` to list the runs after this one."""


class RunPage(Result, kw_only=True):
    """A page of runs, newest first."""

    runs: list[Run]
    next: str | None
    """Pass it as `after` to get the next page; null if this is the last one. A page may be empty before the last."""


class Waiting(Result, kw_only=True):
    """Something a run waits for."""

    reason: str
    """`person`, `event`, `timer`, `child` or `retry`."""
    what: str
    """The gate, event, call or child run."""
    text: str
    since: Moment | None
    until: Moment | None
    """When it expires, or when it is over."""


class Approval(Result, kw_only=True):
    """An approval of a gate that needs several."""

    by: str
    at: Moment
    via: str
    answer: Any


class Escalation(Result, kw_only=True):
    """From this time on, these people are asked as well."""

    at: Moment
    who: list[str]
    due: bool


class Assignment(Result, kw_only=True):
    """A change of the people that may answer a gate."""

    by: str
    at: Moment
    via: str
    who: list[str]
    reason: str


class Gate(Result, kw_only=True):
    """A gate, at which a run waits for an answer."""

    run_id: str
    workflow: str
    gate: str
    name: str
    """The gate as people see it: `approve` for `loop#1[2]/approve#1`."""
    state: GateState
    prompt: str
    answer_schema: dict[str, Any]
    """The JSON Schema (draft 2020-12) of an answer."""
    show: Any
    """What is shown together with the question."""
    who: list[str]
    """The people and groups (`group:finance`) that may answer now; empty: everyone."""
    not_by: list[str]
    """The people and groups that may not answer."""
    approvals: Count
    """How many different people must approve."""
    approved: list[Approval]
    escalations: list[Escalation]
    assigned: list[Assignment]
    purpose: str
    """`ask`; `in_doubt` for an effect whose outcome is unknown; `interrupt` of a LangGraph thread, which is answered
    through its graph."""
    opened_at: Moment
    expires_at: Moment | None
    answered_at: Moment | None
    answered_by: str | None
    question: str
    """Pass it with the answer, which is then refused if the gate asks another question now."""
    may_answer: bool
    """Whether the user of this request may answer it."""
    may_not: str | None
    """Why not."""
    cursor: str
    """Pass it as `after` to list the gates after this one."""


class GatePage(Result, kw_only=True):
    """A page of gates, longest open first."""

    gates: list[Gate]
    next: str | None
    """Pass it as `after` to get the next page; null if this is the last one. A page may be empty before the last."""


class RunDetail(Result, kw_only=True):
    """A run, its status in a sentence, what it waits for, and how it ended."""

    run: Run
    sentence: str
    since: Moment | None
    waiting: list[Waiting]
    gates: list[Gate]
    """Its open gates."""
    next_node: str | None
    """The next node or stage, if the newest checkpoint names it."""
    cancel_requested_by: str | None
    """The user whose request to cancel was not carried out yet."""
    result: Any
    """The result of a completed run."""
    error: Any
    """The recorded error of a failed run: type, message and traceback."""
    commit: str
    """Changes with every change of the run; `rollback` can be bound to it."""


class Entry(Result, kw_only=True):
    """A journal entry."""

    position: Count
    kind: str
    data: dict[str, Any]
    created_at: Moment


class Journal(Result, kw_only=True):
    """A part of a journal, in its order."""

    entries: list[Entry]
    next: int | None
    """Pass it as `after` to get the next entries; null if there are no more."""


class Effect(Result, kw_only=True):
    """A line of the ledger of side effects."""

    key: str
    state: Literal["in_doubt", "done", "failed", "undone"]
    """`in_doubt`: its intent is recorded, its outcome is not."""
    tool: str
    target: str | None
    reversible: bool
    result: Any
    created_at: Moment
    updated_at: Moment
    idempotency_key: str | None


class Ledger(Result, kw_only=True):
    """The ledger of a run, in the order in which the effects were first recorded."""

    effects: list[Effect]


class Checkpoint(Result, kw_only=True):
    """A checkpoint without its state."""

    checkpoint_id: str
    parent_id: str | None
    lane: str
    step: Count
    next_node: str | None
    covers: Count
    """The journal position up to which the state includes the journal."""
    status: str
    metadata: dict[str, Any]
    created_at: Moment
    number: Count


class CheckpointPage(Result, kw_only=True):
    """A page of checkpoints, newest first."""

    checkpoints: list[Checkpoint]
    next: int | None
    """Pass it as `before` to get the next page; null if this is the last one."""


class CheckpointState(Result, kw_only=True):
    """A checkpoint with its state."""

    checkpoint: Checkpoint
    state: Any


class Change(Result, kw_only=True):
    """One difference between two states."""

    op: Literal["add", "remove", "replace"]
    path: str
    """A JSON Pointer."""
    old: Any
    new: Any


class Diff(Result, kw_only=True):
    """The changes from the state of checkpoint `a` to that of `b`."""

    a: str
    b: str
    changes: list[Change]


class Branch(Result, kw_only=True):
    """A run of a family."""

    run_id: str
    workflow: str
    status: Status
    created_at: Moment
    forked_from: str | None
    forked_at: str | None
    """The checkpoint's id, or the position as `journal.41`."""
    depth: Count
    position: Count


class Family(Result, kw_only=True):
    """A run and all its forks; each follows the run it was forked from."""

    branches: list[Branch]
    more_runs: bool
    """Whether there are more runs than are listed."""


class PlannedEffect(Result, kw_only=True):
    """An effect that a rollback concerns."""

    run_id: str
    key: str
    tool: str
    undo: str | None
    """The function that undoes it."""
    arguments: list[Any]
    keywords: dict[str, Any]
    result: Any


class Plan(Result, kw_only=True):
    """What a rollback would do. It is refused if it has `hidden_effects`: those of runs that the user may not see."""

    run_id: str
    to: Count
    """The journal position to which the run is rolled back."""
    basis: str
    """Pass it to `rollback` or `fork`, which is then refused if the run or a child has changed since."""
    undo: list[PlannedEffect]
    """Effects that are undone, in this order."""
    irreversible: list[PlannedEffect]
    in_doubt: list[PlannedEffect]
    compensated: list[PlannedEffect]
    """Effects that the run has undone itself since."""
    detached_effects: list[PlannedEffect]
    """Effects of detached children, which would be performed again."""
    hidden_effects: Count
    calls: list[str]
    """The recorded calls that run again."""
    gates: list[str]
    """The gates among these calls, which are asked again."""
    fork_calls: list[str]
    """The calls that a fork from the same place repeats: also those that were not finished there, as an open gate."""
    fork_gates: list[str]
    """The gates among these."""
    children: list[str]
    """Child runs that are rolled back, too."""
    missing: list[str]
    """Ended child runs that are not in this store."""
    detached: list[str]
    """Detached child runs, which are not rolled back."""
    forks: list[str]
    """Forks that keep the results of effects that are undone."""
    problems: list[str]
    """Why the rollback is refused unless it is forced."""
    warnings: list[str]


class Accepted(Result, kw_only=True):
    """The run after an action was recorded, and what happens next. A worker carries it out."""

    run: Run
    message: str


class Workflow(Result, kw_only=True):
    """A workflow that can be started."""

    name: str
    version: Count
    doc: str
    input_schema: dict[str, Any] | None
    """The JSON Schema of `input`; null if it is not known."""
    published_at: Moment | None
    """When a worker published it; null: only this server knows it."""


class Workflows(Result, kw_only=True):
    """The workflows that the user may see."""

    workflows: list[Workflow]


class Counts(Result, kw_only=True):
    """How many runs there are of each status, and how many open gates."""

    runs: dict[str, int]
    open_gates: int
    estimated: list[str]
    """The terminal statuses of which there are so many runs that their number is an estimate."""


class Me(Result, kw_only=True):
    """The user of this request."""

    name: str
    role: Role
    groups: list[str]
    workflows: list[str]
    """Patterns of the workflows that the user sees."""
