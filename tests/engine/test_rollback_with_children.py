"""Rollback and fork over children: what they did is undone, in order, or taken over; never done twice."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from holdfast import AsyncRun, Conflict, InvalidInput, RunClaimed
from holdfast.errors import RollbackFailed, RollbackRefused, StorageFailed
from holdfast.testing import replay
from tests.engine.test_rollback import Shop
from tests.harness import Stage


def family(stage: Stage, shop: Shop) -> None:
    """A parent that buys, has a child that buys, whose child buys, and buys again."""

    @stage.flow
    async def grandchild(run: AsyncRun) -> str:
        bought: str = await run.effect(shop.buy, "inner", undo=shop.give_back)
        return bought

    @stage.flow
    async def kid(run: AsyncRun) -> list[str]:
        first = await run.effect(shop.buy, "k1", undo=shop.give_back)
        second = await run.child("grandchild")
        return [first, second, await run.effect(shop.buy, "k2", undo=shop.give_back)]

    @stage.flow
    async def parent(run: AsyncRun) -> Any:
        await run.step(len, "list")
        first = await run.effect(shop.buy, "p1", undo=shop.give_back)
        inside = await run.child("kid")
        return [first, inside, await run.effect(shop.buy, "p2", undo=shop.give_back)]


ALL = [("buy", item) for item in ("p1", "k1", "inner", "k2", "p2")]


def undone(*items: str) -> list[tuple[str, str, str]]:
    return [("undo", item, f"receipt {item}") for item in items]


def test_what_finished_children_did_is_planned_and_undone_in_reverse_and_done_again_once(stage: Stage) -> None:
    shop = Shop(stage)
    family(stage, shop)
    result = stage.start("parent").result(240)
    assert stage.calls == ALL
    plan = stage.app.rollback_plan(stage.run_id, to="child:kid#1")
    kid, inner = f"{stage.run_id}/child:kid#1", f"{stage.run_id}/child:kid#1/child:grandchild#1"
    assert [(effect.run_id, effect.arguments) for effect in plan.undo] == [
        (stage.run_id, ["p2"]), (kid, ["k2"]), (inner, ["inner"]), (kid, ["k1"])
    ]  # fmt: skip
    assert plan.children == (kid, inner)
    stage.app.rollback(stage.run_id, to="child:kid#1")
    assert stage.calls == [*ALL, *undone("p2", "k2", "inner", "k1"), *ALL[1:]]
    assert stage.app.handle(stage.run_id).result(240) == result
    assert len(set(shop.keys)) == len(shop.keys), "what is done again has keys of its own"
    assert {effect.state for effect in stage.onlooker.effects(kid)} == {"undone"}
    assert {effect.state for effect in stage.onlooker.effects(inner)} == {"undone"}
    assert stage.onlooker.verify().problems == []
    assert replay(stage.app, stage.run_id).status == "completed"


def test_a_child_that_waits_is_stopped_and_what_it_did_is_undone(stage: Stage) -> None:
    shop = Shop(stage)

    @stage.flow
    async def kid(run: AsyncRun) -> Any:
        await run.effect(shop.buy, "k1", undo=shop.give_back)
        return await run.ask("Well?", bool)

    @stage.flow
    async def parent(run: AsyncRun) -> Any:
        await run.step(len, "list")
        return await run.child("kid")

    stage.start(parent)
    first = f"{stage.run_id}/child:kid#1"
    assert stage.status(first) == "waiting"
    stage.app.rollback(stage.run_id, to=2)
    assert stage.calls == [("buy", "k1"), *undone("k1"), ("buy", "k1")]
    assert stage.status(first) == "cancelled"
    assert stage.app.gates(first) == []
    again = f"{stage.run_id}/child:kid#1@1"
    stage.app.answer(again, True)
    assert stage.app.handle(stage.run_id).result(240) is True
    assert stage.onlooker.verify().problems == []


def test_a_rollback_over_children_is_taken_up_after_a_crash_at_any_commit(stage: Stage) -> None:
    shop = Shop(stage)
    family(stage, shop)
    for late in (False, True):
        cut = 0
        while cut < 100:
            stage.calls.clear()
            stage.run_id = f"{stage.run_id.partition('+')[0]}+{cut}{'late' if late else ''}"
            stage.start("parent").result(240)
            stage.wire.cut_after(cut, late=late)
            with contextlib.suppress(StorageFailed):
                stage.app.rollback(stage.run_id, to=2)
            if stage.journal("rolled_back"):  # it had ended before the wire was cut
                break
            stage.restart()
            if stage.status() == "completed":  # it had not begun
                stage.app.rollback(stage.run_id, to=2)
            else:
                stage.app.resume(stage.run_id)
            assert stage.app.handle(stage.run_id).result(240)
            bought = [call[1] for call in stage.calls if call[0] == "buy"]
            assert bought == 2 * ["p1", "k1", "inner", "k2", "p2"], (cut, late)
            # An undo that was called when the process died is called again, under the same key.
            given_back = [call[1] for call in stage.calls if call[0] == "undo"]
            order = [item for index, item in enumerate(given_back) if item not in given_back[:index]]
            assert order == ["p2", "k2", "inner", "k1", "p1"], (cut, late)
            assert len(given_back) <= 6, (cut, late)
            cut += 1
        assert 10 < cut < 100
        stage.restart()
    assert stage.onlooker.verify().problems == []


def test_an_effect_of_a_child_that_cannot_be_undone_stops_the_rollback(stage: Stage) -> None:
    shop = Shop(stage)

    @stage.flow
    async def kid(run: AsyncRun) -> None:
        await run.effect(shop.mail, "hello")

    @stage.flow
    async def parent(run: AsyncRun) -> None:
        await run.child("kid")

    stage.start(parent).result(240)
    with pytest.raises(RollbackRefused, match=r"mail.* of child run .*kid#1.* cannot be undone") as refused:
        stage.app.rollback(stage.run_id, to=1)
    assert [effect.run_id for effect in refused.value.plan.irreversible] == [f"{stage.run_id}/child:kid#1"]
    assert stage.status() == "completed"
    stage.app.rollback(stage.run_id, to=1, force=True)
    assert stage.calls == [("mail", "hello")] * 2


def test_an_undo_of_a_child_that_fails_stops_there_and_is_taken_up_again(stage: Stage) -> None:
    shop = Shop(stage)
    family(stage, shop)
    stage.start("parent").result(240)
    shop.fail_undo = 1
    with pytest.raises(RollbackFailed):
        stage.app.rollback(stage.run_id, to="child:kid#1")
    assert stage.status() == "rolling_back"
    stage.app.rollback(stage.run_id)
    assert stage.calls == [*ALL, *undone("p2", "k2", "inner", "k1"), *ALL[1:]]


def test_a_child_that_a_living_owner_holds_is_not_taken_back(stage: Stage) -> None:
    shop = Shop(stage)

    @stage.flow
    async def kid(run: AsyncRun) -> Any:
        return await run.ask("Well?", bool)

    @stage.flow
    async def parent(run: AsyncRun) -> Any:
        return await run.child("kid")

    del shop
    stage.start(parent)
    child = f"{stage.run_id}/child:kid#1"
    claim = stage.onlooker.claim(child, "another", lease=600)
    assert claim is not None
    with pytest.raises(RunClaimed, match="another"):
        stage.app.rollback(stage.run_id, to=1)
    assert stage.status() == "waiting"
    assert stage.journal("rolling_back") == []
    claim.release("waiting")
    stage.app.rollback(stage.run_id, to=1)
    assert stage.status(child) == "cancelled"


def test_effects_of_a_detached_child_are_named_and_stop_the_rollback(stage: Stage) -> None:
    shop = Shop(stage)

    @stage.flow
    async def kid(run: AsyncRun) -> None:
        await run.effect(shop.buy, "k1", undo=shop.give_back)

    @stage.flow
    async def parent(run: AsyncRun) -> str:
        await run.step(len, "list")
        child: str = await run.child("kid", detached=True)
        return child

    child = stage.start(parent).result(240)
    stage.app.resume(child)
    plan = stage.app.rollback_plan(stage.run_id, to=2)
    assert plan.detached == (child,)
    assert [effect.run_id for effect in plan.detached_effects] == [child]
    assert (plan.undo, plan.children) == ((), ())
    with pytest.raises(RollbackRefused, match="detached"):
        stage.app.rollback(stage.run_id, to=2)
    again = stage.app.rollback(stage.run_id, to=2, force=True).result(240)
    assert again != child
    stage.app.resume(again)
    assert stage.calls == [("buy", "k1")] * 2


@pytest.mark.parametrize("at", [2, 4])
def test_a_fork_takes_over_what_the_children_of_its_source_did(stage: Stage, at: int) -> None:
    shop = Shop(stage)
    family(stage, shop)
    result = stage.start("parent").result(240)
    fork = stage.app.fork(stage.run_id, f"{stage.run_id}-fork", at=at)
    assert fork.result(240) == result
    assert stage.calls == ALL, "nothing was done again"
    assert stage.app.rollback_plan(fork.run_id, to=1).undo == (), "what the source did is not the fork's to undo"
    perform = stage.app.fork(stage.run_id, f"{stage.run_id}-again", at=at, effects="perform")
    assert perform.result(240) == result
    assert stage.calls[len(ALL) :] == (ALL if at == 2 else ALL[1:])
    for run_id in (fork.run_id, perform.run_id, stage.run_id):
        assert replay(stage.app, run_id).status == "completed"
    assert stage.onlooker.verify().problems == []


def test_a_fork_made_before_its_source_had_the_child_takes_over_what_that_did_since(stage: Stage) -> None:
    shop = Shop(stage)

    @stage.flow
    async def kid(run: AsyncRun) -> Any:
        return await run.effect(shop.buy, "k1", undo=shop.give_back)

    @stage.flow
    async def parent(run: AsyncRun) -> Any:
        await run.ask("Well?", bool)
        return await run.child("kid")

    stage.start(parent)
    fork = stage.app.fork(stage.run_id, f"{stage.run_id}-fork")
    stage.app.answer(stage.run_id, True).result(240)
    assert stage.app.answer(fork.run_id, True).result(240) == "receipt k1"
    assert stage.calls == [("buy", "k1")]


def test_an_undone_child_can_neither_be_forked_nor_rolled_back_as_if_it_were_done(stage: Stage) -> None:
    shop = Shop(stage)
    family(stage, shop)
    stage.start("parent").result(240)
    stage.app.rollback(stage.run_id, to="child:kid#1")
    kid = f"{stage.run_id}/child:kid#1"
    with pytest.raises(InvalidInput, match="has undone effect"):
        stage.app.fork(kid, f"{kid}-fork")
    assert [effect.key[:3] for effect in stage.app.rollback_plan(kid, to="buy#2").compensated] == ["buy"]
    with pytest.raises(Conflict, match="rolled back to before it was started"):
        stage.app.rollback(kid, to="buy#2")


def test_a_finished_child_that_was_deleted_stops_the_rollback(stage: Stage) -> None:
    shop = Shop(stage)
    family(stage, shop)
    stage.start("parent").result(240)
    kid = f"{stage.run_id}/child:kid#1"
    assert stage.onlooker.delete(kid)
    assert stage.app.rollback_plan(stage.run_id, to=2).missing == (kid,)
    with pytest.raises(RollbackRefused, match="is not in this store"):
        stage.app.rollback(stage.run_id, to=2)
    assert stage.calls == ALL
