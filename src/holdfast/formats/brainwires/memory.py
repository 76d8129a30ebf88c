"""Brainwires' store in memory: the same verbs, for tests and for tasks that need not survive."""

from __future__ import annotations

import copy
import threading
from typing import Any

from holdfast.formats.aio import AsyncVerbs, awaiting
from holdfast.formats.brainwires.shape import checked_effect, is_completed, marked, to_write
from holdfast.formats.lossless import write_json
from holdfast.ids import check_id


class Memory:
    """Task checkpoints that are gone with the process. Threads may share it.

    Example:
        tasks = brainwires.Memory()
        tasks.save_checkpoint(brainwires.new_checkpoint("task-a", "agent-1"))
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tasks: dict[str, dict[str, Any]] = {}
        self._results: dict[tuple[str, str], Any] = {}

    @property
    def aio(self) -> AsyncMemory:
        """The same verbs, to await, as those of the original are."""
        return AsyncMemory(self)

    def save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Keep a task's checkpoint in place of the one before.

        Example:
            tasks.save_checkpoint(brainwires.new_checkpoint("task-a", "agent-1"))
        """
        content = copy.deepcopy(to_write(checkpoint))
        write_json(content)
        with self._lock:
            self._tasks[content["task_id"]] = content

    def load_checkpoint(self, task_id: str) -> dict[str, Any] | None:
        """A task's checkpoint, or None if there is none.

        Example:
            tasks.load_checkpoint("task-a")
        """
        check_id("task_id", task_id)
        with self._lock:
            return copy.deepcopy(self._tasks.get(task_id))

    def mark_step_complete(
        self, task_id: str, tool_use_id: str, effect: dict[str, Any], *, result: object = None
    ) -> bool:
        """Record that a tool call was done. True the first time, False ever after.

        Example:
            tasks.mark_step_complete("task-a", "use-1", brainwires.side_effect("use-1", "send_mail"))
        """
        check_id("task_id", task_id)
        record = checked_effect(tool_use_id, effect)
        write_json([record, result])
        with self._lock:
            after = marked(self._tasks.get(task_id), task_id, copy.deepcopy(record))
            if after is None:
                return False
            self._tasks[task_id] = after
            self._results[task_id, tool_use_id] = copy.deepcopy(result)
            return True

    def result(self, task_id: str, tool_use_id: str) -> Any:
        """What a marked tool call gave; None if it was marked without a result, or not at all.

        Example:
            tasks.result("task-a", "use-1")
        """
        check_id("task_id", task_id)
        with self._lock:
            done = is_completed(self._tasks.get(task_id), tool_use_id)
            return copy.deepcopy(self._results.get((task_id, tool_use_id))) if done else None

    def delete_checkpoint(self, task_id: str) -> None:
        """Forget a task's checkpoint. One that is not there is no mistake.

        Example:
            tasks.delete_checkpoint("task-a")
        """
        check_id("task_id", task_id)
        with self._lock:
            self._tasks.pop(task_id, None)
            self._results = {key: value for key, value in self._results.items() if key[0] != task_id}


class AsyncMemory(AsyncVerbs[Memory]):
    """`Memory.aio`: the verbs, to await.

    Example:
        import asyncio

        asyncio.run(tasks.aio.save_checkpoint(brainwires.new_checkpoint("task-a", "agent-1")))
    """

    save_checkpoint = awaiting(Memory.save_checkpoint)
    load_checkpoint = awaiting(Memory.load_checkpoint)
    mark_step_complete = awaiting(Memory.mark_step_complete)
    result = awaiting(Memory.result)
    delete_checkpoint = awaiting(Memory.delete_checkpoint)
