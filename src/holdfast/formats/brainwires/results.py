"""Results of tool calls, beside the checkpoints, because these have no place for them.

    .holdfast/results/<name made of the task's id>.ndjson    {"task_id": …, "tool_use_id": …, "result": …} per line

The result is written first, then the call is marked. If a crash comes between them the call is not done as far as
anybody can tell; when it was done again, the later line counts.
"""

from __future__ import annotations

from typing import Any, Final

from holdfast.formats.folder import OWN, Folder
from holdfast.formats.lines import LineFile
from holdfast.formats.shapes import Shape
from holdfast.store.directory.names import stem

_RESULTS: Final = "results"


class _Line(Shape):
    task_id: str
    tool_use_id: str
    result: Any


class Results:
    """The results of one directory. Whoever changes them holds its lock."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._files: dict[str, LineFile] = {}

    def add(self, task_id: str, tool_use_id: str, result: object) -> None:
        """Keep a result."""
        self._file(task_id).append({"task_id": task_id, "tool_use_id": tool_use_id, "result": result})

    def has_any(self, task_id: str) -> bool:
        """Whether a result was ever kept for the task."""
        return self._folder.identity(*_name(task_id)) is not None

    def get(self, task_id: str, tool_use_id: str) -> Any:
        """The result that was kept last; None if there is none."""
        lines = self._file(task_id).read().values
        found = [line["result"] for line in lines if (line["task_id"], line["tool_use_id"]) == (task_id, tool_use_id)]
        return found[-1] if found else None

    def drop(self, task_id: str) -> None:
        """Remove a task's results."""
        self._folder.remove(*_name(task_id), sync=False)
        self._files.pop(task_id, None)

    def _file(self, task_id: str) -> LineFile:
        if task_id not in self._files:
            self._files[task_id] = LineFile(self._folder, _name(task_id), _Line, stem(task_id))
        return self._files[task_id]


def _name(task_id: str) -> tuple[str, ...]:
    return OWN, _RESULTS, stem(task_id) + ".ndjson"
