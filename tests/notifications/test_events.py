"""What is announced of a gate and of a failure, and the identity of each notification."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Any

import pytest

import holdfast
from holdfast.model.rows import GateRow, RunRow
from holdfast.notifications.composer import read_failure
from holdfast.notifications.events import NEVER_US, Event, GateEvents, gate_events, us_of
from holdfast.operations.gates import gate_info

HOUR_US = 3_600_000_000


@pytest.fixture
def app() -> Iterator[holdfast.App]:
    with holdfast.App("memory:") as app:
        yield app


def ask(app: holdfast.App, run_id: str = "r1", **options: Any) -> tuple[RunRow, GateRow]:
    """A run that waits at a gate."""

    @app.workflow(name=f"of-{run_id}")
    def asks(run: holdfast.Run) -> object:
        return run.ask("Pay?", {"pay": bool}, **options)

    app.start(asks, run_id=run_id)
    return row_of(app, run_id)


def row_of(app: holdfast.App, run_id: str) -> tuple[RunRow, GateRow]:
    run = app.store.port.run(run_id)
    assert run is not None
    return run, app.store.port.rows(GateRow, run.run)[0]


def events(found: tuple[RunRow, GateRow], after_us: int, lead_us: int = HOUR_US) -> GateEvents:
    run, row = found
    now_us = row.opened_us + after_us
    return gate_events(run, row, gate_info(run, row, now_us), now_us, lead_us)


def kinds(found: GateEvents) -> list[str]:
    return [event.event for event in found.happened]


def test_a_gate_is_opened_escalates_and_expires_at_its_times(app: holdfast.App) -> None:
    found = ask(app, who="ana", expires=10 * 3600, escalate=[(7200, "ben"), (10800, ["eva", "group:leads"])])
    opened = found[1].opened_us
    at_once = events(found, 0)
    assert kinds(at_once) == ["gate_opened"]
    assert at_once.next_us == opened + 2 * HOUR_US
    later = events(found, 3 * HOUR_US)
    assert kinds(later) == ["gate_opened", "gate_escalated", "gate_escalated"]
    assert [event.who for event in later.happened] == [(), ("ben",), ("eva", "group:leads")]
    assert abs(later.next_us - (opened + 9 * HOUR_US)) < 1_000_000
    assert kinds(events(found, 9 * HOUR_US + 1_000_000))[1] == "gate_expiring"
    assert events(found, 9 * HOUR_US + 1_000_000).next_us == NEVER_US


def test_a_gate_that_is_open_for_less_than_the_lead_is_announced_as_expiring_half_way(app: holdfast.App) -> None:
    found = ask(app, expires=600)
    assert kinds(events(found, 200_000_000)) == ["gate_opened"]
    assert kinds(events(found, 301_000_000)) == ["gate_opened", "gate_expiring"]


def test_only_the_newest_reassignment_is_announced(app: holdfast.App) -> None:
    first = events(ask(app, who="ana"), 0)
    for who in ("ben", "eva"):
        app.reassign("r1", who, by="ana")
    found = events(row_of(app, "r1"), HOUR_US)
    assert kinds(found) == ["gate_opened", "gate_escalated"]
    assert found.happened[1].who == ("eva",)
    assert found.happened[0].id == first.happened[0].id


def test_the_id_depends_on_the_run_the_gate_the_event_and_the_target_alone() -> None:
    facts: dict[str, Any] = {"event": "gate_opened", "run_id": "r", "incarnation": "aa", "gate": "ask#1"}
    event = Event(**facts, target="ops", opened_us=3, at_us=3)
    assert len(event.id) == 32
    assert Event(**facts, target="ops", opened_us=3, at_us=99, who=("x",)).id == event.id
    for other in ({"target": "mail"}, {"gate": "ask#2"}, {"incarnation": "bb"}, {"opened_us": 4}, {"detail": "1"}):
        assert Event(**{**facts, "target": "ops", "opened_us": 3, "at_us": 3} | other).id != event.id


def test_a_second_failure_of_a_run_is_another_event(app: holdfast.App) -> None:
    @app.workflow
    def fails(run: holdfast.Run) -> None:
        raise ValueError("no")

    app.start(fails, run_id="r")
    ids = set()
    for _ in range(3):
        run = app.store.port.run("r")
        assert run is not None
        event = read_failure(app.store.port, run)
        assert event == read_failure(app.store.port, run)
        ids.add(event.id)
        app.retry("r")
    assert len(ids) == 3


def test_a_run_that_no_workflow_executed_can_fail_too(app: holdfast.App) -> None:
    app.store.save("plain", {"x": 1}, status="failed")
    run = app.store.port.run("plain")
    assert run is not None
    assert read_failure(app.store.port, run).event == "run_failed"


def test_times_are_exact() -> None:
    moment = dt.datetime(2026, 11, 18, 5, 40, 56, 999_999, tzinfo=dt.UTC)
    assert us_of(moment) % 1_000_000 == 999_999
