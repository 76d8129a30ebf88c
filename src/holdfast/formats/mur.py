"""MUR Commander's checkpoints: one file per step, written before the step.

    <path>/<execution id, a UUID>/<step>.json

    {"execution_id": …, "step_index": 1, "variables": {text: text}, "completed_steps": [any objects], "created_at": …}

The original writes in place, treats any file whose name begins with a number as a checkpoint, and has no rollback. This
module replaces files atomically, accepts only `<digits>.json` whose content matches its name, and does not let a torn
newest file hide the one before it. Steps that were rolled back are kept in `.holdfast/rolled_back`, and the workflow of
an execution, if the caller names it, in `.holdfast/workflows`; the original reads neither.

Example:
    from holdfast.formats import mur

    executions = mur.Directory("checkpoints")
    executions.save(mur.new_checkpoint("6f1f1a7e-2f0b-4c3e-9a55-0f6d2b1c7d10", 0, {"image": "app"}, []))
    assert executions.load_latest("6f1f1a7e-2f0b-4c3e-9a55-0f6d2b1c7d10")["step_index"] == 0
"""

from __future__ import annotations

import json
import os
import re
import uuid
from pathlib import Path
from typing import Final

from holdfast.errors import DamagedFile, InvalidId, InvalidInput, NotFound, StorageFailed, WorkflowConflict
from holdfast.files.os_files import Files
from holdfast.formats import schema
from holdfast.formats.folder import OWN, AsyncOperations, Folder, log, run_in_thread
from holdfast.ids import check_id
from holdfast.model.views import Problem

__all__ = ["AsyncDirectory", "Directory", "new_checkpoint"]

_STEP: Final = re.compile(r"(0|[1-9][0-9]{0,19})\.json", re.ASCII)
_ROLLED_BACK: Final = "rolled_back"
_WORKFLOWS: Final = "workflows"
_REMOVED: Final = "removed-"
_STEP_MAX: Final = 2**64 - 1


class Checkpoint(schema.Schema):
    """The state before a step."""

    execution_id: str
    step_index: schema.Count
    variables: dict[str, str]
    completed_steps: list[schema.JsonObject]
    created_at: str


class StepResult(schema.Schema):
    """The known fields of a completed step. The original's full list is not documented, so none is required."""

    step_name: str = ""
    success: bool = False
    output: str = ""


class WritableCheckpoint(Checkpoint):
    """The state before a step as it may be written."""

    completed_steps: list[StepResult]  # type: ignore[assignment]


def check_checkpoint(checkpoint: object, what: str) -> schema.JsonObject:
    """Return a checkpoint if the original could read it; else raise InvalidInput."""
    given = schema.require_schema(checkpoint, WritableCheckpoint, what)
    schema.check_timestamp("created_at", given["created_at"])
    return given


def new_checkpoint(
    execution_id: str | uuid.UUID, step_index: int, variables: dict[str, str], completed_steps: list[schema.JsonObject]
) -> schema.JsonObject:
    """Return a checkpoint with the current time.

    Example:
        mur.new_checkpoint("6f1f1a7e-2f0b-4c3e-9a55-0f6d2b1c7d10", 0, {"image": "app"}, [])
    """
    return {
        "execution_id": execution_name(execution_id),
        "step_index": step_index,
        "variables": variables,
        "completed_steps": completed_steps,
        "created_at": schema.now_text(),
    }


class Directory:
    """A directory of MUR's checkpoints; without a path the original's default, in the home directory.

    Example:
        executions = mur.Directory("checkpoints")
    """

    def __init__(
        self, path: str | os.PathLike[str] | None = None, *, timeout_s: float = 20.0, files: Files | None = None
    ) -> None:
        self._folder = Folder(self.default_path() if path is None else path, timeout_s=timeout_s, files=files)

    @staticmethod
    def default_path() -> Path:
        """Return the directory in which the original keeps its files.

        Example:
            mur.Directory.default_path()
        """
        return Path.home() / ".mur" / "commander" / "checkpoints"

    def save(self, checkpoint: schema.JsonObject, *, workflow: str | None = None) -> Path:
        """Save the state before a step atomically and durably. Return the path of the file.

        `workflow` identifies the workflow of the execution: an id, a version, a hash. The first one given is kept;
        another one raises WorkflowConflict.

        Example:
            executions.save(checkpoint, workflow="deploy-v1")
        """
        given = check_checkpoint(checkpoint, "a checkpoint")
        execution, name = execution_name(given["execution_id"]), step_name(given["step_index"])
        data = schema.write_json({**given, "execution_id": execution})
        with self._folder.hold():
            self._check_workflow(execution, workflow, keep=True)
            self._folder.put(data, execution, name)
        return Path(self._folder.at(execution, name))

    def load(self, execution_id: str | uuid.UUID, step: int, *, workflow: str | None = None) -> schema.JsonObject:
        """Return the state before a step. Raises NotFound if it was not saved, DamagedFile if its file is torn.

        Example:
            executions.load(checkpoint["execution_id"], 0)
        """
        execution = execution_name(execution_id)
        self._check_workflow(execution, workflow)
        found = self._read(execution, step_name(step))
        if found is None:
            raise NotFound(f"execution {execution} has no checkpoint of step {step} in {self._folder.path}")
        return found

    def load_latest(self, execution_id: str | uuid.UUID, *, workflow: str | None = None) -> schema.JsonObject | None:
        """Return the state before the newest step whose file is whole; None if there is no file at all.

        Damaged newer files are skipped and logged, and `problems` lists them. Raises DamagedFile if all are damaged.

        Example:
            executions.load_latest(checkpoint["execution_id"])
        """
        execution = execution_name(execution_id)
        self._check_workflow(execution, workflow)
        damage: DamagedFile | None = None
        for step in reversed(self.steps(execution)):
            try:
                found = self._read(execution, step_name(step))
            except DamagedFile as problem:
                log.warning("%s", problem)
                damage = damage or problem
                continue
            if found is not None:
                return found
        if damage is not None:
            raise damage
        return None

    def steps(self, execution_id: str | uuid.UUID) -> list[int]:
        """Return the steps for which an execution has files, in order.

        Example:
            executions.steps(checkpoint["execution_id"])
        """
        return steps_in(self._folder, execution_name(execution_id))

    def executions(self) -> list[str]:
        """Return the executions in the directory.

        Example:
            executions.executions()
        """
        return [name for name in self._folder.names() if _is_execution(name)]

    def place(self, execution_id: str | uuid.UUID) -> str:
        """Return the path of an execution's directory.

        Example:
            executions.place(checkpoint["execution_id"])
        """
        return self._folder.at(execution_name(execution_id))

    def problems(self, execution_id: str | uuid.UUID) -> list[Problem]:
        """Return the damaged files of an execution.

        Example:
            executions.problems(checkpoint["execution_id"])
        """
        execution, found = execution_name(execution_id), []
        for step in self.steps(execution):
            try:
                self._read(execution, step_name(step))
            except DamagedFile as damage:
                found.append(Problem(place=damage.place, reason=damage.reason))
        return found

    def roll_back(self, execution_id: str | uuid.UUID, to: int) -> schema.JsonObject:
        """Roll back to the state before step `to`, which becomes the latest. Return it.

        Later steps are moved to `.holdfast/rolled_back`, newest first, so that a crash in between leaves an execution
        that ends at one of them; repeat the call to complete the rollback. Nothing is erased.

        Example:
            executions.roll_back(checkpoint["execution_id"], 0)
        """
        execution = execution_name(execution_id)
        found = self.load(execution, to)
        with self._folder.hold():
            later = [step for step in self.steps(execution) if step > to]
            if later:
                put_aside(self._folder, execution, later)
            else:
                for aside in self._folder.names(OWN, _ROLLED_BACK, execution):
                    self._folder.sync_path(OWN, _ROLLED_BACK, execution, aside)
                self._folder.sync_path(execution)
        return found

    def cleanup(self, execution_id: str | uuid.UUID) -> None:
        """Remove an execution with its directory. A missing one is not an error.

        Example:
            executions.cleanup(checkpoint["execution_id"])
        """
        execution = execution_name(execution_id)
        if self._folder.identity(execution) is None and self._folder.identity(OWN) is None:
            return
        with self._folder.hold():
            if self._folder.identity(execution) is None:
                self._folder.sync_path(OWN)
            else:  # atomically, before its files are removed one by one
                self._folder.rename((execution,), (OWN, f"{_REMOVED}{uuid.uuid4().hex}"))
            self._folder.remove(OWN, _WORKFLOWS, execution + ".json")
            for removed in self._folder.names(OWN):
                if removed.startswith(_REMOVED):  # a process that was killed may have left others
                    self._folder.remove_tree(OWN, removed)
            self._folder.remove_tree(OWN, _ROLLED_BACK, execution)

    @property
    def aio(self) -> AsyncDirectory:
        """The same operations as coroutines, as in the original."""
        return AsyncDirectory(self)

    def close(self) -> None:
        """Close the lock file. Closing twice is allowed."""
        self._folder.close()

    def _read(self, execution: str, name: str) -> schema.JsonObject | None:
        data = self._folder.read(execution, name)
        if data is None:
            return None
        place = self._folder.at(execution, name)
        found = schema.read_object(data, Checkpoint, place)
        if not is_same(found["execution_id"], execution):
            raise DamagedFile(place, f"it belongs to execution {found['execution_id']!r}")
        if f"{found['step_index']}.json" != name:
            raise DamagedFile(place, f"it belongs to step {found['step_index']}")
        return found

    def _check_workflow(self, execution: str, workflow: str | None, *, keep: bool = False) -> None:
        if workflow is None:
            return
        check_id("workflow", workflow)
        name = (OWN, _WORKFLOWS, execution + ".json")
        exists = self._folder.identity(execution) is not None  # else a cleanup that was killed has left the file
        data = self._folder.read(*name) if exists else None
        try:
            found = None if data is None else str(json.loads(data)["workflow"])
        except (ValueError, KeyError, TypeError) as error:
            raise StorageFailed(f"{self._folder.at(*name)} cannot be read ({error}); remove it") from error
        if found is None and keep:
            self._folder.put(schema.write_json({"workflow": workflow}), *name)
        if found not in (None, workflow):
            raise WorkflowConflict(execution, workflow, str(found))


class AsyncDirectory(AsyncOperations[Directory]):
    """`Directory.aio`: the directory's operations as coroutines.

    Example:
        import asyncio

        asyncio.run(executions.aio.load_latest(checkpoint["execution_id"]))
    """

    save = run_in_thread(Directory.save)
    load = run_in_thread(Directory.load)
    load_latest = run_in_thread(Directory.load_latest)
    steps = run_in_thread(Directory.steps)
    executions = run_in_thread(Directory.executions)
    problems = run_in_thread(Directory.problems)
    roll_back = run_in_thread(Directory.roll_back)
    cleanup = run_in_thread(Directory.cleanup)
    close = run_in_thread(Directory.close)


def steps_in(folder: Folder, execution: str) -> list[int]:
    """Return the steps for which an execution has files. A number too large for the original is not a step."""
    found = (_STEP.fullmatch(name) for name in folder.names(execution))
    return sorted(step for match in found if match and (step := int(match[1])) <= _STEP_MAX)


def put_aside(folder: Folder, execution: str, steps: list[int]) -> None:
    """Move steps to a directory that the original does not read, newest first. The caller holds the lock."""
    numbers = [int(name) for name in folder.names(OWN, _ROLLED_BACK, execution) if name.isdecimal()]
    aside = (OWN, _ROLLED_BACK, execution, str(max(numbers, default=0) + 1))
    folder.make(*aside)
    for step in sorted(steps, reverse=True):
        folder.rename((execution, step_name(step)), (*aside, step_name(step)))


def execution_name(value: object) -> str:
    """Return an execution's id as the original writes it. It is part of a path, so it must be a UUID."""
    if not isinstance(value, (str, uuid.UUID)):
        raise InvalidId(f"execution_id must be a UUID, not {type(value).__name__}")
    try:
        return str(uuid.UUID(str(value)))
    except ValueError:
        raise InvalidId(f"execution_id {str(value)[:80]!r} is not a UUID") from None


def _is_execution(name: str) -> bool:
    return is_same(name, name)


def is_same(text: object, execution: str) -> bool:
    """Whether an id is this execution's, in any notation of a UUID."""
    if not isinstance(text, str):
        return False
    try:
        return str(uuid.UUID(text)) == execution
    except ValueError:
        return False


def step_name(step: object) -> str:
    """Return the file name of a step."""
    if type(step) is not int or not 0 <= step <= _STEP_MAX:
        raise InvalidInput(f"step must be an integer from 0 to {_STEP_MAX}, not {step!r}")
    return f"{step}.json"
