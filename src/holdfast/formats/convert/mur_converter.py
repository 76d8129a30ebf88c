"""Converter of MUR executions: runs with one checkpoint per step.

Each file becomes a checkpoint `step-<n>` with the step's number. The run is of the workflow `mur`, whose argument is
the first checkpoint; each completed step is a recorded step with the key `step <i>`, called without arguments. A
workflow that calls `run.step(…, key="step 3")` therefore continues after the completed steps, and
`app.rollback(id, to="step-2")` rolls back to one of them.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from holdfast.errors import Conflict, DamagedFile, InvalidInput
from holdfast.formats import mur
from holdfast.formats.convert import run_parts
from holdfast.formats.folder import Folder
from holdfast.formats.schema import JsonObject, microseconds, write_json
from holdfast.model.rows import TERMINAL
from holdfast.model.views import Problem
from holdfast.operations.context import StoreContext
from holdfast.runtime.replay_input import CODEC

WORKFLOW: Final = "mur"


class MurConverter:
    """Converts MUR's files to runs, and runs to its files."""

    def sources(self, path: str) -> list[run_parts.Source]:
        directory = mur.Directory(run_parts.root_of(path, ".mur", "commander", "checkpoints"))
        return [
            run_parts.Source(directory.place(name), partial(_read, directory, name)) for name in directory.executions()
        ]

    def files(self, whole: run_parts.WholeRun) -> list[run_parts.File]:
        run_id = whole.run.run_id
        live: dict[int, JsonObject] = {}
        known = covered = 0
        for checkpoint in whole.checkpoints:
            state = checkpoint.state
            if not isinstance(state, dict) or not mur.is_same(state.get("execution_id"), run_id):
                continue
            content = mur.check_checkpoint(state, f"checkpoint {checkpoint.checkpoint_id!r}")
            live = {step: kept for step, kept in live.items() if step < content["step_index"]}
            live[content["step_index"]] = content
            known, covered = max(known, len(content["completed_steps"])), checkpoint.covers
        if not live:
            raise InvalidInput(f"run {run_id!r} has no checkpoint of a MUR execution")
        done_here = any(e.kind == "step" and e.position > max(1 + known, covered) for e in whole.entries)
        if done_here or whole.run.status in TERMINAL:
            raise InvalidInput(
                f"run {run_id!r} has continued in Holdfast since its last MUR checkpoint; MUR would repeat later steps"
            )
        return [
            run_parts.File((mur.execution_name(run_id), mur.step_name(step)), write_json(content))
            for step, content in live.items()
        ]

    def merge_with_existing(
        self, folder: Folder, whole: run_parts.WholeRun, files: list[run_parts.File], *, replace: bool
    ) -> list[run_parts.File]:
        """MUR resumes from the latest step, so a step that was rolled back here must not remain there."""
        execution = mur.execution_name(whole.run.run_id)
        last = max(int(file.name[-1].removesuffix(".json")) for file in files)
        later = [step for step in mur.steps_in(folder, execution) if step > last]
        if later and not replace:
            raise Conflict(
                f"{folder.at(execution)} has steps after those of the run (from {later[0]}), and MUR would resume from "
                "them",
                "export to another directory, or pass replace=True, which moves them aside",
                hint_code="replace_later_steps",
            )
        if later:
            mur.put_aside(folder, execution, later)
        return files


def _read(directory: mur.Directory, execution: str, core: StoreContext, problems: list[Problem]) -> run_parts.Parts:
    found: list[JsonObject] = []
    for step in directory.steps(execution):
        try:
            found.append(directory.load(execution, step))
        except DamagedFile as damage:
            problems.append(Problem(place=damage.place, reason=damage.reason))
    if not found:
        raise DamagedFile(directory.place(execution), "all of its files are damaged")
    done = max(found, key=lambda checkpoint: len(checkpoint["completed_steps"]))["completed_steps"]
    at_us = microseconds(found[0]["created_at"])
    entries = [run_parts.started_entry(core, WORKFLOW, found[0], created_us=at_us)]
    entries += [
        run_parts.entry(core, _step_entry(number, result), at_us, for_engine=True) for number, result in enumerate(done)
    ]
    return run_parts.Parts(
        run_id=execution,
        workflow=WORKFLOW,
        status="paused",
        file=execution,
        entries=entries,
        steps=[_step(checkpoint, done) for checkpoint in found],
    )


def _step_entry(number: int, result: JsonObject) -> JsonObject:
    return {
        "kind": "step",
        "call": f"step {number}",
        "keyed": True,
        "name": str(result.get("step_name", "step")),
        "digest": CODEC.digest((), {}),
        "result": result,
        "us": 0,
    }


def _step(checkpoint: JsonObject, done: list[JsonObject]) -> run_parts.Step:
    """Return a checkpoint that covers the entries of the steps it lists as completed."""
    known = 0
    for mine, theirs in zip(checkpoint["completed_steps"], done, strict=False):
        if mine != theirs:
            break
        known += 1
    number = checkpoint["step_index"]
    return run_parts.Step(
        state=checkpoint,
        file=f"{number}.json",
        step=run_parts.step_or_none(number),
        covers=1 + known,
        checkpoint_id=f"step-{number}",
        created_us=microseconds(checkpoint["created_at"]),
        resume=run_parts.resume_after(1 + known),
    )
