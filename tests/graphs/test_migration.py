"""Migration: all or nothing, for the run and those inside it, whatever happens meanwhile."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from holdfast import InvalidInput
from holdfast.errors import StorageFailed
from tests.graphs.conftest import GraphStage

END = {"id": "end", "type": "end", "result": "end"}


def ask(**more: Any) -> dict[str, Any]:
    return {"id": "ask", "type": "ask", "prompt": "Go?", "fields": {"ok": "bool"}, "output_key": "go", **more}


def test_a_lowered_bound_ends_a_loop_that_is_beyond_it(stage: GraphStage) -> None:
    loop = {
        "id": "loop",
        "type": "loop_until",
        "max_iterations": 10,
        "until": [{"key": "go.ok", "value": True}],
        "body": {k: v for k, v in ask().items() if k != "id"},
    }
    stage.graph([loop, END])
    handle = stage.go()
    for _ in range(4):
        stage.app.answer(stage.run_id, {"ok": False})
    stage.graph([{**loop, "max_iterations": 2}, END])
    stage.app.migrate(stage.run_id)
    for _ in range(12):
        if handle.status() == "waiting":
            stage.app.answer(stage.run_id, {"ok": False})
    assert handle.status() == "completed"


def test_a_crash_while_migrating_does_not_lose_a_pause(stage: GraphStage) -> None:
    stage.graph([{"id": "w", "type": "wait", "event": "e", "timeout_s": 100000}, END])
    stage.go()
    stage.app.pause(stage.run_id, by="ana")
    with contextlib.suppress(Exception):
        stage.app.worker().run(until_idle=True)
    assert stage.app.handle(stage.run_id).status() == "paused"
    stage.graph([{"id": "w", "type": "wait", "event": "e", "timeout_s": 200000}, END])
    stage.wire.cut_after(1, late=False)
    with contextlib.suppress(StorageFailed):
        stage.app.migrate(stage.run_id)
    stage.restart()
    stage.app.worker().run(until_idle=True)
    assert stage.app.handle(stage.run_id).status() == "paused"


def test_migrating_to_a_graph_of_another_id_is_refused(stage: GraphStage) -> None:
    stage.graph([ask(), END])
    stage.go()
    with pytest.raises(InvalidInput, match="is of workflow 'flow'"):
        stage.app.migrate(stage.run_id, {"id": "other", "stages": [ask(prompt="Really?"), END]})


def test_a_refused_migration_changes_nothing(stage: GraphStage) -> None:
    stage.graph([ask(), END])
    stage.go()
    other = stage.app.start("flow", {}, run_id=f"{stage.run_id}-other")
    with pytest.raises(Exception, match="does not have"):
        stage.app.migrate(stage.run_id, {"id": "flow", "stages": [END]})
    with contextlib.suppress(Exception):
        stage.app.answer(other.run_id, {"ok": True})
    assert other.status() == "completed"


def test_a_migration_in_the_middle_of_a_rollback_is_not_lost(stage: GraphStage) -> None:
    stuck = [True]

    @stage.function
    def book() -> str:
        return "booked"

    def release(result: str) -> None:
        if stuck[0]:
            raise ConnectionError("stuck")

    stage.undo(release)
    first = {"id": "book", "type": "effect", "function": "book", "compensation": "release"}
    stage.graph([{"id": "s", "type": "set", "values": {"a": 1}}, first, ask(), END])
    stage.go()
    at = next(e.position for e in stage.onlooker.journal(stage.run_id) if e.kind == "turn")
    with contextlib.suppress(Exception):
        stage.app.rollback(stage.run_id, at)
    stuck[0] = False
    stage.graph([{"id": "s", "type": "set", "values": {"a": 1}}, first, ask(prompt="Really?"), END])
    with pytest.raises(InvalidInput, match="is being rolled back"):
        stage.app.migrate(stage.run_id)


def test_the_current_stage_is_known_after_a_rollback_and_in_a_fork(stage: GraphStage) -> None:
    stage.graph(
        [{"id": "s", "type": "set", "values": {"a": 1}}, {"id": "t", "type": "set", "values": {"a": 2}}, ask(), END]
    )
    stage.go()
    at = next(e.position for e in stage.onlooker.journal(stage.run_id) if e.kind == "turn")
    stage.app.pause(stage.run_id)
    fork = stage.app.fork(stage.run_id, at=at, enqueue=True)
    found = stage.onlooker.load(fork.run_id)
    assert found is not None
    assert found.next_node == "t"
    stage.app.rollback(stage.run_id, at, enqueue=True)
    back = stage.onlooker.load(stage.run_id)
    assert back is not None
    assert back.next_node in ("t", "ask")


WORDS = [
    ({"id": "s", "type": "set", "values": {"name": "Ana"}}, {"id": "s", "type": "set", "values": {"name": "Bob"}}),
    ({"id": "s", "type": "end", "result": {"label": "yes"}}, {"id": "s", "type": "end", "result": {"label": "no"}}),
    (ask(fields={"name": "str"}), ask(fields={"name": "int"})),
]


def _flow(words: str) -> dict[str, Any]:
    return {
        "id": "f",
        "stages": [ask(), END],
        "edges": [{"from": "ask", "to": "end", "conditions": [{"key": "go.ok", "value": True, "description": words}]}],
    }
