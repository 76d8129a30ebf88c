"""Fork: a new run from where another stood. It neither repeats nor undoes; the ledger decides."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import AsyncRun, InvalidInput
from holdfast.errors import CheckpointNotFound, RunExists
from holdfast.testing import replay
from tests.harness import Stage


def paying(stage: Stage) -> Any:
    """A run that pays, asks, and mails."""

    def pay(order: str) -> str:
        stage.calls.append(("pay", order))
        return f"receipt {len(stage.calls)}"

    def mail(order: str) -> str:
        stage.calls.append(("mail", order))
        return "sent"

    @stage.flow
    async def flow(run: AsyncRun, order: str) -> Any:
        run.state["order"] = await run.step(str, order)
        await run.checkpoint()
        receipt = await run.effect(pay, order)
        answer = await run.ask("Mail it?", {"mail": bool})
        return receipt, (await run.effect(mail, order) if answer["mail"] else "no mail")

    return flow


def test_a_fork_takes_what_its_family_has_performed_since(stage: Stage) -> None:
    stage.start(paying(stage), "A")
    assert stage.app.answer(stage.run_id, {"mail": True}).result(240) == ("receipt 1", "sent")
    fork = stage.app.fork(stage.run_id, f"{stage.run_id}-b", at="pay#1")
    assert fork.status() == "waiting"
    assert stage.calls == [("pay", "A"), ("mail", "A")]
    assert stage.app.answer(fork.run_id, {"mail": True}).result(240) == ("receipt 1", "sent")
    assert stage.calls == [("pay", "A"), ("mail", "A")]
    reused = stage.journal("outcome", run_id=fork.run_id)
    assert [(entry["how"], entry["by"]) for entry in reused] == [("reused", stage.run_id)] * 2
    assert [effect.state for effect in stage.onlooker.effects(fork.run_id)] == ["done", "done"]
    assert replay(stage.app, fork.run_id).status == "completed"


def test_a_fork_that_is_told_to_performs_anew(stage: Stage) -> None:
    stage.start(paying(stage), "A")
    fork = stage.app.fork(stage.run_id, f"{stage.run_id}-b", at="pay#1", effects="perform")
    assert fork.status() == "waiting"
    assert stage.calls == [("pay", "A"), ("pay", "A")]


def test_a_fork_that_is_told_to_asks(stage: Stage) -> None:
    stage.start(paying(stage), "A")
    fork = stage.app.fork(stage.run_id, f"{stage.run_id}-b", at="pay#1", effects="ask")
    gate = fork.gates()[0]
    assert gate.purpose == "in_doubt"
    stage.app.answer(fork.run_id, {"outcome": "happened", "result": "known"})
    assert stage.app.answer(fork.run_id, {"mail": False}).result(240) == ("known", "no mail")
    assert stage.calls == [("pay", "A")]


def test_a_fork_goes_its_own_way_and_leaves_its_source_alone(stage: Stage) -> None:
    stage.start(paying(stage), "A")
    before = stage.journal()
    fork = stage.app.fork(stage.run_id, f"{stage.run_id}-b")
    assert fork.status() == "waiting"  # an open gate belongs to the one run: the fork asks again
    stage.app.answer(fork.run_id, {"mail": False})
    assert fork.result(240) == ("receipt 1", "no mail")
    assert stage.journal() == before
    assert stage.app.answer(stage.run_id, {"mail": True}).result(240) == ("receipt 1", "sent")
    assert stage.onlooker.verify().ok


def test_a_fork_begins_at_a_position_a_checkpoint_a_step_or_a_call(stage: Stage) -> None:
    stage.start(paying(stage), "A")
    stage.app.answer(stage.run_id, {"mail": True})
    checkpoint = next(iter(stage.onlooker.history(stage.run_id)))
    places: list[dict[str, Any]] = [
        {"at": 2}, {"at": "journal.2"}, {"at": checkpoint.checkpoint_id}, {"step": checkpoint.step}, {"at": "pay#1"}
    ]  # fmt: skip
    for number, place in enumerate(places):
        fork = stage.app.fork(stage.run_id, f"{stage.run_id}-{number}", **place)
        assert fork.status() == "waiting", place
        info = fork.info()
        assert info.forked_from is not None
        assert info.forked_from.startswith(stage.run_id)
    with pytest.raises(RunExists):
        stage.app.fork(stage.run_id, f"{stage.run_id}-0")
    with pytest.raises(CheckpointNotFound):
        stage.app.fork(stage.run_id, step=77)
    with pytest.raises(InvalidInput):
        stage.app.fork(stage.run_id, effects="twice")  # type: ignore[arg-type]


def test_a_fork_of_a_fork_and_of_a_rolled_back_run_know_the_whole_family(stage: Stage) -> None:
    stage.start(paying(stage), "A")
    one = stage.app.fork(stage.run_id, f"{stage.run_id}-1", at="pay#1")
    two = stage.app.fork(one.run_id, f"{stage.run_id}-2", at="pay#1")
    assert stage.calls == [("pay", "A")]
    assert stage.app.answer(two.run_id, {"mail": True}).result(240) == ("receipt 1", "sent")
    assert stage.app.answer(one.run_id, {"mail": True}).result(240) == ("receipt 1", "sent")
    assert stage.calls == [("pay", "A"), ("mail", "A")]


def test_a_fork_of_an_effect_in_doubt_does_not_perform_it_unasked(stage: Stage) -> None:
    def dies(item: str) -> str:
        stage.calls.append(item)
        stage.die()
        return item

    @stage.flow
    async def flow(run: AsyncRun) -> Any:
        await run.step(len, "x")
        return await run.effect(dies, "b")

    stage.start_and_die(flow)
    stage.restart()
    fork = stage.app.fork(stage.run_id, f"{stage.run_id}-b")
    assert fork.gates()[0].purpose == "in_doubt"
    assert stage.calls == ["b"]


def test_a_fork_in_a_loop_has_the_state_of_that_turn(stage: Stage) -> None:
    @stage.flow
    async def flow(run: AsyncRun, until: int) -> Any:
        run.state["seen"] = []
        async for turn in run.loop():
            run.state["seen"].append(await run.step(int, turn))
            if turn == until:
                return run.state["seen"]
        return None

    assert stage.start(flow, 6).result(240) == [1, 2, 3, 4, 5, 6]
    fork = stage.app.fork(stage.run_id, f"{stage.run_id}-b", at="loop#1[4]/int#1", enqueue=True)
    rows = stage.wire.rows_read
    assert stage.app.resume(fork.run_id).result(240) == [1, 2, 3, 4, 5, 6]
    assert [entry["in"] for entry in stage.journal("step", run_id=fork.run_id)[-3:]] == [
        "loop#1[4]", "loop#1[5]", "loop#1[6]"
    ]  # fmt: skip
    assert stage.wire.rows_read - rows < 10


def test_a_sleep_that_was_begun_goes_on_in_the_fork(stage: Stage) -> None:
    @stage.flow
    async def flow(run: AsyncRun) -> str:
        await run.sleep(3600)
        return "awake"

    stage.start(flow)
    fork = stage.app.fork(stage.run_id, f"{stage.run_id}-b")
    assert fork.status() == "waiting"
    stage.clock.advance(3601)
    assert fork.result(240) == "awake"
    assert stage.app.handle(stage.run_id).result(240) == "awake"
