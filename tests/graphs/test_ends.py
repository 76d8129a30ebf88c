"""Keys, breakpoints, forks and children at the ends of a flow."""

from __future__ import annotations

import contextlib

import pytest

from tests.graphs.conftest import GraphStage

END = {"id": "end", "type": "end", "result": "end"}
ASK = {"id": "ask", "type": "ask", "prompt": "Go?", "fields": {"ok": "bool"}, "output_key": "go"}


def test_input_cannot_move_the_run_to_another_stage(stage: GraphStage) -> None:
    stage.graph(
        [
            {"id": "note", "type": "set", "values": {"{{ input.field }}": "{{ input.value }}"}},
            ASK,
            {**END, "result": "paid"},
        ],
        [("note", "ask"), ("ask", "end", ("go.ok", "eq", True)), ("ask", "ask", None)],
    )
    handle = stage.go(field="graph.at", value="end")
    assert handle.status() in ("waiting", "failed"), handle.result()


@pytest.mark.parametrize("field", ["graph", "stage", "a..b"])
def test_a_key_from_input_that_is_none_fails_the_stage(stage: GraphStage, field: str) -> None:
    stage.graph([{"id": "note", "type": "set", "values": {"{{ input.field }}": 1}, "on_failure": "skip"}, ASK, END])
    handle = stage.go(field=field)
    found = [e.data["error"] for e in stage.onlooker.journal(stage.run_id) if e.kind == "failed"]
    assert handle.status() == "waiting", found[0]["type"] + ": " + found[0]["message"]


def test_a_fork_does_not_pass_a_breakpoint_nobody_resumed(stage: GraphStage) -> None:
    stage.graph([{**ASK, "breakpoint": True}, END])
    assert stage.go().status() == "paused"
    assert stage.app.fork(stage.run_id).status() == "paused"


def test_a_child_at_a_breakpoint_is_cancelled_with_its_parent(stage: GraphStage) -> None:
    inner = {"id": "i", "stages": [{"id": "s", "type": "set", "values": {"a": 1}, "breakpoint": True}]}
    stage.graph([{"id": "sub", "type": "sub_workflow", "graph": inner}, END])
    stage.go()
    stage.app.cancel(stage.run_id)
    stage.app.worker().run(until_idle=True)
    found = {r.run_id: r.status for r in stage.app.runs(prefix=stage.run_id)}
    assert set(found.values()) == {"cancelled"}, found


def test_migrating_the_question_a_run_stands_at(stage: GraphStage) -> None:
    stage.graph([ASK, END])
    handle = stage.go()
    stage.graph([{**ASK, "fields": {"ok": "bool", "note": "str"}}, {**END, "result": "{{ go.note }}"}])
    try:
        stage.app.migrate(stage.run_id)
    except Exception:
        return
    with contextlib.suppress(Exception):
        stage.app.answer(stage.run_id, {"ok": True, "note": "hm"})
        assert handle.result() == "hm"
        return
    with contextlib.suppress(Exception):
        stage.app.answer(stage.run_id, {"ok": True})
    assert handle.status() != "failed"
