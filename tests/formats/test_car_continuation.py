"""A paused CAR workflow goes on here: its answer, then the rest of its stages through the graph runner."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import formats
from tests.cli.processes import command
from tests.formats.sample_files import SAMPLES, paused

STAGES: list[dict[str, Any]] = [
    {"id": "gate", "name": "Gate", "step": {"type": "approval", "prompt": "Send?", "output_key": "approval", "fields": [
        {"name": "ok", "field_type": "boolean", "required": True}]}},
    {"id": "send", "name": "Send", "timeout_ms": 60_000, "step": {
        "type": "pattern", "pattern": "pipeline", "task": "Write {{ like this }}", "agents": [], "config": {"n": 1}}},
    {"id": "each", "name": "Each", "step": {"type": "for_each", "items_from": "people", "max_concurrent": 2, "body": {
        "type": "proposal", "proposal": {"to": "{{item}}", "no": "{{index}}", "text": "{{ other }}"}}}},
    {"id": "polish", "name": "Polish", "step": {"type": "loop_until", "max_iterations": 5,
        "until": [{"key": "stage.polish.iteration", "operator": "gte", "value": 2}],
        "body": {"type": "pattern", "pattern": "vote", "task": "again"}}},
    {"id": "sure", "name": "Sure", "step": {"type": "approval", "prompt": "Sure?", "output_key": "sure", "fields": [
        {"name": "why", "options": ["good", "bad"], "required": True}]}},
    {"id": "inner", "name": "Inner", "step": {"type": "sub_workflow", "workflow": {
        "id": "in", "name": "In", "start": "a", "edges": [],
        "stages": [{"id": "a", "name": "A", "step": {"type": "proposal", "proposal": {"x": 1}}}]}}},
    {"id": "never", "name": "Never", "step": {"type": "pattern", "pattern": "vote", "task": "never"}},
]  # fmt: skip
EDGES = [
    {"from": "gate", "to": "send", "conditions": [{"key": "approval.ok", "operator": "eq", "value": True}]},
    {"from": "send", "to": "each", "conditions": [{"key": "stage.send.succeeded", "value": True}], "label": "sent"},
    {"from": "each", "to": "polish", "conditions": [{"key": "foreach.each.count", "operator": "eq", "value": 2}]},
    {"from": "polish", "to": "sure", "conditions": []},
    {"from": "sure", "to": "inner", "conditions": [{"key": "sure.why", "value": "good"}]},
    {"from": "inner", "to": "never", "conditions": [{"key": "nothing", "operator": "exists"}]},
]


def workflow(**more: Any) -> dict[str, Any]:
    return {"id": "wf", "name": "WF", "start": "gate", "stages": STAGES, "edges": EDGES, "max_iterations": 100,
            "metadata": {}, **more}  # fmt: skip


@pytest.fixture(params=["memory:", "sqlite:runs.db"])
def app(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[holdfast.App]:
    monkeypatch.chdir(tmp_path)
    with holdfast.App(request.param) as app:
        yield app


def imported(app: holdfast.App, **more: Any) -> list[Any]:
    """A paused workflow in the app's store, and what its functions were called with."""
    calls: list[Any] = []
    runs = formats.car.Directory("workflow-runs")
    more = {"workflow": workflow(), "fields": STAGES[0]["step"]["fields"], **more}
    runs.save(paused(wf_state={"people": ["ana", "ben"], "stage.old.answer": 1, "goal": "x"}, iterations=3, **more))
    runs.close()
    assert formats.import_dir("car", "workflow-runs", app.store).runs == ("run-1",)
    formats.register_car(app)

    def pattern(step: dict[str, Any], state: dict[str, Any]) -> str:
        calls.append((step["task"], state["approval"]["ok"]))
        return f"did {step['task']}"

    def proposal(step: dict[str, Any], state: dict[str, Any]) -> Any:
        calls.append(step["proposal"])
        return step["proposal"].get("to", "inside")

    app.function(name="car.pattern")(pattern)
    app.function(name="car.proposal")(proposal)
    return calls


def test_it_goes_on_from_its_answer_through_all_its_stages(app: holdfast.App) -> None:
    calls = imported(app)
    handle = app.answer("run-1", {"ok": True}, by="ana")
    assert handle.status() == "waiting"
    (gate,) = handle.gates()
    assert gate.prompt == "Sure?"
    with pytest.raises(holdfast.InvalidAnswer):
        app.answer("run-1", {"why": "perhaps"})
    result = app.answer("run-1", {"why": "good"}).result()
    sent = [call for call in calls if isinstance(call, dict) and "to" in call]
    assert sorted(sent, key=lambda call: call["no"]) == [
        {"to": "ana", "no": 0, "text": "{{ other }}"}, {"to": "ben", "no": 1, "text": "{{ other }}"},
    ]  # fmt: skip
    assert [call for call in calls if isinstance(call, tuple)] == [
        ("Write {{ like this }}", True), ("again", True), ("again", True),
    ]  # fmt: skip
    assert result["stage"]["each"]["answer"] == ["ana", "ben"]
    assert result["stage"]["inner"]["succeeded"] is True
    assert result["approval"] == {"ok": True}
    assert result["goal"] == "x"
    assert "never" not in result["stage"], "where no edge fits, CAR is done"


def test_the_other_answer_takes_the_other_way(app: holdfast.App) -> None:
    calls = imported(app)
    assert app.answer("run-1", {"ok": False}).result()["approval"] == {"ok": False}
    assert calls == []


def test_iterations_go_on_where_they_stood(app: holdfast.App) -> None:
    imported(app, workflow=workflow(max_iterations=4))
    with pytest.raises(holdfast.RunFailed, match="has performed 4 stages"):
        app.answer("run-1", {"ok": True}).result()


def test_stages_with_compensations_are_undone_when_a_later_one_fails(app: holdfast.App) -> None:
    stages = [
        STAGES[0],
        {"id": "book", "name": "Book", "step": {"type": "proposal", "proposal": {"to": "hotel"}},
         "compensation": {"type": "tool", "tool": "cancel"}},
        {"id": "fail", "name": "Fail", "step": {"type": "deliver", "sinks": []}},
    ]  # fmt: skip
    edges = [{"from": "gate", "to": "book"}, {"from": "book", "to": "fail"}]
    calls = imported(app, workflow=workflow(stages=stages, edges=edges))

    @app.undo(name="car.compensate")
    def undo(result: Any, step: Any, state: Any) -> None:
        calls.append(("undone", result, step["compensation"]))

    @app.function(name="car.deliver")
    def deliver(step: Any, state: Any) -> None:
        raise ConnectionError("no way")

    with pytest.raises(holdfast.RunFailed, match="1 effect was undone"):
        app.answer("run-1", {"ok": True}).result()
    assert calls == [{"to": "hotel"}, ("undone", "hotel", {"type": "tool", "tool": "cancel"})]


def test_a_function_that_is_missing_pauses_it_until_it_is_there(app: holdfast.App) -> None:
    imported(app)
    del app.registry.functions["car.pattern"]
    with pytest.raises(holdfast.errors.RunError, match=r"function 'car\.pattern', which is not registered"):
        app.answer("run-1", {"ok": True})
    assert app.handle("run-1").status() == "paused"
    app.function(name="car.pattern")(lambda step, state: "ok")
    assert app.resume("run-1").status() == "waiting"


def test_the_samples_of_the_original_go_on_from_the_command_line(tmp_path: Path) -> None:
    """As it was written by the original's own code: a gate and nothing behind it."""
    folder = tmp_path / "runs"
    folder.mkdir()
    (folder / "run-1.json").write_bytes((SAMPLES / "seed0-car" / "run-1.json").read_bytes())
    assert command("import", "car", "runs", cwd=tmp_path).code == 0
    done = command("answer", "run-1", "--by", "ana", cwd=tmp_path)
    assert (done.code, "run-1 is completed" in done.out) == (0, True), done.err
    state = json.loads(command("show", "run-1", "--state", "--json", cwd=tmp_path).out)
    assert "draft" in json.dumps(state)
