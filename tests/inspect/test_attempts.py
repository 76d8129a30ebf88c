"""Retried calls: the timeline has every attempt, with its duration, its failure and the wait after it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import holdfast
from holdfast.inspect.attempts import describe_attempt
from holdfast.inspect.rows import error_text
from holdfast.inspect.timeline import timeline
from holdfast.inspect.views import Row
from holdfast.operations.store import Store
from holdfast.store.memory import MemoryStore
from holdfast.testing import ManualClock

US = 1_000_000
ERROR = {"type": "ValueError", "module": "builtins", "message": "no", "trace": ""}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(clock: ManualClock) -> Iterator[Store]:
    found = Store(MemoryStore(clock), clock=clock)
    yield found
    found.close()


def record_step(store: Store, clock: ManualClock, *, with_us: bool = True) -> None:
    """A step of three attempts of half a second, with waits of one and of two seconds."""
    store.append("r", [{"kind": "started", "workflow": "w", "version": 1, "args": [], "kwargs": {}}])
    for number, wait_s in ((1, 0), (2, 1), (3, 2)):
        clock.advance(wait_s + 0.5)
        due = {"due_us": clock.now_us() + number * US, "number": number}
        entry: dict[str, Any] = {"kind": "attempt", **due} if number < 3 else {"kind": "step", "attempts": 3}
        entry |= {"us": US // 2} if with_us or number == 3 else {}
        store.append("r", [{**entry, "call": "boom#1", "error": ERROR}])


def the_step(store: Store, kind: str = "step") -> Row:
    (row,) = [row for row in timeline(store, "r").rows if row.kind == kind]
    return row


def test_every_attempt_has_its_duration_its_failure_and_the_wait_after_it(store: Store, clock: ManualClock) -> None:
    record_step(store, clock)
    row = the_step(store)
    assert (row.attempts, row.duration_us) == (3, 4.5 * US)
    assert [(one.number, one.duration_us, one.waited_us) for one in row.attempt_rows] == [
        (1, US // 2, US), (2, US // 2, 2 * US), (3, US // 2, None),
    ]  # fmt: skip
    assert [
        describe_attempt(one, error_text(one.error), lambda us: f"{us / US:.1f} s") for one in row.attempt_rows
    ] == [
        "attempt 1: 0.5 s, ValueError: no; then waited 1.0 s",
        "attempt 2: 0.5 s, ValueError: no; then waited 2.0 s",
        "attempt 3: 0.5 s, ValueError: no",
    ]


def test_all_attempts_count_as_work_and_the_waits_as_idle_time(store: Store, clock: ManualClock) -> None:
    record_step(store, clock)
    seen = timeline(store, "r")
    assert (seen.worked_us, seen.waited_us) == (1.5 * US, 3 * US)


def test_attempts_of_older_journals_have_no_duration(store: Store, clock: ManualClock) -> None:
    record_step(store, clock, with_us=False)
    row = the_step(store)
    assert [(one.duration_us, one.waited_us) for one in row.attempt_rows] == [
        (None, None), (None, 2 * US), (US // 2, None),
    ]  # fmt: skip
    assert timeline(store, "r").worked_us == US // 2


def test_the_engine_records_how_long_a_failed_attempt_of_a_step_and_an_effect_took(store: Store) -> None:
    def boom() -> None:
        raise ConnectionError("not yet")

    with holdfast.App(store) as app:

        @app.workflow
        def steps(run: Any) -> None:
            run.step(boom, retry=holdfast.Retry(attempts=2, initial_delay=60))

        @app.workflow
        def effects(run: Any) -> None:
            run.effect(boom, in_doubt="retry", retry=holdfast.Retry(attempts=2, initial_delay=60))

        for workflow in (steps, effects):
            run_id = app.start(workflow).run_id
            (attempt,) = [entry for entry in store.journal(run_id) if entry.kind == "attempt"]
            assert attempt.data["us"] >= 0


def test_a_call_that_was_not_retried_has_no_list_of_attempts(store: Store, clock: ManualClock) -> None:
    store.append("r", [{"kind": "started", "workflow": "w", "version": 1, "args": [], "kwargs": {}}])
    clock.advance(2)
    store.append("r", [{"kind": "step", "call": "slow#1", "us": US, "result": 1}])
    row = the_step(store)
    assert (row.attempts, row.attempt_rows, row.duration_us) == (1, (), US)
