"""`app.schedule`: runs at times and intervals, none lost and none twice."""

from __future__ import annotations

import asyncio
import datetime as dt
import itertools
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from holdfast import App, InvalidInput, Run
from holdfast.errors import UnknownWorkflow
from tests.runtime.planned import HOUR, START, Planned, hours


def test_a_run_is_started_at_every_tick(planned: Planned) -> None:
    planned.app.schedule("hourly", "job", "x", every=HOUR)
    planned.work()
    assert planned.calls == []
    for _ in range(3):
        planned.later(HOUR)
    assert planned.calls == [(tick, "x") for tick in hours(1, 2, 3)]
    runs = planned.store.runs(prefix="schedule/hourly/")
    assert [run.status for run in runs] == ["completed"] * 3


def test_cron_with_a_time_zone(planned: Planned) -> None:
    planned.app.schedule("daily", "job", what="x", cron="0 9 * * *", tz="Asia/Kolkata")
    planned.work()
    for _ in range(24):
        planned.later(HOUR)
    assert planned.ticks() == ["2026-01-01T03:30:00Z"]


@pytest.mark.parametrize(
    ("missed", "expected"), [("latest", hours(1, 5)), ("all", hours(1, 2, 3, 4, 5)), ("skip", hours(1))]
)
def test_ticks_that_no_worker_saw(planned: Planned, missed: Any, expected: list[str]) -> None:
    planned.app.schedule("hourly", "job", "x", every=HOUR, missed=missed)
    planned.later(HOUR)
    planned.later(4.5 * HOUR)
    assert planned.ticks() == expected
    planned.later(HOUR / 2)
    assert planned.ticks() == [*expected, *hours(6)], "it goes on in its rhythm"


def test_skip_starts_a_run_that_is_only_a_little_late(planned: Planned) -> None:
    planned.app.schedule("hourly", "job", "x", every=HOUR, missed="skip")
    planned.later(HOUR + 59)
    assert planned.ticks() == hours(1)


def test_thousands_of_missed_ticks_are_all_started(planned: Planned) -> None:
    planned.app.schedule("quick", "job", "x", every=10, missed="all", overlap="allow")
    planned.later(2_500)
    assert len(planned.calls) == len(set(planned.calls)) == 250


def test_overlap_skip(planned: Planned) -> None:
    planned.app.schedule("hourly", "job", "ask", every=HOUR)
    planned.later(HOUR)
    planned.later(HOUR)
    assert planned.ticks() == hours(1)
    assert planned.app.schedules()[0].skipped == 1
    planned.answer_all()
    planned.later(HOUR)
    assert planned.ticks() == hours(1, 3)


def test_overlap_allow(planned: Planned) -> None:
    planned.app.schedule("hourly", "job", "ask", every=HOUR, overlap="allow")
    planned.later(HOUR)
    planned.later(HOUR)
    assert planned.ticks() == hours(1, 2)
    assert [gate.state for gate in planned.app.gates()] == ["open", "open"]


def test_overlap_queue_starts_every_tick_after_the_one_before(planned: Planned) -> None:
    planned.app.schedule("hourly", "job", "ask", every=HOUR, overlap="queue")
    for _ in range(4):
        planned.later(HOUR)
    assert planned.ticks() == hours(1)
    for count in (2, 3, 4):
        planned.answer_all()
        planned.work()
        assert planned.ticks() == hours(*range(1, count + 1))
    planned.answer_all()
    planned.later(HOUR)
    assert planned.ticks() == hours(1, 2, 3, 4, 5)


def test_a_failing_run_does_not_end_its_schedule(planned: Planned) -> None:
    for overlap in ("skip", "queue", "allow"):
        planned.app.schedule(overlap, "job", "fail", every=HOUR, overlap=overlap)
    for _ in range(3):
        planned.later(HOUR)
    assert sorted(planned.ticks()) == sorted(hours(1, 2, 3) * 3)


def test_people_see_it(planned: Planned) -> None:
    planned.app.schedule("hourly", "job", "x", every=HOUR)
    found = planned.app.schedules()[0]
    assert (found.name, found.workflow, found.status, found.last_run) == ("hourly", "job", "ready", None)
    assert found.next == START + dt.timedelta(hours=1)
    planned.later(HOUR)
    found = planned.app.schedules()[0]
    assert (found.next, found.last_status) == (START + dt.timedelta(hours=2), "completed")
    assert found.last_run is not None
    assert found.last_run.endswith(hours(1)[0])


def test_a_workflow_of_another_program(planned: Planned) -> None:
    with App(planned.store) as other:

        @other.workflow
        def billing(run: Run, number: int) -> None: ...

        other.publish_workflows()
    planned.app.schedule("elsewhere", "billing", 7, every=HOUR)
    planned.later(HOUR)
    run = planned.store.runs(prefix="schedule/elsewhere/")[0]
    assert (run.workflow, run.status) == ("billing", "ready")


def test_a_misspelled_workflow_is_refused(planned: Planned) -> None:
    with pytest.raises(UnknownWorkflow, match="job"):
        planned.app.schedule("x", "jbo", "x", every=HOUR)
    with pytest.raises(UnknownWorkflow, match="job"):
        planned.app.start("jbo", "x", after=HOUR)
    assert planned.app.schedules() == []


def test_input_is_checked_and_converted_as_at_a_start(planned: Planned) -> None:
    with pytest.raises(InvalidInput, match="what"):
        planned.app.schedule("x", "job", 3, every=HOUR)


def test_arguments_may_have_the_names_of_options(planned: Planned) -> None:
    @planned.app.workflow
    def named(run: Run, key: str, detached: int, enqueue: bool) -> None:
        run.step(planned.calls.append, (key, detached, enqueue))

    planned.app.schedule("x", named, key="k", detached=2, enqueue=False, every=HOUR)
    planned.later(HOUR)
    assert planned.calls == [("k", 2, False)]


def test_what_was_missed_after_a_queued_run_is_not_queued(planned: Planned) -> None:
    planned.app.schedule("hourly", "job", "ask", every=HOUR, overlap="queue")
    planned.later(HOUR)
    planned.clock.advance(HOUR / 2)
    planned.answer_all()
    planned.later(5 * HOUR)
    assert planned.ticks() == hours(1, 6)


def test_every_minute_is_every_minute(planned: Planned) -> None:
    planned.clock.advance(3.2)
    planned.app.schedule("x", "job", "x", cron="* * * * *", overlap="allow")
    planned.work()
    for minute in range(1, 11):
        planned.later(60)
        assert planned.ticks()[-1] == f"2026-01-01T00:{minute:02}:00Z"
        assert len(planned.calls) == minute


def test_a_late_worker_starts_no_tick_of_the_future(planned: Planned) -> None:
    planned.app.schedule("x", "job", "x", cron="0 * * * *")
    planned.later(1.99 * HOUR)
    assert planned.ticks() == hours(1)


def test_async(planned: Planned) -> None:
    async def begin() -> list[str]:
        await planned.app.aio.schedule("hourly", "job", "x", every=dt.timedelta(hours=1))
        await planned.app.aio.schedule("other", "job", "x", cron="0 0 * * *")
        await planned.app.aio.unschedule("other")
        return [found.name for found in await planned.app.aio.schedules()]

    assert asyncio.run(begin()) == ["hourly"]
    planned.later(HOUR)
    assert planned.ticks() == hours(1)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({}, "either cron or every"),
        ({"cron": "* * * * *", "every": 1}, "either cron or every"),
        ({"cron": "61 * * * *"}, "Bad minute"),
        ({"cron": "daily"}, "five fields"),
        ({"cron": "*/10 * * * * *"}, "five fields"),
        ({"cron": "0 0 30 2 *"}, "day-of-month|no date"),
        ({"cron": "0 9 * * *", "tz": "Europe/Atlantis"}, "time zone"),
        ({"cron": "0 9 * * *", "tz": "../../etc/passwd"}, "time zone"),
        ({"every": 0}, "above 0"),
        ({"every": "1h"}, "number of seconds"),
        ({"every": 1, "missed": "some"}, "skip, latest, all"),
        ({"every": 1, "overlap": "cancel"}, "skip, queue, allow"),
        ({"every": 1, "missed": "all", "overlap": "skip"}, "only the first"),
    ],
)
def test_wrong_rules_are_refused_before_anything_is_written(planned: Planned, given: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidInput, match=text):
        planned.app.schedule("x", "job", "x", **given)
    assert planned.app.schedules() == []


def test_a_name_with_a_slash_is_refused(planned: Planned) -> None:
    with pytest.raises(InvalidInput, match="slash"):
        planned.app.schedule("x/y", "job", "x", every=1)


def test_wrong_arguments_of_the_workflow_are_refused(planned: Planned) -> None:
    with pytest.raises(InvalidInput, match="what"):
        planned.app.schedule("x", "job", every=1)
    with pytest.raises(InvalidInput, match="schedules"):
        planned.app.schedule("x", "holdfast.schedule", {}, every=1)


def test_a_clock_that_is_set_back_repeats_nothing(planned: Planned) -> None:
    planned.app.schedule("hourly", "job", "x", every=HOUR)
    planned.later(2 * HOUR)
    planned.clock.set_wall(-1.5 * HOUR)
    planned.work()
    planned.later(HOUR)
    assert planned.ticks() == hours(2)
    planned.later(HOUR)
    planned.later(HOUR / 2)
    assert planned.ticks() == hours(2, 3)


# --- killed workers ---------------------------------------------------------------------------------------------------

_WORKER = """
import sys, holdfast

app = holdfast.App(sys.argv[1], lease_s=1)

@app.workflow
def job(run):
    return run.run_id

app.worker().run()
"""


def test_killed_workers_lose_no_tick_and_double_none(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'runs.db'}"
    with App(url) as app:
        app.workflow(name="job")(lambda run: run.run_id)
        app.schedule("quick", "job", every=0.5, missed="all", overlap="allow")
        kills, seen = 5, 0
        while kills:
            workers = [subprocess.Popen([sys.executable, "-c", _WORKER, url]) for _ in range(2)]
            try:
                wanted = seen + 2
                while (seen := len(_quick(app))) < wanted:
                    assert all(worker.poll() is None for worker in workers)
                    time.sleep(0.05)
            finally:
                for worker in workers:
                    worker.kill()
                    worker.wait()
            kills -= 1
        app.pause("schedule/quick")
        ticks = sorted(dt.datetime.fromisoformat(run.run_id.rpartition("/")[2]) for run in _quick(app))
        assert {b - a for a, b in itertools.pairwise(ticks)} == {dt.timedelta(milliseconds=500)}


def _quick(app: App) -> list[Any]:
    return list(app.store.runs(prefix="schedule/quick/", limit=1_000))
