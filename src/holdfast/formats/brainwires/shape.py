"""What a Brainwires checkpoint is: which tool calls of a task were done, and the log of their effects.

    <dir>/<name made of the task's id>.json

One JSON object. `completed_tool_ids` is a set, in no order; moments are seconds since 1970. Fields that are not listed
here are kept as they are.
"""

from __future__ import annotations

import time
from typing import Annotated, Any, Final

import msgspec

from holdfast.errors import InvalidInput
from holdfast.formats.shapes import Shape, checked
from holdfast.ids import check_id

Seconds = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
STEP_MAX: Final = 2**32 - 1
Step = Annotated[int, msgspec.Meta(ge=0, le=STEP_MAX)]


class SideEffectRecord(Shape):
    """One effect. `reversible`: it can be undone, or may safely be done again."""

    tool_use_id: str
    tool_name: str
    completed_at: Seconds
    reversible: bool
    target: str | None = None


class WorkflowCheckpoint(Shape):
    """The checkpoint of a task."""

    task_id: str
    agent_id: str
    step_index: Step
    completed_tool_ids: list[str]
    side_effects_log: list[SideEffectRecord]
    updated_at: Seconds


def new_checkpoint(task_id: str, agent_id: str) -> dict[str, Any]:
    """A checkpoint of a task that has done nothing yet.

    Example:
        tasks.save_checkpoint(brainwires.new_checkpoint("task-a", "agent-1"))
    """
    return {
        "task_id": task_id, "agent_id": agent_id, "step_index": 0, "completed_tool_ids": [], "side_effects_log": [],
        "updated_at": int(time.time()),
    }  # fmt: skip


def side_effect(
    tool_use_id: str, tool_name: str, target: str | None = None, *, reversible: bool = False
) -> dict[str, Any]:
    """What a tool call did, now.

    Example:
        brainwires.side_effect("use-1", "write_file", "src/main.rs", reversible=True)
    """
    return {
        "tool_use_id": tool_use_id, "tool_name": tool_name, "target": target, "completed_at": int(time.time()),
        "reversible": reversible,
    }  # fmt: skip


def is_completed(checkpoint: dict[str, Any] | None, tool_use_id: str) -> bool:
    """Whether the tool call was done, as far as the checkpoint tells.

    Example:
        brainwires.is_completed(tasks.load_checkpoint("task-a"), "use-1")
    """
    return checkpoint is not None and tool_use_id in checkpoint["completed_tool_ids"]


def to_write(checkpoint: object) -> dict[str, Any]:
    """A caller's checkpoint as it is written; InvalidInput if the original could not read it."""
    given = checked(checkpoint, WorkflowCheckpoint, "a checkpoint")
    check_id("task_id", given["task_id"])
    return {**given, "completed_tool_ids": list(dict.fromkeys(given["completed_tool_ids"]))}


def checked_effect(tool_use_id: str, effect: object) -> dict[str, Any]:
    """A caller's record of an effect, complete and about this tool call."""
    check_id("tool_use_id", tool_use_id)
    given = checked(effect, SideEffectRecord, "a side effect")
    if given["tool_use_id"] != tool_use_id:
        raise InvalidInput(f"the side effect is of {given['tool_use_id']!r}, but {tool_use_id!r} is to be marked")
    return {**given, "target": given.get("target")}


def marked(checkpoint: dict[str, Any] | None, task_id: str, effect: dict[str, Any]) -> dict[str, Any] | None:
    """The checkpoint with the effect marked as done; None if it was marked before."""
    before = checkpoint or new_checkpoint(task_id, "unknown")
    tool_use_id = effect["tool_use_id"]
    if tool_use_id in before["completed_tool_ids"]:
        return None
    return {
        **before,
        "step_index": min(before["step_index"] + 1, STEP_MAX),
        "completed_tool_ids": [*before["completed_tool_ids"], tool_use_id],
        "side_effects_log": [*before["side_effects_log"], effect],
        "updated_at": int(time.time()),
    }
