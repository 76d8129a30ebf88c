"""Converter of paused CAR workflows, and the workflow that continues them.

A paused CAR workflow becomes a run that waits at a gate. The run is of the workflow `car`, whose argument is the paused
workflow. A claimed one is also paused, because its owner may still be working on it and nothing may be done twice;
after its answer `app.resume` continues it. Its definition is converted to a graph.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from holdfast.errors import Conflict, DamagedFile, InvalidInput
from holdfast.formats.car.claims import Claims
from holdfast.formats.car.workflow_records import CLAIMED, PAUSED, check_workflow, read
from holdfast.formats.convert import run_parts
from holdfast.formats.folder import Folder, check_name
from holdfast.formats.schema import JsonObject, microseconds, write_json
from holdfast.graphs.definition import Graph
from holdfast.graphs.expressions import put
from holdfast.graphs.flow import Flow, choose_edge
from holdfast.graphs.semantics import verify
from holdfast.graphs.stage_runner import walk_run
from holdfast.graphs.walk import first_state, lookup_in
from holdfast.model.rows import TERMINAL
from holdfast.model.views import Problem
from holdfast.operations.context import StoreContext
from holdfast.runtime.app import App
from holdfast.runtime.run import Run

WORKFLOW: Final = "car"
_FACTS: Final[tuple[str, ...]] = ("stage_id", "stage_name", "status", "duration_ms", "error")


class CarConverter:
    """Converts CAR's files to runs, and runs to its files."""

    def sources(self, path: str) -> list[run_parts.Source]:
        folder = Folder(run_parts.root_of(path, ".car", "workflow-runs"))
        names = folder.names()
        waiting = {name.removesuffix(PAUSED) for name in names if name.endswith(PAUSED)}
        found = []
        for name in names:
            if name.endswith(PAUSED):
                reader = partial(_read_either, folder, name.removesuffix(PAUSED))
                found.append(run_parts.Source(folder.at(name), reader))
            elif name.endswith(CLAIMED) and name.removesuffix(CLAIMED) not in waiting:
                found.append(run_parts.Source(folder.at(name), partial(_read, folder, name, CLAIMED)))
        return found

    def files(self, whole: run_parts.WholeRun) -> list[run_parts.File]:
        run_id = whole.run.run_id
        if whole.answered or whole.run.status in TERMINAL:
            why = "was answered and has continued" if whole.answered else f"has ended ({whole.run.status})"
            raise InvalidInput(f"run {run_id!r} {why}; CAR has files only of paused workflows")
        state = whole.checkpoints[-1].state if whole.checkpoints else None
        content = check_workflow(state, "the newest state of the run")
        ending = CLAIMED if str(whole.run.metadata.get("file", "")).endswith(CLAIMED) else PAUSED
        name = check_name("run_id", content["run_id"], ending)
        run_parts.require_same_id(run_id, content["run_id"])
        return [run_parts.File((name,), write_json(content))]

    def merge_with_existing(
        self,
        folder: Folder,
        whole: run_parts.WholeRun,
        files: list[run_parts.File],
        *,
        replace: bool,  # noqa: ARG002
    ) -> list[run_parts.File]:
        run_id, (file,) = whole.run.run_id, files
        claims = Claims(folder)
        state = claims.claim_state(run_id)
        is_alive = claims.holder_is_alive(state)
        claims.close()
        if state.claimed and file.name[0].endswith(PAUSED):
            raise Conflict(
                f"{folder.path} has a claimed run {run_id!r}; the process that claimed it may be working on it"
            )
        if is_alive and not run_parts.is_same(folder, file):
            raise Conflict(f"run {run_id!r} in {folder.path} is claimed by {state.owner!r}, a live process")
        return files


def _read_either(folder: Folder, run_id: str, core: StoreContext, problems: list[Problem]) -> run_parts.Parts:
    """Read the paused run; if its file is damaged, the claimed one, if there is one."""
    try:
        return _read(folder, run_id + PAUSED, PAUSED, core, problems)
    except DamagedFile as damage:
        if folder.identity(run_id + CLAIMED) is None:
            raise
        problems.append(Problem(place=damage.place, reason=damage.reason))
        return _read(folder, run_id + CLAIMED, CLAIMED, core, problems)


def _read(folder: Folder, name: str, ending: str, core: StoreContext, _problems: list[Problem]) -> run_parts.Parts:
    paused = read(run_parts.read_source(folder, name), name.removesuffix(ending), folder.at(name))
    at_us, workflow = microseconds(paused["created_at"]), paused["workflow"]
    form = run_parts.form_of_fields(paused.get("fields", []))
    asked, gate = run_parts.open_gate(core, paused["prompt"], form, _shown(paused), at_us)
    stages = [run_parts.entry(core, _stage_entry(result), at_us) for result in paused.get("stage_results", [])]
    status = "waiting" if ending == PAUSED else "paused"
    step = run_parts.Step(
        state=paused,
        file=name,
        step=run_parts.step_or_none(paused["iterations"]),
        next_node=paused["paused_stage_id"],
        status=status,
        created_us=at_us,
        resume=run_parts.resume_after(len(stages) + 2),
    )
    return run_parts.Parts(
        run_id=paused["run_id"],
        workflow=WORKFLOW,
        status=status,
        file=name,
        entries=[run_parts.started_entry(core, WORKFLOW, paused, created_us=at_us), *stages, asked],
        steps=[step],
        gates=[gate],
        about={"workflow": workflow["id"], "stage": paused["paused_stage_id"]},
    )


def _shown(paused: JsonObject) -> JsonObject:
    return {
        "workflow": paused["workflow"]["name"],
        "stage": paused["paused_stage_id"],
        "completed": paused.get("completed_stage_ids", []),
        "state": paused.get("wf_state", {}),
    }


def _stage_entry(result: JsonObject) -> JsonObject:
    """Return the entry of a finished stage, for the timeline; its output is in the state."""
    return {"kind": "stage"} | {name: result[name] for name in _FACTS if name in result}


END: Final = "car.end"
COMPENSATE: Final = "car.compensate"
_ITEM: Final = ("{{item}}", "{{ item }}"), ("{{index}}", "{{ index }}")


def graph_of(workflow: JsonObject) -> Graph:
    """Return the graph of a definition. Raises InvalidGraph if it cannot be converted."""
    saga = any(stage.get("compensation") for stage in workflow["stages"])
    stages = [_stage(stage, saga=saga) for stage in workflow["stages"]]
    edges = [_edge(edge) for edge in workflow["edges"]]
    edges += [{"from": stage["id"], "to": END, "default": True} for stage in stages]
    start = workflow["start"] if any(stage["id"] == workflow["start"] for stage in stages) else END
    return Graph.from_data(
        {
            "id": workflow["id"],
            "name": workflow.get("name", ""),
            "start": start,
            "goal": workflow.get("goal"),
            "stages": [*stages, {"id": END, "type": "end"}],
            "edges": edges,
            "max_iterations": workflow.get("max_iterations", 100),
        }
    )


def _edge(edge: JsonObject) -> JsonObject:
    conditions = [_condition(condition) for condition in edge.get("conditions") or ()]
    return {"from": edge["from"], "to": edge["to"], "conditions": conditions, "label": edge.get("label") or ""}


def _condition(given: JsonObject) -> JsonObject:
    found = {name: given[name] for name in ("key", "operator", "description") if given.get(name)}
    return {**found, "key": _convert_key(given["key"]), "value": plain(given.get("value"))}


def _convert_key(key: str) -> str:
    """Convert CAR's key for the result of a for_each to ours."""
    head, _, rest = key.partition(".")
    name, _, what = rest.rpartition(".")
    if head != "foreach":
        return key
    if what == "count":
        return f"stage.{name}.count"
    stage, _, number = name.rpartition(".")
    return f"stage.{stage}.answer.{number}" if what == "answer" and number.isdigit() else key


def _stage(stage: JsonObject, *, saga: bool) -> JsonObject:
    step = _step(stage["step"], inside=False)
    if stage.get("compensation") and step["type"] == "call":
        step |= {"type": "effect", "compensation": COMPENSATE}
        step["with"]["step"]["compensation"] = plain(stage["compensation"])
    if stage.get("timeout_ms") and step["type"] in ("call", "effect"):
        step["timeout_s"] = stage["timeout_ms"] / 1000
    more = {"on_failure": "compensate"} if saga else {}
    return {**step, "id": stage["id"], "name": stage.get("name", ""), **more}


def _step(step: JsonObject, *, inside: bool) -> JsonObject:
    match step["type"]:
        case "approval":
            return {
                "type": "ask",
                "prompt": _text(step["prompt"], inside=inside),
                "output_key": step["output_key"],
                "fields": run_parts.schema_of_fields(step.get("fields") or []),
            }
        case "loop_until":
            until = [_condition(condition) for condition in step.get("until") or ()]
            return {
                "type": "loop_until",
                "body": _step(step["body"], inside=inside),
                "until": until,
                "max_iterations": step["max_iterations"],
            }
        case "for_each":
            more = {"max_concurrent": step["max_concurrent"]} if step.get("max_concurrent") else {}
            return {
                "type": "for_each",
                "items_from": step["items_from"],
                "body": _step(step["body"], inside=True),
                **more,
            }
        case "sub_workflow" if isinstance(step.get("workflow"), dict):
            return {
                "type": "sub_workflow",
                "graph": graph_of(step["workflow"]).as_data(),
                "with": {"state": "{{ state }}"},
            }
    return {
        "type": "call",
        "function": f"car.{step['type']}",
        "with": {"step": plain(step, inside=inside), "state": "{{ state }}"},
    }


def plain(value: object, *, inside: bool = False) -> Any:
    """Escape the templates in a value, except, inside a for_each, those for the item and its index, as in CAR."""
    if isinstance(value, str):
        return _text(value, inside=inside)
    if isinstance(value, dict):
        return {_text(key, inside=inside): plain(part, inside=inside) for key, part in value.items()}
    return [plain(part, inside=inside) for part in value] if isinstance(value, list) else value


def _text(text: str, *, inside: bool) -> str:
    marks = {name: f"\0{number}\0" for number, (name, _) in enumerate(_ITEM)} if inside else {}
    for name, mark in marks.items():
        text = text.replace(name, mark)
    text = text.replace("{{", "\\{{")
    for number, (_, ours) in enumerate(_ITEM):
        text = text.replace(f"\0{number}\0", ours)
    return text


def register_car(app: App) -> None:
    """Let an app continue imported CAR workflows: from the answer through the rest of their stages.

    Their agents and tools are functions of the app: `car.pattern`, `car.proposal`, `car.deliver`, …, each called with
    `step`, as in the file, and `state`. If stages have compensations, `car.compensate` must be an undo.

    Example:
        formats.register_car(app)

        @app.function(name="car.pattern")
        def pattern(step, state):
            return f"did {step['task']}"
    """

    def car(run: Run, paused: JsonObject) -> object:
        graph = graph_of(paused["workflow"])
        answer = run.ask(paused["prompt"], run_parts.schema_of_fields(paused.get("fields") or []))
        state = first_state(graph, *_origin(paused, answer))
        edge = choose_edge(Flow(graph).edges_from(paused["paused_stage_id"]), lookup_in(state))
        state["graph"]["at"] = edge.target if edge is not None else END
        run.state.update(state)
        return walk_run(run, graph, app.registry, WORKFLOW)

    if not app.knows(WORKFLOW):
        app.workflow(name=WORKFLOW)(car)


def _origin(paused: JsonObject, answer: object) -> tuple[JsonObject, JsonObject, JsonObject]:
    """Return the input, the variables and the rest of the state of an answered workflow."""
    state = {**paused.get("wf_state", {})}
    given = state.pop("input", {})
    put(state, paused["output_key"], answer)
    stage = {result["stage_id"]: _stage_facts(result) for result in paused.get("stage_results", [])}
    stage[paused["paused_stage_id"]] = {"status": "succeeded", "succeeded": True, "iteration": 1, "answer": answer}
    origin = {"state": state, "stage": stage, "iterations": paused["iterations"], "at": paused["paused_stage_id"]}
    return given if isinstance(given, dict) else {"value": given}, {}, origin


def _stage_facts(result: JsonObject) -> JsonObject:
    """Return the outcome of a stage before the import in our format; its output is unchanged."""
    good = result.get("status") == "succeeded"
    found = {"status": result.get("status", ""), "succeeded": good, "iteration": 1, "answer": result.get("output")}
    return found | ({"error": {"type": "Failed", "message": result["error"]}} if result.get("error") else {})


def adopt_car(app: App, run_id: str) -> bool:
    """Let an app continue an imported CAR workflow, if it has all the functions for it. Return whether it can."""
    (first,) = app.store.journal(run_id, limit=1)
    findings = verify(graph_of(first["args"][0]["workflow"]), app.registry)
    if any(finding.code.startswith("unknown") for finding in findings):
        return False
    register_car(app)
    return True
