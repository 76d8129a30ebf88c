"""Going on with a CAR workflow that was imported: its answer, then the rest of it through the graph runner."""

from __future__ import annotations

from typing import Any

from holdfast.formats.moving.car import WORKFLOW
from holdfast.formats.moving.car_graph import END, graph_of
from holdfast.formats.moving.gates import schema_of_fields
from holdfast.graphs.flow import Flow
from holdfast.graphs.paths import put
from holdfast.graphs.running import first_state, looked_up, walk
from holdfast.graphs.verifying import verify
from holdfast.runtime.app import App


def register(app: App) -> None:
    """What `holdfast.formats.register_car` does."""

    def car(run: Any, paused: dict[str, Any]) -> Any:
        graph = graph_of(paused["workflow"])
        answer = run.ask(paused["prompt"], schema_of_fields(paused.get("fields") or []))
        state = first_state(graph, *_origin(paused, answer))
        edge = Flow(graph).chosen(paused["paused_stage_id"], looked_up(state))
        state["graph"]["at"] = edge.target if edge is not None else END
        run.state.update(state)
        return walk(run, graph, app.registry, WORKFLOW)

    if not app.knows(WORKFLOW):
        app.workflow(name=WORKFLOW)(car)


def _origin(paused: dict[str, Any], answer: Any) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """The input, the variables and the rest of the state of a workflow that has its answer."""
    state = {**paused.get("wf_state", {})}
    given = state.pop("input", {})
    put(state, paused["output_key"], answer)
    stage = {result["stage_id"]: _told(result) for result in paused.get("stage_results", [])}
    stage[paused["paused_stage_id"]] = {"status": "succeeded", "succeeded": True, "iteration": 1, "answer": answer}
    origin = {"state": state, "stage": stage, "iterations": paused["iterations"], "at": paused["paused_stage_id"]}
    return given if isinstance(given, dict) else {"value": given}, {}, origin


def _told(result: dict[str, Any]) -> dict[str, Any]:
    """What became of a stage before the import, as ours are told; its output is kept as it was."""
    good = result.get("status") == "succeeded"
    found = {"status": result.get("status", ""), "succeeded": good, "iteration": 1, "answer": result.get("output")}
    return found | ({"error": {"type": "Failed", "message": result["error"]}} if result.get("error") else {})


def adopt_car(app: App, run_id: str) -> bool:
    """Let an app go on with an imported CAR workflow, if it has all the functions that needs. Whether it can now."""
    (first,) = app.store.journal(run_id, limit=1)
    findings = verify(graph_of(first["args"][0]["workflow"]), app.registry)
    if any(finding.code.startswith("unknown") for finding in findings):
        return False
    register(app)
    return True
