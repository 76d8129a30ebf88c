"""SimpleAgents' checkpoints as runs, of all three generations.

The first is what `simple_agents.Directory` keeps: the run is of the workflow its file names, at its step, with its next
node. The second is a dict with `workflow_path` and `failed_node_id`; the third is the output of a run that awaits an
answer, which becomes a gate. These two have no id inside, so the file's name is the run's.
"""

from __future__ import annotations

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
        content = checked(state, shape, "the newest state of the run")
        if shape is _Awaiting and whole.answered:
            raise InvalidInput(f"run {whole.run.run_id!r} has its answer and has gone on")
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
        return Parts(run_id, WORKFLOW, "paused", name, steps=[Step(found, name, next_node=found["failed_node_id"])])
    if found["run_id"] != run_id:
        raise NameTaken(place, run_id, found["run_id"])
    step = Step(found, name, small_step(found["step"]), found["next_node_id"])
    return Parts(run_id, acceptable(found["workflow_name"]) or WORKFLOW, "paused", name, steps=[step])


def _awaiting(core: Core, run_id: str, name: str, found: dict[str, Any]) -> Parts:
    request = found["human_request"]
    prompt = str(request.get("prompt") or "The workflow awaits an answer.")
    asked, gate = opened(core, prompt, form_of_request(request), found.get("outputs"), None)
    step = Step(found, name, status="waiting", next_node=acceptable(request.get("node_id")))
    return Parts(
        run_id, WORKFLOW, "waiting", name, [started(core, WORKFLOW, found), asked], [step], gates=[gate]
    )  # fmt: skip
