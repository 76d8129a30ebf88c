"""Compensation is done whole, once, and told of; nothing goes on as if it had not been."""

from __future__ import annotations

import contextlib
import threading
from typing import Any

import pytest

from holdfast import InvalidInput, RunFailed
from holdfast.errors import RollbackRefused, StorageFailed
from tests.graphs.conftest import GraphStage
from tests.graphs.test_stage_failures import END, World

ASK = {"id": "ask", "type": "ask", "prompt": "Go?", "fields": {"ok": "bool"}, "output_key": "go"}


def test_a_process_without_the_undo_does_not_write_the_compensation_off(stage: GraphStage) -> None:
    world = World(stage)
    stage.graph([world.book("room"), ASK, world.fail(on_failure="compensate"), END])
    stage.go()
    undos, stage._undos = stage._undos, []
    stage.restart()
    with contextlib.suppress(Exception):
        stage.app.answer(stage.run_id, {"ok": True})
    stage._undos = undos
    stage.restart()
    with contextlib.suppress(Exception):
        stage.app.resume(stage.run_id)
    assert [e.state for e in stage.onlooker.effects(stage.run_id)] == ["undone"], (
        stage.app.handle(stage.run_id).status(),
        stage.calls,
    )


def test_an_effect_in_doubt_is_told_of(stage: GraphStage) -> None:
    world = World(stage)

    @stage.function
    def slow(idempotency_key: str) -> str:
        threading.Event().wait(0.3)
        return "charged"

    slow_stage = {
        "id": "charge",
        "type": "effect",
        "function": "slow",
        "compensation": "release",
        "timeout_s": 0.02,
        "in_doubt": "fail",
        "on_failure": "compensate",
    }
    stage.graph([world.book("room"), slow_stage, END])
    handle = stage.go()
    with pytest.raises(RunFailed):
        handle.result()
    told = stage.state["compensation"]
    assert any("charge" in key for keys in told.values() for key in keys), told


def test_a_fork_does_not_go_on_with_what_was_compensated(stage: GraphStage) -> None:
    world = World(stage)
    stage.graph(
        [
            world.book("room", output_key="room"),
            world.fail(on_failure="compensate"),
            {**END, "result": "you have {{ room }}"},
        ]
    )
    handle = stage.go()
    assert handle.status() == "failed"
    before = next(e.position for e in stage.onlooker.journal(stage.run_id) if e.kind == "compensating") - 1
    with pytest.raises(RollbackRefused):
        stage.app.rollback(stage.run_id, before)
    at = next(e.position for e in stage.onlooker.journal(stage.run_id) if e.kind == "turn")
    world.failures = 0
    stage.calls.clear()
    with pytest.raises(InvalidInput, match="has undone effect"):
        stage.app.fork(stage.run_id, at=at)
    assert stage.app.fork(stage.run_id, at=1).result() == "you have booked room"
    assert ("book", "room") in stage.calls


def test_a_cancel_does_not_leave_half_of_a_compensation(stage: GraphStage) -> None:
    world = World(stage)
    stage.graph([world.book("room"), world.book("car"), world.fail(on_failure="compensate"), END])
    base = stage.run_id
    for commits in range(8, 20):
        stage.run_id = f"{base}-{commits}"
        stage.calls.clear()
        stage.wire.cut_after(commits, late=False)
        with contextlib.suppress(StorageFailed):
            stage.go()
        undone = [e for e in stage.onlooker.journal(stage.run_id) if e.kind == "undone"]
        dead = stage.wire.dead
        if dead:
            stage.restart()
        if not dead or len(undone) == 1:
            break
    assert len(undone) == 1
    stage.app.cancel(stage.run_id)
    with contextlib.suppress(Exception):
        stage.app.resume(stage.run_id)
    states = {e.key.split("/")[1].split(":")[0]: e.state for e in stage.onlooker.effects(stage.run_id)}
    assert states == {"room": "undone", "car": "undone"}, states


@pytest.mark.parametrize("how", ["no_edge", "max_iterations", "bad_condition"])
def test_a_stage_that_fails_otherwise_is_compensated_as_well(stage: GraphStage, how: str) -> None:
    world = World(stage)
    world.failures = 0
    room = world.book("room", on_failure="compensate")
    last = world.fail(on_failure="compensate", output_key="x")
    ways: Any = {
        "no_edge": ([("room", "fail"), ("fail", "end", ("x", "eq", "never"))], {}),
        "max_iterations": (
            [("room", "fail"), ("fail", "room", ("x", "eq", "at last")), ("fail", "end", None)],
            {"max_iterations": 2},
        ),
        "bad_condition": (
            [("room", "fail"), ("fail", "end", ("x", "eq", "{{ input.nobody }}")), ("fail", "end", None)],
            {},
        ),
    }
    edges, more = ways[how]
    stage.graph([room, last, END], edges, **more)
    handle = stage.go()
    with pytest.raises(RunFailed):
        handle.result()
    assert [e.state for e in stage.onlooker.effects(stage.run_id)] == ["undone"]


def test_a_copy_of_a_half_done_compensation_undoes_nothing_of_its_source(stage: GraphStage) -> None:
    world = World(stage)
    stage.graph([world.book("room"), world.book("car"), world.fail(on_failure="compensate"), END])
    base, undone = stage.run_id, []
    for commits in range(8, 20):
        stage.run_id = f"{base}-{commits}"
        stage.wire.cut_after(commits, late=False)
        with contextlib.suppress(StorageFailed):
            stage.go()
        stage.restart()
        undone = [entry for entry in stage.onlooker.journal(stage.run_id) if entry.kind == "undone"]
        if undone:
            break
    assert len(undone) == 1
    stage.calls.clear()
    before = stage.onlooker.port.run_rows(stage.run_id)
    new = stage.app.store.copy(stage.run_id, f"{stage.run_id}-new").run_id
    with contextlib.suppress(RunFailed):
        stage.app.resume(new)
    assert stage.app.handle(new).status() == "failed"
    assert stage.calls == []
    found = stage.onlooker.load(new)
    assert found is not None
    told = found.state["compensation"]
    assert (len(told["undone"]), len(told["left"]), told["failed"]) == (1, 1, [])
    assert stage.onlooker.port.run_rows(stage.run_id) == before
    with contextlib.suppress(RunFailed):
        stage.app.resume(stage.run_id)
    assert len(stage.calls) == 1


def test_a_copy_has_a_sub_workflow_of_its_own(stage: GraphStage) -> None:
    inner = {"id": "inner", "stages": [ASK, {**END, "result": "{{ go.ok }}"}]}
    sub = {"id": "sub", "type": "sub_workflow", "graph": inner, "output_key": "x"}
    stage.graph([sub, {**END, "result": "{{ x }}"}])
    stage.go()
    before = {info.run_id: stage.onlooker.port.run_rows(info.run_id) for info in stage.onlooker.runs(limit=2)}
    new = stage.app.store.copy(stage.run_id, f"{stage.run_id}-new").run_id
    stage.app.resume(new)
    (gate,) = [gate for gate in stage.app.gates() if gate.run_id.startswith(new)]
    stage.app.answer(gate.run_id, {"ok": True})
    assert stage.app.handle(new).result(240) is True
    assert {name: stage.onlooker.port.run_rows(name) for name in before} == before
