"""The timeline as the JSON API returns it."""

from __future__ import annotations

from typing import Any

from holdfast.web.api.schemas import Count, Moment, Result, Run


class Attempt(Result, kw_only=True):
    """One attempt of a step or an effect that was retried."""

    number: Count
    started_at: Moment | None
    ended_at: Moment | None
    duration_us: Count | None
    """How long it took; it and the start are null if that is not recorded."""
    error: Any
    waited_us: Count | None
    """The time until the next attempt began; null if there is none, or if it is not known."""


class Row(Result, kw_only=True):
    """One thing a run did, or a stretch of time in which it did nothing."""

    kind: str
    """`started`, `step`, `effect`, `ask`, `sleep`, `wait`, `child`, `turn`, `gap` and others."""
    name: str
    call: str
    """The full name of the call, which a rollback accepts; empty if the row is not a call."""
    depth: Count
    """The number of enclosing scopes."""
    state: str
    first: Count
    last: Count
    """Its journal positions; 0 if it has none."""
    attempts: Count
    attempt_rows: list[Attempt]
    """The attempts of a call that was retried, in order."""
    started_at: Moment | None
    ended_at: Moment | None
    duration_us: int | None
    """How long it took, with the waits between attempts; null if that is not known."""
    text: str
    by: str | None
    result: Any
    error: Any
    checkpoint_id: str | None
    reason: str
    """Of a gap: `person`, `event`, `timer`, `child`, `retry`, `paused` or `unclaimed`."""
    count: Count
    """The number of branches of a map, turns of a loop, or pruned entries."""


class Timeline(Result, kw_only=True):
    """What a run did, one row per call."""

    run: Run
    rows: list[Row]
    left_out: Count
    """How many entries at the beginning of the journal were not read; see `newest`."""
    worked_us: Count
    idle_us: Count
    waited_us: Count
