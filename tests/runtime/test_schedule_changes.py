"""Schedules that are changed, paused, cancelled and removed."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from holdfast import App, Run
from holdfast.errors import RunNotFound
from tests.runtime.planned import HOUR, Planned, hours


def test_the_same_schedule_again_changes_nothing(planned: Planned) -> None:
    for _ in range(3):
        planned.app.schedule("hourly", "job", "x", every=HOUR)
        planned.work()
    assert len(planned.store.journal("schedule/hourly")) == len(
        [entry for entry in planned.store.journal("schedule/hourly") if entry.kind != "received"]
    )
    planned.later(HOUR)
    assert planned.ticks() == hours(1)


def test_other_arguments_change_it_and_back_again(planned: Planned) -> None:
    for what in ("x", "y", "x"):
        planned.calls.clear()
        planned.app.schedule("hourly", "job", what, every=HOUR)
        planned.work()
        planned.later(HOUR)
        assert [found for _, found in planned.calls] == [what]
    planned.app.schedule("hourly", "job", "z", every=HOUR)  # not processed yet
    planned.app.schedule("hourly", "job", "x", every=2 * HOUR)
    planned.later(HOUR)
    assert len(planned.calls) == 1
    assert planned.app.schedules()[0].when == "every 2:00:00"


def test_a_schedule_can_be_paused(planned: Planned) -> None:
    handle = planned.app.schedule("hourly", "job", "x", every=HOUR)
    planned.work()
    planned.app.pause(handle.run_id)
    planned.later(HOUR)
    assert planned.calls == []
    planned.app.resume(handle.run_id)
    planned.work()
    assert planned.ticks() == hours(1)


def test_a_cancelled_schedule_stays_cancelled_until_it_is_removed(
    planned: Planned, caplog: pytest.LogCaptureFixture
) -> None:
    handle = planned.app.schedule("hourly", "job", "x", every=HOUR)
    planned.work()
    planned.app.cancel(handle.run_id)
    with caplog.at_level(logging.WARNING):
        planned.app.schedule("hourly", "job", "x", every=HOUR)
    assert "app.unschedule('hourly')" in caplog.text
    planned.later(HOUR)
    assert planned.calls == []
    planned.app.unschedule("hourly")
    assert planned.app.schedules() == []
    planned.app.schedule("hourly", "job", "x", every=HOUR)
    planned.later(HOUR)
    assert planned.ticks() == hours(2)


def test_unschedule_leaves_the_runs_it_started(planned: Planned) -> None:
    planned.app.schedule("hourly", "job", "ask", every=HOUR)
    planned.later(HOUR)
    planned.app.unschedule("hourly")
    planned.answer_all()
    assert [run.status for run in planned.store.runs()] == ["completed"]
    with pytest.raises(RunNotFound):
        planned.app.unschedule("hourly")


def test_a_workflow_whose_arguments_have_changed_does_not_end_its_schedule(planned: Planned) -> None:
    planned.app.schedule("hourly", "job", "x", every=HOUR)
    planned.later(HOUR)
    planned.app.close()
    planned.app = App(planned.store)

    @planned.app.workflow
    def job(run: Run, what: str, more: int) -> None:
        run.step(planned.calls.append, (run.run_id.rpartition("/")[2], what))

    planned.later(HOUR)
    assert planned.ticks() == hours(1)
    assert [entry.data["level"] for entry in planned.store.journal("schedule/hourly") if entry.kind == "log"] == [
        "error"
    ]
    planned.app.schedule("hourly", "job", "y", 1, every=HOUR)
    planned.later(HOUR)
    assert planned.ticks() == hours(1, 3)


def test_a_change_takes_effect_behind_a_queue(planned: Planned) -> None:
    planned.app.schedule("hourly", "job", "ask", every=HOUR, overlap="queue")
    for _ in range(5):
        planned.later(HOUR)
    planned.app.schedule("hourly", "job", "x", every=HOUR, overlap="queue")
    planned.answer_all()
    planned.work()
    assert [what for _, what in planned.calls] == ["ask", "x", "x", "x", "x"]


def test_a_changed_rule_does_not_apply_to_the_past(planned: Planned) -> None:
    planned.app.schedule("x", "job", "x", cron="0 0 1 * *", missed="all")
    planned.later(48.5 * HOUR)
    planned.app.schedule("x", "job", "x", cron="0 * * * *", missed="all")
    planned.work()
    assert planned.calls == []
    planned.later(HOUR / 2)
    assert planned.ticks() == hours(49)


def test_true_is_not_one(planned: Planned) -> None:
    with App(planned.store) as app:

        @app.workflow
        def flag(run: Run, value: Any) -> None:
            run.step(planned.calls.append, ("", value))

        for value in (1, True):
            app.schedule("x", flag, value, every=HOUR)
            planned.clock.advance(HOUR)
            app.worker().run(until_idle=True)
    assert [repr(value) for _, value in planned.calls] == ["1", "True"]
