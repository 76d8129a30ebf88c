"""What a CAR checkpoint is: a workflow that waits at an approval stage, with its whole definition and state.

    <run_id>.json       paused, claimable
    <run_id>.inflight   claimed: the same content under another name

Both hold one JSON object. What is not listed here, in it or in the definition, is kept as it is.
"""

from __future__ import annotations

from typing import Any, Final, Literal

from holdfast.errors import InvalidInput, NameTaken
from holdfast.formats.car.definition import (
    ApprovalField,
    Workflow,
    WritableField,
    WritableWorkflow,
    find_step_problem,
    leave_out_nulls,
    without_null_fields,
)
from holdfast.formats.instants import check_instant
from holdfast.formats.shapes import U32, Count, Id, Shape, checked, read_checked

PAUSED: Final = ".json"
CLAIMED: Final = ".inflight"


class PausedWorkflow(Shape):
    """The checkpoint."""

    run_id: str
    workflow: Workflow
    paused_stage_id: str
    prompt: str
    output_key: str
    iterations: Count
    prior_duration_ms: float
    created_at: str
    fields: list[ApprovalField] = []  # noqa: RUF012 - msgspec copies it
    wf_state: dict[str, Any] = {}  # noqa: RUF012 - msgspec copies it
    stage_results: list[dict[str, Any]] = []  # noqa: RUF012 - msgspec copies it
    completed_stage_ids: list[str] = []  # noqa: RUF012 - msgspec copies it


class StageResult(Shape):
    """What a stage came to. What its output is made of the original knows."""

    stage_id: Id
    stage_name: str
    status: Literal["succeeded", "failed", "skipped", "compensated"]
    output: dict[str, Any]
    duration_ms: float
    error: str | None = None


class WritablePausedWorkflow(PausedWorkflow):
    """The checkpoint as it may be written: the types of the original's fields, and ids that are not empty."""

    workflow: WritableWorkflow
    paused_stage_id: Id
    output_key: Id
    iterations: U32
    fields: list[WritableField] = []  # type: ignore[assignment]  # noqa: RUF012 - msgspec copies it
    stage_results: list[StageResult] = []  # type: ignore[assignment]  # noqa: RUF012 - msgspec copies it
    completed_stage_ids: list[Id] = []  # noqa: RUF012 - msgspec copies it


_EMPTY: Final[dict[str, type[list[Any]] | type[dict[str, Any]]]] = {
    "fields": list,
    "wf_state": dict,
    "stage_results": list,
    "completed_stage_ids": list,
}
"""Written even if there is nothing in them."""


def to_write(paused: object) -> dict[str, Any]:
    """A caller's checkpoint as it is written; InvalidInput if the original could not read it."""
    given = checked_to_write(paused, "a paused workflow")
    return {**given, **{name: make() for name, make in _EMPTY.items() if name not in given}}


def checked_to_write(paused: object, what: str) -> dict[str, Any]:
    """A checkpoint as the original can read it; InvalidInput if it could not."""
    given = checked(paused, WritablePausedWorkflow, what)
    check_instant("created_at", given["created_at"])
    problem = find_step_problem(given["workflow"])
    if problem:
        raise InvalidInput(f"{what} does not have the form the original reads: {problem}; nothing was written")
    fields = {"fields": leave_out_nulls(given["fields"])} if "fields" in given else {}
    return {**given, "workflow": without_null_fields(given["workflow"]), **fields}


def read(data: bytes, run_id: str, place: str) -> dict[str, Any]:
    """A checkpoint from its file, if it is this run's."""
    found = read_checked(data, PausedWorkflow, place)
    if found["run_id"] != run_id:
        raise NameTaken(place, run_id, found["run_id"])
    return found
