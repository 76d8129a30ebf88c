"""A MUR execution as a run with a history one can go back in.

Each file becomes a checkpoint `step-<n>` with the step's number. The run is of the workflow `mur`, whose argument is
the first checkpoint; each completed step is a recorded step with the key `step <i>`, called without arguments. So a
workflow that does `run.step(…, key="step 3")` goes on behind what was done, and `app.rollback(id, to="step-2")` goes
back to it.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from holdfast.errors import Conflict, DamagedFile, InvalidInput
from holdfast.formats import mur
from holdfast.formats.folder import Folder
from holdfast.formats.instants import microseconds
from holdfast.formats.lossless import write_json
from holdfast.formats.moving.parts import (
    File,
    Parts,
    Source,
    Step,
    Whole,
    entry,
    resume_after,
    root_of,
    small_step,
    started,
)
from holdfast.model.status import TERMINAL
from holdfast.model.views import Problem
from holdfast.runtime.codec import CODEC
from holdfast.verbs.core import Core

WORKFLOW: Final = "mur"


class MurMover:
    """How MUR's files become runs, and runs its files."""

    def sources(self, path: str) -> list[Source]:
        directory = mur.Directory(root_of(path, ".mur", "commander", "checkpoints"))
        return [Source(directory.place(name), partial(_read, directory, name)) for name in directory.executions()]

    def files(self, whole: Whole) -> list[File]:
        run_id = whole.run.run_id
        live: dict[int, dict[str, Any]] = {}
        known = covered = 0
        for checkpoint in whole.checkpoints:
            state = checkpoint.state
            if not isinstance(state, dict) or not mur.is_same(state.get("execution_id"), run_id):
                continue
            content = mur.checked_to_write(state, f"checkpoint {checkpoint.checkpoint_id!r}")
            live = {step: kept for step, kept in live.items() if step < content["step_index"]}
            live[content["step_index"]] = content
            known, covered = max(known, len(content["completed_steps"])), checkpoint.covers
        if not live:
            raise InvalidInput(f"run {run_id!r} has no checkpoint that is one of a MUR execution")
        done_here = any(e.kind == "step" and e.position > max(1 + known, covered) for e in whole.entries)
        if done_here or whole.run.status in TERMINAL:
            raise InvalidInput(
                f"run {run_id!r} has gone on here, behind its last checkpoint of MUR's; MUR would do those steps again"
            )
        return [
            File((mur.execution_name(run_id), mur.step_name(step)), write_json(content))
            for step, content in live.items()
        ]

    def facing(self, folder: Folder, whole: Whole, files: list[File], *, replace: bool) -> list[File]:
        """To MUR the latest step counts: one that was rolled back here must not stand there."""
        execution = mur.execution_name(whole.run.run_id)
        last = max(int(file.name[-1].removesuffix(".json")) for file in files)
        later = [step for step in mur.steps_in(folder, execution) if step > last]
        if later and not replace:
            raise Conflict(
                f"{folder.at(execution)} has steps behind those of the run ({later[0]} and on), which MUR would go on "
                "from; export to another directory, or give replace=True, which puts them aside"
            )
        if later:
            mur.put_aside(folder, execution, later)
        return files


def _read(directory: mur.Directory, execution: str, core: Core, problems: list[Problem]) -> Parts:
    found: list[dict[str, Any]] = []
    for step in directory.steps(execution):
        try:
            found.append(directory.load(execution, step))
        except DamagedFile as damage:
            problems.append(Problem(place=damage.place, reason=damage.reason))
    if not found:
        raise DamagedFile(directory.place(execution), "none of its files can be used")
    done = max(found, key=lambda checkpoint: len(checkpoint["completed_steps"]))["completed_steps"]
    at_us = microseconds(found[0]["created_at"])
    entries = [started(core, WORKFLOW, found[0], created_us=at_us)]
    entries += [entry(core, _step_entry(number, result), at_us, for_engine=True) for number, result in enumerate(done)]
    return Parts(execution, WORKFLOW, "paused", execution, entries, [_step(checkpoint, done) for checkpoint in found])


def _step_entry(number: int, result: dict[str, Any]) -> dict[str, Any]:
    return {
        "kind": "step", "call": f"step {number}", "keyed": True, "name": str(result.get("step_name", "step")),
        "digest": CODEC.digest((), {}), "result": result, "us": 0,
    }  # fmt: skip


def _step(checkpoint: dict[str, Any], done: list[dict[str, Any]]) -> Step:
    """A checkpoint covers the entries of the steps it knows as done."""
    known = 0
    for mine, theirs in zip(checkpoint["completed_steps"], done, strict=False):
        if mine != theirs:
            break
        known += 1
    number = checkpoint["step_index"]
    return Step(
        checkpoint, f"{number}.json", small_step(number), covers=1 + known, checkpoint_id=f"step-{number}",
        created_us=microseconds(checkpoint["created_at"]),
        resume=resume_after(1 + known),
    )  # fmt: skip
