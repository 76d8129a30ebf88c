"""Converter of Brainwires tasks: runs whose effects are the tool calls.

`store.is_done(task, tool_use_id)` and `store.mark_done` then replace the original's marks. A workflow named
`brainwires` continues the task: its argument is the checkpoint, and an effect whose key is a marked tool use is not
performed again. An export includes the effects that were completed since.
"""

from __future__ import annotations

import contextlib
from functools import partial
from typing import Final

from holdfast.errors import DamagedFile, InvalidInput, NameTaken
from holdfast.formats.brainwires.task_records import (
    STEP_MAX,
    WorkflowCheckpoint,
    deno_name,
    has_older_names,
    is_older_name,
    new_checkpoint,
    rust_name,
)
from holdfast.formats.convert import run_parts
from holdfast.formats.folder import Folder, check_name_length
from holdfast.formats.schema import JsonObject, read_json, read_object, require_schema, write_json
from holdfast.ids import check_id
from holdfast.model.commit import NewEffect
from holdfast.model.views import Effect, Problem
from holdfast.operations.context import StoreContext
from holdfast.operations.views import encode_body

WORKFLOW: Final = "brainwires"
_ENDING: Final = ".json"
_US: Final = 1_000_000


class BrainwiresConverter:
    """Converts Brainwires' files to runs, and runs to its files."""

    def sources(self, path: str) -> list[run_parts.Source]:
        folder = Folder(run_parts.root_of(path, ".brainwires", "workflow"))
        names = [name for name in folder.names() if name.endswith(_ENDING)]
        return [run_parts.Source(folder.at(name), partial(_read, folder, name)) for name in names]

    def files(self, whole: run_parts.WholeRun) -> list[run_parts.File]:
        run_id = whole.run.run_id
        state = _newest(whole)
        if state is None and not whole.effects:
            raise InvalidInput(f"run {run_id!r} has neither a checkpoint nor effects to export")
        if state is None:
            state = new_checkpoint(run_id, "unknown")
        content = _with_effects(require_schema(state, WorkflowCheckpoint, "the newest state of the run"), whole.effects)
        run_parts.require_same_id(run_id, content["task_id"])
        names = [f"{stem(run_id)}{_ENDING}" for stem in (rust_name, deno_name)]
        known = str(whole.run.metadata.get(run_parts.FILE, ""))
        name = known if known in names else names[0]
        return [run_parts.File((check_name_length("task_id", run_id, name),), write_json(content))]

    def merge_with_existing(
        self, folder: Folder, whole: run_parts.WholeRun, files: list[run_parts.File], *, replace: bool
    ) -> list[run_parts.File]:
        """Keep the marks that were added there since: a call without its mark would be repeated."""
        file = files[0]._replace(name=(_existing_name(folder, whole.run.run_id, files[0].name[0]),))
        data, place = folder.read(*file.name), folder.at(*file.name)
        if data is None or not replace:
            return [file]
        try:
            there = read_object(data, WorkflowCheckpoint, place)
        except DamagedFile:
            return [file]
        if there["task_id"] != whole.run.run_id:
            raise NameTaken(place, whole.run.run_id, there["task_id"])
        ours = read_json(file.data, place)
        known = {record["tool_use_id"] for record in there["side_effects_log"]}
        new = [record for record in ours["side_effects_log"] if record["tool_use_id"] not in known]
        joined = _join(ours, there["completed_tool_ids"], [], there["updated_at"])
        # The results of calls are tied to the beginning of the log, which must not change.
        joined["side_effects_log"] = there["side_effects_log"] + new
        return [file._replace(data=write_json(joined))]


def _existing_name(folder: Folder, task_id: str, name: str) -> str:
    """Return the name of the task's file: `name`, unless it has one of an older version of Unicode."""
    if not has_older_names(task_id) or folder.identity(name) is not None:
        return name
    for found in folder.names():
        if found.endswith(_ENDING) and is_older_name(found.removesuffix(_ENDING), task_id):
            with contextlib.suppress(DamagedFile):
                if read_object(folder.read(found) or b"", WorkflowCheckpoint, found)["task_id"] == task_id:
                    return found
    return name


def _newest(whole: run_parts.WholeRun) -> object:
    """Return the newest checkpoint of the task. Those of a workflow that continued it have another schema."""
    states = [checkpoint.state for checkpoint in whole.checkpoints]
    tasks = [state for state in states if isinstance(state, dict) and "completed_tool_ids" in state]
    return (tasks or states or [None])[-1]


def _with_effects(state: JsonObject, effects: list[Effect]) -> JsonObject:
    """Return the checkpoint with the effects that were completed since."""
    known = set(state["completed_tool_ids"])
    new = [effect for effect in effects if effect.done and effect.key not in known]
    if not new:
        return state
    log: list[JsonObject] = [
        {
            "tool_use_id": effect.key,
            "tool_name": effect.tool,
            "target": effect.target,
            "completed_at": int(effect.updated_at.timestamp()),
            "reversible": effect.reversible,
        }
        for effect in new
    ]
    return _join(state, [effect.key for effect in new], log, max(line["completed_at"] for line in log))


def _join(state: JsonObject, done: list[str], log: list[JsonObject], updated_at: int) -> JsonObject:
    """Return the checkpoint with more completed calls."""
    known = set(state["completed_tool_ids"])
    new = [tool_use_id for tool_use_id in dict.fromkeys(done) if tool_use_id not in known]
    return {
        **state,
        "step_index": min(state["step_index"] + len(new), STEP_MAX),
        "completed_tool_ids": [*state["completed_tool_ids"], *new],
        "side_effects_log": [*state["side_effects_log"], *log],
        "updated_at": max(state["updated_at"], updated_at),
    }


def _read(folder: Folder, name: str, core: StoreContext, _problems: list[Problem]) -> run_parts.Parts:
    data, place = run_parts.read_source(folder, name), folder.at(name)
    found = read_object(data, WorkflowCheckpoint, place)
    task_id, stem = found["task_id"], name.removesuffix(_ENDING)
    if stem not in (rust_name(task_id), deno_name(task_id)) and not is_older_name(stem, task_id):
        raise DamagedFile(place, f"it belongs to task {task_id!r}, whose file has another name")
    lines: dict[str, JsonObject] = {}
    for record in found["side_effects_log"]:
        lines.setdefault(record["tool_use_id"], record)
    for tool_use_id in found["completed_tool_ids"]:
        lines.setdefault(tool_use_id, {"tool_use_id": tool_use_id, "completed_at": found["updated_at"]})
    entries = [run_parts.started_entry(core, WORKFLOW, found, created_us=_us(found["updated_at"]))]
    entries += [
        run_parts.entry(core, {**record, "kind": "side_effect"}, _us(record["completed_at"]))
        for record in found["side_effects_log"]
    ]
    effects = [_effect(core, record, number) for number, record in enumerate(lines.values(), start=1)]
    step = run_parts.Step(
        state=found,
        file=name,
        step=run_parts.step_or_none(found["step_index"]),
        created_us=_us(found["updated_at"]),
        resume=run_parts.resume_after(len(entries)),
    )
    return run_parts.Parts(
        run_id=task_id,
        workflow=WORKFLOW,
        status="paused",
        file=name,
        entries=entries,
        steps=[step],
        effects=effects,
        about={"agent": found["agent_id"][:200]},
    )


def _effect(core: StoreContext, record: JsonObject, number: int) -> NewEffect:
    return NewEffect(
        key=check_id("tool_use_id", record["tool_use_id"]),
        state="done",
        tool=run_parts.id_or_none(record.get("tool_name")) or "",
        target=run_parts.id_or_none(record.get("target")),
        reversible=bool(record.get("reversible")),
        body=encode_body(core, None, "result"),
        created_us=_us(record["completed_at"]),
        after_checkpoint=0,
        after_position=number,
    )


def _us(seconds: int) -> int | None:
    return seconds * _US if 0 < seconds < 2**40 else None
