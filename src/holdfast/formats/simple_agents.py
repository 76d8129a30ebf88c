"""SimpleAgents' checkpoints: one file per run, `<root>/<run_id>.json`.

    {"run_id": …, "workflow_name": …, "step": 3, "next_node_id": …, "scope_snapshot": any JSON}

The original writes the file in place. This module replaces it atomically, reports a file that cannot be read as an
error and never as "no checkpoint", returns the whole scope, and refuses a checkpoint of another workflow.

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
from holdfast.files.os_files import Files
from holdfast.formats.folder import Folder, check_name
from holdfast.formats.schema import Count, JsonObject, Schema, read_object, require_schema, write_json
from holdfast.ids import check_id

__all__ = ["Directory"]

ENDING: Final = ".json"


class WorkflowCheckpoint(Schema):
    """The fields that the original requires. The scope may be any JSON value."""

    run_id: str
    workflow_name: str
    step: Count
    next_node_id: str
    scope_snapshot: Any


class Directory:
    """A directory of SimpleAgents' checkpoints, with its operations. Several processes may use it at once.

    Example:
        runs = simple_agents.Directory("checkpoints")
        runs.save(checkpoint)
    """

    def __init__(self, root: str | os.PathLike[str], *, timeout_s: float = 20.0, files: Files | None = None) -> None:
        self._folder = Folder(root, timeout_s=timeout_s, files=files)

    def save(self, checkpoint: JsonObject) -> None:
        """Replace the run's checkpoint atomically and durably.

        Raises WorkflowConflict if the run has a checkpoint of another workflow, and InvalidInput if `workflow_name` or
        `next_node_id` is empty, because nothing could be resumed from it. A field that the original left empty may be
        saved again.

        Example:
            runs.save(checkpoint)
        """
        given = require_schema(checkpoint, WorkflowCheckpoint, "a checkpoint")
        name = check_name("run_id", given["run_id"], ENDING)
        self._check_names(given, name)
        data = write_json(given)
        with self._folder.hold():
            try:
                before = self._read(given["run_id"], name)
            except DamagedFile:  # torn by the original; it is replaced
                before = None
            _check_workflow(before, given["workflow_name"])
            self._folder.put(data, name)

    def load(self, run_id: str, *, workflow_name: str | None = None) -> JsonObject | None:
        """Return the run's checkpoint, or None if there is none. With `workflow_name` it must be of that workflow.

        Example:
            runs.load("run-1", workflow_name="wf")
        """
        if workflow_name is not None:
            check_id("workflow_name", workflow_name)
        found = self._read(run_id, check_name("run_id", run_id, ENDING))
        if workflow_name is not None:
            _check_workflow(found, workflow_name)
        return found

    def delete(self, run_id: str) -> None:
        """Remove the run's checkpoint. A missing one is not an error; another run's file is left alone.

        Example:
            runs.delete("run-1")
        """
        name = check_name("run_id", run_id, ENDING)
        if self._folder.identity(name) is None:
            self._folder.sync_path()
            return
        with self._folder.hold():
            try:
                self._read(run_id, name)
            except DamagedFile:  # it is removed as well
                pass
            except NameTaken:
                return
            self._folder.remove(name)

    def close(self) -> None:
        """Close the lock file. Closing twice is allowed."""
        self._folder.close()

    def _check_names(self, given: JsonObject, name: str) -> None:
        empty = [field for field in ("workflow_name", "next_node_id") if not given[field]]
        before = None
        if empty:
            with contextlib.suppress(DamagedFile):
                before = self._read(given["run_id"], name)
        for field in empty:
            if before is None or before[field]:
                raise InvalidInput(
                    f"`{field}` of the checkpoint of run {given['run_id']!r} is empty, so the run could not be "
                    "resumed from it; set it. Nothing was written"
                )

    def _read(self, run_id: str, name: str) -> JsonObject | None:
        data = self._folder.read(name)
        if data is None:
            return None
        place = self._folder.at(name)
        found = read_object(data, WorkflowCheckpoint, place)
        if found["run_id"] != run_id:
            raise NameTaken(place, run_id, found["run_id"])
        return found


def _check_workflow(found: JsonObject | None, workflow_name: str) -> None:
    if found is not None and found["workflow_name"] != workflow_name:
        raise WorkflowConflict(found["run_id"], workflow_name, found["workflow_name"])
