"""SimpleAgents' checkpoints as runs, of all three generations.

The first is what `simple_agents.Directory` keeps: the run is of the workflow its file names, at its step, with its next
node. The second is a dict with `workflow_path` and `failed_node_id`; the third is the output of a run that awaits an
answer, which becomes a gate. These two have no id inside, so the file's name is the run's.

A run of the first two begins with the original's input and a `resume`, from which a workflow or a graph of its name
continues:

    {"at": the node that is next, "step": how many were done, "scope": what the nodes read and wrote}
"""

from __future__ import annotations

import os
from functools import partial
from typing import Any, Final

from holdfast.errors import DamagedFile, InvalidInput, NameTaken
from holdfast.formats.folder import Folder
from holdfast.formats.lossless import read_json, write_json
from holdfast.formats.moving.gates import form_of_request, opened
from holdfast.formats.moving.parts import (
    Careless,
    File,
    Parts,
    Source,
    Step,
    Whole,
    acceptable,
    is_continued,
    resume_after,
    same_id,
    small_step,
    started,
)
from holdfast.formats.names import check_name
from holdfast.formats.shapes import Shape, checked, read_checked
from holdfast.formats.simple_agents import ENDING, WorkflowCheckpoint
from holdfast.model.views import Problem
from holdfast.verbs.core import Core

WORKFLOW: Final = "simple_agents"
_AWAITING: Final = "awaiting_human_input"


class _Failed(Shape):
    """The second generation."""

    workflow_path: str
    failed_node_id: str
    completed_trace: list[str]
    completed_outputs: dict[str, Any]


class _Awaiting(Shape):
    """The third."""

    status: str
    human_request: dict[str, Any]


class SimpleAgentsMover(Careless):
    """How SimpleAgents' files become runs, and runs its files."""

    def sources(self, path: str) -> list[Source]:
        folder = Folder(path)
        names = [name for name in folder.names() if name.endswith(ENDING)]
        return [Source(folder.at(name), partial(_read, folder, name)) for name in names]

    def files(self, whole: Whole) -> list[File]:
        state = whole.checkpoints[-1].state if whole.checkpoints else None
        shape = _shape_of(state)
        if shape is _Awaiting and whole.answered:
            raise InvalidInput(f"run {whole.run.run_id!r} has its answer and has gone on")
        if is_continued(whole):
            raise InvalidInput(
                f"run {whole.run.run_id!r} has gone on here since its last SimpleAgents checkpoint; SimpleAgents would "
                "do the later nodes again"
            )
        content = checked(state, shape, "the newest state of the run")
        run_id = content["run_id"] if shape is WorkflowCheckpoint else whole.run.run_id
        name = check_name("run_id", run_id, ENDING)
        same_id(whole.run.run_id, run_id)
        return [File((name,), write_json(content))]


def _shape_of(value: Any) -> type[Shape]:
    if isinstance(value, dict) and "failed_node_id" in value and "run_id" not in value:
        return _Failed
    if isinstance(value, dict) and value.get("status") == _AWAITING and "human_request" in value:
        return _Awaiting
    return WorkflowCheckpoint


def _read(folder: Folder, name: str, core: Core, _problems: list[Problem]) -> Parts:
    data, place = folder.read(name), folder.at(name)
    if data is None:
        raise DamagedFile(place, "it was taken away while it was looked at")
    shape, run_id = _shape_of(read_json(data, place)), name.removesuffix(ENDING)
    found = read_checked(data, shape, place)
    if shape is _Awaiting:
        return _awaiting(core, run_id, name, found)
    if shape is _Failed:
        stem = os.path.splitext(os.path.basename(found["workflow_path"]))[0]
        step = Step(found, name, next_node=found["failed_node_id"])
        return _stopped(core, run_id, stem, step, _failed_scope(found), len(found["completed_trace"]))
    if found["run_id"] != run_id:
        raise NameTaken(place, run_id, found["run_id"])
    step = Step(found, name, small_step(found["step"]), found["next_node_id"])
    snapshot = found["scope_snapshot"]
    scope = snapshot if isinstance(snapshot, dict) and "input" in snapshot else {"input": snapshot}
    return _stopped(core, run_id, found["workflow_name"], step, scope, found["step"])


def _stopped(core: Core, run_id: str, name: str, step: Step, scope: dict[str, Any], count: int) -> Parts:
    """A run that stopped before a node, with what a workflow needs to continue there."""
    workflow = acceptable(name) or WORKFLOW
    resume = {"at": step.next_node, "step": count, "scope": scope}
    step.resume = resume_after(1)
    first = started(core, workflow, scope["input"], kwargs={"resume": resume})
    return Parts(run_id, workflow, "paused", step.file, [first], [step])


def _failed_scope(found: dict[str, Any]) -> dict[str, Any]:
    """The scope of the second generation, with the names of the first."""
    given = {"messages": found.get("original_messages") or []}
    return {"input": given, "node_outputs": found["completed_outputs"], "globals": found.get("globals") or {}}


def _awaiting(core: Core, run_id: str, name: str, found: dict[str, Any]) -> Parts:
    request = found["human_request"]
    prompt = str(request.get("prompt") or "The workflow awaits an answer.")
    asked, gate = opened(core, prompt, form_of_request(request), found.get("outputs"), None)
    step = Step(found, name, status="waiting", next_node=acceptable(request.get("node_id")), resume=resume_after(2))
    return Parts(
        run_id, WORKFLOW, "waiting", name, [started(core, WORKFLOW, found), asked], [step], gates=[gate]
    )  # fmt: skip
