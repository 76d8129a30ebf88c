"""`start(at=…)` and `start(after=…)`: the run is stored at once and begins when its time has come."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import App, Handle, InvalidInput, Run, RunCancelled
from holdfast.errors import RunNotFound
from holdfast.inspect.run_list import RunFilter, run_page
from holdfast.testing import ManualClock
from tests.store.postgres.shared_servers import new_url

HOUR = 3600


class Begun:
    """An app on a manual clock whose workflow notes that it was called."""

    def __init__(self, url: str) -> None:
        self.clock = ManualClock()
        self.store = holdfast.open(url, clock=self.clock)
        self.app = App(self.store)
        self.calls: list[int] = []

        @self.app.workflow
        def note(run: Run, number: int) -> int:
            self.calls.append(number)
            return number

        self.flow = note

    def work(self) -> None:
        self.app.worker().run(until_idle=True)

    def start(self, **when: Any) -> Handle[int]:
        return self.app.start(self.flow, 1, run_id="r", **when)

    def later(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.work()


@pytest.fixture(params=["memory", "sqlite", "dir"])
def begun(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Begun]:
    made = Begun("memory:" if request.param == "memory" else f"{request.param}:{tmp_path / 'runs'}")
    yield made
    made.app.close()
    made.store.close()


def test_a_run_begins_after_the_given_seconds(begun: Begun) -> None:
    handle = begun.start(after=HOUR)
    assert handle.status() == "waiting"
    begun.later(HOUR - 1)
    assert (begun.calls, handle.status()) == ([], "waiting")
    begun.later(1)
    assert (begun.calls, handle.result()) == ([1], 1)


def test_a_run_begins_at_the_given_time(begun: Begun) -> None:
    begin = dt.datetime.fromtimestamp(begun.clock.now_us() / 1e6, dt.UTC) + dt.timedelta(hours=1)
    handle = begun.start(at=begin.astimezone(dt.timezone(dt.timedelta(hours=5))))
    begun.later(HOUR - 1)
    assert begun.calls == []
    begun.later(1)
    assert handle.result() == 1


def test_a_time_that_has_passed_means_at_once(begun: Begun) -> None:
    handle = begun.start(at=dt.datetime(2001, 1, 1, tzinfo=dt.UTC))
    assert (begun.calls, handle.status()) == ([], "ready"), "a worker executes it"
    begun.work()
    assert handle.result() == 1


def test_the_first_start_decides_when(begun: Begun) -> None:
    begun.start(after=HOUR)
    assert begun.start(after=2 * HOUR).status() == "waiting"
    begun.start()
    assert begun.calls == []
    begun.later(HOUR)
    assert begun.calls == [1]


def test_what_arrives_before_does_not_begin_the_run(begun: Begun) -> None:
    begun.start(after=HOUR)
    for _ in range(2):
        begun.app.send("r", "news", 1)
        begun.app.resume("r")
        begun.work()
    assert (begun.calls, begun.app.handle("r").status()) == ([], "waiting")
    begun.later(HOUR)
    assert begun.calls == [1]


def test_it_can_be_cancelled_before_it_begins(begun: Begun) -> None:
    handle = begun.start(after=HOUR)
    begun.app.cancel("r", by="ana")
    assert handle.status() == "cancelled"
    begun.later(HOUR)
    assert begun.calls == []
    with pytest.raises(RunCancelled):
        handle.result()


@pytest.mark.parametrize("first", ["resume", "begin"])
def test_it_can_be_paused_before_it_begins(begun: Begun, first: str) -> None:
    handle = begun.start(after=HOUR)
    begun.app.pause("r", by="ana")
    assert handle.status() == "paused"
    if first == "begin":
        begun.later(HOUR)
        assert (begun.calls, handle.status()) == ([], "paused")
        begun.app.resume("r")
    else:
        begun.app.resume("r")
        assert (begun.calls, handle.status()) == ([], "waiting")
        begun.later(HOUR)
    assert begun.calls == [1]


def test_a_fork_of_it_begins_at_the_same_time(begun: Begun) -> None:
    begun.start(after=HOUR)
    begun.app.fork("r", "copy")
    assert (begun.calls, begun.app.handle("copy").status()) == ([], "waiting")
    begun.later(HOUR)
    assert [begun.app.handle(name).result() for name in ("r", "copy")] == [1, 1]


def test_a_rollback_to_its_beginning_does_not_wait_again(begun: Begun) -> None:
    handle = begun.start(after=HOUR)
    begun.later(HOUR)
    assert handle.result() == 1
    begun.app.rollback("r", to=1)
    assert (begun.calls, handle.status()) == ([1, 1], "completed")


def test_people_see_when_it_begins(begun: Begun) -> None:
    handle = begun.start(after=HOUR)
    begin = dt.datetime.fromtimestamp(begun.clock.now_us() / 1e6, dt.UTC) + dt.timedelta(hours=1)
    line = run_page(begun.store, RunFilter()).lines[0]
    assert (line.text, line.until) == ("its start", begin)
    with pytest.raises(holdfast.NotFinished, match=f"waits for its start at {begin.isoformat()[:19]}"):
        handle.result(timeout=0)


def test_async(begun: Begun) -> None:
    async def start() -> object:
        handle = await begun.app.aio.start("note", 1, run_id="r", after=HOUR)
        assert await handle.status() == "waiting"
        begun.clock.advance(HOUR)
        return await begun.app.aio.handle("r").result(timeout=240)

    assert asyncio.run(start()) == 1


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"at": dt.datetime.fromisoformat("2030-01-01")}, "time zone"),
        ({"at": "tomorrow"}, "time zone"),
        ({"after": -1}, "0 or more"),
        ({"after": "1h"}, "number of seconds"),
        ({"after": 1, "at": dt.datetime(2030, 1, 1, tzinfo=dt.UTC)}, "one of them"),
    ],
)
def test_a_wrong_time_is_refused_before_anything_is_written(begun: Begun, wrong: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidInput, match=text):
        begun.start(**wrong)
    with pytest.raises(RunNotFound):
        begun.app.handle("r").status()


def test_on_postgresql() -> None:
    with App(new_url()) as app:
        calls: list[int] = []

        @app.workflow
        def note(run: Run, number: int) -> None:
            calls.append(number)

        late = app.start(note, 1, run_id="late", after=HOUR)
        app.start(note, 2, run_id="soon", after=0.05)
        app.handle("soon").result(timeout=240)
        assert (calls, late.status()) == ([2], "waiting")
        app.cancel("late")
        assert (calls, late.status()) == ([2], "cancelled")
