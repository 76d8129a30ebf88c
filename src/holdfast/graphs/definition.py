"""The definition of a declared workflow: stages and edges, as data.

A run begins at `start`, performs the stage, follows the first edge that fits, and repeats this until it reaches a stage
of type `end`. The state is one dict: the graph's variables, `input`, `goal`, the results under each `output_key`, and
under `stage.<id>` the outcome of each stage.

Texts in `with`, `prompt`, `show`, `values`, `result` and similar fields may refer to parts of the state. Alone,
`"{{ input.order }}"` is the value itself; inside other text it is the value as text. Templates never compute anything.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec

from holdfast.errors import InvalidInput

if TYPE_CHECKING:
    from holdfast.graphs.dry_run import DryRun
    from holdfast.graphs.structure import Finding, HasRegistry, NameRegistry

Operator = Literal["eq", "neq", "gt", "lt", "gte", "lte", "exists", "not_exists", "contains"]
OnFailure = Literal["abort", "skip", "retry", "compensate"]
JsonObject: TypeAlias = dict[str, Any]
"""An object of a definition, or of the state of a run."""
Text: TypeAlias = str
"""Text that may refer to parts of the state."""


class BadPart(InvalidInput, ValueError):
    """A part of a definition contradicts itself. As a ValueError it reaches the loader with its location."""


class Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Base of all parts of a definition."""


class Condition(Part, frozen=True, kw_only=True):
    """A test of the state: one key compared with a value, or several conditions joined by `all` or `any`.

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
            raise BadPart("a condition needs exactly one of `key`, `all` and `any`")


class Edge(Part, frozen=True, kw_only=True):
    """An edge from one stage to another. It fits if all its conditions hold; the default edge applies if none fits.

    Edges are tried by priority, highest first, then in the order in which they are written.

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
    """How often a function is tried, and how long to wait in between; see `holdfast.Retry`."""

    attempts: int = 3
    first_s: float = 0.5
    factor: float = 2.0
    longest_s: float = 60.0
    jitter: float = 0.2


class Level(Part, frozen=True, kw_only=True):
    """A level of escalation: the people that may answer, too, from that time after the gate was opened."""

    after_s: float
    who: tuple[str, ...]


class Stage(Part, frozen=True, kw_only=True, tag_field="type"):
    """The fields of every stage. As the `body` of another stage it has no id and no breakpoint.

    `on_failure`: the run fails (`abort`), continues along its edges (`skip`), retries and then fails (`retry`), or
    undoes all of its own effects, not those of child runs, and then fails (`compensate`). `breakpoint`: the run pauses
    before the stage until it is resumed; a text is the reason shown.
    """

    id: str = ""
    name: str = ""
    description: str = ""
    on_failure: OnFailure = "abort"
    breakpoint: bool | str = False


class Call(Stage, frozen=True, kw_only=True, tag="call"):
    """Call a function registered with `@app.function` as a step, which records its result."""

    function: str
    arguments: JsonObject = msgspec.field(default_factory=dict, name="with")
    output_key: str = ""
    retry: int | RetryPolicy | None = None
    timeout_s: float | None = None


class Effect(Stage, frozen=True, kw_only=True, tag="effect"):
    """Call a function with external effects. `compensation` names the function, registered with `@app.undo`, that
    undoes it; `check` names one, registered with `@app.function`, that finds out whether it happened."""

    function: str
    arguments: JsonObject = msgspec.field(default_factory=dict, name="with")
    output_key: str = ""
    retry: int | RetryPolicy | None = None
    timeout_s: float | None = None
    compensation: str | None = None
    check: str | None = None
    in_doubt: Literal["ask", "retry", "fail"] = "ask"
    key: Text | None = None


class Ask(Stage, frozen=True, kw_only=True, tag="ask"):
    """Wait for an answer from a person. `fields` maps names to types or descriptions, or is a JSON Schema.

    `who` may answer, and `not_by` may not; `approvals` people must approve; each level of `escalate` admits more.
    """

    prompt: Text
    output_key: str
    fields: JsonObject = msgspec.field(default_factory=dict)
    show: Any = None
    who: tuple[str, ...] = ()
    not_by: tuple[str, ...] = ()
    approvals: int = 1
    escalate: tuple[Level, ...] = ()
    expires_s: float | None = None
    expired: Any = "deny"


class LoopUntil(Stage, frozen=True, kw_only=True, tag="loop_until"):
    """Repeat the body, at least once, until all conditions hold or `max_iterations` is reached."""

    body: AnyStage
    until: tuple[Condition, ...] = ()
    max_iterations: int | None = None


class ForEach(Stage, frozen=True, kw_only=True, tag="for_each"):
    """Perform the body for each item of a list, in parallel; `{{ item }}` and `{{ index }}` refer to the item."""

    items_from: str
    body: AnyStage
    max_concurrent: int | None = None
    output_key: str = ""


class SubWorkflow(Stage, frozen=True, kw_only=True, tag="sub_workflow"):
    """Run another workflow as a child run: a registered one, by name, or a graph inside this one."""

    workflow: str = ""
    graph: Graph | None = None
    arguments: JsonObject = msgspec.field(default_factory=dict, name="with")
    output_key: str = ""

    def __post_init__(self) -> None:
        if bool(self.workflow) == (self.graph is not None):
            raise BadPart("a sub_workflow needs exactly one of `workflow` and `graph`")


class Wait(Stage, frozen=True, kw_only=True, tag="wait"):
    """Wait for an event sent to the run. If it does not arrive in time, `default` is its value."""

    event: Text
    timeout_s: float | None = None
    default: Any = None
    output_key: str = ""


class Sleep(Stage, frozen=True, kw_only=True, tag="sleep"):
    """Wait a number of seconds, or until an ISO 8601 time with a time zone."""

    seconds: float | Text | None = None
    until: Text | None = None

    def __post_init__(self) -> None:
        if (self.seconds is None) == (self.until is None):
            raise BadPart("a sleep needs exactly one of `seconds` and `until`")


class Set(Stage, frozen=True, kw_only=True, tag="set"):
    """Store values in the state."""

    values: JsonObject


class End(Stage, frozen=True, kw_only=True, tag="end"):
    """The end of the run: its result, or with `failed` the message it fails with."""

    result: Any = None
    failed: Text | None = None


AnyStage = Call | Effect | Ask | LoopUntil | ForEach | SubWorkflow | Wait | Sleep | Set | End


class Graph(Part, frozen=True, kw_only=True):
    """A declared workflow. `app.graph` registers it; `app.start` starts a run with its input, a dict.

    Without `start` it begins at the first stage. Without `edges` the stages run in the order in which they are written,
    and the last one ends the run. `max_iterations` limits how many stages a run may perform; `null` means no limit.
    `input` declares the fields of the input, like the `fields` of an `ask`.

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
    metadata: JsonObject = msgspec.field(default_factory=dict)
    variables: JsonObject = msgspec.field(default_factory=dict)
    input: JsonObject | None = None

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Graph:
        """Read a definition from a file: `.yaml`, `.yml` or `.json`.

        Raises InvalidGraph, which lists every structural error with its line.

        Example:
            Path("greet.json").write_text('{"id": "greet", "stages": [{"type": "end", "id": "end"}]}')
            holdfast.Graph.load("greet.json").id
        """
        from holdfast.graphs.load import load

        return load(path).graph

    @classmethod
    def from_data(cls, data: Mapping[str, object]) -> Graph:
        """Build a definition from plain data; raises InvalidGraph.

        Example:
            holdfast.Graph.from_data({"id": "nothing", "stages": [{"type": "end", "id": "end"}]}).id
        """
        from holdfast.graphs.load import from_data

        return from_data(data)

    def as_data(self) -> JsonObject:
        """Return the definition as plain JSON data; fields that have their default are left out.

        Example:
            graph.as_data()["id"]
        """
        return {key: _with_lists(part) for key, part in msgspec.to_builtins(self).items()}

    def verify(self, app: NameRegistry | HasRegistry | None = None) -> list[Finding]:
        """Return errors and warnings; with an app, also names that are not registered there.

        Example:
            [str(finding) for finding in graph.verify(app)]
        """
        from holdfast.graphs.semantics import verify

        known: Any = getattr(app, "registry", app)
        return verify(self, known)

    def mermaid(self, current: str | None = None) -> str:
        """Return a Mermaid flowchart of the definition, with the current stage highlighted.

        Example:
            print(graph.mermaid(current="hello"))
        """
        from holdfast.graphs.mermaid import mermaid

        return mermaid(self, current)

    def dry_run(
        self,
        input: Mapping[str, object] | None = None,  # noqa: A002
        *,
        results: Mapping[str, object] | None = None,
        answers: Mapping[str, object] | None = None,
    ) -> DryRun:
        """Walk through the definition without calling functions or storing anything; see `holdfast.graphs.dry_run`.

        Example:
            [visit.stage for visit in graph.dry_run({"name": "ana"}).visits]
        """
        from holdfast.graphs.dry_run import dry_run

        return dry_run(self, input or {}, results=results, answers=answers)

    @staticmethod
    def json_schema() -> JsonObject:
        """Return the JSON Schema of definitions, for editors.

        Example:
            holdfast.Graph.json_schema()["title"]
        """
        from holdfast.graphs.json_schema import json_schema

        return json_schema()


def _with_lists(value: object) -> object:
    """Return plain data with its tuples as lists."""
    if isinstance(value, dict):
        return {key: _with_lists(part) for key, part in value.items()}
    return [_with_lists(part) for part in value] if isinstance(value, (list, tuple)) else value
