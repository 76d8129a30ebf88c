"""The store fails in the middle of a run: user code cannot swallow that, and a resume completes the run."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from holdfast import AsyncRun
from holdfast.errors import ClaimLost, Halted, LeaseLost, StorageFailed
from holdfast.model.commit import Commit, Guard
from tests.harness import Stage


def once(stage: Stage, kinds: str) -> None:
    """Let the store fail once, at the commit that has an entry of this kind."""

    def fail(commit: Commit) -> None:
        if any(entry.kind == kinds for entry in commit.entries) and "failed" not in stage.calls:
            stage.calls.append("failed")
            raise StorageFailed("disk on fire")

    stage.wire.before = fail


@pytest.mark.parametrize("kind", ["step", "intent", "outcome", "asked", "loop", "turn", "saved", "child", "map"])
def test_trouble_at_any_call_stops_the_run_and_a_resume_completes_it(stage: Stage, kind: str) -> None:
    @stage.flow
    async def child(run: AsyncRun) -> str:
        return "child"

    @stage.flow
    async def flow(run: AsyncRun) -> Any:
        try:
            found = await everything(run)
        except Exception:
            stage.calls.append("swallowed")
            return "swallowed"
        return found

    async def everything(run: AsyncRun) -> list[Any]:
        found: list[Any] = [await run.step(len, "ab"), await run.effect(len, "abc", in_doubt="retry")]
        found.append(await run.child("child"))
        found.append(await run.map(len, ["a", "bb"]))
        await run.checkpoint()
        async for turn in run.loop():
            if turn == 2:
                found.append(await run.ask("more?", str))
                break
        return found

    once(stage, kind)
    with pytest.raises(StorageFailed, match="disk on fire"):
        stage.start(flow)
    assert stage.calls == ["failed"]
    assert stage.resume().status() == "waiting"
    assert stage.app.answer(stage.run_id, "on").result(240) == [2, 3, "child", [1, 2], "on"]
    assert "swallowed" not in stage.calls


@pytest.mark.parametrize("kind", ["started", "completed"])
def test_trouble_at_the_first_and_the_last_commit_is_told_too(stage: Stage, kind: str) -> None:
    @stage.flow
    async def flow(run: AsyncRun) -> int:
        return await run.step(len, "ab")

    once(stage, kind)
    with pytest.raises(StorageFailed, match="disk on fire"):
        stage.start(flow)
    stage.restart()
    assert stage.start(flow).result(240) == 2


def test_trouble_in_a_child_stops_its_parent(stage: Stage) -> None:
    @stage.flow
    async def child(run: AsyncRun) -> int:
        return await run.step(len, "child")

    @stage.flow
    async def flow(run: AsyncRun) -> Any:
        try:
            return await run.child("child")
        except Exception:
            stage.calls.append("swallowed")

    once(stage, "step")
    with pytest.raises(StorageFailed, match="disk on fire"):
        stage.start(flow)
    stage.restart()
    stage.start(flow)
    assert stage.app.handle(stage.run_id).result(240) == 5
    assert stage.calls == ["failed"]


def test_trouble_while_a_child_is_created_cannot_be_swallowed(stage: Stage) -> None:
    @stage.flow
    async def child(run: AsyncRun) -> int:
        return await run.step(len, "child")

    @stage.flow
    async def flow(run: AsyncRun) -> Any:
        try:
            return await run.child("child")
        except Exception:
            return "swallowed"

    def fail(commit: Commit) -> None:
        if commit.run_id != stage.run_id and not stage.calls:
            stage.calls.append("failed")
            raise StorageFailed("disk on fire")

    stage.wire.before = fail
    with pytest.raises(StorageFailed, match="disk on fire"):
        stage.start(flow)
    assert stage.resume().result(240) == 5


def test_after_trouble_nothing_more_is_done(stage: Stage) -> None:
    def pay() -> None:
        stage.calls.append("paid")

    @stage.flow
    async def flow(run: AsyncRun) -> None:
        try:
            await run.step(len, "ab")
        except BaseException as error:
            stage.calls.append(type(error).__name__)
        try:
            await run.effect(pay)
        except BaseException as error:
            stage.calls.append(type(error).__name__)

    once(stage, "step")
    with pytest.raises(StorageFailed):
        stage.start(flow)
    assert stage.calls == ["failed", Halted.__name__, Halted.__name__]


def test_a_run_that_somebody_else_has_taken_is_let_go_of(stage: Stage) -> None:
    def usurped() -> None:
        row = stage.onlooker.port.run(stage.run_id)
        assert row is not None
        guard = Guard(incarnation=row.incarnation, gone=row.fence)
        stage.onlooker.port.commit([Commit(row.run_id, b"usurper!", guard, rearm=row.fence)])
        claim = stage.onlooker.claim(stage.run_id, "the other")
        assert claim is not None

    def pay() -> None:
        stage.calls.append("paid")

    @stage.flow
    async def flow(run: AsyncRun) -> None:
        try:
            await run.step(usurped)
        except Exception:
            stage.calls.append("swallowed")
        except LeaseLost:
            stage.calls.append("lost")
        await run.effect(pay)

    with pytest.raises(ClaimLost) as caught:
        stage.start(flow)
    assert caught.value.holder == "the other"
    assert stage.calls == ["lost"]
    assert [entry["kind"] for entry in stage.journal()] == ["started"]


def test_a_lease_is_renewed_while_user_code_runs(local: Stage) -> None:
    local.restart()
    local.open(lease_s=0.6)
    other = local.app
    local.open(lease_s=0.6)
    go = threading.Event()

    @local.flow
    async def flow(run: AsyncRun) -> str:
        return await run.step(slow)

    def slow() -> str:
        local.calls.append("slow")
        go.wait(1.0)
        assert other.store.claim(local.run_id, "the other") is None
        return "done"

    assert local.start(flow).result(240) == "done"
    assert local.calls == ["slow"]
