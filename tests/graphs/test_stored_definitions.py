"""The definition travels with the run: a changed one is refused with a diff, unless the run is migrated."""

from __future__ import annotations

import os
from typing import Any

import pytest

import holdfast
from holdfast import InvalidInput
from holdfast.errors import DefinitionChanged, InvalidGraph, RunEnded, RunError
from tests.graphs.conftest import GraphStage

ASK = {"id": "ask", "type": "ask", "prompt": "Well?", "fields": {"ok": "bool"}, "output_key": "a"}
END = {"id": "end", "type": "end", "result": "one"}


def changed(stage: GraphStage, *stages: dict[str, Any], **more: Any) -> None:
    """A new version is deployed, and everything restarted."""
    stage._graphs["flow"] = {"id": "flow", "stages": list(stages), **more}
    stage.restart()


def test_a_run_is_not_resumed_by_another_definition_and_nothing_is_lost(everywhere: GraphStage) -> None:
    everywhere.graph([ASK, END])
    everywhere.go()
    changed(everywhere, ASK, {**END, "result": "two"}, {"id": "new", "type": "end"})
    with pytest.raises(DefinitionChanged) as refused:
        everywhere.app.answer(everywhere.run_id, {"ok": True}, by="ana")
    assert refused.value.changes == [
        "stage 'new' was added", "stage 'end'.result: 'one' → 'two'",
        "stages: their order changed, and without edges the run follows it",
    ]  # fmt: skip
    assert everywhere.status() == "paused"
    changed(everywhere, ASK, END)
    assert everywhere.app.resume(everywhere.run_id).result() == "one"
    (answered,) = everywhere.journal("answered")
    assert answered["by"] == "ana"


def test_a_migrated_run_goes_on_by_the_new_definition(everywhere: GraphStage) -> None:
    everywhere.graph([ASK, END])
    everywhere.go()
    changed(everywhere, ASK, {**END, "result": "two"})
    with pytest.raises(DefinitionChanged):
        everywhere.app.resume(everywhere.run_id)
    assert everywhere.app.migrate(everywhere.run_id, by="ben") == ["stage 'end'.result: 'one' → 'two'"]
    assert everywhere.status() == "waiting"
    (entry,) = everywhere.journal("definition")
    assert (entry["by"], entry["changes"]) == ("ben", ["stage 'end'.result: 'one' → 'two'"])
    everywhere.restart()
    assert everywhere.app.answer(everywhere.run_id, {"ok": True}).result() == "two"


def test_a_migration_outlives_many_stages_and_pruning(stage: GraphStage) -> None:
    def flow(result: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        stages: list[dict[str, Any]] = [ASK, {"id": "end", "type": "end", "result": result}]
        edges: list[dict[str, Any]] = [{"from": "ask", "to": "end", "conditions": [{"key": "a.ok", "value": True}]},
                 {"from": "ask", "to": "ask", "default": True}]  # fmt: skip
        return stages, edges

    stages, edges = flow("one")
    stage.graph(stages, edges)
    stage.go()
    stages, edges = flow("two")
    changed(stage, *stages, edges=edges)
    stage.app.migrate(stage.run_id)
    for _ in range(4):
        stage.app.answer(stage.run_id, {"ok": False})
    stage.onlooker.prune(stage.run_id, holdfast.Keep(last=1, journal=True))
    stage.restart()
    assert stage.app.graph_of(stage.run_id).stages[1].result == "two"  # type: ignore[union-attr]
    assert stage.app.answer(stage.run_id, {"ok": True}).result() == "two"


def test_words_for_people_may_change_at_any_time(stage: GraphStage) -> None:
    stage.graph([ASK, END], name="One", metadata={"a": 1})
    stage.go()
    changed(stage, {**ASK, "name": "Ask them", "description": "…"}, END, name="Two", description="new")
    assert stage.app.answer(stage.run_id, {"ok": True}).result() == "one"


def test_a_run_cannot_be_migrated_to_where_its_stage_is_not(stage: GraphStage) -> None:
    stage.graph([ASK, END])
    stage.go()
    changed(stage, {**ASK, "id": "other"}, END)
    with pytest.raises(InvalidInput, match="is at stage 'ask', which the new definition does not have"):
        stage.app.migrate(stage.run_id)
    changed(stage, {"id": "ask", "type": "wait", "event": "x"}, END)
    with pytest.raises(InvalidInput, match="another type"):
        stage.app.migrate(stage.run_id)
    changed(stage, {"id": "ask", "type": "call", "function": "nobody"}, END)
    with pytest.raises(InvalidGraph, match="no function 'nobody'"):
        stage.app.migrate(stage.run_id)
    assert stage.status() == "waiting", "nothing of this has touched it"
    changed(stage, ASK, END)
    assert stage.app.answer(stage.run_id, {"ok": True}).result() == "one"
    with pytest.raises(RunEnded):
        stage.app.migrate(stage.run_id)


def test_a_run_that_somebody_paused_stays_so_when_it_is_migrated(stage: GraphStage) -> None:
    stage.graph([ASK, END])
    stage.go()
    stage.app.pause(stage.run_id)
    changed(stage, ASK, {**END, "result": "two"})
    stage.app.migrate(stage.run_id)
    assert stage.status() == "paused"
    stage.app.resume(stage.run_id)
    assert stage.app.answer(stage.run_id, {"ok": True}).result() == "two"


def test_a_process_without_the_file_goes_on_by_what_the_run_carries(everywhere: GraphStage) -> None:
    @everywhere.function
    def shout(text: str) -> str:
        return text.upper()

    call = {"id": "shout", "type": "call", "function": "shout", "with": {"text": "done"}, "output_key": "out"}
    everywhere.graph([ASK, call, {**END, "result": "{{ out }}"}])
    everywhere.go()
    everywhere._graphs.clear()
    functions, everywhere._functions = everywhere._functions, []
    everywhere.restart()
    assert everywhere.app.graph_of(everywhere.run_id).id == "flow"
    assert everywhere.app.adopt(everywhere.run_id) is False, "it names a function nobody has registered here"
    everywhere._functions = functions
    everywhere.restart()
    assert everywhere.app.adopt(everywhere.run_id) is True
    assert everywhere.app.answer(everywhere.run_id, {"ok": True}).result() == "DONE"


def test_a_worker_with_the_functions_needs_no_file(stage: GraphStage, tmp_path: Any) -> None:
    url = f"sqlite:{tmp_path / 'alone.db'}"
    flow = {"id": "f", "stages": [{"id": "s", "type": "call", "function": "shout", "output_key": "x"}]}
    with holdfast.App(url) as other:
        other.function(name="shout")(lambda: "HEY")
        other.graph(flow)
        other.start("f", {}, run_id="r", enqueue=True)
    with holdfast.App(url) as bare:
        bare.worker().run(until_idle=True)
        assert bare.handle("r").status() == "ready", "it names what this process does not have"
    with holdfast.App(url) as app:
        app.function(name="shout")(lambda: "HEY")
        app.worker().run(until_idle=True)
        assert app.handle("r").result()["x"] == "HEY"


def test_whoever_answers_inside_a_run_can_move_the_whole_on(stage: GraphStage) -> None:
    inner = {"id": "inner", "stages": [ASK, {"id": "end", "type": "end", "result": "{{ a.ok }}"}]}
    stage.graph(
        [{"id": "sub", "type": "sub_workflow", "graph": inner, "output_key": "x"}, {**END, "result": "{{ x }}"}]
    )
    stage.go()
    stage._graphs.clear()
    stage.restart()
    (gate,) = [gate for gate in stage.app.gates() if gate.run_id.startswith(stage.run_id)]
    assert stage.app.adopt(gate.run_id)
    stage.app.answer(gate.run_id, {"ok": True})
    assert stage.app.handle(stage.run_id).result() is True


def test_a_function_this_process_does_not_know_pauses_the_run_and_does_not_fail_it(stage: GraphStage) -> None:
    @stage.function
    def shout() -> str:
        return "done"

    stage.graph([ASK, {"id": "shout", "type": "call", "function": "shout", "output_key": "out"}, END])
    stage.go()
    functions, stage._functions = stage._functions, []
    stage.restart()
    with pytest.raises(RunError, match="function 'shout', which is not registered in this process"):
        stage.app.answer(stage.run_id, {"ok": True})
    assert stage.status() == "paused"
    stage._functions = functions
    stage.restart()
    assert stage.app.resume(stage.run_id).result() == "one"


def test_whoever_starts_a_run_need_not_have_its_definition(stage: GraphStage) -> None:
    stage.graph([ASK, END])
    other = holdfast.App(stage.url)
    other.start("flow", {}, run_id=stage.run_id, enqueue=True)
    other.close()
    assert stage.app.resume(stage.run_id).status() == "waiting"
    changed(stage, ASK, {**END, "result": "two"})
    with pytest.raises(DefinitionChanged):
        stage.app.answer(stage.run_id, {"ok": True})


def test_a_function_that_was_never_registered_is_refused_at_the_start(stage: GraphStage) -> None:
    stage.graph([{"id": "x", "type": "call", "function": "os.system", "with": {"command": "true"}}, END])
    with pytest.raises(InvalidGraph, match=r"no function 'os\.system' is registered"):
        stage.go()
    with pytest.raises(holdfast.errors.RunNotFound):
        stage.status()


def test_forks_and_rollbacks_go_by_the_definition_of_their_place(stage: GraphStage) -> None:
    stage.graph([ASK, END])
    stage.go()
    stage.app.answer(stage.run_id, {"ok": True})
    fork = stage.app.fork(stage.run_id, f"{stage.run_id}-fork", at=1)
    assert fork.status() == "waiting"
    stage.app.rollback(stage.run_id, 1)
    assert stage.status() == "waiting"
    assert stage.app.answer(f"{stage.run_id}-fork", {"ok": False}).result() == "one"


def test_nothing_of_the_language_runs_code(stage: GraphStage, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for text in ("{{ __import__('os').system('touch x') }}", "{{ ''.__class__ }}", "{{ input.x + 1 }}", "{{ f() }}",
                 "{{ a | b }}", "{{ a[0] }}", "{{ }}", "{{ a..b }}", "{{ 'a' }}"):  # fmt: skip
        with pytest.raises(InvalidGraph, match=r"is not a path"):
            holdfast.Graph.from_data({"id": "g", "stages": [{"id": "s", "type": "set", "values": {"x": text}}]})
    assert os.listdir(tmp_path) == []
    stage.graph([{"id": "end", "type": "end", "result": "{{ input.__class__ }}"}])
    with pytest.raises(holdfast.RunFailed, match=r"the state has nothing at 'input\.__class__'"):
        stage.go().result()
