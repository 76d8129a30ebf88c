"""Stages and calls by the names people know them by: in rollbacks, forks and answers."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import App, AsyncRun, InvalidInput, NotFound
from holdfast.errors import GateClosed
from tests.harness import Stage


def _work(what: str = "") -> str:
    return what


FLOW: dict[str, Any] = {
    "id": "flow",
    "stages": [
        {"id": "put", "type": "set", "values": {"n": 0}},
        {"id": "pay", "type": "call", "function": "_work"},
        {"id": "approve", "type": "ask", "prompt": "ok?", "fields": {"again": "bool"}, "output_key": "said"},
        {"id": "end", "type": "end"},
    ],
    "edges": [
        {"from": "put", "to": "pay"},
        {"from": "pay", "to": "approve"},
        {"from": "approve", "to": "pay", "conditions": [{"key": "said.again", "value": True}]},
        {"from": "approve", "to": "end", "default": True},
    ],
}


@pytest.fixture
def app() -> Any:
    with App("memory:") as app:
        app.function(_work)
        app.graph(FLOW)
        app.start("flow", {}, run_id="r")
        yield app


def test_rollback_and_fork_take_the_name_of_a_stage(app: App) -> None:
    turns = [entry.position for entry in app.store.journal("r") if entry.kind == "turn"]
    assert [app.rollback_plan("r", to=name).to for name in ("put", "pay", "approve")] == [1, *turns]
    fork = app.fork("r", "f", at="pay")
    assert app.graph_of("f") is not None
    assert fork.gates()[0].name == "approve"
    assert app.rollback("r", to="pay").status() == "waiting"
    assert app.rollback_plan("r", to="approve").calls
    with pytest.raises(NotFound, match="no checkpoint, stage or call named 'nowhere'"):
        app.rollback_plan("r", to="nowhere")


def test_a_stage_that_was_begun_twice_is_listed_with_its_positions(app: App) -> None:
    app.answer("r", {"again": True}, gate="approve")
    turns = [entry.position for entry in app.store.journal("r") if entry.kind == "turn"]
    with pytest.raises(InvalidInput, match=rf"'pay' names 2 places.*: {turns[0]} \(pay\), {turns[2]} \(pay\)"):
        app.rollback("r", to="pay")
    assert app.rollback_plan("r", to=turns[2]).to == turns[2]
    assert app.rollback_plan("r", to="loop#1[2]/pay#1").to < turns[1], "a full name is always taken"


def test_a_gate_is_answered_by_its_short_name(app: App) -> None:
    (gate,) = app.gates("r")
    assert (gate.gate, gate.name) == ("loop#1[3]/approve#1", "approve")
    with pytest.raises(GateClosed):
        app.answer("r", {"again": False}, gate="disapprove")
    assert app.answer("r", {"again": False}, gate="approve").status() == "completed"


def test_of_two_open_gates_of_a_name_neither_is_guessed(stage: Stage) -> None:
    @stage.flow
    async def flow(run: AsyncRun) -> Any:
        async def ask(inner: AsyncRun) -> Any:
            return await inner.ask("which?", str)

        return await run.gather(ask, ask)

    stage.start(flow)
    with pytest.raises(InvalidInput, match=r"'ask' names 2 open gates.*gather#1\[0\]/ask#1"):
        stage.app.answer(stage.run_id, "a", gate="ask")
    stage.app.answer(stage.run_id, "a", gate="gather#1[0]/ask#1")
    assert stage.app.answer(stage.run_id, "b", gate="ask").result(240) == ["a", "b"], "only one is open now"


def test_a_call_is_found_by_its_short_name_if_there_is_one(stage: Stage) -> None:
    @stage.flow
    async def flow(run: AsyncRun) -> Any:
        await run.step(_work, "a", name="first")
        await run.step(_work, "b", name="twice")
        await run.step(_work, "c", name="twice")
        return await run.wait_for("go")

    stage.start(flow)
    plan = stage.app.rollback_plan
    assert plan(stage.run_id, to="first").to == plan(stage.run_id, to="first#1").to == 1
    assert plan(stage.run_id, to="twice#2").to == 3
    with pytest.raises(InvalidInput, match=r"2 places.*2 \(twice#1\), 3 \(twice#2\)"):
        plan(stage.run_id, to="twice")
    assert stage.app.fork(stage.run_id, f"{stage.run_id}-b", at="first").status() == "waiting"


def test_what_is_shown_of_a_name_is_short() -> None:
    from holdfast.ids import display_name

    names = ["loop#1[2]/approve#1", "ask#2", "a/pay:0123456789abcdef#1", "loop#1[2]/pay#1?1@2", "key", "ask#1@3"]
    assert [display_name(name) for name in names] == ["approve", "ask#2", "pay", "pay", "key", "ask"]


def test_a_mistyped_place_is_answered_with_the_names_that_resemble_it(app: App) -> None:
    with pytest.raises(NotFound, match=r"named 'aprove': did you mean 'approve' or 'approve#1'\?"):
        app.rollback("r", to="aprove")
    with pytest.raises(NotFound, match="named 'zzz': its stages and calls are put, pay, "):
        app.fork("r", "f", at="zzz")


def test_a_mistyped_gate_is_answered_with_the_open_gates(app: App) -> None:
    with pytest.raises(GateClosed, match=r"has no gate 'aprove'; its open gates are 'approve'$"):
        app.answer("r", {"again": True}, gate="aprove")


def test_an_answer_to_a_parent_names_the_child_that_asks(stage: Stage) -> None:
    @stage.flow
    async def child(run: AsyncRun) -> Any:
        return await run.ask("ok?", bool)

    @stage.flow
    async def middle(run: AsyncRun) -> Any:
        return await run.child("child")

    @stage.flow
    async def flow(run: AsyncRun) -> Any:
        return await run.child("middle")

    stage.start(flow)
    asks = rf"; its child run '{stage.run_id}/.*child#1' has the open gate 'ask', so answer that run$"
    with pytest.raises(NotFound, match=asks):
        stage.app.answer(stage.run_id, True)
    with pytest.raises(GateClosed, match=asks):
        stage.app.answer(stage.run_id, True, gate="ask")
