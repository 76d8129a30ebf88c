"""Results of tool calls, beside the checkpoints, because these have no place for them.

    .holdfast/results/<name made of the task's id>.ndjson    {"task_id": …, "tool_use_id": …, "result": …} per line

The result is written first, then the call is marked. If a crash comes between them the call is not done as far as
anybody can tell; when it was done again, the later line counts.
"""

from __future__ import annotations

from typing import Any, Final

from holdfast.formats.folder import OWN, Folder
from holdfast.formats.lines import read_lines, write_line
from holdfast.formats.lossless import write_json
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

    def add(self, task_id: str, tool_use_id: str, result: object) -> None:
        """Keep a result."""
        name = _name(task_id)
        data = self._folder.read(*name) or b""
        lines = read_lines(data, _Line, self._folder.at(*name))
        if lines.size < len(data):
            self._folder.cut(lines.size, *name)
        line = {"task_id": task_id, "tool_use_id": tool_use_id, "result": result}
        self._folder.append(write_line(write_json(line, compact=True), is_ended=lines.is_ended), *name)

    def get(self, task_id: str, tool_use_id: str) -> Any:
        """The result that was kept last; None if there is none."""
        name = _name(task_id)
        lines = read_lines(self._folder.read(*name) or b"", _Line, self._folder.at(*name))
        found = [line["result"] for line in lines.values if line["tool_use_id"] == tool_use_id]
        return found[-1] if found else None

    def drop(self, task_id: str) -> None:
        """Remove a task's results."""
        self._folder.remove(*_name(task_id), sync=False)


def _name(task_id: str) -> tuple[str, ...]:
    return OWN, _RESULTS, stem(task_id) + ".ndjson"
