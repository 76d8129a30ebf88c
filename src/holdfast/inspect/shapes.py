"""What looking at a run gives: rows of a timeline, and where the run stands. Data, for people and for programs."""

from __future__ import annotations

import datetime as dt
from typing import Any

from holdfast.model.gates import GateInfo
from holdfast.model.views import Effect, RunInfo, View


class Row(View, frozen=True, kw_only=True):
    """One thing a run did, or a stretch of time in which it did nothing."""

    kind: str
    """`started`, `step`, `effect`, `ask`, `sleep`, `wait`, `child`, `map`, `gather`, `loop`, `turn`, `turns`, `stage`,
    `stages`, `value`, `log`, `version`, `send`, `checkpoint`, `call`, `breakpoint`, `compensate`, `definition`,
    `paused`, `diverged`, `rollback`, `forked`, `ended`, `pruned`, `unreached`, `entry` for an entry that is
    not a workflow's, and `gap`."""
    name: str
    """The function, event, workflow or stage it is about."""
    call: str = ""
    """The call's full name, by which one can go back to it; empty if the row is not a call."""
    scope: str = ""
    depth: int = 0
    """How many scopes lie around it."""
    state: str = "done"
    """`done`, `failed`, `waiting`, `running`, `in_doubt`, `undone`, `expired`, `cancelled`, `stopped`, `taken_back`,
    and `unsatisfied`: a `loop_until` that ended without its condition being met."""
    first: int = 0
    last: int = 0
    """Its journal positions; 0 if the journal does not tell of it."""
    attempts: int = 1
    started_at: dt.datetime | None = None
    ended_at: dt.datetime | None = None
    duration_us: int | None = None
    """How long it took, or how long the gap was; None if that is not known."""
    text: str = ""
    """What there is to say about it in one line."""
    by: str | None = None
    """Who answered, sent, paused or cancelled."""
    result: Any = None
    error: Any = None
    effect: Effect | None = None
    """What the ledger says of it."""
    checkpoint_id: str | None = None
    """The checkpoint that was made with it."""
    next_node: str | None = None
    reason: str = ""
    """Of a gap: `person`, `event`, `timer`, `child`, `retry`, `paused` or `nobody` at work."""
    count: int = 0
    """How many branches a map has, turns a loop, entries were pruned."""


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
    """An answer that was given and that the run has not taken up yet."""

    by: str
    at_us: int
    answer: Any


class PendingCancel(View, frozen=True, kw_only=True):
    """A request to cancel a run that was not carried out yet."""

    by: str
    at: dt.datetime


class Standing(View, frozen=True, kw_only=True):
    """Where a run stands."""

    status: str
    sentence: str
    since: dt.datetime | None
    waiting: tuple[Waiting, ...] = ()
    owner: str | None = None
    lease_left_s: float | None = None
    """How long its owner still holds it; 0 if the lease is over or the owner is gone."""
    next_node: str | None = None
    """Which node or stage comes next, if its newest checkpoint says so and the run has not ended."""
    cancel: PendingCancel | None = None
    """A cancel that was asked for; the process that moves the run on next carries it out."""
    commands: tuple[tuple[str, ...], ...] = ()
    """What to type next, as lists of arguments."""


class Timeline(View, frozen=True, kw_only=True):
    """A run, all it did, and where it stands."""

    run: RunInfo
    rows: tuple[Row, ...]
    standing: Standing
    effects: tuple[Effect, ...]
    gates: tuple[GateInfo, ...]
    """The open ones."""
    checkpoints: int
    left_out: int
    """How many entries at the beginning of the journal were not read."""
    worked_us: int
    """How long a step or an effect was under way, as far as that is recorded; several at once count once."""
    idle_us: int
    """All gaps together; of a fork those since it was made. Never part of the time it worked."""
    waited_us: int
    """How much of the idle time it waited for an answer, an event, a timer, a child or to be resumed."""
