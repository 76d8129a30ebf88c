"""Brainwires: which tool calls of a task were done, one file per task.

`Directory` and `Memory` have its verbs, and their `aio` the same verbs to await. A checkpoint is a dict; what it must
have is in `holdfast.formats.brainwires.shape`.

Example:
    from holdfast.formats import brainwires

    tasks = brainwires.Directory("workflow")
    effect = brainwires.side_effect("use-1", "write_file", "src/main.rs", reversible=True)
    assert tasks.mark_step_complete("task-a", "use-1", effect)
    assert not tasks.mark_step_complete("task-a", "use-1", effect)
"""

from holdfast.formats.brainwires.directory import AsyncDirectory, Directory
from holdfast.formats.brainwires.memory import AsyncMemory, Memory
from holdfast.formats.brainwires.shape import is_completed, new_checkpoint, side_effect

__all__ = [
    "AsyncDirectory",
    "AsyncMemory",
    "Directory",
    "Memory",
    "is_completed",
    "new_checkpoint",
    "side_effect",
]
