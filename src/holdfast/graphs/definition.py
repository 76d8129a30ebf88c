"""The definition: what a declared workflow is, as data.

A graph has stages and edges. The run begins at `start`, does what the stage says, takes the first edge that fits, and
so on until it comes to a stage of the type `end`. The state is one dict: the graph's variables, `input`, `goal`, what
stages have put under their `output_key`, and under `stage.<id>` what became of each.

Every text below `with`, `prompt`, `show`, `values`, `result` and so on may name parts of the state. Alone,
`"{{ input.order }}"` is the value itself; inside other text it is the value as text. Nothing is ever computed there.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec

from holdfast.errors import InvalidInput

if TYPE_CHECKING:
    from holdfast.graphs.dry import DryRun
    from holdfast.graphs.findings import Finding, HasRegistry, Known

Operator = Literal["eq", "neq", "gt", "lt", "gte", "lte", "exists", "not_exists", "contains"]
OnFailure = Literal["abort", "skip", "retry", "compensate"]
Text: TypeAlias = str
"""Text in which parts of the state may be named."""


class BadPart(InvalidInput, ValueError):
    """A part of a definition contradicts itself. A ValueError, so that whoever reads a definition can say where."""


class Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Base of all parts of a definition."""


class Condition(Part, frozen=True, kw_only=True):
    """A question to the state: one key compared with a value, or several questions joined by `all` or `any`.

    Example:
        Condition(key="quote.amount", operator="gt", value=100)
    """

    key: str = ""
    operator: Operator = "eq"
    value: Any = None
    all: tuple[Condition, ...] | None = None
    any: tuple[Condition, ...] | None = None
    description: str = ""

    def __post_init__(self) -> None:
        if bool(self.key) + (self.all is not None) + (self.any is not None) != 1:
            raise BadPart("a condition has a key, or a list under `all`, or a list under `any`: exactly one of these")


class Edge(Part, frozen=True, kw_only=True):
    """A way from one stage to another. It fits if all its conditions hold; the default edge is for when none fits.

    Edges are looked at by priority, the highest first, then in the order in which they are written.

    Example:
        Edge(source="price", target="ask", conditions=[Condition(key="quote.amount", operator="gt", value=100)])
    """

    source: str = msgspec.field(name="from")
    target: str = msgspec.field(name="to")
    conditions: tuple[Condition, ...] = ()
    priority: int = 0
    default: bool = False
    label: str = ""


class RetryPolicy(Part, frozen=True, kw_only=True):
    """How often something is tried, and how long to wait in between; see `holdfast.Retry`."""

    attempts: int = 3
    first_s: float = 0.5
    factor: float = 2.0
    longest_s: float = 60.0
    jitter: float = 0.2


class Stage(Part, frozen=True, kw_only=True, tag_field="type"):
    """What every stage has. Inside another stage, as its `body`, it has no id and no breakpoint.

    `on_failure`: the run fails (`abort`), goes on along its edges (`skip`), tries again and then fails (`retry`), or
    undoes all effects it has done itself, not those of runs inside it, and then fails (`compensate`). `breakpoint`: the
    run is paused before the stage until somebody resumes it; a text is the reason shown.
    """

    id: str = ""
    name: str = ""
    description: str = ""
    on_failure: OnFailure = "abort"
    breakpoint: bool | str = False


class Call(Stage, frozen=True, kw_only=True, tag="call"):
    """Call a function registered with `@app.function`, as a step: its result is recorded."""

    function: str
    arguments: dict[str, Any] = msgspec.field(default_factory=dict, name="with")
    output_key: str = ""
    retry: int | RetryPolicy | None = None
    timeout_s: float | None = None


class Effect(Stage, frozen=True, kw_only=True, tag="effect"):
    """Call a function that touches the world. `compensation` names the function, registered with `@app.undo`, that
    undoes it; `check` one, registered with `@app.function`, that finds out whether it happened."""

    function: str
    arguments: dict[str, Any] = msgspec.field(default_factory=dict, name="with")
    output_key: str = ""
    retry: int | RetryPolicy | None = None
    timeout_s: float | None = None
    compensation: str | None = None
    check: str | None = None
    in_doubt: Literal["ask", "retry", "fail"] = "ask"
    key: Text | None = None


class Ask(Stage, frozen=True, kw_only=True, tag="ask"):
    """Stop for an answer from a person. `fields`: name to type, or to a description of the field, or a JSON Schema."""

    prompt: Text
    output_key: str
    fields: dict[str, Any] = msgspec.field(default_factory=dict)
    show: Any = None
    who: tuple[str, ...] = ()
    expires_s: float | None = None
    expired: Any = "deny"


class LoopUntil(Stage, frozen=True, kw_only=True, tag="loop_until"):
    """Do the body again and again, at least once, until all conditions hold or it was done `max_iterations` times."""

    body: AnyStage
    until: tuple[Condition, ...] = ()
    max_iterations: int | None = None


class ForEach(Stage, frozen=True, kw_only=True, tag="for_each"):
    """Do the body for each item of a list, side by side; `{{ item }}` and `{{ index }}` name it."""

    items_from: str
    body: AnyStage
    max_concurrent: int | None = None
    output_key: str = ""


class SubWorkflow(Stage, frozen=True, kw_only=True, tag="sub_workflow"):
    """Another workflow as a run of its own: one that is registered, by name, or a graph inside this one."""

    workflow: str = ""
    graph: Graph | None = None
    arguments: dict[str, Any] = msgspec.field(default_factory=dict, name="with")
    output_key: str = ""

    def __post_init__(self) -> None:
        if bool(self.workflow) == (self.graph is not None):
            raise BadPart("a sub_workflow has the name of a workflow, or a graph: one of the two")


class Wait(Stage, frozen=True, kw_only=True, tag="wait"):
    """Wait for an event sent to the run. If it does not come in time, `default` is its value."""

    event: Text
    timeout_s: float | None = None
    default: Any = None
    output_key: str = ""


class Sleep(Stage, frozen=True, kw_only=True, tag="sleep"):
    """Wait some seconds, or until a moment given as text with its time zone (ISO 8601)."""

    seconds: float | Text | None = None
    until: Text | None = None

    def __post_init__(self) -> None:
        if (self.seconds is None) == (self.until is None):
            raise BadPart("a sleep has `seconds` or `until`: one of the two")


class Set(Stage, frozen=True, kw_only=True, tag="set"):
    """Put values into the state."""

    values: dict[str, Any]


class End(Stage, frozen=True, kw_only=True, tag="end"):
    """The end of the run: its result, or with `failed` the message it fails with."""

    result: Any = None
    failed: Text | None = None


AnyStage = Call | Effect | Ask | LoopUntil | ForEach | SubWorkflow | Wait | Sleep | Set | End


class Graph(Part, frozen=True, kw_only=True):
    """A declared workflow. `app.graph` registers it; `app.start` begins a run with its input, a dict.

    Without `start` it begins at the first stage. Without `edges` the stages follow one another as they are written, and
    the last one ends the run. `max_iterations` bounds how many stages a run may go through; `null` is no bound. `input`
    declares the fields of the input, as those of an `ask`.

    Example:
        graph = holdfast.Graph.from_data({
            "id": "greet",
            "stages": [{"type": "set", "id": "hello", "values": {"text": "Hello {{ input.name }}"}}],
        })
        app.graph(graph)
        app.start("greet", {"name": "ana"}).result()["text"]
    """

    id: str
    stages: tuple[AnyStage, ...]
    name: str = ""
    description: str = ""
    start: str = ""
    goal: str | None = None
    edges: tuple[Edge, ...] | None = None
    max_iterations: int | None = 100
    metadata: dict[str, Any] = msgspec.field(default_factory=dict)
    variables: dict[str, Any] = msgspec.field(default_factory=dict)
    input: dict[str, Any] | None = None

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Graph:
        """Read a definition from a file: `.yaml`, `.yml` or `.json`.

        Raises InvalidGraph, which lists all that is wrong with its structure, with lines.

        Example:
            Path("greet.json").write_text('{"id": "greet", "stages": [{"type": "end", "id": "end"}]}')
            holdfast.Graph.load("greet.json").id
        """
        from holdfast.graphs.loading import load

        return load(path).graph

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Graph:
        """A definition from plain data; raises InvalidGraph.

        Example:
            holdfast.Graph.from_data({"id": "nothing", "stages": [{"type": "end", "id": "end"}]}).id
        """
        from holdfast.graphs.loading import from_data

        return from_data(data)

    def as_data(self) -> dict[str, Any]:
        """The definition as plain data, which JSON can hold; what has its default is left out.

        Example:
            graph.as_data()["id"]
        """
        found: dict[str, Any] = _listed(msgspec.to_builtins(self))
        return found

    def verify(self, app: Known | HasRegistry | None = None) -> list[Finding]:
        """What is wrong, or looks wrong, with it; with an app, also what that does not know.

        Example:
            [str(finding) for finding in graph.verify(app)]
        """
        from holdfast.graphs.verifying import verify

        known: Any = getattr(app, "registry", app)
        return verify(self, known)

    def mermaid(self, current: str | None = None) -> str:
        """A picture of it as a Mermaid flowchart, with the current stage marked.

        Example:
            print(graph.mermaid(current="hello"))
        """
        from holdfast.graphs.picture import mermaid

        return mermaid(self, current)

    def dry_run(self, input: Mapping[str, Any] | None = None, **more: Any) -> DryRun:  # noqa: A002
        """Walk through it without doing anything; see `holdfast.graphs.dry`.

        Example:
            [visit.stage for visit in graph.dry_run({"name": "ana"}).visits]
        """
        from holdfast.graphs.dry import dry_run

        return dry_run(self, input or {}, **more)

    @staticmethod
    def json_schema() -> dict[str, Any]:
        """The JSON Schema of definitions, for editors.

        Example:
            holdfast.Graph.json_schema()["title"]
        """
        from holdfast.graphs.schema import json_schema

        return json_schema()


def _listed(value: Any) -> Any:
    """Plain data with lists for its tuples."""
    if isinstance(value, dict):
        return {key: _listed(part) for key, part in value.items()}
    return [_listed(part) for part in value] if isinstance(value, (list, tuple)) else value
