"""Graphs inside graphs, and verbs for awaiting callers."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from holdfast import HoldfastError
from tests.graphs.conftest import GraphStage

END = {"id": "end", "type": "end", "result": "end"}


def test_migrating_a_run_migrates_the_graphs_inside_it(stage: GraphStage) -> None:
    def sub(after: int) -> dict[str, Any]:
        ask = {"id": "ask", "type": "ask", "prompt": "Go?", "fields": {"ok": "bool"}, "output_key": "go"}
        inner = [ask, {"id": "s", "type": "set", "values": {"a": after}}, END]
        return {"id": "sub", "type": "sub_workflow", "graph": {"id": "i", "stages": inner}}

    stage.graph([sub(1), END])
    handle = stage.go()
    stage.graph([sub(2), END])
    assert stage.app.migrate(stage.run_id)
    (gate,) = [g for g in stage.app.gates() if g.run_id.startswith(stage.run_id)]
    with contextlib.suppress(HoldfastError):
        stage.app.answer(gate.run_id, {"ok": True})
    assert handle.status() == "completed", [(r.run_id, r.status) for r in stage.app.runs(prefix=stage.run_id)]


def test_graphs_inside_graphs_have_room_for_their_ids(stage: GraphStage) -> None:
    inner: Any = {"id": "g", "stages": [END]}
    for _ in range(3):
        inner = {"id": "g", "stages": [{"id": "s" * 100, "type": "sub_workflow", "graph": inner}]}
    try:
        stage.graph(inner["stages"])
        handle = stage.go()
    except HoldfastError:
        return  # refused before anything was written: fine
    assert handle.status() == "completed"


@pytest.mark.parametrize("name", ["migrate", "graph_of", "adopt"])
def test_what_a_blocking_call_recommends_is_there(stage: GraphStage, name: str) -> None:
    assert hasattr(stage.app.aio, name)
