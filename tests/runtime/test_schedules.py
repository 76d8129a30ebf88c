"""`app.schedule`: runs at times and intervals, none lost and none twice."""

from __future__ import annotations

import asyncio
import datetime as dt
import itertools
import logging
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import App, InvalidInput, Run
from holdfast.errors import RunNotFound, UnknownWorkflow
from holdfast.runtime.schedule_ticks import Rule, rule_of
from holdfast.testing import ManualClock

HOUR = 3600
START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


class Planned:
    """An app on a manual clock with a workflow that notes its calls and may wait for an answer."""

    def __init__(self, url: str) -> None:
        self.clock = ManualClock(int(START.timestamp()) * 1_000_000)
        self.store = holdfast.open(url, clock=self.clock)
        self.calls: list[Any] = []
        self.app = self.new_app()

    def new_app(self) -> App:
        app = App(self.store)

        @app.workflow
        def job(run: Run, what: str) -> None:
            run.step(self.calls.append, (run.run_id.rpartition("/")[2], what))
            if what == "ask":
                run.ask("Go on?")
            if what == "fail":
                raise ValueError(what)

        return app

    def later(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.work()

    def work(self) -> None:
        self.app.worker().run(until_idle=True)

    def ticks(self) -> list[str]:
        return [tick for tick, _ in self.calls]

    def answer_all(self) -> None:
        for gate in self.app.gates():
            self.app.answer(gate.run_id, True)

    def close(self) -> None:
        self.app.close()
        self.store.close()


@pytest.fixture(params=["memory", "sqlite", "dir"])
def planned(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Planned]:
    made = Planned("memory:" if request.param == "memory" else f"{request.param}:{tmp_path / 'runs'}")
    yield made
    made.close()


def hours(*numbers: int) -> list[str]:
    return [f"{(START + dt.timedelta(hours=number)).replace(tzinfo=None).isoformat()}Z" for number in numbers]


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


def test_what_was_missed_after_a_queued_run_is_not_queued(planned: Planned) -> None:
    planned.app.schedule("hourly", "job", "ask", every=HOUR, overlap="queue")
    planned.later(HOUR)
    planned.clock.advance(HOUR / 2)
    planned.answer_all()
    planned.later(5 * HOUR)
    assert planned.ticks() == hours(1, 6)


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


# --- ticks ------------------------------------------------------------------------------------------------------------


def ticks_between(rule: Rule, first: str, last: str) -> list[str]:
    at, end = (int(dt.datetime.fromisoformat(text).timestamp()) * 1_000_000 for text in (first, last))
    found = []
    while (at := rule.next(at)) <= end:
        found.append(dt.datetime.fromtimestamp(at / 1e6, dt.UTC).isoformat()[:16])
    return found


def test_the_clock_change_in_spring_loses_no_tick() -> None:
    rule = rule_of("30 2 * * *", None, "Europe/Berlin", "latest", None)
    found = ticks_between(rule, "2026-03-27T12:00+00:00", "2026-03-31T00:00+00:00")
    assert found == ["2026-03-28T01:30", "2026-03-29T01:00", "2026-03-30T00:30"]


def test_the_clock_change_in_autumn_doubles_no_tick() -> None:
    rule = rule_of("30 2 * * *", None, "Europe/Berlin", "latest", None)
    found = ticks_between(rule, "2026-10-23T12:00+00:00", "2026-10-26T12:00+00:00")
    assert found == ["2026-10-24T00:30", "2026-10-25T00:30", "2026-10-26T01:30"]
    half_hours = rule_of("*/30 * * * *", None, "Europe/Berlin", "latest", None)
    found = ticks_between(half_hours, "2026-10-24T23:30+00:00", "2026-10-25T02:00+00:00")
    assert found == [f"2026-10-25T{hour}:{minute}" for hour in ("00", "01") for minute in ("00", "30")] + [
        "2026-10-25T02:00"
    ]


@pytest.mark.parametrize("missed", ["latest", "skip", "all"])
@pytest.mark.parametrize("minute", [20, 45, 61, 75, 88, 95, 130])
@pytest.mark.parametrize("created", ["2026-10-24T12:00+00:00", "2026-10-25T00:40+00:00", "2026-10-25T01:05+00:00"])
def test_no_tick_is_found_twice_in_the_repeated_hour(created: str, minute: int, missed: Any) -> None:
    rule = rule_of("30 2 * * *", None, "Europe/Berlin", missed, None)
    after = int(dt.datetime.fromisoformat(created).timestamp()) * 1_000_000
    now = int(dt.datetime.fromisoformat("2026-10-25T00:00:30+00:00").timestamp() + 60 * minute) * 1_000_000
    seen: list[int] = []
    for _ in range(3):
        ticks, after = rule.due(after, now)
        seen += ticks
    assert seen == sorted(set(seen))
    assert all(tick <= now for tick in seen)
    assert rule.next(after) > now


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


@pytest.mark.parametrize("rule", [Rule(every_us=7_000_000), Rule(cron="*/5 * * * *", tz="Europe/Berlin")])
def test_the_newest_tick_is_the_last_of_all(rule: Rule) -> None:
    start = int(START.timestamp()) * 1_000_000 + 3
    for now in (start, start + 7_000_000, start + 299_999_999, start + 301_000_000, start + 3 * 3600 * 1_000_000):
        at = start
        while rule.next(at) <= now:
            at = rule.next(at)
        assert rule.newest(start, now) == at


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
