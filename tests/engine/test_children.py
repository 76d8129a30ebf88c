"""Child runs: with their own journal, waited for, and cancelled with their parent."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from holdfast import AsyncRun, NotFinished, RunFailed
from holdfast.errors import ChildFailed, StorageFailed, UnknownWorkflow
from holdfast.testing import replay
from tests.harness import Stage


def test_a_child_is_a_run_of_its_own_and_its_result_is_the_parents(stage: Stage) -> None:
    def note(text: str) -> str:
        stage.calls.append(text)
        return text.upper()

    @stage.flow
    async def child(run: AsyncRun, text: str, *, times: int) -> str:
        return (await run.step(note, text)) * times

    @stage.flow
    async def parent(run: AsyncRun) -> list[str]:
        found = [await run.child("child", "a", times=2), await run.child("child", "b", times=1, key="second")]
        await run.ask("more?", bool)
        return found

    stage.start(parent)
    stage.restart()
    assert stage.app.answer(stage.run_id, True).result(240) == ["AA", "B"]
    assert stage.calls == ["a", "b"]
    ids = [f"{stage.run_id}/child:child#1", f"{stage.run_id}/second"]
    assert [stage.status(run_id) for run_id in ids] == ["completed", "completed"]
    assert [entry["child"] for entry in stage.journal("child_ended")] == ids


def test_a_child_that_fails_raises_in_its_parent_live_and_on_replay(stage: Stage) -> None:
    seen: list[str] = []

    @stage.flow
    async def child(run: AsyncRun) -> None:
        raise KeyError("of the child")

    @stage.flow
    async def parent(run: AsyncRun) -> Any:
        try:
            await run.child("child")
        except ChildFailed as error:
            seen.append(str(error))
            await run.ask("more?", bool)
            return [error.error_type, error.error_message]

    stage.start(parent)
    stage.restart()
    assert stage.app.answer(stage.run_id, True).result(240) == ["KeyError", "'of the child'"]
    assert seen[0] == seen[1]
    assert "child:child#1" in seen[0]


def test_a_child_that_waits_lets_its_parent_wait_and_its_answer_completes_both(stage: Stage) -> None:
    @stage.flow
    async def child(run: AsyncRun) -> Any:
        return await run.ask("of the child?", str)

    @stage.flow
    async def parent(run: AsyncRun) -> Any:
        return [await run.child("child"), await run.step(str, "after")]

    assert stage.start(parent).status() == "waiting"
    child_id = f"{stage.run_id}/child:child#1"
    assert stage.status(child_id) == "waiting"
    stage.restart()
    assert stage.app.answer(child_id, "yes").status() == "completed"
    assert stage.status() == "completed"
    assert stage.app.handle(stage.run_id).result(240) == ["yes", "after"]


def test_grandchildren_wake_all_the_way_up(stage: Stage) -> None:
    @stage.flow
    async def deep(run: AsyncRun, depth: int) -> Any:
        if depth == 0:
            return await run.ask("deep?", int)
        return 1 + await run.child("deep", depth - 1)

    stage.start(deep, 3)
    (gate,) = [gate for gate in stage.app.gates() if gate.run_id.startswith(stage.run_id + "/")]
    stage.restart()
    stage.app.answer(gate.run_id, 10)
    assert stage.app.handle(stage.run_id).result(240) == 13


def test_children_side_by_side_wait_for_all(stage: Stage) -> None:
    @stage.flow
    async def child(run: AsyncRun, name: str) -> Any:
        return await run.ask(name, str)

    @stage.flow
    async def parent(run: AsyncRun) -> Any:
        def starts(name: str) -> Any:
            async def branch(inner: AsyncRun) -> Any:
                return await inner.child("child", name)

            return branch

        return await run.gather(starts("a"), starts("b"))

    stage.start(parent)
    gates = {gate.prompt: gate.run_id for gate in stage.app.gates() if gate.run_id.startswith(stage.run_id + "/")}
    stage.app.answer(gates["b"], "B")
    assert stage.status() == "waiting"
    stage.restart()
    stage.app.answer(gates["a"], "A")
    assert stage.app.handle(stage.run_id).result(240) == ["A", "B"]


def test_a_detached_child_is_on_its_own(stage: Stage) -> None:
    @stage.flow
    async def child(run: AsyncRun) -> Any:
        return await run.ask("of the child?", str)

    @stage.flow
    async def parent(run: AsyncRun) -> Any:
        return await run.child("child", detached=True)

    child_id = stage.start(parent).result(240)
    assert child_id == f"{stage.run_id}/child:child#1"
    assert stage.status(child_id) == "ready"
    stage.app.resume(child_id)
    assert stage.status(child_id) == "waiting"
    assert stage.app.answer(child_id, "alone").result(240) == "alone"


def test_a_run_that_started_a_detached_child_can_be_replayed(local: Stage) -> None:
    @local.flow
    async def child(run: AsyncRun) -> Any:
        return await run.ask("of the child?", str)

    @local.flow
    async def parent(run: AsyncRun) -> Any:
        return [await run.child("child", detached=True), await run.step(len, "four")]

    local.start(parent).result(240)
    assert replay(local.app, local.run_id).status == "completed"


def test_a_detached_child_survives_the_cancellation_of_its_parent(stage: Stage) -> None:
    @stage.flow
    async def child(run: AsyncRun) -> Any:
        return await run.ask("of the child?", str)

    @stage.flow
    async def parent(run: AsyncRun) -> Any:
        stage.calls.append(await run.child("child", detached=True))
        await run.ask("more?", bool)

    stage.start(parent)
    stage.app.cancel(stage.run_id)
    assert stage.status(stage.calls[0]) == "ready"


def test_children_are_cancelled_with_their_parent(stage: Stage) -> None:
    @stage.flow
    async def child(run: AsyncRun) -> Any:
        try:
            return await run.ask("of the child?", str)
        finally:
            if run.attempt > 1:
                await run.step(stage.calls.append, "tidy")

    @stage.flow
    async def parent(run: AsyncRun) -> Any:
        return await run.child("child")

    stage.start(parent)
    stage.restart()
    assert stage.app.cancel(stage.run_id).status() == "cancelled"
    assert stage.status(f"{stage.run_id}/child:child#1") == "cancelled"
    assert stage.calls == ["tidy"]


def test_a_cancelled_child_fails_in_its_parent(stage: Stage) -> None:
    @stage.flow
    async def child(run: AsyncRun) -> Any:
        return await run.ask("of the child?", str)

    @stage.flow
    async def parent(run: AsyncRun) -> Any:
        try:
            await run.child("child")
        except ChildFailed as error:
            return error.error_type

    stage.start(parent)
    stage.app.cancel(f"{stage.run_id}/child:child#1")
    assert stage.app.handle(stage.run_id).result(240) == "RunCancelled"


@pytest.mark.parametrize("late", [False, True])
def test_a_crash_between_any_two_commits_finds_the_same_child_again(local: Stage, late: bool) -> None:
    @local.flow
    async def child(run: AsyncRun, text: str) -> Any:
        return await run.step(str.upper, text)

    @local.flow
    async def parent(run: AsyncRun) -> Any:
        return [await run.child("child", "a"), await run.step(str, "b")]

    base, commits = local.run_id, 0
    while True:
        local.run_id = f"{base}-{commits}"
        local.wire.cut_after(commits, late=late)
        with contextlib.suppress(StorageFailed):
            local.start(parent)
        if not local.wire.dead:
            break
        local.restart()
        local.start(parent)
        assert local.app.handle(local.run_id).result(240) == ["A", "b"], f"cut after {commits}"
        children = [info.run_id for info in local.app.runs(workflow="child") if info.run_id.startswith(local.run_id)]
        assert children == [f"{local.run_id}/child:child#1"]
        commits += 1
    assert commits > 5


def test_a_child_of_an_unknown_workflow_waits_for_a_process_that_knows_it(local: Stage) -> None:
    @local.flow
    async def parent(run: AsyncRun) -> Any:
        return await run.child("elsewhere", 1, enqueue=True)

    assert local.start(parent).status() == "waiting"
    assert local.status(f"{local.run_id}/child:elsewhere#1") == "ready"

    async def elsewhere(run: AsyncRun, number: int) -> int:
        return number + 1

    local.flow(elsewhere)
    local.app.resume(f"{local.run_id}/child:elsewhere#1")
    assert local.app.handle(local.run_id).result(240) == 2


def test_a_child_needs_input_that_can_be_stored(local: Stage) -> None:
    @local.flow
    async def child(run: AsyncRun, what: Any) -> None:
        """Never called."""

    @local.flow
    async def parent(run: AsyncRun) -> None:
        await run.child("child", object())

    with pytest.raises(RunFailed, match="must be storable"):
        local.start(parent).result(240)


def test_a_child_of_a_mistyped_name_is_refused_and_nothing_waits_for_it(stage: Stage) -> None:
    @stage.flow
    async def kid(run: AsyncRun) -> int:
        return 1

    @stage.flow
    async def parent(run: AsyncRun, detached: bool) -> Any:
        try:
            await run.child("kidd", detached=detached)
        except UnknownWorkflow as error:
            await run.ask("what now?", bool)
            return error.close_matches

    for detached in (False, True):
        handle = stage.start("parent", detached, run_id=f"{stage.run_id}-{detached}")
        stage.restart()
        assert stage.app.answer(handle.run_id, True).result(240) == ["kid"]
        assert [info.run_id for info in stage.app.runs(prefix=handle.run_id)] == [handle.run_id]


def test_whoever_waits_for_a_child_that_no_worker_knows_is_told(local: Stage) -> None:
    @local.flow
    async def parent(run: AsyncRun) -> Any:
        return await run.child("kidd", enqueue=True)

    child = rf"child run '{local.run_id}/child:kidd#1' of workflow 'kidd', which no running worker knows$"
    with pytest.raises(NotFinished, match=child):
        local.start(parent).result(0)
