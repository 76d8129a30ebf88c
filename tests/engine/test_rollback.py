"""Rollback: planned first, undone in reverse, journaled, taken up after a crash, and the run goes on."""

from __future__ import annotations

from typing import Any

import pytest

import holdfast
from holdfast import AsyncRun, InvalidInput, NotFound, RunClaimed
from holdfast.errors import RollbackFailed, RollbackRefused, StorageFailed
from holdfast.model.rollback_plan import RollbackPlan
from holdfast.testing import replay
from tests.harness import Stage


class Shop:
    """A world with effects that can be undone, and some that cannot."""

    def __init__(self, stage: Stage) -> None:
        self.calls = stage.calls
        self.keys: list[str] = []
        self.fail_undo = 0

        def give_back(result: Any, item: str, idempotency_key: str) -> None:
            self.keys.append(idempotency_key)
            if self.fail_undo:
                self.fail_undo -= 1
                raise ConnectionError("the shop is closed")
            self.calls.append(("undo", item, result))

        stage.undo(give_back)
        self.give_back = give_back

    def buy(self, item: str, idempotency_key: str) -> str:
        self.keys.append(idempotency_key)
        self.calls.append(("buy", item))
        return f"receipt {item}"

    def mail(self, text: str) -> None:
        self.calls.append(("mail", text))


def shopping(stage: Stage, shop: Shop, *, mail: bool = False) -> Any:
    """A run that buys three things and waits."""

    @stage.flow
    async def flow(run: AsyncRun) -> Any:
        await run.step(len, "list")
        bought = [await run.effect(shop.buy, item, undo=shop.give_back) for item in ("a", "b")]
        run.state["bought"] = bought
        await run.checkpoint()
        bought.append(await run.effect(shop.buy, "c", undo=shop.give_back))
        if mail:
            await run.effect(shop.mail, "done")
        answer = await run.ask("Well?", {"ok": bool})
        return [bought, answer["ok"]]

    return flow


def test_effects_are_undone_in_reverse_and_the_run_goes_on_from_there(stage: Stage) -> None:
    shop = Shop(stage)
    stage.start(shopping(stage, shop))
    stage.app.rollback(stage.run_id, to="buy#2")
    bought = [("buy", "a"), ("buy", "b"), ("buy", "c")]
    undone = [("undo", "c", "receipt c"), ("undo", "b", "receipt b")]
    assert stage.calls == [*bought, *undone, ("buy", "b"), ("buy", "c")]
    assert stage.status() == "waiting"
    result = stage.app.answer(stage.run_id, {"ok": True}).result(240)
    assert result == [["receipt a", "receipt b", "receipt c"], True]
    assert [effect.state for effect in stage.onlooker.effects(stage.run_id)] == ["done", "done", "done"]
    assert [entry["key"].partition(":")[0] for entry in stage.journal("undone")] == ["buy", "buy"]
    assert replay(stage.app, stage.run_id).status == "completed"


def test_what_is_done_anew_has_new_idempotency_keys(stage: Stage) -> None:
    shop = Shop(stage)
    stage.start(shopping(stage, shop))
    first = list(shop.keys)
    stage.app.rollback(stage.run_id, to="buy#1")
    assert len(set(shop.keys)) == len(shop.keys) == len(first) + 6


def test_the_plan_says_what_would_happen_and_nothing_happens(stage: Stage) -> None:
    shop = Shop(stage)
    stage.start(shopping(stage, shop, mail=True))
    before = stage.journal(), list(stage.calls)
    plan = stage.app.rollback_plan(stage.run_id, to="buy#2")
    assert [(effect.tool, effect.arguments, effect.undo) for effect in plan.undo] == [
        ("buy", ["c"], "give_back"), ("buy", ["b"], "give_back")
    ]  # fmt: skip
    assert [effect.tool for effect in plan.irreversible] == ["mail"]
    assert plan.calls == ("buy#2", "checkpoint#1", "buy#3", "mail#1", "ask#1")
    assert (stage.journal(), list(stage.calls)) == before


def test_what_cannot_be_undone_stops_it_before_anything_is_done_unless_it_is_forced(stage: Stage) -> None:
    shop = Shop(stage)
    stage.start(shopping(stage, shop, mail=True))
    before = stage.journal(), list(stage.calls)
    with pytest.raises(RollbackRefused) as refused:
        stage.app.rollback(stage.run_id, to="buy#3")
    assert [effect.tool for effect in refused.value.plan.irreversible] == ["mail"]
    assert (stage.journal(), list(stage.calls)) == before
    stage.app.rollback(stage.run_id, to="buy#3", force=True)
    assert stage.calls[-3:] == [("undo", "c", "receipt c"), ("buy", "c"), ("mail", "done")]


def test_a_rollback_goes_to_a_position_a_checkpoint_or_a_call(stage: Stage) -> None:
    shop = Shop(stage)
    stage.start(shopping(stage, shop))
    checkpoint = next(iter(stage.onlooker.history(stage.run_id)))
    for to, undone in ((checkpoint.checkpoint_id, 1), ("journal.2", 3), (1, 3), ("buy#3", 1)):
        before = sum(call[0] == "undo" for call in stage.calls)
        stage.app.rollback(stage.run_id, to=to)
        assert sum(call[0] == "undo" for call in stage.calls) - before == undone, to
    with pytest.raises(NotFound, match="nowhere"):
        stage.app.rollback(stage.run_id, to="nowhere")
    with pytest.raises(InvalidInput, match="taken back"):
        stage.app.rollback(stage.run_id, to=8)


@pytest.mark.parametrize("late", [False, True], ids=["before", "after"])
def test_a_crash_anywhere_in_a_rollback_is_taken_up_and_every_undo_is_recorded_once(local: Stage, late: bool) -> None:
    stage = local
    commits = 0
    flow = shopping(stage, Shop(stage))
    while True:
        stage.run_id = f"{stage.run_id.partition('~')[0]}~{late}{commits}"
        stage.calls.clear()
        stage.start(flow)
        stage.wire.cut_after(commits, late=late)
        try:
            stage.app.rollback(stage.run_id, to="buy#1", enqueue=True)
        except StorageFailed:
            stage.restart()
        else:
            break
        if stage.journal("rolled_back"):
            stage.app.resume(stage.run_id)
        else:
            stage.app.rollback(stage.run_id, to=None if stage.journal("rolling_back") else "buy#1")
        assert stage.status() == "waiting"
        undone = [entry["key"] for entry in stage.journal("undone")]
        assert len(undone) == len(set(undone)) >= 3
        assert [e.state for e in stage.onlooker.effects(stage.run_id)] == ["done", "done", "done"]
        assert [call for call in stage.calls if call[0] == "buy"] == [("buy", item) for item in "abcabc"]
        assert stage.app.answer(stage.run_id, {"ok": True}).result(240)[1] is True
        commits += 1
    assert commits > 6


def test_a_worker_takes_up_a_rollback_whose_process_died(stage: Stage) -> None:
    shop = Shop(stage)
    stage.start(shopping(stage, shop))
    stage.wire.cut_after(3)
    with pytest.raises(StorageFailed):
        stage.app.rollback(stage.run_id, to="buy#1")
    stage.restart()
    stage.app.store.recover_expired()
    stage.app.worker().run(until_idle=True)
    assert stage.status() == "waiting"
    assert len(stage.journal("rolled_back")) == 1


def test_an_undo_that_raises_stops_the_rollback_and_it_can_be_taken_up(stage: Stage) -> None:
    shop = Shop(stage)
    stage.start(shopping(stage, shop))
    shop.fail_undo = 1
    with pytest.raises(RollbackFailed, match="the shop is closed"):
        stage.app.rollback(stage.run_id, to="buy#2")
    assert stage.status() == "rolling_back"
    stage.app.rollback(stage.run_id)
    assert stage.status() == "waiting"
    undos = [call[1] for call in stage.calls if call[0] == "undo"]
    assert undos == ["c", "b"]
    assert shop.keys[3] == shop.keys[4]  # the undo that was tried again kept its key


def test_an_undo_that_raises_is_left_when_it_is_forced(stage: Stage) -> None:
    shop = Shop(stage)
    stage.start(shopping(stage, shop))
    shop.fail_undo = 2
    with pytest.raises(RollbackFailed):
        stage.app.rollback(stage.run_id, to="buy#2")
    stage.app.rollback(stage.run_id, force=True)
    assert stage.status() == "waiting"
    assert [call[1] for call in stage.calls if call[0] == "undo"] == ["b"]


def test_ended_runs_can_be_rolled_back_and_go_on(stage: Stage) -> None:
    shop = Shop(stage)
    broken = [True]

    @stage.flow
    async def flow(run: AsyncRun) -> str:
        await run.effect(shop.buy, "a", undo=shop.give_back)
        if broken[0]:
            raise ValueError("a bug")
        return "fine"

    assert stage.start(flow).status() == "failed"
    broken[0] = False
    assert stage.app.rollback(stage.run_id, to=1).result(240) == "fine"
    assert stage.calls == [("buy", "a"), ("undo", "a", "receipt a"), ("buy", "a")]
    stage.app.rollback(stage.run_id, to="buy#1")
    assert stage.status() == "completed"


def test_a_rollback_goes_back_in_a_loop_with_the_state_of_that_turn(stage: Stage) -> None:
    @stage.flow
    async def flow(run: AsyncRun) -> Any:
        run.state["sum"] = 0
        async for turn in run.loop():
            run.state["sum"] += await run.step(int, turn)
            if turn == 8:
                await run.ask("Enough?", bool)
                return run.state["sum"], turn
        return None

    stage.start(flow)
    assert stage.status() == "waiting"
    stage.app.rollback(stage.run_id, to="loop#1[5]/int#1")
    steps = [entry["in"] for entry in stage.journal("step")]
    assert steps == [f"loop#1[{n}]" for n in (*range(1, 9), *range(5, 9))]
    assert stage.app.answer(stage.run_id, True).result(240) == (36, 8)
    assert stage.onlooker.verify().ok


def test_a_call_that_stood_on_both_sides_is_taken_back_whole(stage: Stage) -> None:
    shop = Shop(stage)

    @stage.flow
    async def flow(run: AsyncRun) -> Any:
        async def asks(r: AsyncRun) -> Any:
            return await r.ask("Left?", bool)

        async def buys(r: AsyncRun) -> Any:
            return await r.effect(shop.buy, "b", undo=shop.give_back)

        return await run.gather(asks, buys)

    stage.start(flow)
    stage.app.answer(stage.run_id, True)
    position = next(n for n, entry in enumerate(stage.journal(), 1) if entry["kind"] == "outcome")
    stage.app.rollback(stage.run_id, to=position)  # the question was asked before it and answered after it
    assert stage.status() == "waiting"
    assert stage.calls == [("buy", "b")]
    gates = stage.app.gates(stage.run_id)
    assert [gate.gate for gate in gates] == ["gather#1[0]/ask#1@1"]
    assert stage.app.answer(stage.run_id, False).result(240) == [False, "receipt b"]


def test_children_started_since_are_cancelled_and_open_gates_closed(stage: Stage) -> None:
    @stage.flow
    async def inner(run: AsyncRun) -> Any:
        return await run.ask("Inner?", bool)

    @stage.flow
    async def outer(run: AsyncRun) -> Any:
        await run.step(len, "x")
        return await run.child("inner")

    stage.start(outer)
    child = stage.journal("child")[0]["child"]
    plan = stage.app.rollback_plan(stage.run_id, to="child:inner#1")
    assert plan.children == (child,)
    stage.app.rollback(stage.run_id, to="child:inner#1")
    assert stage.status(child) == "cancelled"
    again = stage.journal("child")[-1]["child"]
    assert again == f"{child}@1"
    assert stage.app.answer(again, True).result(240) is True
    assert stage.app.handle(stage.run_id).result(240) is True


def test_a_run_that_another_process_holds_is_not_rolled_back(stage: Stage) -> None:
    shop = Shop(stage)
    stage.start(shopping(stage, shop))
    claim = stage.onlooker.claim(stage.run_id, owner="elsewhere", lease=60)
    assert claim is not None
    with pytest.raises(RunClaimed, match="elsewhere"):
        stage.app.rollback(stage.run_id, to=1)
    claim.release("waiting")


def test_an_effect_in_doubt_stands_in_the_way(stage: Stage) -> None:
    shop = Shop(stage)

    def dies(item: str) -> str:
        stage.die()
        return item

    @stage.flow
    async def flow(run: AsyncRun) -> Any:
        await run.effect(shop.buy, "a", undo=shop.give_back)
        return await run.effect(dies, "b")

    stage.start_and_die(flow)
    stage.resume()
    with pytest.raises(RollbackRefused, match="is unknown"):
        stage.app.rollback(stage.run_id, to=1)


def test_a_rollback_can_itself_be_gone_back_behind(stage: Stage) -> None:
    shop = Shop(stage)
    stage.start(shopping(stage, shop))
    for _ in range(3):
        stage.app.rollback(stage.run_id, to="buy#1")
    assert [entry["epoch"] for entry in stage.journal("rolled_back")] == [1, 2, 3]
    assert stage.app.answer(stage.run_id, {"ok": True}).result(240)[1] is True
    assert [effect.state for effect in stage.onlooker.effects(stage.run_id)] == ["done", "done", "done"]
    assert len([call for call in stage.calls if call[0] == "buy"]) == 12
    assert isinstance(stage.app.rollback_plan(stage.run_id, to=2), RollbackPlan)


def test_a_process_without_the_workflow_begins_a_rollback_and_one_that_knows_it_carries_it_out(alone: Stage) -> None:
    shop = Shop(alone)
    alone.start(shopping(alone, shop))
    done = list(shop.calls)
    with holdfast.App(alone.onlooker) as other:
        other.rollback(alone.run_id, to=2, by="ana", enqueue=True)
        assert other.handle(alone.run_id).info().owner is None
        other.rollback(alone.run_id, enqueue=True)  # taken up where it cannot be carried out: it stays as it is
    assert alone.status() == "ready"
    assert shop.calls == done
    assert alone.journal()[-1]["kind"] == "rolling_back"
    assert alone.journal()[-1]["by"] == "ana"
    alone.app.worker().run(until_idle=True)
    assert shop.calls[len(done) :] == [
        ("undo", "c", "receipt c"), ("undo", "b", "receipt b"), ("undo", "a", "receipt a"),
        ("buy", "a"), ("buy", "b"), ("buy", "c"),
    ]  # fmt: skip
    assert alone.status() == "waiting"


def test_a_rollback_begun_elsewhere_is_refused_and_forced_as_it_is_here(stage: Stage) -> None:
    shop = Shop(stage)
    stage.start(shopping(stage, shop, mail=True))
    before = stage.journal()
    with holdfast.App(stage.onlooker) as other:
        with pytest.raises(RollbackRefused, match="cannot be undone"):
            other.rollback(stage.run_id, to=2, enqueue=True)
        assert stage.journal() == before
        other.rollback(stage.run_id, to=2, force=True, enqueue=True)
    stage.app.resume(stage.run_id)
    assert [call for call in shop.calls if call[0] == "undo"] == [
        ("undo", "c", "receipt c"), ("undo", "b", "receipt b"), ("undo", "a", "receipt a"),
    ]  # fmt: skip


def test_the_plan_names_the_forks_that_keep_undone_results(stage: Stage) -> None:
    shop = Shop(stage)
    stage.start(shopping(stage, shop))
    names = [f"{stage.run_id}-{letter}" for letter in "wxyz"]
    stage.app.fork(stage.run_id, names[0])
    stage.app.fork(names[0], names[1])  # the fork of a fork keeps what the first run did, too
    stage.app.fork(stage.run_id, names[2], at=1)  # reuses the outcomes when it reaches the effects
    stage.app.fork(stage.run_id, names[3], at=1, effects="perform")  # has outcomes of its own
    plan = stage.app.rollback_plan(stage.run_id, 1)
    assert plan.forks == tuple(names[:3])
    assert plan.warnings == [f"3 forks keep the undone results: {', '.join(map(repr, names[:3]))}"]
    assert plan.problems == []
    assert stage.app.rollback_plan(names[0], 1).forks == (), "it undoes nothing"
    end = len(stage.journal())
    assert stage.app.rollback_plan(stage.run_id, end).warnings == []
    assert stage.app.rollback(stage.run_id, 1).status() == "waiting"
