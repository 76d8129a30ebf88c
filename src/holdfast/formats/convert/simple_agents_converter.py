"""Converter of SimpleAgents' checkpoints, of all three generations.

The first generation is that of `simple_agents.Directory`: the run has the workflow, the step and the next node of its
file. The second is a dict with `workflow_path` and `failed_node_id`; the third is the output of a run that awaits an
answer, which becomes a gate. These two have no id inside, so the file name is the run's id.

A run of the first two starts with the original's input and a `resume`, from which a workflow or a graph of its name
continues:

    {"at": the next node, "step": the number of completed nodes, "scope": the values that the nodes read and wrote}
"""

from __future__ import annotations

import os
from functools import partial
from typing import Final

from holdfast.errors import InvalidInput, NameTaken
from holdfast.formats.convert import run_parts
from holdfast.formats.folder import Folder, check_name
from holdfast.formats.schema import JsonObject, Schema, read_json, read_object, require_schema, write_json
from holdfast.formats.simple_agents import ENDING, WorkflowCheckpoint
from holdfast.model.views import Problem
from holdfast.operations.context import StoreContext

WORKFLOW: Final = "simple_agents"
_AWAITING: Final = "awaiting_human_input"


class _Failed(Schema):
    """A checkpoint of the second generation."""

    workflow_path: str
    failed_node_id: str
    completed_trace: list[str]
    completed_outputs: JsonObject


class _Awaiting(Schema):
    """A checkpoint of the third generation."""

    status: str
    human_request: JsonObject


class SimpleAgentsConverter(run_parts.NoConflictMixin):
    """Converts SimpleAgents' files to runs, and runs to its files."""

    def sources(self, path: str) -> list[run_parts.Source]:
        folder = Folder(path)
        names = [name for name in folder.names() if name.endswith(ENDING)]
        return [run_parts.Source(folder.at(name), partial(_read, folder, name)) for name in names]

    def files(self, whole: run_parts.WholeRun) -> list[run_parts.File]:
        state = whole.checkpoints[-1].state if whole.checkpoints else None
        schema = _schema_of(state)
        if schema is _Awaiting and whole.answered:
            raise InvalidInput(f"run {whole.run.run_id!r} was answered and has continued; it cannot be exported")
        if run_parts.is_continued(whole):
            raise InvalidInput(
                f"run {whole.run.run_id!r} has continued in Holdfast since its last SimpleAgents checkpoint; "
                "SimpleAgents would repeat the later nodes"
            )
        content = require_schema(state, schema, "the newest state of the run")
        run_id = content["run_id"] if schema is WorkflowCheckpoint else whole.run.run_id
        name = check_name("run_id", run_id, ENDING)
        run_parts.require_same_id(whole.run.run_id, run_id)
        return [run_parts.File((name,), write_json(content))]


def _schema_of(value: object) -> type[Schema]:
    if isinstance(value, dict) and "failed_node_id" in value and "run_id" not in value:
        return _Failed
    if isinstance(value, dict) and value.get("status") == _AWAITING and "human_request" in value:
        return _Awaiting
    return WorkflowCheckpoint


def _read(folder: Folder, name: str, core: StoreContext, _problems: list[Problem]) -> run_parts.Parts:
    data, place = run_parts.read_source(folder, name), folder.at(name)
    schema, run_id = _schema_of(read_json(data, place)), name.removesuffix(ENDING)
    found = read_object(data, schema, place)
    if schema is _Awaiting:
        return _awaiting(core, run_id, name, found)
    if schema is _Failed:
        stem = os.path.splitext(os.path.basename(found["workflow_path"]))[0]
        step = run_parts.Step(found, name, next_node=found["failed_node_id"])
        return _stopped(core, run_id, stem, step, _failed_scope(found), len(found["completed_trace"]))
    if found["run_id"] != run_id:
        raise NameTaken(place, run_id, found["run_id"])
    step = run_parts.Step(found, name, run_parts.step_or_none(found["step"]), found["next_node_id"])
    snapshot = found["scope_snapshot"]
    scope = snapshot if isinstance(snapshot, dict) and "input" in snapshot else {"input": snapshot}
    return _stopped(core, run_id, found["workflow_name"], step, scope, found["step"])


def _stopped(
    core: StoreContext, run_id: str, name: str, step: run_parts.Step, scope: JsonObject, count: int
) -> run_parts.Parts:
    """Return a run that stopped before a node, with what a workflow needs to continue there."""
    workflow = run_parts.id_or_none(name) or WORKFLOW
    resume = {"at": step.next_node, "step": count, "scope": scope}
    step.resume = run_parts.resume_after(1)
    first = run_parts.started_entry(core, workflow, scope["input"], kwargs={"resume": resume})
    return run_parts.Parts(run_id, workflow, "paused", step.file, [first], [step])


def _failed_scope(found: JsonObject) -> JsonObject:
    """Return the scope of the second generation with the names of the first."""
    given = {"messages": found.get("original_messages") or []}
    return {"input": given, "node_outputs": found["completed_outputs"], "globals": found.get("globals") or {}}


def _awaiting(core: StoreContext, run_id: str, name: str, found: JsonObject) -> run_parts.Parts:
    request = found["human_request"]
    prompt = str(request.get("prompt") or "The workflow awaits an answer.")
    asked, gate = run_parts.open_gate(core, prompt, run_parts.form_of_request(request), found.get("outputs"), None)
    step = run_parts.Step(
        state=found,
        file=name,
        status="waiting",
        next_node=run_parts.id_or_none(request.get("node_id")),
        resume=run_parts.resume_after(2),
    )
    return run_parts.Parts(
        run_id=run_id,
        workflow=WORKFLOW,
        status="waiting",
        file=name,
        entries=[run_parts.started_entry(core, WORKFLOW, found), asked],
        steps=[step],
        gates=[gate],
    )
