"""MUR Commander: one file per step of an execution, written before the step.

    <path>/<execution id, a UUID>/<step>.json

    {"execution_id": …, "step_index": 1, "variables": {text: text}, "completed_steps": [any objects], "created_at": …}

The original writes in place, takes any file whose name begins with a number for a checkpoint, and cannot go back. Here
files are put whole, only `<digits>.json` that holds what its name says counts, and a torn newest one does not hide the
one before it. Steps that were rolled back are kept in `.holdfast/rolled_back`, and the workflow an execution is of, if
the caller tells it, in `.holdfast/workflows`; the original looks at neither.

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
import shutil
import uuid
from pathlib import Path
from typing import Any, Final

from holdfast.errors import DamagedFile, InvalidId, InvalidInput, NotFound, StorageFailed, WorkflowConflict
from holdfast.formats.aio import AsyncVerbs, awaiting
from holdfast.formats.folder import OWN, Folder, log
from holdfast.formats.instants import check_instant, now_text
from holdfast.formats.lossless import write_json
from holdfast.formats.shapes import Count, Shape, checked, read_checked
from holdfast.ids import check_id
from holdfast.model.views import Problem
from holdfast.store.directory.files import Files, translating

__all__ = ["AsyncDirectory", "Directory", "new_checkpoint"]

_STEP: Final = re.compile(r"(0|[1-9][0-9]{0,19})\.json", re.ASCII)
_ROLLED_BACK: Final = "rolled_back"
_WORKFLOWS: Final = "workflows"
_REMOVED: Final = "removed-"
_STEP_MAX: Final = 2**64 - 1


class Checkpoint(Shape):
    """The state before a step."""

    execution_id: str
    step_index: Count
    variables: dict[str, str]
    completed_steps: list[dict[str, Any]]
    created_at: str


class StepResult(Shape):
    """What is known of a completed step. The original's full list is not known, so nothing is required."""

    step_name: str = ""
    success: bool = False
    output: str = ""


class WritableCheckpoint(Checkpoint):
    """The state before a step as it may be written."""

    completed_steps: list[StepResult]  # type: ignore[assignment]


def checked_to_write(checkpoint: object, what: str) -> dict[str, Any]:
    """A checkpoint, if the original could read it; else InvalidInput."""
    given = checked(checkpoint, WritableCheckpoint, what)
    check_instant("created_at", given["created_at"])
    return given


def new_checkpoint(
    execution_id: str | uuid.UUID, step_index: int, variables: dict[str, str], completed_steps: list[dict[str, Any]]
) -> dict[str, Any]:
    """A checkpoint of now.

    Example:
        mur.new_checkpoint("6f1f1a7e-2f0b-4c3e-9a55-0f6d2b1c7d10", 0, {"image": "app"}, [])
    """
    return {
        "execution_id": execution_name(execution_id), "step_index": step_index, "variables": variables,
        "completed_steps": completed_steps, "created_at": now_text(),
    }  # fmt: skip


class Directory:
    """A directory of MUR's checkpoints; without a path the original's own, in the home directory.

    Example:
        executions = mur.Directory("checkpoints")
    """

    def __init__(
        self, path: str | os.PathLike[str] | None = None, *, timeout_s: float = 20.0, files: Files | None = None
    ) -> None:
        self._folder = Folder(self.default_path() if path is None else path, timeout_s=timeout_s, files=files)

    @staticmethod
    def default_path() -> Path:
        """Where the original keeps its files.

        Example:
            mur.Directory.default_path()
        """
        return Path.home() / ".mur" / "commander" / "checkpoints"

    def save(self, checkpoint: dict[str, Any], *, workflow: str | None = None) -> Path:
        """Put the state before a step in place, whole and durably. Gives the file.

        `workflow` names what the execution is an execution of: an id, a version, a hash. The first one told is kept;
        another is a WorkflowConflict.

        Example:
            executions.save(checkpoint, workflow="deploy-v1")
        """
        given = checked_to_write(checkpoint, "a checkpoint")
        execution, name = execution_name(given["execution_id"]), step_name(given["step_index"])
        data = write_json({**given, "execution_id": execution})
        with self._folder.held():
            self._same_workflow(execution, workflow, keep=True)
            self._folder.put(data, execution, name)
        return Path(self._folder.at(execution, name))

    def load(self, execution_id: str | uuid.UUID, step: int, *, workflow: str | None = None) -> dict[str, Any]:
        """The state before a step. NotFound if it was not saved; DamagedFile if its file is torn.

        Example:
            executions.load(checkpoint["execution_id"], 0)
        """
        execution = execution_name(execution_id)
        self._same_workflow(execution, workflow)
        found = self._read(execution, step_name(step))
        if found is None:
            raise NotFound(f"execution {execution} has no checkpoint of step {step} in {self._folder.path}")
        return found

    def load_latest(self, execution_id: str | uuid.UUID, *, workflow: str | None = None) -> dict[str, Any] | None:
        """The state before the newest step whose file is whole; None if there is no file at all.

        Damaged newer ones are passed over and logged, and `problems` lists them. DamagedFile if all are.

        Example:
            executions.load_latest(checkpoint["execution_id"])
        """
        execution = execution_name(execution_id)
        self._same_workflow(execution, workflow)
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
        """The steps an execution has files of, in order.

        Example:
            executions.steps(checkpoint["execution_id"])
        """
        return steps_in(self._folder, execution_name(execution_id))

    def executions(self) -> list[str]:
        """The executions that are here.

        Example:
            executions.executions()
        """
        return [name for name in self._folder.names() if _is_execution(name)]

    def place(self, execution_id: str | uuid.UUID) -> str:
        """The path of an execution's directory.

        Example:
            executions.place(checkpoint["execution_id"])
        """
        return self._folder.at(execution_name(execution_id))

    def problems(self, execution_id: str | uuid.UUID) -> list[Problem]:
        """The files of an execution that cannot be used.

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

    def roll_back(self, execution_id: str | uuid.UUID, to: int) -> dict[str, Any]:
        """Go back to the state before step `to`: from now on that is the latest. Gives it.

        Later steps are put aside, newest first, so that a crash in between leaves an execution that ends at one of
        them; roll back again to go on. Nothing is erased.

        Example:
            executions.roll_back(checkpoint["execution_id"], 0)
        """
        execution = execution_name(execution_id)
        found = self.load(execution, to)
        with self._folder.held():
            later = [step for step in self.steps(execution) if step > to]
            if later:
                put_aside(self._folder, execution, later)
            else:
                for aside in self._folder.names(OWN, _ROLLED_BACK, execution):
                    self._folder.settle(OWN, _ROLLED_BACK, execution, aside)
                self._folder.settle(execution)
        return found

    def cleanup(self, execution_id: str | uuid.UUID) -> None:
        """Remove an execution with everything in its directory. One that is not there is no mistake.

        Example:
            executions.cleanup(checkpoint["execution_id"])
        """
        execution = execution_name(execution_id)
        if self._folder.identity(execution) is None and self._folder.identity(OWN) is None:
            return
        with self._folder.held():
            if self._folder.identity(execution) is None:
                self._folder.settle(OWN)
            else:  # at once, and only then piece by piece
                self._folder.rename((execution,), (OWN, f"{_REMOVED}{uuid.uuid4().hex}"))
            self._folder.remove(OWN, _WORKFLOWS, execution + ".json")
            for gone in self._folder.names(OWN):
                if gone.startswith(_REMOVED):  # one that was killed may have left others
                    self._remove(self._folder.at(OWN, gone))
            self._remove(self._folder.at(OWN, _ROLLED_BACK, execution))

    @property
    def aio(self) -> AsyncDirectory:
        """The same verbs, to await, as those of the original are."""
        return AsyncDirectory(self)

    def close(self) -> None:
        """Give back the lock's file. Closing twice is no mistake."""
        self._folder.close()

    def _remove(self, path: str) -> None:
        with translating(f"removing {path}"):
            if os.path.islink(path):
                os.unlink(path)
            elif os.path.lexists(path):
                shutil.rmtree(path)

    def _read(self, execution: str, name: str) -> dict[str, Any] | None:
        data = self._folder.read(execution, name)
        if data is None:
            return None
        place = self._folder.at(execution, name)
        found = read_checked(data, Checkpoint, place)
        if not is_same(found["execution_id"], execution):
            raise DamagedFile(place, f"it is of execution {found['execution_id']!r}")
        if f"{found['step_index']}.json" != name:
            raise DamagedFile(place, f"it is of step {found['step_index']}")
        return found

    def _same_workflow(self, execution: str, workflow: str | None, *, keep: bool = False) -> None:
        if workflow is None:
            return
        check_id("workflow", workflow)
        name = (OWN, _WORKFLOWS, execution + ".json")
        is_there = self._folder.identity(execution) is not None  # else a cleanup that was killed has left the note
        data = self._folder.read(*name) if is_there else None
        try:
            found = None if data is None else str(json.loads(data)["workflow"])
        except (ValueError, KeyError, TypeError) as error:
            raise StorageFailed(f"{self._folder.at(*name)} cannot be read ({error}); remove it") from error
        if found is None and keep:
            self._folder.put(write_json({"workflow": workflow}), *name)
        if found not in (None, workflow):
            raise WorkflowConflict(execution, workflow, str(found))


class AsyncDirectory(AsyncVerbs[Directory]):
    """`Directory.aio`: the directory's verbs, to await.

    Example:
        import asyncio

        asyncio.run(executions.aio.load_latest(checkpoint["execution_id"]))
    """

    save = awaiting(Directory.save)
    load = awaiting(Directory.load)
    load_latest = awaiting(Directory.load_latest)
    steps = awaiting(Directory.steps)
    executions = awaiting(Directory.executions)
    problems = awaiting(Directory.problems)
    roll_back = awaiting(Directory.roll_back)
    cleanup = awaiting(Directory.cleanup)
    close = awaiting(Directory.close)


def steps_in(folder: Folder, execution: str) -> list[int]:
    """The steps an execution has files of in a folder. A number too large for the original is no step."""
    found = (_STEP.fullmatch(name) for name in folder.names(execution))
    return sorted(step for match in found if match and (step := int(match[1])) <= _STEP_MAX)


def put_aside(folder: Folder, execution: str, steps: list[int]) -> None:
    """Put steps where the original does not look, newest first. Whoever does holds the folder's lock."""
    numbers = [int(name) for name in folder.names(OWN, _ROLLED_BACK, execution) if name.isdecimal()]
    aside = (OWN, _ROLLED_BACK, execution, str(max(numbers, default=0) + 1))
    folder.make(*aside)
    for step in sorted(steps, reverse=True):
        folder.rename((execution, step_name(step)), (*aside, step_name(step)))


def execution_name(value: object) -> str:
    """An execution's id as the original writes it. It is part of a path, so it must be nothing but a UUID."""
    if not isinstance(value, (str, uuid.UUID)):
        raise InvalidId(f"execution_id must be a UUID, not {type(value).__name__}")
    try:
        return str(uuid.UUID(str(value)))
    except ValueError:
        raise InvalidId(f"execution_id {str(value)[:80]!r} is not a UUID") from None


def _is_execution(name: str) -> bool:
    return is_same(name, name)


def is_same(text: object, execution: str) -> bool:
    """Whether an id is this execution's, however it is written."""
    if not isinstance(text, str):
        return False
    try:
        return str(uuid.UUID(text)) == execution
    except ValueError:
        return False


def step_name(step: object) -> str:
    if type(step) is not int or not 0 <= step <= _STEP_MAX:
        raise InvalidInput(f"step must be a whole number from 0 on, not {step!r}")
    return f"{step}.json"
