"""SimpleAgents: one checkpoint per run, `<root>/<run_id>.json`.

    {"run_id": …, "workflow_name": …, "step": 3, "next_node_id": …, "scope_snapshot": any JSON}

The original writes it in place. Here it is put whole, what may not be read is an error and never "no checkpoint", the
whole scope comes back, and a checkpoint of one workflow is not taken for another's.

Example:
    from holdfast.formats import simple_agents

    runs = simple_agents.Directory("checkpoints")
    runs.save({"run_id": "run-1", "workflow_name": "wf", "step": 3, "next_node_id": "tool",
               "scope_snapshot": {"input": {"k": "v"}}})
    assert runs.load("run-1", workflow_name="wf")["step"] == 3
"""

from __future__ import annotations

import contextlib
import os
from typing import Any, Final

from holdfast.errors import DamagedFile, InvalidInput, NameTaken, WorkflowConflict
from holdfast.formats.folder import Folder
from holdfast.formats.lossless import write_json
from holdfast.formats.names import check_name
from holdfast.formats.shapes import Count, Shape, checked, read_checked
from holdfast.ids import check_id
from holdfast.store.directory.files import Files

__all__ = ["Directory"]

ENDING: Final = ".json"


class WorkflowCheckpoint(Shape):
    """What the original insists on. The scope may be any JSON, but must be there."""

    run_id: str
    workflow_name: str
    step: Count
    next_node_id: str
    scope_snapshot: Any


class Directory:
    """A directory of SimpleAgents' checkpoints, with its verbs. Several processes may use it at once.

    Example:
        runs = simple_agents.Directory("checkpoints")
        runs.save(checkpoint)
    """

    def __init__(self, root: str | os.PathLike[str], *, timeout_s: float = 20.0, files: Files | None = None) -> None:
        self._folder = Folder(root, timeout_s=timeout_s, files=files)

    def save(self, checkpoint: dict[str, Any]) -> None:
        """Put the run's checkpoint in place of the one before, whole and durably.

        WorkflowConflict if the run has a checkpoint of another workflow. InvalidInput if `workflow_name` or
        `next_node_id` is empty, because nothing could be resumed from it; one that the original wrote so may be saved
        again.

        Example:
            runs.save(checkpoint)
        """
        given = checked(checkpoint, WorkflowCheckpoint, "a checkpoint")
        name = check_name("run_id", given["run_id"], ENDING)
        self._check_names(given, name)
        data = write_json(given)
        with self._folder.held():
            try:
                before = self._read(given["run_id"], name)
            except DamagedFile:  # torn by the original, and replaced now
                before = None
            _same_workflow(before, given["workflow_name"])
            self._folder.put(data, name)

    def load(self, run_id: str, *, workflow_name: str | None = None) -> dict[str, Any] | None:
        """The run's checkpoint, or None if there is none. With `workflow_name` it must be of that workflow.

        Example:
            runs.load("run-1", workflow_name="wf")
        """
        if workflow_name is not None:
            check_id("workflow_name", workflow_name)
        found = self._read(run_id, check_name("run_id", run_id, ENDING))
        if workflow_name is not None:
            _same_workflow(found, workflow_name)
        return found

    def delete(self, run_id: str) -> None:
        """Remove the run's checkpoint. One that is not there is no mistake; another run's file is left alone.

        Example:
            runs.delete("run-1")
        """
        name = check_name("run_id", run_id, ENDING)
        if self._folder.identity(name) is None:
            self._folder.settle()
            return
        with self._folder.held():
            try:
                self._read(run_id, name)
            except DamagedFile:  # whatever it was, it goes
                pass
            except NameTaken:
                return
            self._folder.remove(name)

    def close(self) -> None:
        """Give back the lock's file. Closing twice is no mistake."""
        self._folder.close()

    def _check_names(self, given: dict[str, Any], name: str) -> None:
        empty = [field for field in ("workflow_name", "next_node_id") if not given[field]]
        before = None
        if empty:
            with contextlib.suppress(DamagedFile):
                before = self._read(given["run_id"], name)
        for field in empty:
            if before is None or before[field]:
                raise InvalidInput(
                    f"`{field}` of the checkpoint of run {given['run_id']!r} is empty, so nothing could be resumed "
                    "from it; name it. Nothing was written"
                )

    def _read(self, run_id: str, name: str) -> dict[str, Any] | None:
        data = self._folder.read(name)
        if data is None:
            return None
        place = self._folder.at(name)
        found = read_checked(data, WorkflowCheckpoint, place)
        if found["run_id"] != run_id:
            raise NameTaken(place, run_id, found["run_id"])
        return found


def _same_workflow(found: dict[str, Any] | None, workflow_name: str) -> None:
    if found is not None and found["workflow_name"] != workflow_name:
        raise WorkflowConflict(found["run_id"], workflow_name, found["workflow_name"])
