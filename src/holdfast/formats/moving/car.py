"""A CAR workflow that waits as a run that waits at a gate.

The run is of the workflow `car`, whose argument is the paused workflow. One that is claimed is paused besides: whoever
claimed it may still be at it, and nothing is to be done twice; `app.resume` lets it go on after its answer.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from holdfast.errors import Conflict, DamagedFile, InvalidInput
from holdfast.formats.car.claims import Claims
from holdfast.formats.car.shape import CLAIMED, PAUSED, checked_to_write, read
from holdfast.formats.folder import Folder
from holdfast.formats.instants import microseconds
from holdfast.formats.lossless import write_json
from holdfast.formats.moving.gates import form_of_fields, opened
from holdfast.formats.moving.parts import (
    File,
    Parts,
    Source,
    Step,
    Whole,
    entry,
    resume_after,
    root_of,
    same_id,
    small_step,
    started,
)
from holdfast.formats.moving.present import is_same
from holdfast.formats.names import check_name
from holdfast.model.status import TERMINAL
from holdfast.model.views import Problem
from holdfast.verbs.core import Core

WORKFLOW: Final = "car"
_FACTS: Final[tuple[str, ...]] = ("stage_id", "stage_name", "status", "duration_ms", "error")


class CarMover:
    """How CAR's files become runs, and runs its files."""

    def sources(self, path: str) -> list[Source]:
        folder = Folder(root_of(path, ".car", "workflow-runs"))
        names = folder.names()
        waiting = {name.removesuffix(PAUSED) for name in names if name.endswith(PAUSED)}
        found = []
        for name in names:
            if name.endswith(PAUSED):
                found.append(Source(folder.at(name), partial(_read_either, folder, name.removesuffix(PAUSED))))
            elif name.endswith(CLAIMED) and name.removesuffix(CLAIMED) not in waiting:
                found.append(Source(folder.at(name), partial(_read, folder, name, CLAIMED)))
        return found

    def files(self, whole: Whole) -> list[File]:
        run_id = whole.run.run_id
        if whole.answered or whole.run.status in TERMINAL:
            how = "its answer and has gone on" if whole.answered else f"ended ({whole.run.status})"
            raise InvalidInput(f"run {run_id!r} has {how}; CAR has files only of workflows that wait")
        state = whole.checkpoints[-1].state if whole.checkpoints else None
        content = checked_to_write(state, "the newest state of the run")
        ending = CLAIMED if str(whole.run.metadata.get("file", "")).endswith(CLAIMED) else PAUSED
        name = check_name("run_id", content["run_id"], ending)
        same_id(run_id, content["run_id"])
        return [File((name,), write_json(content))]

    def facing(self, folder: Folder, whole: Whole, files: list[File], *, replace: bool) -> list[File]:  # noqa: ARG002
        run_id, (file,) = whole.run.run_id, files
        claims = Claims(folder)
        standing = claims.standing(run_id)
        lives = claims.lives(standing)
        claims.close()
        if standing.claimed and file.name[0].endswith(PAUSED):
            raise Conflict(f"{folder.path} has a claimed run {run_id!r}; whoever claimed it may be at it")
        if lives and not is_same(folder, file):
            raise Conflict(f"run {run_id!r} is being resumed in {folder.path} by {standing.owner!r}, which lives")
        return files


def _read_either(folder: Folder, run_id: str, core: Core, problems: list[Problem]) -> Parts:
    """The run that waits; if its file is damaged, the one that was claimed before, if that is there."""
    try:
        return _read(folder, run_id + PAUSED, PAUSED, core, problems)
    except DamagedFile as damage:
        if folder.identity(run_id + CLAIMED) is None:
            raise
        problems.append(Problem(place=damage.place, reason=damage.reason))
        return _read(folder, run_id + CLAIMED, CLAIMED, core, problems)


def _read(folder: Folder, name: str, ending: str, core: Core, _problems: list[Problem]) -> Parts:
    data = folder.read(name)
    if data is None:
        raise DamagedFile(folder.at(name), "it was taken away while it was looked at")
    paused = read(data, name.removesuffix(ending), folder.at(name))
    at_us, workflow = microseconds(paused["created_at"]), paused["workflow"]
    form = form_of_fields(paused.get("fields", []))
    asked, gate = opened(core, paused["prompt"], form, _shown(paused), at_us)
    stages = [entry(core, _stage(result), at_us) for result in paused.get("stage_results", [])]
    status = "waiting" if ending == PAUSED else "paused"
    step = Step(
        paused, name, small_step(paused["iterations"]), paused["paused_stage_id"], status=status, created_us=at_us,
        resume=resume_after(len(stages) + 2),
    )  # fmt: skip
    return Parts(
        paused["run_id"], WORKFLOW, status, name, [started(core, WORKFLOW, paused, created_us=at_us), *stages, asked],
        [step], gates=[gate], about={"workflow": workflow["id"], "stage": paused["paused_stage_id"]},
    )  # fmt: skip


def _shown(paused: dict[str, Any]) -> dict[str, Any]:
    return {
        "workflow": paused["workflow"]["name"],
        "stage": paused["paused_stage_id"],
        "completed": paused.get("completed_stage_ids", []),
        "state": paused.get("wf_state", {}),
    }


def _stage(result: dict[str, Any]) -> dict[str, Any]:
    """A finished stage, for the timeline; its output is in the state."""
    return {"kind": "stage"} | {name: result[name] for name in _FACTS if name in result}
