"""The schema of a CAR checkpoint: a workflow paused at an approval stage.

    <run_id>.json       paused, claimable
    <run_id>.inflight   claimed: the same content under another name

Each file is one JSON object with the whole definition and state. Fields that are not listed here, in it or in the
definition, are kept unchanged.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final, Literal

import msgspec

from holdfast.errors import InvalidInput, NameTaken
from holdfast.formats.schema import (
    NESTING_MAX,
    U32,
    Count,
    Id,
    JsonObject,
    Schema,
    check_timestamp,
    find_problem,
    has_schema,
    read_object,
    require_schema,
)

PAUSED: Final = ".json"
CLAIMED: Final = ".inflight"


class PausedWorkflow(Schema):
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
    wf_state: JsonObject = {}  # noqa: RUF012 - msgspec copies it
    stage_results: list[JsonObject] = []  # noqa: RUF012 - msgspec copies it
    completed_stage_ids: list[str] = []  # noqa: RUF012 - msgspec copies it


class StageResult(Schema):
    """The outcome of a stage. The content of its output is up to the original."""

    stage_id: Id
    stage_name: str
    status: Literal["succeeded", "failed", "skipped", "compensated"]
    output: JsonObject
    duration_ms: float
    error: str | None = None


class WritablePausedWorkflow(PausedWorkflow):
    """The checkpoint as it may be written: with the original's types, and ids that are not empty."""

    workflow: WritableWorkflow
    paused_stage_id: Id
    output_key: Id
    iterations: U32
    fields: list[WritableField] = []  # type: ignore[assignment]  # noqa: RUF012 - msgspec copies it
    stage_results: list[StageResult] = []  # type: ignore[assignment]  # noqa: RUF012 - msgspec copies it
    completed_stage_ids: list[Id] = []  # noqa: RUF012 - msgspec copies it


_ALWAYS_WRITTEN: Final[dict[str, Callable[[], object]]] = {
    "fields": list,
    "wf_state": dict,
    "stage_results": list,
    "completed_stage_ids": list,
}
"""Fields that are written even if they are empty."""


def to_write(paused: object) -> JsonObject:
    """Return a caller's checkpoint as it is written. Raises InvalidInput if the original could not read it."""
    given = check_workflow(paused, "a paused workflow")
    return given | {name: make() for name, make in _ALWAYS_WRITTEN.items() if name not in given}


def check_workflow(paused: object, what: str) -> JsonObject:
    """Return a checkpoint in a form that the original can read, or raise InvalidInput."""
    given = require_schema(paused, WritablePausedWorkflow, what)
    check_timestamp("created_at", given["created_at"])
    problem = find_step_problem(given["workflow"])
    if problem:
        raise InvalidInput(f"the original could not read {what}: {problem}; nothing was written")
    fields = {"fields": leave_out_nulls(given["fields"])} if "fields" in given else {}
    return {**given, "workflow": without_null_fields(given["workflow"]), **fields}


def read(data: bytes, run_id: str, place: str) -> JsonObject:
    """Return the checkpoint in a file, which must be this run's."""
    found = read_object(data, PausedWorkflow, place)
    if found["run_id"] != run_id:
        raise NameTaken(place, run_id, found["run_id"])
    return found


_Large = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class ApprovalField(Schema):
    """One field of an approval."""

    name: str
    label: str | None = None
    field_type: str | None = None
    options: list[Any] | None = None
    required: bool | None = None


class Precondition(Schema):
    """A comparison of a value in the state."""

    key: str
    operator: str = "eq"
    description: str = ""


class Edge(Schema):
    """An edge from one stage to another."""

    from_: Id = msgspec.field(name="from")
    to: Id
    conditions: list[Precondition] = []  # noqa: RUF012 - msgspec copies it
    label: str = ""


class Stage(Schema):
    """A stage and its step."""

    id: Id
    name: str
    step: JsonObject
    timeout_ms: _Large | None = None


class WritableField(ApprovalField):
    """A field of an approval as it may be written."""

    name: Id
    options: list[str] | None = None


class _Pattern(Schema):
    pattern: Id
    task: str
    agents: list[object] = []  # noqa: RUF012 - msgspec copies it
    config: JsonObject = {}  # noqa: RUF012 - msgspec copies it


class _Approval(Schema):
    prompt: str
    fields: list[WritableField]
    output_key: Id


class _LoopUntil(Schema):
    body: JsonObject
    until: list[Precondition]
    max_iterations: Annotated[int, msgspec.Meta(ge=1, le=2**32 - 1)]


class _ForEach(Schema):
    items_from: Id
    body: JsonObject
    max_concurrent: _Large | None = None


class _Dedup(Schema):
    items_from: Id
    into: Id
    store: Id
    hash_fields: list[str] = []  # noqa: RUF012 - msgspec copies it
    ttl_secs: _Large | None = None


class _Deliver(Schema):
    sinks: list[JsonObject]
    payload_key: str | None = None


class _SubWorkflow(Schema):
    workflow: JsonObject = {}  # noqa: RUF012 - msgspec copies it


_STEPS: Final[dict[str, type[Schema]]] = {
    "pattern": _Pattern,
    "approval": _Approval,
    "loop_until": _LoopUntil,
    "for_each": _ForEach,
    "dedup": _Dedup,
    "deliver": _Deliver,
    "sub_workflow": _SubWorkflow,
}


class Workflow(Schema):
    """The definition a run was started with."""

    id: str
    name: str
    start: str
    stages: list[JsonObject]
    edges: list[JsonObject]
    goal: str | None = None
    max_iterations: Annotated[int, msgspec.Meta(ge=0)] = 100
    metadata: JsonObject = {}  # noqa: RUF012 - msgspec copies it


class WritableWorkflow(Workflow):
    """The definition as it may be written."""

    id: Id
    start: Id
    stages: list[Stage]  # type: ignore[assignment]
    edges: list[Edge]  # type: ignore[assignment]
    max_iterations: U32 = 100


def find_step_problem(workflow: JsonObject, depth: int = 0) -> str:
    """Return why the original could not read a step of a definition; empty if it could."""
    for stage in workflow["stages"]:
        problem = _problem_of_step(stage["step"], depth)
        if problem:
            return f"stage {stage['id']!r}: {problem}"
    return ""


def _problem_of_step(step: JsonObject, depth: int) -> str:
    if depth > NESTING_MAX:  # write_json refuses it
        return ""
    kind = step.get("type")
    if not isinstance(kind, str) or not kind:
        return f"`type` of its step must be text, not {kind!r}"
    problem = find_problem(step, _STEPS[kind]) if kind in _STEPS else ""
    if problem:
        return f"step of type {kind!r}: {problem}"
    if kind in ("loop_until", "for_each"):
        return _problem_of_step(step["body"], depth + 1)
    if kind == "sub_workflow" and "workflow" in step:
        return find_problem(step["workflow"], WritableWorkflow) or find_step_problem(step["workflow"], depth + 1)
    return ""


def without_null_fields(workflow: JsonObject, depth: int = 0) -> JsonObject:
    """Return a definition without nulls in fields of approvals: a missing key has its default in every release."""
    stages = [{**stage, "step": _without_nulls(stage["step"], depth)} for stage in workflow["stages"]]
    return {**workflow, "stages": stages}


def _without_nulls(step: JsonObject, depth: int) -> JsonObject:
    kind = step.get("type")
    if depth > NESTING_MAX:
        return step
    if kind == "approval" and "fields" in step:
        return {**step, "fields": leave_out_nulls(step["fields"])}
    if kind in ("loop_until", "for_each"):
        return {**step, "body": _without_nulls(step["body"], depth + 1)}
    if kind == "sub_workflow" and "workflow" in step:
        return {**step, "workflow": without_null_fields(step["workflow"], depth + 1)}
    return step


def leave_out_nulls(fields: list[JsonObject]) -> list[JsonObject]:
    """Return fields of an approval without the keys that are null and have a default."""
    optional = ApprovalField.__struct_fields__
    return [
        {name: value for name, value in field.items() if value is not None or name not in optional} for field in fields
    ]


def is_same_definition(one: JsonObject, other: JsonObject) -> bool:
    """Whether two definitions are equal except for fields that have their defaults."""
    return one == other or _shorten_workflow(one, 0) == _shorten_workflow(other, 0)


def _shorten_workflow(workflow: JsonObject, depth: int) -> JsonObject:
    stages = [{**stage, "step": _shorten_step(stage.get("step"), depth)} for stage in workflow["stages"]]
    edges = [{**e, "conditions": _shorten_each(e.get("conditions"), operator="eq")} for e in workflow["edges"]]
    content = {**workflow, "stages": _shorten_each(stages), "edges": _shorten_each(edges)}
    return _shorten(content, max_iterations=100)


def _shorten_step(step: object, depth: int) -> object:
    if not isinstance(step, dict) or depth > NESTING_MAX:
        return step
    changed = {
        **({"body": _shorten_step(step["body"], depth + 1)} if "body" in step else {}),
        **({"until": _shorten_each(step["until"], operator="eq")} if "until" in step else {}),
        **({"fields": _shorten_each(step["fields"], field_type="text")} if "fields" in step else {}),
    }
    inner = step.get("workflow")
    if step.get("type") == "sub_workflow" and has_schema(inner, Workflow):
        changed["workflow"] = _shorten_workflow(inner, depth + 1)
    return _shorten({**step, **changed})


def _shorten_each(parts: object, **defaults: object) -> object:
    """Return a list with each part shortened; a value that is not a list is returned unchanged."""
    if not isinstance(parts, list):
        return parts
    return [_shorten(part, **defaults) if isinstance(part, dict) else part for part in parts]


def _shorten(part: JsonObject, **defaults: object) -> JsonObject:
    """Return a part of a definition without the fields that have their defaults, except a condition's value."""
    return {
        name: value
        for name, value in part.items()
        if not (
            value is None
            or (name != "value" and (value is False or value in ("", [], {})))
            or (name in defaults and value == defaults[name])
        )
    }
