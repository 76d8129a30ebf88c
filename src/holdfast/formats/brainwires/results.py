"""Results of tool calls, beside the checkpoints, because these have no place for them.

    .holdfast/results/<name made of the task's id>.ndjson
        {"task_id": …, "tool_use_id": …, "result": …, "file": {"records": …, "log": …, …}} per line

The result is written first, then the call is marked. A line belongs to the file that was then put in place: `records`
is the length of its log of effects and `log` a hash of it, `written_at` the second in which it was written, `size` and
`written_ns` tell it from other files. The original can delete a task and make it again, so a line counts only

* if the log still begins with these records, and
* if one of them is older than `written_at`, or others follow them, or the file is still the same.

The original dates its records, so a task that it made again can begin with the same ones only if it marked the same
calls within the same second. Of several lines that count the last is taken. Lines of release 0.1.0 have no `file` and
always count.
"""

from __future__ import annotations

import itertools
import time
from typing import Annotated, Any, Final

import msgspec
from blake3 import blake3

from holdfast.formats.folder import OWN, Folder
from holdfast.formats.lines import LineFile
from holdfast.formats.shapes import Shape
from holdfast.store.directory.files import Identity
from holdfast.store.directory.names import stem

_RESULTS: Final = "results"
_HASH_BYTES: Final = 16


class _File(Shape):
    records: Annotated[int, msgspec.Meta(ge=0)]
    log: str
    written_at: int
    size: int
    written_ns: int


class _Line(Shape):
    task_id: str
    tool_use_id: str
    result: Any
    file: _File | None = None


class Results:
    """The results of one directory. Changes need its lock."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._files: dict[str, LineFile] = {}

    def add(self, checkpoint: dict[str, Any], identity: Identity, tool_use_id: str, result: object) -> None:
        """Keep a result for the checkpoint that is about to be put in place, as the file with this identity."""
        log = checkpoint["side_effects_log"]
        file = {
            "records": len(log), "log": _hashes(log)[-1], "written_at": int(time.time()),
            "size": identity.size, "written_ns": identity.written_ns,
        }  # fmt: skip
        task_id = checkpoint["task_id"]
        line = {"task_id": task_id, "tool_use_id": tool_use_id, "result": result, "file": file}
        self._file(task_id).append(line)

    def has_any(self, task_id: str) -> bool:
        """Whether a result was ever kept for the task."""
        return self._folder.identity(*_name(task_id)) is not None

    def all_of(self, checkpoint: dict[str, Any], identity: Identity | None) -> dict[str, Any]:
        """The results that count for the checkpoint in the file with this identity, by tool use."""
        task_id, log = checkpoint["task_id"], checkpoint["side_effects_log"]
        hashes, done = _hashes(log), set(checkpoint["completed_tool_ids"])
        oldest = list(itertools.accumulate((record["completed_at"] for record in log), min))

        def counts(file: dict[str, Any] | None) -> bool:
            if file is None:
                return True
            count = file["records"]
            if count > len(log) or hashes[count] != file["log"]:
                return False
            if identity is not None and (identity.size, identity.written_ns) == (file["size"], file["written_ns"]):
                return True
            return count < len(log) or (count > 0 and bool(oldest[count - 1] < file["written_at"]))

        return {
            line["tool_use_id"]: line["result"]
            for line in self._file(task_id).read().values
            if line["task_id"] == task_id and line["tool_use_id"] in done and counts(line.get("file"))
        }

    def drop(self, task_id: str) -> None:
        """Remove a task's results."""
        self._folder.remove(*_name(task_id), sync=False)
        self._files.pop(task_id, None)

    def _file(self, task_id: str) -> LineFile:
        if task_id not in self._files:
            self._files[task_id] = LineFile(self._folder, _name(task_id), _Line, stem(task_id))
        return self._files[task_id]


def _hashes(log: list[dict[str, Any]]) -> list[str]:
    """Hashes of the first 0, 1, 2 … records, of what the original keeps when it writes them again."""
    fields = ("tool_use_id", "tool_name", "target", "completed_at", "reversible")
    hashes = [""]
    for record in log:
        kept = msgspec.json.encode([hashes[-1], *(record.get(name) for name in fields)])
        hashes.append(blake3(kept).hexdigest(_HASH_BYTES))
    return hashes


def _name(task_id: str) -> tuple[str, ...]:
    return OWN, _RESULTS, stem(task_id) + ".ndjson"
