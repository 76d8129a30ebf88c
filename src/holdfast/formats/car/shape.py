"""What a CAR checkpoint is: a workflow that waits at an approval stage, with its whole definition and state.

    <run_id>.json       paused, claimable
    <run_id>.inflight   claimed: the same content under another name

Both hold one JSON object. What is not listed here, in it or in the definition, is kept as it is.
"""

from __future__ import annotations

from typing import Any, Final

from holdfast.errors import NameTaken
from holdfast.formats.shapes import Count, Shape, checked, read_checked

PAUSED: Final = ".json"
CLAIMED: Final = ".inflight"


class Workflow(Shape):
    """The definition a run was started with."""

    id: str
    name: str
    start: str
    stages: list[dict[str, Any]]
    edges: list[dict[str, Any]]
    goal: str | None = None
    max_iterations: Count = 100
    metadata: dict[str, Any] = {}  # noqa: RUF012 - msgspec copies it


class ApprovalField(Shape):
    """One field of the question."""

    name: str
    label: str | None = None
    field_type: str | None = None
    options: list[Any] | None = None
    required: bool | None = None


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


_EMPTY: Final[dict[str, type[list[Any]] | type[dict[str, Any]]]] = {
    "fields": list,
    "wf_state": dict,
    "stage_results": list,
    "completed_stage_ids": list,
}
"""Written even if there is nothing in them."""


def to_write(paused: object) -> dict[str, Any]:
    """A caller's checkpoint as it is written; InvalidInput if the original could not read it."""
    given = checked(paused, PausedWorkflow, "a paused workflow")
    return {**given, **{name: make() for name, make in _EMPTY.items() if name not in given}}


def read(data: bytes, run_id: str, place: str) -> dict[str, Any]:
    """A checkpoint from its file, if it is this run's."""
    found = read_checked(data, PausedWorkflow, place)
    if found["run_id"] != run_id:
        raise NameTaken(place, run_id, found["run_id"])
    return found
