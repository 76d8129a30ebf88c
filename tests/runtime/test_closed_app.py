"""Closing an app while other threads use it: each caller gets a result or a typed error, and no run is lost."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import holdfast
from holdfast import App, AsyncRun, Run
from holdfast.errors import StoreClosed
from holdfast.store.port import RunQuery
from tests.harness import until

LONG_S = 240.0
"""Only a caller that hangs waits this long."""


@pytest.fixture
def app() -> Iterator[App]:
    """An app on a store that stays open when the app is closed."""
    with holdfast.open("memory:") as store:
        app = App(store)
        yield app
        app.close()


class Caller:
    """A call on a thread of its own, which may hang."""

    def __init__(self, call: Callable[[], object]) -> None:
        self._call = call
        self._outcome: list[object] = []
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def _work(self) -> None:
        try:
            self._outcome.append(self._call())
        except BaseException as error:
            self._outcome.append(error)

    def outcome(self) -> object:
        self._thread.join(LONG_S)
        assert self._outcome, "the caller hangs"
        return self._outcome[0]


def claims(app: App) -> list[tuple[str, str, str]]:
    """Id, status and owner of all runs."""
    return sorted((row.run_id, row.status, row.owner) for row in app.store.port.runs(RunQuery()))


def test_a_start_during_the_close_is_refused_and_creates_no_run(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    inside, closing, go, submitted = (threading.Event() for _ in range(4))

    @app.workflow
    async def slow(run: AsyncRun) -> None:
        inside.set()
        try:
            await asyncio.Event().wait()
        finally:
            closing.set()
            while not go.is_set():
                await asyncio.sleep(0.001)

    @app.workflow
    async def late(run: AsyncRun) -> str:
        await asyncio.Event().wait()
        return "done"

    first = Caller(lambda: app.start(slow, run_id="first"))
    assert inside.wait(LONG_S)
    close = Caller(app.close)
    assert closing.wait(LONG_S)
    loop = type(app._core.loop)
    submit = loop.submit

    def submit_and_report(self: Any, work: Any) -> Any:
        try:
            return submit(self, work)
        finally:
            submitted.set()

    monkeypatch.setattr(loop, "submit", submit_and_report)
    second = Caller(lambda: app.start(late, run_id="second"))
    assert submitted.wait(LONG_S)
    go.set()
    assert close.outcome() is None
    assert isinstance(second.outcome(), StoreClosed)
    assert isinstance(first.outcome(), StoreClosed)
    assert claims(app) == [("first", "ready", "")]


def test_work_for_a_loop_that_has_stopped_is_refused(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped, go = threading.Event(), threading.Event()
    loop = app._core.loop
    end = loop._loop.close

    def wait_and_end() -> None:
        stopped.set()
        go.wait(LONG_S)
        end()

    async def work() -> str:
        return "done"

    monkeypatch.setattr(loop._loop, "close", wait_and_end)
    close = Caller(app.close)
    assert stopped.wait(LONG_S)
    caller = Caller(lambda: loop.run(work()))
    try:
        assert isinstance(caller.outcome(), StoreClosed)
    finally:
        go.set()
    assert close.outcome() is None


def test_a_result_of_the_moment_in_which_the_loop_stops_is_delivered(app: App) -> None:
    held, go = threading.Event(), threading.Event()
    loop = app._core.loop
    ready: Any = loop._loop._ready  # type: ignore[attr-defined]

    async def block_the_loop() -> None:
        held.set()
        go.wait(LONG_S)

    async def work() -> str:
        return "done"

    blocker = Caller(lambda: loop.run(block_the_loop()))
    assert held.wait(LONG_S)
    caller = Caller(lambda: loop.run(work()))
    until(lambda: len(ready) == 1, "the work is submitted")
    close = Caller(app.close)
    until(lambda: len(ready) == 2, "the cancellation is submitted")
    go.set()  # the task of the work ends just before the cancellation begins
    assert caller.outcome() == "done"
    assert (blocker.outcome(), close.outcome()) == (None, None)


def test_a_start_after_the_close_is_refused_whether_or_not_there_was_a_loop(app: App) -> None:
    @app.workflow
    async def flow(run: AsyncRun) -> str:
        return "done"

    app.close()
    with pytest.raises(StoreClosed, match="the app was closed"):
        app.start(flow, run_id="r")
    assert claims(app) == []
    again = App(app.store)
    again.workflow(name="flow")(flow.fn)
    assert again.start("flow", run_id="r").result(LONG_S) == "done"
    again.close()
    with pytest.raises(StoreClosed, match="the app was closed"):
        again.start("flow", run_id="s")
    assert claims(app) == [("r", "completed", "")]
    again.close()


@pytest.mark.parametrize("timeout", [None, LONG_S])
def test_closing_the_app_fails_no_async_step_of_a_def_workflow(app: App, timeout: float | None) -> None:
    inside = threading.Event()

    async def wait() -> None:
        inside.set()
        await asyncio.Event().wait()

    @app.workflow
    def flow(run: Run) -> str:
        try:
            run.step(wait, timeout=timeout)
        except Exception as error:
            return f"handled {error!r}"
        return "done"

    caller = Caller(lambda: app.start(flow, run_id="r"))
    assert inside.wait(LONG_S)
    app.close()
    assert isinstance(caller.outcome(), StoreClosed)
    assert claims(app) == [("r", "ready", "")]
    assert [entry.kind for entry in app.store.journal("r")] == ["started"]


def test_a_worker_of_an_app_that_is_closed_ends_and_releases_its_runs(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    @app.workflow
    async def flow(run: AsyncRun) -> str:
        return "done"

    app.start(flow, run_id="r", enqueue=True)
    worker = app.worker()
    begin = worker._begin

    def close_and_begin(claimed: Any) -> None:
        app.close()
        begin(claimed)

    monkeypatch.setattr(worker, "_begin", close_and_begin)
    assert Caller(worker.run).outcome() is None
    assert claims(app) == [("r", "ready", "")]
