"""A Brainwires task as a run whose ledger has its tool calls.

`store.is_done(task, tool_use_id)` and `store.mark_done` then do what the original's marks did. A workflow named
`brainwires` continues the task: it gets the checkpoint, and an effect whose key is a marked tool use is not performed
again. What was marked here since comes along when the run is exported.
"""

from __future__ import annotations

import contextlib
from functools import partial
from typing import Any, Final

from holdfast.errors import DamagedFile, InvalidInput, NameTaken
from holdfast.formats.brainwires.names import deno_name, has_older_names, is_older_name, rust_name
from holdfast.formats.brainwires.shape import STEP_MAX, WorkflowCheckpoint, new_checkpoint
from holdfast.formats.folder import Folder
from holdfast.formats.lossless import read_json, write_json
from holdfast.formats.moving.parts import (
    FILE,
    File,
    Parts,
    Source,
    Step,
    Whole,
    acceptable,
    entry,
    resume_after,
    root_of,
    same_id,
    small_step,
    started,
)
from holdfast.formats.names import fitting
from holdfast.formats.shapes import checked, read_checked
from holdfast.ids import check_id
from holdfast.model.commit import NewEffect
from holdfast.model.views import Effect, Problem
from holdfast.verbs.core import Core
from holdfast.verbs.values import value_body

WORKFLOW: Final = "brainwires"
_ENDING: Final = ".json"
_US: Final = 1_000_000


class BrainwiresMover:
    """How Brainwires' files become runs, and runs its files."""

    def sources(self, path: str) -> list[Source]:
        folder = Folder(root_of(path, ".brainwires", "workflow"))
        names = [name for name in folder.names() if name.endswith(_ENDING)]
        return [Source(folder.at(name), partial(_read, folder, name)) for name in names]

    def files(self, whole: Whole) -> list[File]:
        run_id = whole.run.run_id
        state = _newest(whole)
        if state is None and not whole.effects:
            raise InvalidInput(f"run {run_id!r} has neither a checkpoint nor effects that could be written")
        if state is None:
            state = new_checkpoint(run_id, "unknown")
        content = _with_effects(checked(state, WorkflowCheckpoint, "the newest state of the run"), whole.effects)
        same_id(run_id, content["task_id"])
        names = [f"{stem(run_id)}{_ENDING}" for stem in (rust_name, deno_name)]
        known = str(whole.run.metadata.get(FILE, ""))
        name = known if known in names else names[0]
        return [File((fitting("task_id", run_id, name),), write_json(content))]

    def facing(self, folder: Folder, whole: Whole, files: list[File], *, replace: bool) -> list[File]:
        """What was marked there since is not replaced: a call that is forgotten would be done again."""
        file = files[0]._replace(name=(_name_there(folder, whole.run.run_id, files[0].name[0]),))
        data, place = folder.read(*file.name), folder.at(*file.name)
        if data is None or not replace:
            return [file]
        try:
            there = read_checked(data, WorkflowCheckpoint, place)
        except DamagedFile:
            return [file]
        if there["task_id"] != whole.run.run_id:
            raise NameTaken(place, whole.run.run_id, there["task_id"])
        ours = read_json(file.data, place)
        known = {record["tool_use_id"] for record in there["side_effects_log"]}
        new = [record for record in ours["side_effects_log"] if record["tool_use_id"] not in known]
        joined = _joined(ours, there["completed_tool_ids"], [], there["updated_at"])
        joined["side_effects_log"] = (
            there["side_effects_log"] + new
        )  # results of calls are kept with the log's beginning
        return [file._replace(data=write_json(joined))]


def _name_there(folder: Folder, task_id: str, name: str) -> str:
    """The name of the task's file; another than `name` only if it has one of an older version of Unicode."""
    if not has_older_names(task_id) or folder.identity(name) is not None:
        return name
    for found in folder.names():
        if found.endswith(_ENDING) and is_older_name(found.removesuffix(_ENDING), task_id):
            with contextlib.suppress(DamagedFile):
                if read_checked(folder.read(found) or b"", WorkflowCheckpoint, found)["task_id"] == task_id:
                    return found
    return name


def _newest(whole: Whole) -> Any:
    """The newest checkpoint of the task. One that a workflow saved while it continued the task has another shape."""
    states = [checkpoint.state for checkpoint in whole.checkpoints]
    tasks = [state for state in states if isinstance(state, dict) and "completed_tool_ids" in state]
    return (tasks or states or [None])[-1]


def _with_effects(state: dict[str, Any], effects: list[Effect]) -> dict[str, Any]:
    """The checkpoint with what was done here since."""
    known = set(state["completed_tool_ids"])
    new = [effect for effect in effects if effect.done and effect.key not in known]
    if not new:
        return state
    log: list[dict[str, Any]] = [
        {
            "tool_use_id": effect.key, "tool_name": effect.tool, "target": effect.target,
            "completed_at": int(effect.updated_at.timestamp()), "reversible": effect.reversible,
        }
        for effect in new
    ]  # fmt: skip
    return _joined(state, [effect.key for effect in new], log, max(line["completed_at"] for line in log))


def _joined(state: dict[str, Any], done: list[str], log: list[dict[str, Any]], updated_at: int) -> dict[str, Any]:
    """The checkpoint with more calls that were done."""
    known = set(state["completed_tool_ids"])
    new = [tool_use_id for tool_use_id in dict.fromkeys(done) if tool_use_id not in known]
    return {
        **state,
        "step_index": min(state["step_index"] + len(new), STEP_MAX),
        "completed_tool_ids": [*state["completed_tool_ids"], *new],
        "side_effects_log": [*state["side_effects_log"], *log],
        "updated_at": max(state["updated_at"], updated_at),
    }


def _read(folder: Folder, name: str, core: Core, _problems: list[Problem]) -> Parts:
    data, place = folder.read(name), folder.at(name)
    if data is None:
        raise DamagedFile(place, "it was taken away while it was looked at")
    found = read_checked(data, WorkflowCheckpoint, place)
    task_id, stem = found["task_id"], name.removesuffix(_ENDING)
    if stem not in (rust_name(task_id), deno_name(task_id)) and not is_older_name(stem, task_id):
        raise DamagedFile(place, f"it is of task {task_id!r}, whose file has another name")
    lines: dict[str, dict[str, Any]] = {}
    for record in found["side_effects_log"]:
        lines.setdefault(record["tool_use_id"], record)
    for tool_use_id in found["completed_tool_ids"]:
        lines.setdefault(tool_use_id, {"tool_use_id": tool_use_id, "completed_at": found["updated_at"]})
    entries = [started(core, WORKFLOW, found, created_us=_us(found["updated_at"]))]
    entries += [
        entry(core, {**record, "kind": "side_effect"}, _us(record["completed_at"]))
        for record in found["side_effects_log"]
    ]
    effects = [_effect(core, record, number) for number, record in enumerate(lines.values(), start=1)]
    step = Step(
        found, name, small_step(found["step_index"]), created_us=_us(found["updated_at"]),
        resume=resume_after(len(entries)),
    )  # fmt: skip
    return Parts(
        task_id, WORKFLOW, "paused", name, entries, [step], effects, about={"agent": found["agent_id"][:200]}
    )  # fmt: skip


def _effect(core: Core, record: dict[str, Any], number: int) -> NewEffect:
    return NewEffect(
        check_id("tool_use_id", record["tool_use_id"]), "done", acceptable(record.get("tool_name")) or "",
        acceptable(record.get("target")), bool(record.get("reversible")), value_body(core, None, "result"),
        created_us=_us(record["completed_at"]), after_checkpoint=0, after_position=number,
    )  # fmt: skip


def _us(seconds: int) -> int | None:
    return seconds * _US if 0 < seconds < 2**40 else None
