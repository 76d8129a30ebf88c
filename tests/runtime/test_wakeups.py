"""Wake-ups: what should wake a run does so, whoever held it meanwhile and whatever their clocks say."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import apsw
import pytest

from holdfast import App, AsyncRun, Retry
from holdfast.errors import ClaimLost
from holdfast.model.commit import Commit, Guard
from holdfast.runtime.worker import Worker
from tests.harness import Stage, until


@contextmanager
def working(app: App, **options: Any) -> Iterator[Worker]:
    """A worker on a thread of its own, until the end of the block."""
    worker = app.worker(**options)
    thread = threading.Thread(target=worker.run, daemon=True)
    thread.start()
    try:
        yield worker
    finally:
        worker.stop()
        thread.join(240)
        assert not thread.is_alive()


def family(stage: Stage, *, steps: int = 1) -> tuple[threading.Event, threading.Event]:
    """A parent and its child, whose steps wait: (a step has begun, it may end)."""
    inside, go = threading.Event(), threading.Event()

    def slow() -> None:
        stage.calls.append("slow")
        inside.set()
        assert go.wait(10)

    @stage.flow
    async def child(run: AsyncRun) -> str:
        for _ in range(steps):
            await run.step(slow)
        return "of the child"

    @stage.flow
    async def parent(run: AsyncRun) -> Any:
        return await run.child("child")

    return inside, go


# --- children --------------------------------------------------------------------------------------------------------


def test_a_drain_also_stops_the_children_inside_the_runs_it_stops(alone: Stage) -> None:
    inside, go = family(alone, steps=200)
    alone.start("parent", enqueue=True)
    with working(alone.app, drain_s=10) as worker:
        assert inside.wait(10)
        worker.stop()
        time.sleep(0.05)
        go.set()
    assert len(alone.calls) < 10, "it came to its next call, and no further"
    child = f"{alone.run_id}/child:child#1"
    assert {alone.status(), alone.status(child)} == {"ready"}
    assert {alone.app.handle(run_id).info().owner for run_id in (alone.run_id, child)} == {None}
    assert alone.app.handle(alone.run_id).result(240) == "of the child"
    assert len(alone.calls) == 200


def test_a_child_that_outlives_the_drain_of_its_parents_worker_wakes_its_parent(alone: Stage) -> None:
    inside, go = family(alone)
    first, second = alone.app, alone.open()
    alone.start("parent", enqueue=True)
    with working(first, drain_s=0.05):
        assert inside.wait(10)
    assert alone.status() == "ready", "the first worker gave the parent up, and not the child"
    with working(second):
        until(lambda: alone.status() == "waiting", "the second worker has the parent wait for its child")
        go.set()
        until(lambda: alone.status() == "completed", "the child wakes its parent")
    assert alone.calls == ["slow"]


def test_a_child_wakes_its_parent_though_the_parent_was_taken_from_its_process(stage: Stage) -> None:
    inside, go = family(stage)
    first, second = stage.app, stage.open()
    told: list[BaseException] = []

    def starts() -> None:
        with pytest.raises(ClaimLost) as caught:
            first.start("parent", run_id=stage.run_id)
        told.append(caught.value)

    thread = threading.Thread(target=starts)
    thread.start()
    assert inside.wait(10)
    row = stage.onlooker.port.run(stage.run_id)
    assert row is not None
    guard = Guard(incarnation=row.incarnation, gone=row.fence)
    stage.onlooker.port.commit([Commit(row.run_id, b"usurper!", guard, rearm=row.fence)])
    assert second.resume(stage.run_id).status() == "waiting"
    go.set()
    thread.join(240)
    assert len(told) == 1
    assert second.handle(stage.run_id).result(240) == "of the child"
    assert stage.calls == ["slow"]


# --- clocks ----------------------------------------------------------------------------------------------------------


def _waits(run: AsyncRun, _: Callable[[], str]) -> Any:
    return run.wait_for("event", timeout=100, default="late")


def _retries(run: AsyncRun, flaky: Callable[[], str]) -> Any:
    return run.step(flaky, retry=Retry(attempts=3, initial_delay=100, jitter=0))


def _retries_effect(run: AsyncRun, flaky: Callable[[], str]) -> Any:
    return run.effect(flaky, retry=Retry(attempts=3, initial_delay=100, jitter=0), not_done=OSError)


def _sleeps(run: AsyncRun, _: Callable[[], str]) -> Any:
    return run.sleep(100)


@pytest.mark.parametrize("call", [_waits, _retries, _retries_effect, _sleeps])
def test_a_timer_that_rang_too_early_for_whoever_took_the_run_up_rings_again(
    alone: Stage, call: Callable[[AsyncRun, Callable[[], str]], Any]
) -> None:
    """The clock of the process that rings is ahead of the clock of the one that takes the run up."""

    def flaky() -> str:
        alone.calls.append("called")
        if len(alone.calls) == 1:
            raise OSError("the first time")
        return "late"

    @alone.flow
    async def flow(run: AsyncRun) -> Any:
        return [await call(run, flaky)]

    alone.start(flow)
    for _ in range(2):
        alone.clock.advance(101)
        assert alone.app._core.blocking.run(_ring(alone)) == 1
        assert alone.status() == "ready"
        alone.clock.advance(-101)
        assert alone.app.resume(alone.run_id).status() == "waiting"
    alone.clock.advance(101)
    alone.restart()
    alone.app.worker().run(until_idle=True)
    assert alone.status() == "completed"
    assert alone.app.handle(alone.run_id).result(240) == [None if call is _sleeps else "late"]


def _ring(stage: Stage) -> Any:
    from holdfast.runtime.reaper import fire_all_due

    return fire_all_due(stage.app._core)


# --- workers ---------------------------------------------------------------------------------------------------------


def test_a_worker_passes_over_runs_whose_checkpoints_were_not_saved_by_the_engine(alone: Stage) -> None:
    @alone.flow
    async def known(run: AsyncRun) -> str:
        return "done"

    for name, needs in (("spans", {"spans": [[2, 2]], "needs": []}), ("needs", {"needs": []})):
        alone.app.store.append(name, [{"kind": "note", "number": number} for number in range(3)])
        alone.app.store.save(name, {}, metadata={"holdfast": needs})
    alone.start(known, enqueue=True)
    alone.app.worker().run(until_idle=True)
    assert (alone.status("spans"), alone.status("needs"), alone.status()) == ("ready", "ready", "completed")


def test_until_idle_does_not_wait_for_a_workflow_this_process_does_not_know(alone: Stage) -> None:
    @alone.flow
    async def known(run: AsyncRun) -> str:
        return "done"

    alone.start("somebody elses", run_id="unknown", enqueue=True)
    alone.start(known, enqueue=True)
    thread = threading.Thread(target=alone.app.worker().run, kwargs={"until_idle": True}, daemon=True)
    thread.start()
    thread.join(240)
    assert not thread.is_alive()
    assert (alone.status("unknown"), alone.status()) == ("ready", "completed")


def test_until_idle_sees_to_all_timers_that_are_due_however_many(alone: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.runtime.reaper._BATCH", 3)

    @alone.flow
    async def flow(run: AsyncRun) -> None:
        await run.sleep(100)

    for number in range(10):
        alone.start(flow, run_id=f"run-{number}")
    alone.clock.advance(101)
    alone.app.worker().run(until_idle=True)
    assert {run.status for run in alone.app.runs(limit=100)} == {"completed"}


def test_a_damaged_gate_keeps_no_other_from_expiring(alone: Stage) -> None:
    @alone.flow
    async def flow(run: AsyncRun) -> Any:
        return await run.ask("?", bool, expires=100)

    for run_id in ("bad", "good"):
        alone.start(flow, run_id=run_id)
    database = apsw.Connection(alone.url.removeprefix("sqlite:"))
    row = alone.onlooker.port.run("bad")
    assert row is not None
    database.execute("UPDATE gates SET body = zeroblob(length(body)) WHERE run = ?", (row.run,))
    database.close()
    alone.clock.advance(101)
    alone.app.worker().run(until_idle=True)
    assert (alone.status("bad"), alone.status("good")) == ("waiting", "completed")
    assert not alone.onlooker.verify().ok


def test_a_drain_does_not_cut_a_short_sleep_short(alone: Stage) -> None:
    @alone.flow
    async def flow(run: AsyncRun) -> str:
        await run.sleep(0.6)
        return "slept"

    began = time.monotonic()
    alone.start(flow, enqueue=True)
    with working(alone.app):
        until(lambda: bool(alone.journal("sleep")), "it sleeps")
    assert alone.status() == "ready", "given back, and neither slept to its end nor ended early"
    assert alone.app.handle(alone.run_id).result(240) == "slept"
    assert time.monotonic() - began >= 0.6
