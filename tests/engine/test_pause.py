"""Pausing and resuming; and interrupts that user code tries to swallow."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from holdfast import AsyncRun, NotFinished, RunClaimed
from holdfast.errors import Interrupt, Suspended
from tests.harness import Stage


def test_a_run_that_is_paused_while_it_waits_waits_on_after_its_resume(stage: Stage) -> None:
    @stage.flow
    async def flow(run: AsyncRun) -> Any:
        return await run.ask("more?", str)

    stage.start(flow)
    assert stage.app.pause(stage.run_id, by="ana").status() == "paused"
    assert stage.journal("paused")[0]["by"] == "ana"
    assert stage.app.pause(stage.run_id).status() == "paused", "pausing twice is pausing once"
    assert len(stage.app.gates(stage.run_id)) == 1
    stage.restart()
    assert stage.app.resume(stage.run_id).status() == "waiting"
    assert stage.app.answer(stage.run_id, "on").result(240) == "on"
    assert len(stage.journal("paused")) == 1


def test_an_answer_to_a_paused_run_is_kept_until_it_is_resumed(stage: Stage) -> None:
    @stage.flow
    async def flow(run: AsyncRun) -> Any:
        first = await run.ask("more?", str)
        stage.calls.append(first)
        return first

    stage.start(flow)
    stage.app.pause(stage.run_id)
    stage.restart()
    assert stage.app.answer(stage.run_id, "kept").status() == "paused"
    with pytest.raises(NotFinished, match="paused"):
        stage.app.handle(stage.run_id).result(0.01)
    assert stage.calls == []
    stage.restart()
    assert stage.app.resume(stage.run_id).result(240) == "kept"


def test_a_running_run_pauses_before_its_next_call(stage: Stage) -> None:
    inside, go = threading.Event(), threading.Event()

    def slow() -> str:
        inside.set()
        assert go.wait(10)
        return "slow"

    def note() -> str:
        stage.calls.append("note")
        return "noted"

    @stage.flow
    async def flow(run: AsyncRun) -> list[str]:
        return [await run.step(slow), await run.step(note)]

    thread = threading.Thread(target=lambda: stage.app.start("flow", run_id=stage.run_id))
    thread.start()
    assert inside.wait(10)
    with pytest.raises(RunClaimed):
        stage.app.resume(stage.run_id)
    stage.app.pause(stage.run_id)
    go.set()
    thread.join(240)
    assert stage.status() == "paused"
    assert stage.calls == []
    stage.restart()
    assert stage.app.resume(stage.run_id).result(240) == ["slow", "noted"]
    assert len(stage.journal("step")) == 2


def test_a_paused_sleep_and_a_paused_event_are_not_lost(stage: Stage) -> None:
    @stage.flow
    async def flow(run: AsyncRun) -> Any:
        await run.sleep(100)
        return await run.wait_for("n")

    stage.start(flow)
    stage.app.pause(stage.run_id)
    stage.app.send(stage.run_id, "n", 7)
    stage.clock.advance(101)
    assert stage.status() == "paused"
    stage.restart()
    assert stage.app.resume(stage.run_id).result(240) == 7


def test_paused_branches_go_on_where_they_were(stage: Stage) -> None:
    def note(text: str) -> str:
        stage.calls.append(text)
        return text

    @stage.flow
    async def flow(run: AsyncRun) -> list[Any]:
        async def asks(inner: AsyncRun) -> Any:
            return await inner.ask("ok?", str)

        async def works(inner: AsyncRun) -> Any:
            return await inner.step(note, "works")

        return await run.gather(asks, works)

    stage.start(flow)
    stage.app.pause(stage.run_id)
    stage.restart()
    stage.app.answer(stage.run_id, "yes")
    assert stage.app.resume(stage.run_id).result(240) == ["yes", "works"]
    assert stage.calls == ["works"]


def test_except_exception_does_not_catch_an_interrupt(local: Stage) -> None:
    assert not issubclass(Interrupt, Exception)

    @local.flow
    async def flow(run: AsyncRun) -> str:
        try:
            return str(await run.ask("more?", str))
        except Exception:
            local.calls.append("caught")
            raise
        finally:
            local.calls.append("finally")

    local.start(flow)
    assert local.calls == ["finally"]
    assert local.app.answer(local.run_id, "ok").result(240) == "ok"
    assert local.calls == ["finally", "finally"]


def test_code_that_swallows_its_suspension_neither_goes_on_nor_ends(stage: Stage) -> None:
    def note() -> None:
        stage.calls.append("noted")

    @stage.flow
    async def flow(run: AsyncRun) -> str:
        try:
            return str(await run.ask("more?", str))
        except BaseException as error:
            stage.calls.append(type(error))
        try:
            await run.step(note)
        except BaseException:
            stage.calls.append("stopped again")
        return "not its result"

    handle = stage.start(flow)
    assert handle.status() == "waiting"
    assert stage.calls == [Suspended, "stopped again"]
    assert stage.app.answer(stage.run_id, "the answer").result(240) == "the answer"


def test_code_that_swallows_a_pause_is_paused_all_the_same(stage: Stage) -> None:
    @stage.flow
    async def flow(run: AsyncRun) -> str:
        try:
            await run.ask("more?", str)
        except BaseException:
            return "swallowed"
        return "answered"

    stage.start(flow)
    assert stage.app.pause(stage.run_id).status() == "paused"
    stage.app.answer(stage.run_id, "x")
    assert stage.app.resume(stage.run_id).result(240) == "answered"


def test_the_end_of_the_process_gives_the_run_back(stage: Stage) -> None:
    """Ctrl-C in the middle of a step: nothing is recorded of it, and the run is ready for others."""

    def stopped() -> str:
        stage.calls.append("call")
        if len(stage.calls) == 1:
            raise KeyboardInterrupt
        return "done"

    @stage.flow
    async def flow(run: AsyncRun) -> str:
        try:
            return await run.step(stopped)
        except Exception:
            return "swallowed"

    with pytest.raises(KeyboardInterrupt):
        stage.start(flow)
    assert stage.status() == "ready"
    assert stage.app.handle(stage.run_id).result(240) == "done"


def test_the_end_of_the_process_in_a_child_is_the_end_for_its_parent_too(stage: Stage) -> None:
    def stopped() -> str:
        stage.calls.append("call")
        if len(stage.calls) == 1:
            raise KeyboardInterrupt
        return "done"

    @stage.flow
    async def child(run: AsyncRun) -> str:
        return await run.step(stopped)

    @stage.flow
    async def flow(run: AsyncRun) -> Any:
        return await run.child("child")

    with pytest.raises(KeyboardInterrupt):
        stage.start(flow)
    assert stage.status() == "ready"
    assert stage.app.handle(stage.run_id).result(240) == "done"


def test_a_resume_that_finds_nothing_new_leaves_no_checkpoint(stage: Stage) -> None:
    @stage.flow
    async def flow(run: AsyncRun) -> Any:
        run.state["n"] = await run.step(len, "abc")
        return await run.ask("?", bool)

    stage.start(flow)
    before = len(list(stage.onlooker.history(stage.run_id)))
    for _ in range(3):
        stage.app.resume(stage.run_id)
    assert len(list(stage.onlooker.history(stage.run_id))) == before == 1
    assert stage.app.answer(stage.run_id, True).result(240) is True
