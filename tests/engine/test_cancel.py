"""Cancelling: final, with time to clean up, and never swallowed."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from holdfast import AsyncRun, Retry, RunCancelled
from holdfast.errors import Cancelled, RunEnded
from tests.harness import Stage


def test_a_waiting_run_is_cancelled_and_its_gate_closed(stage: Stage) -> None:
    @stage.flow
    async def flow(run: AsyncRun) -> None:
        await run.ask("more?", bool, expires=60)

    stage.start(flow)
    stage.restart()
    handle = stage.app.cancel(stage.run_id, by="ana")
    assert handle.status() == "cancelled"
    with pytest.raises(RunCancelled, match="by ana") as caught:
        handle.result(240)
    assert caught.value.by == "ana"
    assert stage.app.gates(stage.run_id) == []
    assert [entry["kind"] for entry in stage.journal()] == ["started", "asked", "cancelling", "cancelled"]
    assert {entry["by"] for entry in stage.journal("cancelling", "cancelled")} == {"ana"}
    for verb in (stage.app.pause, stage.app.resume):
        with pytest.raises(RunEnded):
            verb(stage.run_id)


def test_a_running_run_is_cancelled_from_another_thread_at_its_next_call(stage: Stage) -> None:
    inside, go = threading.Event(), threading.Event()

    def slow() -> None:
        inside.set()
        assert go.wait(10)

    def after() -> None:
        stage.calls.append("after")

    @stage.flow
    async def flow(run: AsyncRun) -> None:
        await run.step(slow)
        await run.step(after)

    thread = threading.Thread(target=lambda: stage.app.start("flow", run_id=stage.run_id))
    thread.start()
    assert inside.wait(10)
    assert stage.app.cancel(stage.run_id, by="ana").status() == "running"
    go.set()
    thread.join(240)
    assert stage.status() == "cancelled"
    assert stage.calls == []
    assert len(stage.journal("step")) == 1, "what was under way is recorded"


def test_finally_blocks_have_time_for_steps_and_effects(stage: Stage) -> None:
    def note(text: str) -> str:
        stage.calls.append(text)
        return text

    @stage.flow
    async def flow(run: AsyncRun) -> None:
        await run.step(note, "begun")
        try:
            await run.ask("more?", bool)
        except Exception:
            stage.calls.append("swallowed")
        finally:
            await run.step(note, "tidy")
            await run.effect(note, "give back")
            await run.sleep(0.001)
            await run.log("clean")

    stage.start(flow)
    stage.app.cancel(stage.run_id)
    assert stage.status() == "cancelled"
    assert stage.calls == ["begun", "tidy", "give back"]
    assert [entry["message"] for entry in stage.journal("log")] == ["clean"]


def test_a_crash_while_cleaning_up_is_gone_on_from(stage: Stage) -> None:
    def note(text: str) -> None:
        stage.calls.append(text)
        if text == "second" and stage.calls.count("second") == 1:
            stage.die()

    @stage.flow
    async def flow(run: AsyncRun) -> None:
        try:
            await run.ask("more?", bool)
        finally:
            await run.step(note, "first")
            await run.step(note, "second")

    stage.start(flow)
    with pytest.raises(Exception, match="the wire was cut"):
        stage.app.cancel(stage.run_id, by="ana")
    assert stage.resume().status() == "cancelled"
    assert stage.calls == ["first", "second", "second"]
    assert stage.journal("cancelled")[0]["by"] == "ana"


def test_cleaning_up_is_no_time_for_questions(stage: Stage) -> None:
    @stage.flow
    async def flow(run: AsyncRun) -> None:
        try:
            await run.ask("more?", bool)
        finally:
            lasting: list[Callable[[], Awaitable[Any]]] = [
                lambda: run.ask("sure?", bool), lambda: run.wait_for("x"), lambda: run.sleep(3600),
                lambda: run.child("flow"),
            ]  # fmt: skip
            for call in lasting if run.attempt > 1 else []:
                with pytest.raises(Cancelled):
                    await call()
                stage.calls.append("refused")

    stage.start(flow)
    stage.app.cancel(stage.run_id)
    assert stage.status() == "cancelled"
    assert stage.calls == ["refused"] * 4
    assert len(stage.journal("asked")) == 1


def test_cleaning_up_has_an_end(stage: Stage) -> None:
    @stage.flow
    async def flow(run: AsyncRun) -> None:
        try:
            await run.ask("more?", bool)
        finally:
            for number in range(1000):
                await run.step(slow, number)

    def slow(number: int) -> None:
        stage.calls.append(number)
        stage.clock.advance(11)

    stage.start(flow)
    assert stage.app.cancel(stage.run_id).status() == "cancelled"
    assert stage.calls == [0, 1, 2], "there are 30 seconds, if the app does not say otherwise"


def test_a_cancellation_is_final_whatever_the_code_makes_of_it(stage: Stage) -> None:
    @stage.flow
    async def flow(run: AsyncRun) -> str:
        try:
            await run.ask("more?", bool)
        except BaseException:
            stage.calls.append("swallowed")
        return "all is well"

    stage.start(flow)
    stage.app.cancel(stage.run_id)
    assert stage.calls[-1] == "swallowed"
    with pytest.raises(RunCancelled):
        stage.app.handle(stage.run_id).result(240)


def test_an_error_while_cleaning_up_is_noted_and_the_run_is_cancelled(local: Stage) -> None:
    @local.flow
    async def flow(run: AsyncRun) -> None:
        try:
            await run.ask("more?", bool)
        finally:
            if run.attempt > 1:
                raise KeyError("in the cleanup")

    local.start(flow)
    assert local.app.cancel(local.run_id).status() == "cancelled"
    assert local.journal("cancelled")[0]["error"]["type"] == "KeyError"


def test_every_branch_is_cancelled_and_cleans_up(stage: Stage) -> None:
    lock = threading.Lock()

    def note(text: str) -> None:
        with lock:
            stage.calls.append(text)

    @stage.flow
    async def flow(run: AsyncRun) -> None:
        def branch(number: int) -> Any:
            async def asks(inner: AsyncRun) -> None:
                try:
                    await inner.ask(f"{number}?", bool)
                finally:
                    if run.attempt > 1:
                        await inner.step(note, f"tidy {number}")

            return asks

        try:
            await run.gather(branch(0), branch(1))
        finally:
            if run.attempt > 1:
                await run.step(note, "tidy all")

    stage.start(flow)
    assert len(stage.app.gates(stage.run_id)) == 2
    assert stage.app.cancel(stage.run_id).status() == "cancelled"
    assert sorted(stage.calls) == ["tidy 0", "tidy 1", "tidy all"]
    assert stage.app.gates(stage.run_id) == []


def test_a_loop_ends_when_it_is_cancelled(stage: Stage) -> None:
    @stage.flow
    async def flow(run: AsyncRun) -> None:
        async for turn in run.loop():
            try:
                run.state["turn"] = turn
                if turn == 3:
                    await run.ask("more?", bool)
            except Exception:
                stage.calls.append("swallowed")

    stage.start(flow)
    assert stage.app.cancel(stage.run_id).status() == "cancelled"
    assert stage.calls == []


def test_cancelling_a_paused_run_ends_it(stage: Stage) -> None:
    @stage.flow
    async def flow(run: AsyncRun) -> None:
        await run.ask("more?", bool)

    stage.start(flow)
    stage.app.pause(stage.run_id)
    assert stage.status() == "paused"
    assert stage.app.cancel(stage.run_id).status() == "cancelled"


def test_a_retry_in_cleaning_up_is_not_waited_for(stage: Stage) -> None:
    def fails() -> None:
        stage.calls.append("try")
        raise OSError("not now")

    @stage.flow
    async def flow(run: AsyncRun) -> None:
        try:
            await run.ask("Well?", bool)
        finally:
            await run.step(fails, retry=Retry(attempts=3, initial_delay=60))

    stage.start(flow)
    before = len(stage.wire.commits)
    stage.app.cancel(stage.run_id)
    assert stage.status() == "cancelled"
    assert stage.calls == ["try"] * 3
    assert len(stage.wire.commits) - before < 12
