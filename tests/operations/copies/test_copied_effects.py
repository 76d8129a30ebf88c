"""Effects, rollbacks and messages of copies: done once, and undone by the run that did them."""

from __future__ import annotations

from typing import Any

import pytest

import holdfast
from holdfast import AsyncRun
from holdfast.errors import RollbackFailed
from tests.harness import Stage
from tests.operations.copies.conftest import same_app, tree_of
from tests.operations.copies.waits import WAITS

# --- effects ---------------------------------------------------------------------------------------------------------


def dies_while_paying(stage: Stage, **options: Any) -> list[str]:
    """A run whose process died inside its effect; the idempotency keys of its calls."""
    tokens: list[str] = []

    def take_back(_result: Any, *_args: Any, **_more: Any) -> None:
        stage.calls.append("undone")

    def pay(amount: int, idempotency_key: str) -> str:
        tokens.append(idempotency_key)
        if len(tokens) == 1:
            stage.die()
        return f"receipt {amount}"

    stage.undo(take_back)

    @stage.flow
    async def order(run: AsyncRun) -> Any:
        return [await run.effect(pay, 30, undo=take_back, **options), await run.ask("well?", str)]

    stage.start_and_die(order)
    stage.restart()
    return tokens


def test_a_copy_at_the_gate_of_an_effect_in_doubt_is_asked_too(stage: Stage) -> None:
    tokens = dies_while_paying(stage)
    stage.app.resume(stage.run_id)
    new = stage.app.store.copy(stage.run_id, f"{stage.run_id}-new").run_id
    before = tree_of(stage, stage.run_id)
    (gate,) = stage.app.gates(new)
    assert gate.purpose == "in_doubt"
    stage.app.answer(new, {"outcome": "happened", "result": "known"})
    assert stage.app.answer(new, "x").result(240) == ["known", "x"]
    assert tree_of(stage, stage.run_id) == before
    stage.app.answer(stage.run_id, {"outcome": "did not happen"})
    assert stage.app.answer(stage.run_id, "y").result(240) == ["receipt 30", "y"]
    assert len({*tokens}) == 1
    stage.app.rollback(new, 1)
    assert stage.calls == []  # it happened, but the copy did not do it
    stage.app.rollback(stage.run_id, 1)
    assert stage.calls == ["undone"]


def test_an_effect_in_doubt_is_tried_again_under_the_key_it_had(stage: Stage) -> None:
    tokens = dies_while_paying(stage, in_doubt="retry")
    data = stage.app.store.export_run(stage.run_id)
    new = stage.app.store.copy(stage.run_id, f"{stage.run_id}-new").run_id
    stage.app.resume(new)
    assert stage.app.answer(new, "x").result(240) == ["receipt 30", "x"]
    with holdfast.open("memory:") as store, same_app(stage, store) as app:
        store.import_run(data)
        app.resume(stage.run_id)
        assert app.answer(stage.run_id, "x").result(240) == ["receipt 30", "x"]
    assert (len(tokens), len({*tokens})) == (3, 1)
    stage.app.rollback(new, 1)
    assert stage.calls == []  # under the source's idempotency key it may be the source's


def shopping(stage: Stage) -> list[int]:
    """A run that did two things and waits; how often undoing is to fail."""
    failing = [0]

    def give_back(_result: Any, item: str) -> None:
        if failing[0]:
            failing[0] -= 1
            raise ConnectionError("the shop is closed")
        stage.calls.append(f"undone {item}")

    def buy(item: str) -> str:
        return f"receipt {item}"

    stage.undo(give_back)

    @stage.flow
    async def shop(run: AsyncRun) -> Any:
        bought = [await run.effect(buy, item, undo=give_back) for item in ("a", "b")]
        return [bought, await run.ask("well?", str)]

    stage.start(shop)
    return failing


def test_what_the_source_did_is_not_the_copys_to_undo(stage: Stage) -> None:
    shopping(stage)
    data = stage.app.store.export_run(stage.run_id)
    new = stage.app.store.copy(stage.run_id, f"{stage.run_id}-new").run_id
    stage.app.store.import_run(data, run_id=f"{stage.run_id}-imported")
    for name in (new, f"{stage.run_id}-imported"):
        assert stage.app.rollback(name, 1).status() == "waiting"
    assert stage.calls == []
    stage.app.store.delete(stage.run_id)
    stage.app.store.import_run(data)  # it has only moved
    stage.app.rollback(stage.run_id, 1)
    assert stage.calls == ["undone b", "undone a"]


def test_a_rollback_that_has_begun_goes_on_in_the_copy_without_undoing_anything(stage: Stage) -> None:
    failing = shopping(stage)
    failing[0] = 1
    with pytest.raises(RollbackFailed):
        stage.app.rollback(stage.run_id, 1)
    assert stage.status() == "rolling_back"
    before = tree_of(stage, stage.run_id)
    data = stage.app.store.export_run(stage.run_id)
    new = stage.app.store.copy(stage.run_id, f"{stage.run_id}-new").run_id
    assert stage.app.resume(new).status() == "waiting"
    assert stage.journal("rolled_back", run_id=new)[0]["to"] == 1
    assert stage.app.answer(new, "x").result(240) == [["receipt a", "receipt b"], "x"]
    assert stage.calls == []
    assert tree_of(stage, stage.run_id) == before
    stage.app.store.delete(stage.run_id)
    stage.app.store.import_run(data)
    assert stage.app.resume(stage.run_id).status() == "waiting"
    assert stage.calls == ["undone b", "undone a"]


def test_a_rollback_takes_back_children_of_the_copy_and_not_of_the_source(stage: Stage) -> None:
    WAITS["child"].reach(stage)
    new = stage.app.store.copy(stage.run_id, f"{stage.run_id}-new").run_id
    before = tree_of(stage, stage.run_id)
    stage.app.resume(new)
    stage.app.rollback(new, 1)
    stage.redeliver()
    assert tree_of(stage, stage.run_id) == before
    assert stage.status(f"{new}/child:below#1") in ("cancelled", "ready")


# --- messages --------------------------------------------------------------------------------------------------------


def test_what_was_sent_and_not_delivered_arrives_once(stage: Stage) -> None:
    @stage.flow
    async def target(run: AsyncRun) -> Any:
        return [await run.wait_for("hello"), await run.wait_for("hello", timeout=500, default="no more")]

    @stage.flow
    async def sender(run: AsyncRun) -> Any:
        await run.send(f"{stage.run_id}-target", "hello", "you")
        return await run.ask("well?", str)

    stage.start(target, run_id=f"{stage.run_id}-target")
    stage.wire.before = lambda commit: stage.die() if commit.run_id.endswith("-target") else None
    stage.start_and_die(sender)
    stage.restart()
    new = stage.app.store.copy(stage.run_id, f"{stage.run_id}-new").run_id
    assert len(stage.onlooker.port.run_rows(new).messages) == 1  # type: ignore[union-attr]
    stage.redeliver()
    stage.app.resume(f"{stage.run_id}-target")
    stage.clock.advance(1000)
    assert stage.app.resume(f"{stage.run_id}-target").result(240) == ["you", "no more"]
    for name in (stage.run_id, new):
        assert stage.app.answer(name, "x").result(240) == "x"
