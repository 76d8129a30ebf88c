"""Who moves which runs on: nobody does, or spoils, what is not its own."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from holdfast import App, InvalidInput
from tests.graphs.conftest import GraphStage

HELLO = {"id": "refund", "stages": [{"id": "end", "type": "end", "result": "declared"}]}


def ask(**more: Any) -> dict[str, Any]:
    return {"id": "ask", "type": "ask", "prompt": "Go?", "fields": {"ok": "bool"}, "output_key": "go", **more}


def test_a_code_run_of_the_same_name_is_not_failed_by_a_worker_that_adopted(tmp_path: Any) -> None:
    url = f"sqlite:{tmp_path / 'runs.db'}"
    with App(url) as maker, App(url) as code, App(url) as stranger:
        maker.graph(HELLO)
        maker.start("refund", {}, run_id="declared-1", enqueue=True)
        code.workflow(name="refund")(lambda run, order=None: "code")
        code.start("refund", {"order": 1}, run_id="code-1", enqueue=True)
        stranger.worker().run(until_idle=True)
        status = code.handle("code-1").status()
        assert status != "failed"


def test_a_declared_run_is_not_done_by_a_code_workflow_of_the_same_name(tmp_path: Any) -> None:
    url = f"sqlite:{tmp_path / 'runs.db'}"
    with App(url) as maker, App(url) as code:
        maker.graph(HELLO)
        maker.start("refund", {}, run_id="declared-1", enqueue=True)
        code.workflow(name="refund")(lambda run, order=None: "code")
        code.worker().run(until_idle=True)
        handle = maker.handle("declared-1")
        assert handle.status() != "completed" or handle.result() == "declared", handle.result()


def test_a_worker_leaves_a_run_that_names_functions_it_does_not_have(tmp_path: Any) -> None:
    url = f"sqlite:{tmp_path / 'runs.db'}"
    with App(url) as one, App(url) as two, App(url) as worker:
        for app in (one, two, worker):
            app.function(name="f")(lambda: 1)
        two.function(name="g")(lambda: 2)
        one.graph({"id": "flow", "stages": [{"id": "a", "type": "call", "function": "f"}]})
        two.graph({"id": "flow", "stages": [{"id": "a", "type": "call", "function": "g"}]})
        one.start("flow", {}, run_id="r1", enqueue=True)
        two.start("flow", {}, run_id="r2", enqueue=True)
        worker.worker().run(until_idle=True)
        two.worker().run(until_idle=True)
        assert (one.handle("r1").status(), two.handle("r2").status()) == ("completed", "completed")


def test_a_worker_sees_a_declared_run_behind_200_foreign_ones(tmp_path: Any) -> None:
    url = f"sqlite:{tmp_path / 'runs.db'}"
    with App(url) as one, App(url) as worker:
        for name in ["a", "z"]:
            for number in range(201):
                one.start("somebody-elses", run_id=f"{name}{number}", enqueue=True)
            if name == "a":
                one.graph(HELLO)
                one.start("refund", {}, run_id="m", enqueue=True)
        worker.worker().run(until_idle=True)
        assert one.handle("m").status() == "completed"


@pytest.mark.parametrize("change", [{"input": {"who": "str"}}, {"input": {"n": {"type": "int", "default": 1}}}])
def test_a_parent_does_not_fail_because_its_childs_definition_changed(stage: GraphStage, change: Any) -> None:
    stage.graph([ask(), {"id": "end", "type": "end", "result": "child done"}], id="kid", input={})
    stage.graph([{"id": "sub", "type": "sub_workflow", "workflow": "kid"}, {"id": "end", "type": "end"}])
    handle = stage.go()
    assert handle.status() == "waiting"
    stage._graphs["kid"] = {**stage._graphs["kid"], **change}
    stage.restart()
    with contextlib.suppress(Exception):
        stage.app.resume(stage.run_id)
    status = stage.app.handle(stage.run_id).status()
    assert status != "failed"


def test_variables_are_checked_before_anything_is_written(tmp_path: Any) -> None:
    wrong: list[dict[str, Any]] = [{"variables": 5}, {"variables": {2: 3}}, {"variables": {"a": 1}}, {"origin": 7}]
    with App(f"sqlite:{tmp_path / 'runs.db'}") as app:
        app.graph(HELLO)
        for bad in wrong:
            with pytest.raises(InvalidInput):
                app.start("refund", {}, run_id="v", **bad)
        assert list(app.runs()) == []
