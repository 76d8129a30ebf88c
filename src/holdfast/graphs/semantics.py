"""Verification of a definition: errors, and warnings about likely mistakes.

The structure is checked first. The checks here assume a sound structure, compare the definition with the names that a
process has registered, and perform no I/O.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Final

from holdfast.graphs.definition import (
    AnyStage,
    Call,
    Condition,
    Effect,
    ForEach,
    Graph,
    JsonObject,
    LoopUntil,
    SubWorkflow,
)
from holdfast.graphs.expressions import each, is_number, paths_in
from holdfast.graphs.fields import schema_of_fields
from holdfast.graphs.flow import Flow, body_of, texts_of, written_by
from holdfast.graphs.structure import Finding, NameRegistry, Place, UserFunction, structure


def verify(graph: Graph, known: NameRegistry | None = None) -> list[Finding]:
    """Return all findings, errors first. If the structure has errors, only these are returned."""
    return sorted(structure(graph) or _meaning(graph, known), key=lambda finding: finding.level)


def _meaning(graph: Graph, known: NameRegistry | None) -> Iterator[Finding]:
    flow = Flow(graph)
    yield from _paths(flow)
    yield from _loops(flow)
    yield from _keys(flow)
    for stage, path in _stages(graph):
        for step, place in _steps(stage, path):
            if known is not None:
                yield from _names(step, stage.id, place, known)
            if isinstance(step, SubWorkflow) and step.graph is not None:
                for finding in _meaning(step.graph, known):
                    yield _inside(stage.id, place, finding)


def _inside(stage: str, path: Place, finding: Finding) -> Finding:
    where = f"in its graph, stage {finding.stage!r}: " if finding.stage is not None else "in its graph: "
    return Finding(
        level=finding.level,
        code=finding.code,
        message=where + finding.message,
        stage=stage,
        path=(*path, "graph", *finding.path),
    )


def _stages(graph: Graph) -> list[tuple[AnyStage, Place]]:
    return [(stage, ("stages", number)) for number, stage in enumerate(graph.stages)]


def _error(code: str, message: str, stage: str, path: Place) -> Finding:
    return Finding(level="error", code=code, message=message, stage=stage, path=path)


def _warning(code: str, message: str, stage: str | None, path: Place) -> Finding:
    return Finding(level="warning", code=code, message=message, stage=stage, path=path)


def _steps(stage: AnyStage, path: Place) -> Iterator[tuple[AnyStage, Place]]:
    """Yield a stage, its body, the body of that, and so on, with their places."""
    step: AnyStage | None = stage
    while step is not None:
        yield step, path
        step, path = body_of(step), (*path, "body")


def _paths(flow: Flow) -> Iterator[Finding]:
    seen, ending = flow.reachable(), flow.ending()
    for stage, path in _stages(flow.graph):
        if stage.id not in seen:
            yield _warning("unreachable", "it cannot be reached from the start; add an edge to it", stage.id, path)
            continue
        edges = flow.edges_from(stage.id)
        if not edges and not flow.is_end(stage):
            why = "it has no outgoing edge and is not an end stage; add an edge to another stage or to an end"
            yield _error("no_end", why, stage.id, path)
        elif stage.id not in ending:
            yield _error("no_end", "no end stage can be reached from it; add an edge that leads to one", stage.id, path)
        always = next((number for number, edge in enumerate(edges) if not edge.conditions and not edge.default), None)
        if edges and always is None and not edges[-1].default:
            why = "all its edges have conditions, and the run fails if none fits; give one edge `default: true`"
            yield _warning("no_default", why, stage.id, path)
        if always is not None and always < len(edges) - 1:
            later = ", ".join(repr(edge.target) for edge in edges[always + 1 :])
            why = f"the edge to {edges[always].target!r} always fits, so later edges are never taken: {later}"
            yield _warning("never_taken", why, stage.id, path)


def _loops(flow: Flow) -> Iterator[Finding]:
    if flow.graph.max_iterations is None:
        for group in flow.cycles():
            why = f"the loop {' → '.join([*group, group[0]])} is unlimited, because max_iterations is null"
            yield _warning("no_bound", why, group[0], ("max_iterations",))
    for stage, path in _stages(flow.graph):
        if isinstance(stage, LoopUntil) and stage.max_iterations is None:
            if not stage.until:
                yield _error("no_bound", "it never ends; give it `until`, max_iterations, or both", stage.id, path)
            else:
                yield _warning("no_bound", "it has no max_iterations, so only `until` can end it", stage.id, path)


def _keys(flow: Flow) -> Iterator[Finding]:
    graph, keys = flow.graph, Keys(flow.graph)
    steps = (step for stage, path in _stages(graph) for step, _ in _steps(stage, path))
    can_undo = any(isinstance(step, Effect) and step.compensation for step in steps)
    for stage, path in _stages(graph):
        inside = False
        for step, place in _steps(stage, path):
            yield from _read_by(keys, step, stage.id, place, inside=inside)
            inside = inside or isinstance(step, ForEach)
        if stage.on_failure == "compensate" and not can_undo:
            why = "on_failure is compensate, but no effect of the graph has a compensation"
            yield _warning("nothing_to_undo", why, stage.id, path)
    for number, edge in enumerate(flow.edges):
        yield from _conditions(keys, edge.conditions, edge.source, ("edges", number, "conditions"))


def _read_by(keys: Keys, step: AnyStage, name: str, path: Place, *, inside: bool) -> Iterator[Finding]:
    read = [(field, key) for field, value in texts_of(step) for key in paths_in(value)]
    if isinstance(step, ForEach):
        read.append(("items_from", step.items_from))
    for field, key in read:
        problem = keys.unknown(key, inside=inside)
        if problem:
            yield _error("unwritten_key", problem, name, (*path, field))
    if isinstance(step, LoopUntil):
        yield from _conditions(keys, step.until, name, (*path, "until"))


def _conditions(keys: Keys, conditions: tuple[Condition, ...], name: str, path: Place) -> Iterator[Finding]:
    for condition in each(conditions):
        problem = keys.unknown(condition.key, inside=False)
        if problem:
            yield _warning("unwritten_key", f"{problem}; the condition never finds a value", name, path)
        references = list(paths_in(condition.value))
        for key in references:
            problem = keys.unknown(key, inside=False)
            if problem:
                yield _error("unwritten_key", f"{problem}; the condition cannot be evaluated", name, path)
        if condition.operator in ("gt", "lt", "gte", "lte") and not references and not is_number(condition.value):
            why = f"{condition.operator} compares numbers, but {condition.value!r} is not a number; it never holds"
            yield _warning("not_a_number", why, name, path)


def _names(step: AnyStage, stage: str, path: Place, known: NameRegistry) -> Iterator[Finding]:
    if isinstance(step, (Call, Effect)):
        unknown = _unknown("function", step.function, known.functions)
        if unknown:
            yield _error("unknown_function", f"{unknown}; put @app.function above it", stage, path)
        else:
            yield from _arguments(step, stage, path, known.functions[step.function])
    if isinstance(step, Effect):
        unknown = _unknown("undo", step.compensation, known.undos)
        if unknown:
            yield _error("unknown_undo", f"{unknown}; put @app.undo above it", stage, path)
        unknown = _unknown("function", step.check, known.functions)
        if unknown:
            yield _error("unknown_function", f"{unknown}; put @app.function above it", stage, path)
    if isinstance(step, SubWorkflow) and step.workflow:
        unknown = _unknown("workflow", step.workflow, known.workflows)
        if unknown:
            yield _error("unknown_workflow", unknown, stage, path)


def _unknown(what: str, name: str | None, known: Mapping[str, object]) -> str:
    """Return why a name cannot be used; empty if it is registered, or None."""
    if name is None or name in known:
        return ""
    return f"no {what} {name!r} is registered (known: {', '.join(sorted(known)) or 'none'})"


def _arguments(step: Call | Effect, stage: str, path: Place, function: UserFunction) -> Iterator[Finding]:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # a builtin may have no signature
        return
    # The engine adds the argument idempotency_key; `with` need not have it.
    bind = signature.bind_partial if "idempotency_key" in signature.parameters else signature.bind
    try:
        bind(**step.arguments)
    except TypeError as error:
        why = f"function {step.function!r} cannot be called with these arguments: {error}"
        yield _error("bad_arguments", why, stage, (*path, "with"))


STAGE_FACTS: Final = frozenset(
    ("status", "succeeded", "answer", "iteration", "error", "count", "failed", "errors", "satisfied", "timed_out")
)
"""The keys that the state may have under `stage.<id>`."""


class Keys:
    """The keys that the state of a run of one graph can have. Building it reads each stage once."""

    def __init__(self, graph: Graph) -> None:
        self._stages = {stage.id for stage in graph.stages}
        self._input: JsonObject | None = None if graph.input is None else schema_of_fields(graph.input)
        self._written = {*graph.variables, *(key for stage in graph.stages for key in written_by(stage))}
        self._outer = {outer for key in self._written for outer in _outer(key)}
        self._always = {"state", "graph"}
        if graph.goal is not None:
            self._always.add("goal")
        if any(stage.on_failure == "compensate" for stage in graph.stages):
            self._always.add("compensation")

    def unknown(self, key: str, *, inside: bool) -> str:
        """Return why the path cannot have a value; empty if it can. `inside` a for_each there is an item as well."""
        root, _, rest = key.partition(".")
        if root in self._always or (inside and root in ("item", "index")):
            return ""
        if root == "input":
            return self._unknown_input(key, rest)
        if root == "stage":
            return self._unknown_fact(key, rest)
        if key in self._written or key in self._outer or any(outer in self._written for outer in _outer(key)):
            return ""
        return f"no stage or variable writes {key!r}"

    def _unknown_input(self, key: str, rest: str) -> str:
        if self._input is None or not rest:
            return ""
        fields = self._input.get("properties", {})
        if rest.split(".")[0] in fields or self._input.get("additionalProperties") is not False:
            return ""
        return f"{key!r} is not among the fields of the input ({', '.join(fields) or 'none'})"

    def _unknown_fact(self, key: str, rest: str) -> str:
        """The longest existing id counts, as in a lookup during a run."""
        if not rest or rest in self._stages:
            return ""
        stage = next((outer for outer in reversed(_outer(rest)) if outer in self._stages), None)
        if stage is None:
            return f"{key!r} refers to a stage that does not exist"
        fact = rest.removeprefix(f"{stage}.").split(".")[0]
        return "" if fact in STAGE_FACTS else f"{key!r}: a stage has no {fact!r}, only {', '.join(sorted(STAGE_FACTS))}"


def _outer(key: str) -> list[str]:
    """Return the proper prefixes of a path, the shortest first."""
    parts = key.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts))]
