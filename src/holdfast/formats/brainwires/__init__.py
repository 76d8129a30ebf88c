"""Brainwires' task checkpoints: the completed tool calls of a task.

`Directory` and `Memory` have its operations, and their `aio` the same as coroutines. `Memory` is for tests and for
tasks that need not survive the process. A checkpoint is a dict; `holdfast.formats.brainwires.task_records` has its
schema.

Example:
    from holdfast.formats import brainwires

    tasks = brainwires.Directory("workflow")
    effect = brainwires.side_effect("use-1", "write_file", "src/main.rs", reversible=True)
    assert tasks.mark_step_complete("task-a", "use-1", effect)
    assert not tasks.mark_step_complete("task-a", "use-1", effect)
"""

from __future__ import annotations

import copy
import threading
from typing import Any

from holdfast.formats.brainwires.task_directory import AsyncDirectory, Directory
from holdfast.formats.brainwires.task_records import (
    check_checkpoint,
    check_effect,
    is_completed,
    new_checkpoint,
    side_effect,
    with_mark,
)
from holdfast.formats.folder import AsyncOperations, run_in_thread
from holdfast.formats.schema import JsonObject, write_json
from holdfast.ids import check_id


class Memory:
    """Task checkpoints in memory, which end with the process. Threads may share it.

    Example:
        tasks = brainwires.Memory()
        tasks.save_checkpoint(brainwires.new_checkpoint("task-a", "agent-1"))
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tasks: dict[str, JsonObject] = {}
        self._results: dict[tuple[str, str], Any] = {}

    @property
    def aio(self) -> AsyncMemory:
        """The same operations as coroutines, as in the original."""
        return AsyncMemory(self)

    def save_checkpoint(self, checkpoint: JsonObject) -> None:
        """Replace a task's checkpoint.

        Example:
            tasks.save_checkpoint(brainwires.new_checkpoint("task-a", "agent-1"))
        """
        content = copy.deepcopy(check_checkpoint(checkpoint))
        write_json(content)
        with self._lock:
            self._tasks[content["task_id"]] = content

    def load_checkpoint(self, task_id: str) -> JsonObject | None:
        """Return a task's checkpoint, or None if there is none.

        Example:
            tasks.load_checkpoint("task-a")
        """
        check_id("task_id", task_id)
        with self._lock:
            return copy.deepcopy(self._tasks.get(task_id))

    def mark_step_complete(self, task_id: str, tool_use_id: str, effect: JsonObject, *, result: object = None) -> bool:
        """Record that a tool call completed. Return True the first time, then False.

        Example:
            tasks.mark_step_complete("task-a", "use-1", brainwires.side_effect("use-1", "send_mail"))
        """
        check_id("task_id", task_id)
        record = check_effect(tool_use_id, effect)
        write_json([record, result])
        with self._lock:
            after = with_mark(self._tasks.get(task_id), task_id, copy.deepcopy(record))
            if after is None:
                return False
            self._tasks[task_id] = after
            self._results[task_id, tool_use_id] = copy.deepcopy(result)
            return True

    def result(self, task_id: str, tool_use_id: str) -> Any:
        """Return the result of a marked tool call; None if it was marked without a result, or not at all.

        Example:
            tasks.result("task-a", "use-1")
        """
        check_id("task_id", task_id)
        with self._lock:
            done = is_completed(self._tasks.get(task_id), tool_use_id)
            return copy.deepcopy(self._results.get((task_id, tool_use_id))) if done else None

    def delete_checkpoint(self, task_id: str) -> None:
        """Remove a task's checkpoint. A missing one is not an error.

        Example:
            tasks.delete_checkpoint("task-a")
        """
        check_id("task_id", task_id)
        with self._lock:
            self._tasks.pop(task_id, None)
            self._results = {key: value for key, value in self._results.items() if key[0] != task_id}


class AsyncMemory(AsyncOperations[Memory]):
    """`Memory.aio`: the operations as coroutines.

    Example:
        import asyncio

        asyncio.run(tasks.aio.save_checkpoint(brainwires.new_checkpoint("task-a", "agent-1")))
    """

    save_checkpoint = run_in_thread(Memory.save_checkpoint)
    load_checkpoint = run_in_thread(Memory.load_checkpoint)
    mark_step_complete = run_in_thread(Memory.mark_step_complete)
    result = run_in_thread(Memory.result)
    delete_checkpoint = run_in_thread(Memory.delete_checkpoint)


__all__ = [
    "AsyncDirectory",
    "AsyncMemory",
    "Directory",
    "Memory",
    "is_completed",
    "new_checkpoint",
    "side_effect",
]
