"""Changing code under live runs: rehearsals, versions of state, and pruning long loops while they live."""

from __future__ import annotations

import datetime as dt
import logging
from typing import Any

import pytest

from holdfast import AsyncRun, InvalidInput, Keep, Run
from holdfast.errors import Diverged, RunError
from holdfast.inspect.timeline import timeline
from holdfast.testing import replay
from tests.harness import Stage


def test_a_rehearsal_tells_whether_the_code_still_fits_and_changes_nothing(stage: Stage) -> None:
    async def flow(run: AsyncRun) -> Any:
        await run.step(len, "a")
        return await run.gather(lambda r: r.step(len, "bb"), lambda r: r.ask("?", bool))

    async def changed(run: AsyncRun) -> Any:
        await run.step(len, "a")
        await run.step(str, 1)
        return await run.ask("?", bool)

    stage.flow(flow)
    stage.start(flow)
    before = stage.journal()
    assert replay(stage.app, stage.run_id).entries == len(before)
    changed.__name__ = "flow"
    stage.change(changed)
    with pytest.raises(Diverged) as diverged:
        replay(stage.app, stage.run_id)
    assert "gather#1" in diverged.value.expected
    assert "str#1" in diverged.value.found
    assert diverged.value.position == 3
    assert stage.journal() == before
    assert stage.status() == "waiting"


def test_a_rehearsal_of_an_ended_run_must_come_to_the_same_end(stage: Stage) -> None:
    result = ["one"]

    @stage.flow
    async def flow(run: AsyncRun) -> str:
        await run.step(len, "a")
        return result[0]

    stage.start(flow)
    assert replay(stage.app, stage.run_id).status == "completed"
    result[0] = "two"
    with pytest.raises(Diverged, match="two"):
        replay(stage.app, stage.run_id)


def test_state_of_an_older_version_is_brought_up_to_date_step_by_step(stage: Stage) -> None:
    async def flow(run: AsyncRun) -> Any:
        run.state["n"] = 1
        async for turn in run.loop():
            if turn == 3:
                await run.ask("more?", bool)
                return dict(run.state)
            await run.step(int, turn)
        return None

    stage.flow(flow, version=1)
    stage.start(flow)
    stage.change(flow, version=3)
    with pytest.raises(RunError, match="upgrade"):
        stage.app.answer(stage.run_id, True)
    assert stage.status() == "paused"
    stage.app.upgrade("flow", 1)(lambda state: {**state, "two": True})
    stage.app.upgrade("flow", 2)(lambda state: {**state, "three": True})
    assert stage.app.resume(stage.run_id).result(240) == {"n": 1, "two": True, "three": True}


@pytest.mark.parametrize("inside", ["root", "branch"])
@pytest.mark.parametrize("answered", [False, True])
def test_an_effect_is_not_performed_if_the_code_no_longer_asks_before_it(
    stage: Stage, inside: str, answered: bool
) -> None:
    asks = [True]

    async def pays(run: AsyncRun) -> Any:
        if asks[0] and not await run.ask("Pay?", bool, key="approve 1"):
            return "denied"
        return await run.effect(stage.calls.append, "paid", key="pay 1")

    async def flow(run: AsyncRun) -> Any:
        return await (pays(run) if inside == "root" else run.gather(pays))

    stage.flow(flow)
    stage.start(flow)
    asks[0] = False
    with pytest.raises(Diverged, match="approve 1"):
        stage.app.answer(stage.run_id, False) if answered else stage.app.resume(stage.run_id)
    assert stage.calls == []
    assert stage.status() == "paused"
    asks[0] = True
    stage.app.resume(stage.run_id)
    if not answered:
        stage.app.answer(stage.run_id, False)
    assert stage.app.handle(stage.run_id).result(240) == ("denied" if inside == "root" else ["denied"])
    assert stage.calls == []


def turning(stage: Stage, turns: int) -> Any:
    """A run with so many turns that then waits."""

    @stage.flow
    async def flow(run: AsyncRun) -> Any:
        run.state["sum"] = 0
        async for turn in run.loop():
            if turn > turns:
                await run.ask("Enough?", bool)
                return run.state["sum"]
            run.state["sum"] += await run.step(int, turn)
        return None

    return flow


def test_resuming_reads_as_much_after_many_turns_as_after_few(local: Stage) -> None:
    stage, read, run_id = local, [], local.run_id
    for turns in (10, 400 if local.is_async else 10_000):
        stage.run_id = f"{run_id}-{turns}"
        stage.forget()
        stage.start(turning(stage, turns))
        stage.restart()
        before = stage.wire.rows_read
        assert stage.app.answer(stage.run_id, True).result(240) == turns * (turns + 1) // 2
        read.append(stage.wire.rows_read - before)
    assert read[0] == read[1]


def test_finished_turns_are_pruned_while_the_run_is_alive(stage: Stage) -> None:
    turns = 60
    stage.start(turning(stage, turns))
    pruned = stage.onlooker.prune(stage.run_id, Keep(last=1, journal=True))
    assert pruned.entries > turns
    assert len(stage.journal()) < 12
    stage.restart()
    assert stage.app.answer(stage.run_id, True).result(240) == turns * (turns + 1) // 2
    assert stage.onlooker.verify().ok
    assert replay(stage.app, stage.run_id).status == "completed"


def test_a_second_and_an_inner_loop_are_pruned_as_well(stage: Stage) -> None:
    @stage.flow
    async def flow(run: AsyncRun) -> Any:
        run.state["seen"] = []
        async for turn in run.loop():
            run.state["seen"].append(await run.step(int, turn))
            if turn == 3:
                break
        async for turn in run.loop():
            if turn > 20:
                break
            await run.step(int, turn)
        async for _ in run.loop():
            async for turn in run.loop():
                if turn > 20:
                    await run.ask("Enough?", bool)
                    return run.state["seen"]
                await run.step(int, turn)
        return None

    stage.start(flow)
    stage.onlooker.prune(stage.run_id, Keep(last=1, journal=True))
    assert len(stage.journal("step")) < 5
    stage.restart()
    assert stage.app.answer(stage.run_id, True).result(240) == [1, 2, 3]


def test_open_gates_that_changed_code_does_not_reach_are_reported(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    async def flow(run: AsyncRun) -> Any:
        await run.step(len, "a")
        return await run.ask("old?", bool, key="old")

    async def changed(run: AsyncRun) -> Any:
        await run.step(len, "a")
        return await run.ask("new?", bool, key="new")

    def sentence() -> str:
        return timeline(stage.onlooker, stage.run_id).standing.sentence

    stage.flow(flow)
    stage.start(flow)
    stage.app.send(stage.run_id, "wake")
    assert not stage.journal("unreached")
    original, changed.__name__ = flow, "flow"
    with caplog.at_level(logging.WARNING, "holdfast"):
        stage.change(changed)
        stage.app.send(stage.run_id, "wake again")
    assert stage.status() == "waiting"
    assert [entry["gates"] for entry in stage.journal("unreached")] == [["old"]]
    assert [record.message for record in caplog.records if "open gates 'old'" in record.message]
    assert "its code does not reach old any more" in sentence()
    caplog.clear()
    stage.app.send(stage.run_id, "and again")
    assert len(stage.journal("unreached")) == 1, "what is recorded is not recorded again"
    assert not caplog.records

    stage.change(original)
    stage.app.send(stage.run_id, "once more")
    assert [entry["gates"] for entry in stage.journal("unreached")] == [["old"], ["new"]]
    assert "does not reach new any more" in sentence()


def test_gates_of_branches_that_wait_side_by_side_are_all_reached(stage: Stage) -> None:
    @stage.flow
    async def flow(run: AsyncRun) -> Any:
        return await run.gather(*[lambda r, n=n: r.ask(f"{n}?", bool, key=f"g{n}") for n in range(3)], limit=1)

    stage.start(flow)
    for gate in sorted(gate.gate for gate in stage.app.gates() if gate.run_id == stage.run_id):
        stage.app.answer(stage.run_id, True, gate=gate)
    assert stage.app.handle(stage.run_id).result(240) == [True, True, True]
    assert not stage.journal("unreached")


def _asks(run: AsyncRun) -> Any:
    return run.ask("ok?", bool)


def _diverge(stage: Stage) -> None:
    """Leave a run with a gate and a child paused, because its code no longer makes its first call."""

    async def inner(run: AsyncRun) -> Any:
        return await run.ask("inner?", bool)

    async def flow(run: AsyncRun) -> Any:
        await run.step(len, "a")
        return await run.gather(_asks, lambda r: r.child("inner"))

    async def changed(run: AsyncRun) -> Any:
        await run.step(str, 1)

    stage.flow(inner)
    stage.flow(flow)
    stage.start(flow)
    stage.change(changed, name="flow")
    with pytest.raises(Diverged):
        stage.app.answer(stage.run_id, True)
    assert stage.status() == "paused"


def test_a_run_that_diverged_can_be_cancelled_and_its_children_with_it(stage: Stage) -> None:
    _diverge(stage)
    child = stage.journal("child")[0]["child"]
    assert stage.app.cancel(stage.run_id).status() == "cancelled"
    stage.app.worker().run(until_idle=True)
    assert stage.status(child) == "cancelled"
    assert stage.app.gates(stage.run_id) == []


def test_a_worker_carries_out_the_cancel_of_a_run_that_diverged(stage: Stage) -> None:
    _diverge(stage)
    stage.app.cancel(stage.run_id, enqueue=True)
    stage.app.worker().run(until_idle=True)
    assert stage.status() == "cancelled"


def test_a_run_whose_input_does_not_fit_any_more_can_be_cancelled(stage: Stage) -> None:
    async def flow(run: AsyncRun, n: int) -> Any:
        return await run.ask("ok?", bool)

    stage.flow(flow)
    stage.start(flow, 1)
    stage.forget()

    @stage.app.workflow(name="flow")
    def changed(run: Run, n: dt.date) -> None: ...

    with pytest.raises(InvalidInput, match="annotation"):
        stage.app.answer(stage.run_id, True)
    assert stage.status() == "paused"
    assert stage.app.cancel(stage.run_id).status() == "cancelled"


def test_an_open_gate_whose_fields_changed_pauses_the_run_until_the_right_code_is_back(stage: Stage) -> None:
    async def flow(run: AsyncRun) -> Any:
        return await run.ask("ok?", bool)

    async def changed(run: AsyncRun) -> Any:
        return await run.ask("ok?", {"yes": bool})

    stage.flow(flow)
    stage.start(flow)
    stage.change(changed, name="flow")
    with pytest.raises(Diverged, match="fields"):
        replay(stage.app, stage.run_id)
    with pytest.raises(Diverged, match="fields"):
        stage.app.answer(stage.run_id, True)
    assert stage.status() == "paused"
    stage.change(flow)
    assert stage.app.resume(stage.run_id).result(240) is True


def test_an_open_gate_may_change_its_prompt(stage: Stage) -> None:
    async def flow(run: AsyncRun) -> Any:
        return await run.ask("ok?", bool)

    async def changed(run: AsyncRun) -> Any:
        return await run.ask("Really?", bool, show="more", who=["ana"])

    stage.flow(flow)
    stage.start(flow)
    stage.change(changed, name="flow")
    replay(stage.app, stage.run_id)
    assert stage.app.answer(stage.run_id, True).result(240) is True


def test_a_rollback_takes_back_the_cancel_of_a_run_that_diverged(stage: Stage) -> None:
    _diverge(stage)
    stage.app.cancel(stage.run_id)

    async def flow(run: AsyncRun) -> Any:
        return await run.ask("again?", bool)

    stage.change(flow)
    assert stage.app.rollback(stage.run_id, to=1).status() == "waiting"
