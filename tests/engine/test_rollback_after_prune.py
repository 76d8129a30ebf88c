"""Going back after a prune, and what going back returns: events, ends of children, detached children."""

from __future__ import annotations

from typing import Any

import pytest

import holdfast
from holdfast import App, AsyncRun, InvalidInput, Keep, Run
from holdfast.testing import replay
from tests.engine.test_rollback import Shop
from tests.harness import Stage


def three_steps(app: App) -> list[str]:
    called: list[str] = []

    def note(name: str) -> str:
        called.append(name)
        return name

    @app.workflow
    def flow(run: Run) -> list[str]:
        return [run.step(note, name) for name in ("a", "b", "c")]

    return called


def test_a_rollback_after_a_prune_between_rollbacks_goes_on(app: App) -> None:
    called = three_steps(app)
    app.start("flow", run_id="r")
    app.rollback("r", to=1)
    app.rollback("r", to=8)
    app.store.prune("r", Keep(journal=True))
    assert app.store.verify().problems == []
    called.clear()
    assert app.rollback("r", to=8).result(240) == ["a", "b", "c"]
    assert called == ["b", "c"]
    assert app.fork("r", "r2", at=8).result(240) == ["a", "b", "c"]
    assert replay(app, "r").status == "completed"
    assert app.store.verify().problems == []


def test_a_prune_of_checkpoints_alone_does_not_revive_what_was_taken_back(app: App) -> None:
    answers = iter("abcdefghij")

    @app.workflow
    def flow(run: Run) -> list[str]:
        return [run.step(lambda: next(answers), name=name) for name in ("x", "y", "z")]

    app.start("flow", run_id="r")
    first = app.rollback("r", to=1).result(240)
    assert first == ["d", "e", "f"]
    assert app.rollback("r", to=8).result(240) == ["d", "g", "h"]
    app.store.prune("r", Keep())
    assert app.rollback("r", to=8).result(240) == ["d", "i", "j"], "not the 'a' of before the first rollback"


def looped(app: App) -> None:
    @app.workflow
    def flow(run: Run) -> Any:
        run.step(str, "before")
        for turn in run.loop():
            run.state["turns"] = [*run.state.get("turns", []), run.step(str, turn)]
            if turn == 3:
                break
        return [run.state["turns"], run.step(str, "after"), run.step(str, "end")]


def test_a_position_whose_entries_were_pruned_is_refused_and_the_others_work(app: App) -> None:
    looped(app)
    result = app.start("flow", run_id="r").result(240)
    end = app.handle("r").info().position
    app.store.prune("r", Keep(journal=True))
    assert app.store.verify().problems == []
    reached = refused = 0
    for to in range(1, end):
        try:
            fork = app.fork("r", f"r-{to}", at=to)
        except InvalidInput as error:
            assert "pruned" in str(error)  # noqa: PT017 - whether it is refused depends on the position
            refused += 1
        else:
            assert fork.result(240) == result
            reached += 1
    assert reached >= 2
    assert refused >= 2
    for to in range(1, end):
        try:
            assert app.rollback("r", to=to).result(240) == result
        except InvalidInput as error:
            assert "pruned" in str(error) or "taken back" in str(error)  # noqa: PT017
        app.store.prune("r", Keep(journal=True))
    assert app.store.verify().problems == []
    assert replay(app, "r").status == "completed"


def test_verify_reports_a_checkpoint_whose_entries_are_gone(app: App) -> None:
    looped(app)
    app.start("flow", run_id="r")
    app.store.port.prune_entries("r", lambda _run, _rows: [(2, 3)])
    reasons = [problem.reason for problem in app.store.verify().problems]
    assert any("which it needs to be resumed, was pruned" in reason for reason in reasons)


def test_a_child_started_in_a_pruned_turn_is_still_undone(app: App) -> None:
    world: list[str] = []

    @app.undo
    def take_back(result: Any, name: str) -> None:
        world.remove(name)

    @app.workflow
    def kid(run: Run, name: str) -> None:
        run.effect(world.append, name, undo=take_back)

    @app.workflow
    def parent(run: Run) -> None:
        run.step(str, "before")
        for turn in run.loop():
            run.child(kid, f"item {turn}")
            if turn == 3:
                break

    app.start(parent, run_id="r").result(240)
    app.store.prune("r", Keep(journal=True))
    assert len(app.rollback_plan("r", to=2).undo) == 3
    app.rollback("r", to=2).result(240)
    assert world == ["item 1", "item 2", "item 3"]


# --- events ----------------------------------------------------------------------------------------------------------


def test_events_received_since_come_back_in_their_order(stage: Stage) -> None:
    @stage.flow
    async def flow(run: AsyncRun) -> Any:
        await run.step(str, "first")
        return [await run.wait_for("tick") for _ in range(4)]

    stage.start(flow)
    for number in range(3):
        stage.app.send(stage.run_id, "tick", number, key=f"k{number}")
    stage.app.rollback(stage.run_id, to=2)
    stage.app.send(stage.run_id, "tick", 0, key="k0")  # the same again is no second event
    assert stage.app.send(stage.run_id, "tick", 3, key="k3").result(240) == [0, 1, 2, 3]
    assert stage.app.rollback(stage.run_id, to=2).result(240) == [0, 1, 2, 3]
    assert stage.onlooker.verify().problems == []


def test_an_event_that_is_still_unread_stays_behind_those_that_come_back(stage: Stage) -> None:
    @stage.flow
    async def flow(run: AsyncRun) -> Any:
        first = await run.wait_for("tick")
        await run.ask("Well?", bool)
        return [first, await run.wait_for("tick")]

    stage.start(flow)
    stage.app.send(stage.run_id, "tick", "one")
    stage.app.send(stage.run_id, "tick", "two")
    stage.app.rollback(stage.run_id, to=1)
    gate = stage.app.gates(stage.run_id)[0].gate
    assert stage.app.answer(stage.run_id, True, gate=gate).result(240) == ["one", "two"]


# --- children --------------------------------------------------------------------------------------------------------


def test_a_parent_is_woken_by_the_second_end_of_a_child(stage: Stage) -> None:
    @stage.flow
    async def kid(run: AsyncRun) -> Any:
        await run.step(str, "first")
        return await run.ask("Well?", bool)

    @stage.flow
    async def parent(run: AsyncRun) -> Any:
        await run.ask("Go?", bool, key="go")
        return await run.child("kid")

    stage.start(parent)
    child = f"{stage.run_id}/child:kid#1"
    stage.app.answer(stage.run_id, True)
    # The first end reaches the parent while it cannot go on, and the child is rolled back before it looks.
    stage.app.pause(stage.run_id)
    stage.app.answer(child, True)
    assert stage.status(child) == "completed"
    stage.app.rollback(child, to=2)
    stage.app.resume(stage.run_id)
    assert stage.status() == "waiting"
    gate = stage.app.gates(child)[0].gate
    stage.app.answer(child, False, gate=gate)
    stage.redeliver()
    assert stage.status() in ("ready", "completed")
    assert stage.app.handle(stage.run_id).result(240) is False


def test_a_detached_child_is_started_once_whatever_becomes_of_it(stage: Stage) -> None:
    shop = Shop(stage)

    @stage.flow
    async def kid(run: AsyncRun) -> None:
        await run.effect(shop.buy, "k1", undo=shop.give_back)

    @stage.flow
    async def parent(run: AsyncRun) -> Any:
        child = await run.child("kid", detached=True)
        await run.ask("Well?", bool)
        return child

    stage.start(parent)
    child = f"{stage.run_id}/child:kid#1"
    stage.app.resume(child)
    assert replay(stage.app, stage.run_id).status == "waiting"
    fork = stage.app.fork(stage.run_id, f"{stage.run_id}-fork")
    gate = stage.app.gates(fork.run_id)[0].gate
    assert stage.app.answer(fork.run_id, True, gate=gate).result(240) == child
    assert replay(stage.app, fork.run_id).status == "completed"
    assert stage.onlooker.delete(child)
    assert stage.app.answer(stage.run_id, True).result(240) == child
    assert stage.calls == [("buy", "k1")]
    with pytest.raises(holdfast.errors.RunNotFound):
        stage.status(child)
