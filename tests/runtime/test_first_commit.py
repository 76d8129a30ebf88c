"""The first commit of a run: it creates and claims the run before any function is called, or records that it waits."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from holdfast import AsyncRun, DidNotHappen, Run, RunFailed
from holdfast.errors import InputConflict, RunNotFound, StorageFailed
from holdfast.model.commit import Commit
from holdfast.runtime import execute
from holdfast.runtime.interpreter import Interpreter
from tests.harness import Stage, until

Waiting = Callable[[AsyncRun], Awaitable[Any]]

WAITS: dict[str, Waiting] = {
    "ask": lambda run: run.ask("ok?", bool),
    "sleep": lambda run: run.sleep(3600),
    "wait_for": lambda run: run.wait_for("end"),
    "wait_for with a timeout": lambda run: run.wait_for("end", timeout=3600),
}


@pytest.mark.parametrize("wait", WAITS.values(), ids=WAITS)
def test_a_run_that_begins_with_a_wait_is_created_by_one_commit(stage: Stage, wait: Waiting) -> None:
    @stage.flow
    async def flow(run: AsyncRun) -> Any:
        run.state["begun"] = True
        return await wait(run)

    assert stage.start(flow).status() == "waiting"
    assert len(stage.wire.commits) == 1
    row = stage.onlooker.port.run(stage.run_id)
    assert row is not None
    assert (row.fence, row.owner, row.nonce) == (1, "", b"")
    assert stage.journal()[0]["kind"] == "started"
    loaded = stage.onlooker.load(stage.run_id)
    assert loaded is not None
    assert loaded.state == {"begun": True}


def test_an_answer_costs_two_commits(stage: Stage) -> None:
    @stage.flow
    async def flow(run: AsyncRun) -> tuple[bool, int]:
        return await run.ask("ok?", bool), run.attempt

    stage.start(flow)
    read: list[str] = []
    rows = stage.wire.rows

    def record(kind: type[Any], *about: Any, **keys: Any) -> list[Any]:
        read.append(kind.__name__)
        return rows(kind, *about, **keys)

    stage.wire.rows = record  # type: ignore[method-assign]
    del stage.wire.commits[:]
    handle = stage.app.answer(stage.run_id, True)
    assert len(stage.wire.commits) == 2
    assert read == ["GateRow", "EntryRow", "ItemRow"]
    assert handle.result(240) == (True, 2)


def _calls(stage: Stage, look: Callable[..., Any]) -> dict[str, Waiting]:
    """First calls of a run that call `look`, or let another run be executed that does."""

    async def branch(inner: AsyncRun) -> Any:
        return await inner.step(look)

    async def asks_first(run: AsyncRun) -> Any:
        async def asks(inner: AsyncRun) -> Any:
            return await inner.ask("ok?", bool)

        return await run.gather(branch, asks)

    async def loops(run: AsyncRun) -> Any:
        async for _ in run.loop():
            await run.step(look)
            break

    return {
        "step": lambda run: run.step(look),
        "effect": lambda run: run.effect(look),
        "effect with a check": lambda run: run.effect(look, check=lambda: DidNotHappen),
        "gather": lambda run: run.gather(branch),
        "gather with a wait": asks_first,
        "loop": loops,
        "child": lambda run: run.child("child"),
    }


NAMES = list(_calls(None, len))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", NAMES)
def test_a_run_exists_and_is_claimed_before_a_function_is_called(stage: Stage, name: str) -> None:
    seen: list[tuple[str, str, int]] = []

    def look(**_: Any) -> None:
        row = stage.onlooker.port.run(stage.run_id)
        assert row is not None, "a function is called before the run exists"
        seen.append((row.status, row.owner, row.fence))

    call = _calls(stage, look)[name]

    @stage.flow
    async def flow(run: AsyncRun) -> None:
        await run.now()  # pending, not a commit
        await call(run)

    @stage.flow
    async def child(run: AsyncRun) -> None:
        await run.step(look)

    stage.start(flow)
    assert seen == [("running", stage.app._core.owner, 1)]


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("wait", WAITS.values(), ids=WAITS)
def test_a_crash_at_the_first_commit_leaves_no_run_or_a_waiting_one(stage: Stage, wait: Waiting, late: bool) -> None:
    @stage.flow
    async def flow(run: AsyncRun) -> Any:
        stage.calls.append("begun")
        return await wait(run)

    stage.wire.cut_after(0, late=late)
    stage.start_and_die(flow)
    found = stage.onlooker.port.run(stage.run_id)
    assert (found.status if found is not None else None) == ("waiting" if late else None)
    stage.restart()
    assert stage.start(flow).status() == "waiting"
    assert len(stage.calls) == (1 if late else 2)
    assert len(stage.journal("started")) == 1


@pytest.mark.parametrize("late", [False, True])
def test_a_crash_at_the_creation_before_a_step_calls_nothing(stage: Stage, late: bool) -> None:
    @stage.flow
    async def flow(run: AsyncRun) -> None:
        await run.step(stage.calls.append, "step")

    stage.wire.cut_after(0, late=late)
    stage.start_and_die(flow)
    assert stage.calls == []
    stage.restart()
    assert stage.start(flow).status() == "completed"
    assert stage.calls == ["step"]


def test_a_run_that_exists_is_found_without_executing_its_code_again(stage: Stage) -> None:
    @stage.flow
    async def flow(run: AsyncRun) -> Any:
        stage.calls.append("begun")
        return await run.ask("ok?", bool)

    stage.start(flow)
    assert stage.start(flow).status() == "waiting"
    assert stage.calls == ["begun"]


@pytest.mark.parametrize("enqueue", [False, True])
def test_a_run_exists_before_its_code_starts_another_that_sends_to_it(alone: Stage, enqueue: bool) -> None:
    app = alone.app

    @app.workflow
    def reply(run: Run, to: str) -> None:
        run.send(to, "reply", 7)

    @app.workflow
    def asks(run: Run) -> Any:
        app.start(reply, run.run_id, run_id="reply", enqueue=enqueue)
        if enqueue:
            app.worker().run(until_idle=True)
        return run.wait_for("reply", timeout=3600)

    app.start(asks, run_id=alone.run_id)
    row = alone.onlooker.port.run(alone.run_id)
    assert row is not None
    assert row.inbox == 1, "the message was delivered"


def test_a_run_that_is_started_again_by_its_own_code_is_found(alone: Stage) -> None:
    @alone.app.workflow
    def flow(run: Run) -> str:
        return alone.app.start("flow", run_id=run.run_id).status()

    assert alone.app.start(flow, run_id=alone.run_id).result(240) == "running"


def _rival_first(stage: Stage, start: Callable[[], object]) -> None:
    """Before the first commit of the current app another app starts the same run."""
    ours, app = stage.wire, stage.app
    stage.open()
    rival, stage.app, stage.wire = stage.app, app, ours

    def begin(_: Commit) -> None:
        ours.before = None
        stage.app = rival
        start()
        stage.app = app

    ours.before = begin


@pytest.mark.parametrize("first", ["ask", "step"])
def test_of_two_that_start_a_run_at_once_one_creates_it(stage: Stage, first: str) -> None:
    @stage.flow
    async def flow(run: AsyncRun, order: str) -> Any:
        stage.calls.append("begun")
        if first == "step":
            await run.step(stage.calls.append, "step")
        return await run.ask(order, bool)

    _rival_first(stage, lambda: stage.start(flow, "A"))
    handle = stage.start(flow, "A")
    assert handle.status() == "waiting"
    assert stage.calls.count("begun") == 2
    assert stage.calls.count("step") == (1 if first == "step" else 0)
    assert len(stage.journal("started")) == len(stage.journal("asked")) == 1
    assert len(stage.app.gates(stage.run_id)) == 1
    assert stage.app.answer(stage.run_id, True).result(240) is True


def test_of_two_that_start_a_run_at_once_with_other_input_the_second_is_refused(stage: Stage) -> None:
    @stage.flow
    async def flow(run: AsyncRun, order: str) -> Any:
        return await run.ask(order, bool)

    _rival_first(stage, lambda: stage.start(flow, "A"))
    with pytest.raises(InputConflict):
        stage.start(flow, "B")
    assert [gate.prompt for gate in stage.app.gates(stage.run_id)] == ["A"]


def test_a_run_that_is_interrupted_before_its_first_call_can_be_continued(local: Stage) -> None:
    @local.flow
    async def flow(run: AsyncRun) -> str:
        local.calls.append("begun")
        if len(local.calls) == 1:
            raise KeyboardInterrupt
        return "done"

    with pytest.raises(KeyboardInterrupt):
        local.start(flow)
    assert local.status() == "ready"
    assert local.app.handle(local.run_id).result(240) == "done"


def test_a_run_whose_code_works_for_long_before_its_first_call_is_created_meanwhile(alone: Stage) -> None:
    alone.open(lease_s=1.0)

    @alone.flow
    async def flow(run: AsyncRun) -> str:
        def exists() -> bool:
            row = alone.onlooker.port.run(alone.run_id)
            return row is not None and row.status == "running"

        if alone.is_async:
            await asyncio.to_thread(until, exists, "the run exists")
        else:
            until(exists, "the run exists")
        return "yes" if await run.ask("ok?", bool) else "no"

    assert alone.start(flow).status() == "waiting"
    assert alone.app.answer(alone.run_id, True).result(240) == "yes"
    assert [entry["kind"] for entry in alone.journal()] == ["started", "asked", "answered", "completed"]


@pytest.mark.parametrize("reads", range(1, 5))
@pytest.mark.parametrize("first", ["ask", "step"])
def test_the_first_call_may_find_the_run_created_at_any_moment(
    alone: Stage, monkeypatch: pytest.MonkeyPatch, first: str, reads: int
) -> None:
    """The thread that renews leases creates it just after the call has looked for the `reads`-th time."""

    class Overtaken(Interpreter):
        looks = 0

        @property
        def creation(self) -> Commit | None:
            pending = self.pending
            self.looks += 1
            if pending is not None and self.looks == reads:
                self.note_created(self.core.committer.commit(pending))
            return pending

        @creation.setter
        def creation(self, pending: Commit | None) -> None:
            self.pending = pending

    monkeypatch.setattr(execute, "Interpreter", Overtaken)

    @alone.flow
    async def flow(run: AsyncRun) -> Any:
        return await run.ask("ok?", bool) if first == "ask" else await run.step(len, "ab")

    assert alone.start(flow).status() == ("waiting" if first == "ask" else "completed")
    assert len(alone.journal("started")) == 1


def test_a_task_that_is_cancelled_while_it_creates_the_run_lets_the_others_continue(awaiting: Stage) -> None:
    @awaiting.flow
    async def flow(run: AsyncRun) -> Any:
        first = asyncio.ensure_future(run.step(awaiting.calls.append, "first", key="first"))
        await asyncio.sleep(0)
        first.cancel()
        return await run.ask("ok?", bool, key="ask")

    awaiting.start(flow)
    assert awaiting.onlooker.recover_expired() == 0
    assert awaiting.app.resume(awaiting.run_id).status() == "waiting"
    assert len(awaiting.journal("started")) == len(awaiting.journal("asked")) == 1


def test_calls_in_several_tasks_create_the_run_once(awaiting: Stage) -> None:
    @awaiting.flow
    async def flow(run: AsyncRun) -> Any:
        steps = [run.step(len, "ab", key=f"s{n}") for n in range(4)]
        return await asyncio.gather(*steps, run.ask("ok?", bool, key="a"))

    assert awaiting.start(flow).status() == "waiting"
    assert awaiting.app.answer(awaiting.run_id, True).result(240) == [2, 2, 2, 2, True]
    assert len(awaiting.journal("started")) == 1


def test_calls_in_several_threads_create_the_run_once(alone: Stage) -> None:
    @alone.app.workflow
    def flow(run: Run) -> int:
        found: list[Any] = []

        def call(number: int) -> None:
            found.append(run.step(len, "ab", key=f"s{number}"))

        threads = [threading.Thread(target=call, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return len(found)

    assert alone.app.start(flow, run_id=alone.run_id).result(240) == 4
    assert len(alone.journal("started")) == 1


def test_a_store_that_fails_at_the_first_commit_fails_the_start(stage: Stage) -> None:
    @stage.flow
    async def flow(run: AsyncRun) -> str:
        try:
            await run.ask("ok?", bool)
        except Exception:
            stage.calls.append("caught")
        return "done"

    def fail(_: Commit) -> None:
        raise StorageFailed("no")

    stage.wire.before = fail
    with pytest.raises(StorageFailed):
        stage.start(flow)
    stage.wire.before = None
    assert stage.calls == []
    with pytest.raises(RunNotFound):
        stage.status()
    assert stage.start(flow).status() == "waiting"


def test_a_question_that_cannot_be_stored_fails_a_run_that_exists(stage: Stage) -> None:
    @stage.flow
    async def flow(run: AsyncRun) -> Any:
        return await run.ask("ok?", bool, show=object())

    with pytest.raises(RunFailed, match="cannot be stored"):
        stage.start(flow).result(240)
    assert [entry["kind"] for entry in stage.journal()] == ["started", "refused", "failed"]
