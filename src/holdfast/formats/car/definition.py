"""CAR's workflow definition: the types its reader insists on, and equality without regard to defaults.

The original reads a definition into its own types and writes it again: a field it knows comes back with its default, or
is left out. So two definitions that differ only in defaults are one. A step of a type that is not listed here is kept
as it is, and so are fields that are not.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec

from holdfast.formats.lossless import NESTING_MAX
from holdfast.formats.shapes import U32, Id, Shape, find_problem, has_shape

_Large = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class ApprovalField(Shape):
    """One field of the question."""

    name: str
    label: str | None = None
    field_type: str | None = None
    options: list[Any] | None = None
    required: bool | None = None


class Precondition(Shape):
    """A comparison of a value in the state."""

    key: str
    operator: str = "eq"
    description: str = ""


class Edge(Shape):
    """The way from one stage to another."""

    from_: Id = msgspec.field(name="from")
    to: Id
    conditions: list[Precondition] = []  # noqa: RUF012 - msgspec copies it
    label: str = ""


class Stage(Shape):
    """A stage and what it does."""

    id: Id
    name: str
    step: dict[str, Any]
    timeout_ms: _Large | None = None


class WritableField(ApprovalField):
    """A field of the question as it may be written."""

    name: Id
    options: list[str] | None = None


class _Pattern(Shape):
    pattern: Id
    task: str
    agents: list[Any] = []  # noqa: RUF012 - msgspec copies it
    config: dict[str, Any] = {}  # noqa: RUF012 - msgspec copies it


class _Approval(Shape):
    prompt: str
    fields: list[WritableField]
    output_key: Id


class _LoopUntil(Shape):
    body: dict[str, Any]
    until: list[Precondition]
    max_iterations: Annotated[int, msgspec.Meta(ge=1, le=2**32 - 1)]


class _ForEach(Shape):
    items_from: Id
    body: dict[str, Any]
    max_concurrent: _Large | None = None


class _Dedup(Shape):
    items_from: Id
    into: Id
    store: Id
    hash_fields: list[str] = []  # noqa: RUF012 - msgspec copies it
    ttl_secs: _Large | None = None


class _Deliver(Shape):
    sinks: list[dict[str, Any]]
    payload_key: str | None = None


class _SubWorkflow(Shape):
    workflow: dict[str, Any] = {}  # noqa: RUF012 - msgspec copies it


_STEPS: Final[dict[str, type[Shape]]] = {
    "pattern": _Pattern, "approval": _Approval, "loop_until": _LoopUntil, "for_each": _ForEach, "dedup": _Dedup,
    "deliver": _Deliver, "sub_workflow": _SubWorkflow,
}  # fmt: skip


class Workflow(Shape):
    """The definition a run was started with."""

    id: str
    name: str
    start: str
    stages: list[dict[str, Any]]
    edges: list[dict[str, Any]]
    goal: str | None = None
    max_iterations: Annotated[int, msgspec.Meta(ge=0)] = 100
    metadata: dict[str, Any] = {}  # noqa: RUF012 - msgspec copies it


class WritableWorkflow(Workflow):
    """The definition as it may be written."""

    id: Id
    start: Id
    stages: list[Stage]  # type: ignore[assignment]
    edges: list[Edge]  # type: ignore[assignment]
    max_iterations: U32 = 100


def find_step_problem(workflow: dict[str, Any], depth: int = 0) -> str:
    """Why the original could not read a step of a definition; empty if it could."""
    for stage in workflow["stages"]:
        problem = _problem_of_step(stage["step"], depth)
        if problem:
            return f"stage {stage['id']!r}: {problem}"
    return ""


def _problem_of_step(step: dict[str, Any], depth: int) -> str:
    if depth > NESTING_MAX:  # it is refused because of that
        return ""
    kind = step.get("type")
    if not isinstance(kind, str) or not kind:
        return f"`type` of its step must be a name, not {kind!r}"
    problem = find_problem(step, _STEPS[kind]) if kind in _STEPS else ""
    if problem:
        return f"step of the type {kind!r}: {problem}"
    if kind in ("loop_until", "for_each"):
        return _problem_of_step(step["body"], depth + 1)
    if kind == "sub_workflow" and "workflow" in step:
        return find_problem(step["workflow"], WritableWorkflow) or find_step_problem(step["workflow"], depth + 1)
    return ""


def without_null_fields(workflow: dict[str, Any], depth: int = 0) -> dict[str, Any]:
    """A definition in which no field of a question has a null: what is left out has its default in every release."""
    stages = [{**stage, "step": _without_nulls(stage["step"], depth)} for stage in workflow["stages"]]
    return {**workflow, "stages": stages}


def _without_nulls(step: dict[str, Any], depth: int) -> dict[str, Any]:
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


def leave_out_nulls(fields: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Fields of a question without those of their parts that are null and have a default."""
    optional = ApprovalField.__struct_fields__
    return [
        {name: value for name, value in field.items() if value is not None or name not in optional} for field in fields
    ]


def is_same_definition(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two definitions differ in nothing but fields that have their defaults."""
    return one == other or _without_defaults(one, 0) == _without_defaults(other, 0)


def _without_defaults(workflow: dict[str, Any], depth: int) -> dict[str, Any]:
    parts = {
        "stages": [{**stage, "step": _plain_step(stage.get("step"), depth)} for stage in workflow["stages"]],
        "edges": [{**edge, "conditions": _each(edge.get("conditions"), operator="eq")} for edge in workflow["edges"]],
    }
    return _shortened(
        {**workflow, "stages": _each(parts["stages"]), "edges": _each(parts["edges"])}, max_iterations=100
    )


def _plain_step(step: Any, depth: int) -> Any:
    if not isinstance(step, dict) or depth > NESTING_MAX:
        return step
    changed = {
        **({"body": _plain_step(step["body"], depth + 1)} if "body" in step else {}),
        **({"until": _each(step["until"], operator="eq")} if "until" in step else {}),
        **({"fields": _each(step["fields"], field_type="text")} if "fields" in step else {}),
    }
    inner: Any = step.get("workflow")
    if step.get("type") == "sub_workflow" and has_shape(inner, Workflow):
        changed["workflow"] = _without_defaults(inner, depth + 1)
    return _shortened({**step, **changed})


def _each(parts: Any, **defaults: Any) -> Any:
    """Each part of a list without its defaults; what is no list of parts stays as it is."""
    if not isinstance(parts, list):
        return parts
    return [_shortened(part, **defaults) if isinstance(part, dict) else part for part in parts]


def _shortened(part: dict[str, Any], **defaults: Any) -> dict[str, Any]:
    """A part of a definition without the fields that have their defaults. A condition's value may be anything."""
    return {
        name: value
        for name, value in part.items()
        if not (
            value is None
            or (name != "value" and (value is False or value in ("", [], {})))
            or (name in defaults and value == defaults[name])
        )
    }
