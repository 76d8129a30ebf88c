"""Rollbacks that stand open, forks of what is under way, and going back in a run that has ended."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import holdfast
from holdfast import App, AsyncRun, InvalidInput, Keep, Run
from holdfast.testing import replay
from tests.engine.test_rollback import Shop
from tests.harness import Stage

# --- rollbacks that stand open, and forks of what is under way -------------------------------------------------------


def looped_effects(app: App) -> list[int]:
    """A loop of effects whose first undo fails, so that a rollback stands open."""
    undone: list[int] = []
    fail = [True]

    @app.undo
    def take_back(result: Any, what: int) -> None:
        if fail.pop() if fail else False:
            raise OSError("not now")
        undone.append(what)

    @app.workflow
    def flow(run: Run) -> Any:
        for turn in run.loop():
            run.state["turn"] = turn
            run.effect(str, turn, name="pay", undo=take_back)
            if turn == 4:
                break
        return run.ask("Go on?", {"yes": bool})

    app.start("flow", run_id="r")
    return undone


def test_a_prune_keeps_what_an_open_rollback_goes_back_to(app: App) -> None:
    undone = looped_effects(app)
    first = next(iter(app.store.history("r"))).checkpoint_id
    with pytest.raises(holdfast.errors.RollbackFailed):
        app.rollback("r", to=first)
    app.store.prune("r", Keep(journal=True))
    assert app.store.verify().problems == []
    app.rollback("r")
    assert undone == [4, 3, 2]
    assert app.handle("r").status() == "waiting"
    assert replay(app, "r").status == "waiting"


def test_a_rollback_is_planned_again_if_the_run_is_pruned_meanwhile(stage: Stage) -> None:
    @stage.flow
    async def flow(run: AsyncRun) -> Any:
        async for turn in run.loop():
            run.state["turn"] = turn
            await run.step(str, turn)
            if turn == 4:
                break
        return await run.ask("Go on?", {"yes": bool})

    stage.start(flow)
    first = next(iter(stage.onlooker.history(stage.run_id))).checkpoint_id

    def prune(commit: Any) -> None:
        if any(entry.kind == "rolling_back" for entry in commit.entries):
            stage.wire.before = None
            stage.onlooker.prune(stage.run_id, Keep(journal=True))

    stage.wire.before = prune
    with pytest.raises(holdfast.NotFound):
        stage.app.rollback(stage.run_id, to=first)
    assert stage.status() == "waiting"
    assert stage.onlooker.verify().problems == []


def test_a_run_whose_rollback_stands_open_is_not_forked_from_its_end(app: App) -> None:
    undone = looped_effects(app)
    with pytest.raises(holdfast.errors.RollbackFailed):
        app.rollback("r", to=1)
    with pytest.raises(InvalidInput, match="has begun"):
        app.fork("r", "f")
    app.rollback("r")
    assert undone == [4, 3, 2, 1]


def test_a_fork_that_tried_its_sources_effect_again_leaves_undoing_it_to_the_source(stage: Stage) -> None:
    shop = Shop(stage)
    tried: list[str] = []

    def pay(item: str, idempotency_key: str) -> str:
        tried.append(item)
        if len(tried) == 1:
            raise OSError("not now")
        return shop.buy(item, idempotency_key)

    @stage.flow
    async def flow(run: AsyncRun) -> Any:
        await run.step(len, "a")
        retry = holdfast.Retry(attempts=3, initial_delay=60, jitter=0)
        await run.effect(pay, "a", undo=shop.give_back, in_doubt="retry", retry=retry)
        return await run.ask("Go on?", {"yes": bool})

    stage.start(flow)
    fork = f"{stage.run_id}-fork"
    stage.app.fork(stage.run_id, fork)
    stage.app.rollback(fork, to=1)
    assert len(shop.keys) == 2
    assert len(set(shop.keys)) == 1, "one effect to a target that honours the key"
    assert [call[0] for call in stage.calls] == ["buy", "buy"]


def test_the_fork_of_a_child_is_nobodys_child(stage: Stage) -> None:
    @stage.flow
    async def kid(run: AsyncRun) -> Any:
        return await run.ask("Well?", {"yes": bool})

    @stage.flow
    async def parent(run: AsyncRun) -> Any:
        return await run.child("kid")

    stage.start(parent)
    fork = f"{stage.run_id}-fork"
    stage.app.fork(f"{stage.run_id}/child:kid#1", fork, at=1)
    stage.app.answer(fork, {"yes": True}).result(240)
    row = stage.onlooker.port.run(stage.run_id)
    assert row is not None
    assert row.inbox == 0


@pytest.mark.parametrize("how", ["copy", "import"])
def test_a_copy_performs_an_effect_in_doubt_under_the_recorded_key(app: App, how: str) -> None:
    keys: list[str] = []

    def pay(idempotency_key: str) -> None:
        keys.append(idempotency_key)
        if len(keys) == 1:
            raise KeyboardInterrupt

    @app.workflow
    def flow(run: Run) -> None:
        run.effect(pay, in_doubt="retry")

    with pytest.raises(KeyboardInterrupt):
        app.start(flow, run_id="r")
    if how == "copy":
        app.store.copy("r", "n")
    else:
        app.store.import_run(app.store.export_run("r"), run_id="n")
    app.resume("n")
    assert keys[0] == keys[1]


# --- going back in a run that has ended -------------------------------------------------------------------------------


def test_a_gate_that_the_end_of_a_run_has_closed_is_asked_again(awaiting: Stage) -> None:
    broken = [True]

    @awaiting.flow
    async def flow(run: AsyncRun) -> Any:
        asked: list[Any] = await asyncio.gather(run.ask("Well?", {"yes": bool}, key="q"), return_exceptions=True)
        if broken:
            run.step(len, "a")  # type: ignore[unused-coroutine]  # fails the run while the gate is open
            await run.step(len, "b", key="b")
        return asked[0]

    awaiting.start(flow)
    assert awaiting.status() == "failed"
    assert awaiting.app.gates(awaiting.run_id) == []
    opened = next(number for number, entry in enumerate(awaiting.journal(), start=1) if entry["kind"] == "asked")
    broken.clear()
    awaiting.app.rollback(awaiting.run_id, to=opened)
    (gate,) = awaiting.app.gates(awaiting.run_id)
    assert awaiting.app.answer(awaiting.run_id, {"yes": True}, gate=gate.gate).result(240) == {"yes": True}


def test_a_child_that_was_taken_back_is_not_rolled_back_itself(app: App) -> None:
    @app.workflow
    def kid(run: Run) -> Any:
        return run.ask("Well?", {"yes": bool})

    @app.workflow
    def parent(run: Run) -> Any:
        return run.child(kid)

    app.start(parent, run_id="r")
    app.rollback("r", to=1)
    with pytest.raises(holdfast.Conflict, match="rolled back to before it was started"):
        app.rollback("r/child:kid#1", to=2)


def test_a_fork_at_any_checkpoint_of_a_rollback_is_sound(app: App) -> None:
    @app.workflow
    def flow(run: Run) -> None:
        run.state["a"] = 1

    app.start(flow, run_id="r")
    app.rollback("r", to=2)
    for number, info in enumerate(list(app.store.history("r"))):
        app.fork("r", f"f{number}", at=info.checkpoint_id).result(240)
    assert app.store.verify().problems == []


def test_a_run_that_failed_for_a_missing_await_can_be_replayed(awaiting: Stage) -> None:
    @awaiting.flow
    async def flow(run: AsyncRun) -> None:
        await run.ask("Well?", {"yes": bool})
        run.step(len, "a")  # type: ignore[unused-coroutine]

    awaiting.start(flow)
    awaiting.app.answer(awaiting.run_id, {"yes": True})
    assert awaiting.status() == "failed"
    assert replay(awaiting.app, awaiting.run_id).status == "failed"
