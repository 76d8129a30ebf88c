"""Without a worker: `start`, `resume` and `result` do all that is needed, and tell only what concerns them."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import AsyncRun
from holdfast.errors import Diverged, StorageBusy
from holdfast.model.commit import Commit, Outcome
from tests.harness import Stage, until


def test_start_takes_over_a_run_whose_lease_has_ended(stage: Stage) -> None:
    """Nothing tells that its owner is dead."""

    @stage.flow
    async def flow(run: AsyncRun) -> str:
        return "done"

    stage.start(flow, enqueue=True)
    claim = stage.onlooker.claim(stage.run_id, owner="dead:1", lease=600)
    assert claim is not None
    assert stage.start(flow).status() == "running", "another owner claims it until its lease expires"
    claim.renew(0.01)
    until(lambda: stage.start(flow).status() == "completed", "the lease has expired")


def test_result_takes_over_a_run_whose_lease_ends_meanwhile(stage: Stage) -> None:
    @stage.flow
    async def flow(run: AsyncRun) -> str:
        return "done"

    stage.start(flow, enqueue=True)
    assert stage.onlooker.claim(stage.run_id, owner="dead:1", lease=0.2) is not None
    assert stage.app.handle(stage.run_id).result(240) == "done"


@pytest.mark.parametrize("how_often", [1, 2, 3])
def test_a_run_this_process_lost_by_a_failure_of_the_store_is_resumed_at_once(stage: Stage, how_often: int) -> None:
    """Also if the store fails when the run is to be given back: nobody here holds it any more."""
    failing = [0]

    def fail(commit: Commit) -> None:
        if failing[0] or any(entry.kind == "step" for entry in commit.entries):
            failing[0] += 1
            if failing[0] <= how_often:
                raise StorageBusy("others held the store")
            stage.wire.before = None

    @stage.flow
    async def flow(run: AsyncRun) -> str:
        await run.step(len, "a")
        return "done"

    stage.wire.before = fail
    with pytest.raises(StorageBusy):
        stage.start(flow)
    stage.wire.before = None
    assert stage.app.resume(stage.run_id).status() == "completed"


def test_result_moves_a_sleeping_child_of_a_waiting_parent_on(stage: Stage) -> None:
    @stage.flow
    async def deep(run: AsyncRun, depth: int) -> Any:
        if depth:
            return await run.child("deep", depth - 1)
        await run.sleep(100)
        return "awake"

    assert stage.start(deep, 2).status() == "waiting"
    stage.clock.advance(101)
    assert stage.app.handle(stage.run_id).result(240) == "awake"


@pytest.mark.parametrize("local", ["def"], indirect=True)
def test_a_renewal_that_comes_just_after_the_end_loses_nothing(local: Stage) -> None:
    """The run is given back, and before its process hears of it the renewer asks to renew the claim."""
    core = local.app._core
    real = core.blocking._commit
    beats: list[str] = []

    def then_renew(commit: Commit) -> Outcome:
        outcome = real(commit)
        for interpreter in list(core.lease_renewer._held) if commit.release else []:
            beats.append(interpreter.row.run_id)
            core.lease_renewer._renew(interpreter)
        return outcome

    core.blocking._commit = then_renew

    @local.flow
    async def flow(run: AsyncRun) -> Any:
        return await run.ask("ok?", str)

    assert local.start(flow).status() == "waiting"
    assert local.app.answer(local.run_id, "yes").result(240) == "yes"
    assert beats == [local.run_id] * 2


def test_a_run_may_have_hundreds_of_loops_one_after_the_other(local: Stage) -> None:
    """What a checkpoint must know of the loops before it stays small."""

    def note(number: int) -> int:
        local.calls.append(number)
        if number == 200 and local.calls.count(200) == 1:
            local.die()
        return number

    @local.flow
    async def flow(run: AsyncRun) -> int:
        run.state["sum"] = 0
        for number in range(1, 201):
            async for turn in run.loop():
                run.state["sum"] += await run.step(note, number)
                if turn == 2:
                    break
        return int(run.state["sum"])

    local.start_and_die(flow)
    assert local.resume().result(240) == 2 * sum(range(201))
    assert sorted(local.calls) == sorted([*range(1, 201), *range(1, 201), 200])
    last = len(local.journal()) - 2  # before the step of the last turn
    for handle in (
        local.app.fork(local.run_id, f"{local.run_id}-b", at=last),
        local.app.rollback(local.run_id, to=last),
    ):
        assert handle.result(240) == 2 * sum(range(201))
    assert local.calls[-3:] == [200] * 3


def test_start_does_not_raise_what_happened_to_another_run_it_woke(stage: Stage) -> None:
    ids = {name: f"{stage.run_id}-{name}" for name in ("other", "third")}
    changed: list[bool] = []

    @stage.flow
    async def other(run: AsyncRun) -> None:
        await run.step(str if changed else len, "x")
        await run.wait_for("go")

    @stage.flow
    async def third(run: AsyncRun) -> Any:
        return await run.wait_for("go")

    @stage.flow
    async def mine(run: AsyncRun) -> str:
        for run_id in ids.values():
            await run.send(run_id, "go", 1)
        return "mine"

    for flow in (other, third):
        stage.start(flow, run_id=ids[flow.__name__])
    changed.append(True)
    assert stage.start(mine).result(240) == "mine"
    assert stage.status(ids["other"]) == "paused", "it diverged, which is told to whoever asks for it"
    assert stage.status(ids["third"]) == "completed", "and the next one is woken all the same"
    with pytest.raises(Diverged):
        stage.app.resume(ids["other"])
