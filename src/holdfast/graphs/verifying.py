"""Verification: what is wrong with a definition, and what looks wrong. Pure."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any, Final

from holdfast.graphs.conditions import each
from holdfast.graphs.definition import (
    AnyStage,
    Call,
    Condition,
    Effect,
    End,
    ForEach,
    Graph,
    LoopUntil,
    SubWorkflow,
)
from holdfast.graphs.fields import schema_of_fields
from holdfast.graphs.findings import Finding, Known, Place
from holdfast.graphs.flow import cycles, edges_from, edges_of, ends_here, reachable, start_of
from holdfast.graphs.reads import body_of, texts_of, written_by
from holdfast.graphs.structure import structure
from holdfast.graphs.templates import paths_in

STAGE_FACTS: Final = frozenset(
    ("status", "succeeded", "answer", "iteration", "error", "count", "failed", "errors", "satisfied", "timed_out")
)
"""What the state has under `stage.<id>`."""


def verify(graph: Graph, known: Known | None = None) -> list[Finding]:
    """All findings, errors first."""
    found = structure(graph)
    if not found:
        found = [*_ways(graph), *_loops(graph), *_keys(graph), *(_names(graph, known) if known is not None else ())]
        for stage, path in _stages(graph):
            if isinstance(stage, SubWorkflow) and stage.graph is not None:
                found += [_inside(stage.id, path, finding) for finding in verify(stage.graph, known)]
    return sorted(found, key=lambda finding: finding.level)


def _inside(stage: str, path: Place, finding: Finding) -> Finding:
    where = f"in its graph, stage {finding.stage!r}: " if finding.stage is not None else "in its graph: "
    return Finding(
        level=finding.level, code=finding.code, message=where + finding.message, stage=stage,
        path=(*path, "graph", *finding.path),
    )  # fmt: skip


def _stages(graph: Graph) -> list[tuple[AnyStage, Place]]:
    return [(stage, ("stages", number)) for number, stage in enumerate(graph.stages)]


def _error(code: str, message: str, stage: str, path: Place) -> Finding:
    return Finding(level="error", code=code, message=message, stage=stage, path=path)


def _warning(code: str, message: str, stage: str | None, path: Place) -> Finding:
    return Finding(level="warning", code=code, message=message, stage=stage, path=path)


# --- ways ------------------------------------------------------------------------------------------------------------


def _ways(graph: Graph) -> Iterator[Finding]:
    seen = reachable(graph, [start_of(graph)])
    ends = {stage.id for stage in graph.stages if isinstance(stage, End) or ends_here(graph, stage)}
    for stage, path in _stages(graph):
        if stage.id not in seen:
            yield _warning("unreachable", "no way leads to it from the start", stage.id, path)
            continue
        edges = edges_from(graph, stage.id)
        if not edges and stage.id not in ends:
            yield _error("no_end", "no edge leads on from it, and it is no end; add an edge or an end", stage.id, path)
        elif not reachable(graph, [stage.id]) & ends:
            yield _error("no_end", "no way leads from it to an end", stage.id, path)
        always = next((number for number, edge in enumerate(edges) if not edge.conditions and not edge.default), None)
        if edges and always is None and not edges[-1].default:
            why = "all its edges have conditions: if none fits, the run fails; add a default edge"
            yield _warning("no_default", why, stage.id, path)
        if always is not None and always < len(edges) - 1:
            later = ", ".join(repr(edge.target) for edge in edges[always + 1 :])
            first = edges[always].target
            yield _warning("never_taken", f"the edge to {first!r} always fits: never taken: {later}", stage.id, path)


def _loops(graph: Graph) -> Iterator[Finding]:
    if graph.max_iterations is None:
        for group in cycles(graph):
            way = " → ".join([*group, group[0]])
            yield _warning("no_bound", f"the loop {way} has no bound: max_iterations is null", group[0],
                           ("max_iterations",))  # fmt: skip
    for stage, path in _stages(graph):
        if isinstance(stage, LoopUntil) and stage.max_iterations is None:
            if not stage.until:
                yield _error("no_bound", "it has neither `until` nor max_iterations, so it never ends", stage.id, path)
            else:
                yield _warning("no_bound", "it has no max_iterations, so only `until` ends it", stage.id, path)


# --- keys ------------------------------------------------------------------------------------------------------------


def _keys(graph: Graph) -> Iterator[Finding]:
    written = {*graph.variables, *(key for stage in graph.stages for key in written_by(stage))}
    can_undo = any(isinstance(step, Effect) and step.compensation for stage in graph.stages for step in _steps(stage))
    for stage, path in _stages(graph):
        yield from _read_by(graph, stage, stage.id, path, written, inside=False)
        if stage.on_failure == "compensate" and not can_undo:
            yield _warning(
                "nothing_to_undo", "no effect has a compensation, so there is nothing to undo", stage.id, path
            )
    for number, edge in enumerate(edges_of(graph)):
        yield from _asked(graph, edge.conditions, edge.source, ("edges", number, "conditions"), written)


def _steps(stage: AnyStage) -> Iterator[AnyStage]:
    yield stage
    body = body_of(stage)
    if body is not None:
        yield from _steps(body)


def _read_by(
    graph: Graph, stage: AnyStage, name: str, path: Place, written: set[str], *, inside: bool
) -> Iterator[Finding]:
    for field, value in texts_of(stage):
        for key in paths_in(value):
            problem = _unknown(graph, key, written, inside=inside)
            if problem:
                yield _error("unwritten_key", problem, name, (*path, field))
    if isinstance(stage, ForEach):
        problem = _unknown(graph, stage.items_from, written, inside=inside)
        if problem:
            yield _error("unwritten_key", problem, name, (*path, "items_from"))
    if isinstance(stage, LoopUntil):
        yield from _asked(graph, stage.until, name, (*path, "until"), written)
    body = body_of(stage)
    if body is not None:
        inside = inside or isinstance(stage, ForEach)
        yield from _read_by(graph, body, name, (*path, "body"), written, inside=inside)


def _asked(
    graph: Graph, conditions: tuple[Condition, ...], name: str, path: Place, written: set[str]
) -> Iterator[Finding]:
    for condition in each(conditions):
        problem = _unknown(graph, condition.key, written, inside=False)
        if problem:
            yield _warning("unwritten_key", f"{problem}; the condition can never see it", name, path)
        sizes, value = condition.operator in ("gt", "lt", "gte", "lte"), condition.value
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if sizes and not is_number and not list(paths_in(value)):
            why = f"{condition.operator} compares numbers, and {value!r} is none, so it never holds"
            yield _warning("not_a_number", why, name, path)


def _unknown(graph: Graph, key: str, written: set[str], *, inside: bool) -> str:
    """Why nothing can be at the path; empty if something can."""
    root, _, rest = key.partition(".")
    if root in ("state", "goal", "graph", "compensation") or (inside and root in ("item", "index")):
        return ""
    if root == "input":
        return _unknown_input(graph, key, rest)
    if root == "stage":
        return _unknown_fact(graph, key, rest)
    if any(key == one or key.startswith(f"{one}.") or one.startswith(f"{key}.") for one in written):
        return ""
    return f"nobody writes {key!r}"


def _unknown_input(graph: Graph, key: str, rest: str) -> str:
    if graph.input is None or not rest:
        return ""
    schema = schema_of_fields(graph.input)
    fields = schema.get("properties", {})
    if rest.split(".")[0] in fields or schema.get("additionalProperties") is not False:
        return ""
    return f"{key!r} is not among the fields of the input ({', '.join(fields) or 'none'})"


def _unknown_fact(graph: Graph, key: str, rest: str) -> str:
    for stage in graph.stages:
        if rest == stage.id:
            return ""
        if rest.startswith(f"{stage.id}."):
            fact = rest.removeprefix(f"{stage.id}.").split(".")[0]
            return (
                ""
                if fact in STAGE_FACTS
                else f"{key!r}: a stage has no {fact!r}, only {', '.join(sorted(STAGE_FACTS))}"
            )
    return f"{key!r} is of a stage that is not there"


# --- names -----------------------------------------------------------------------------------------------------------


def _names(graph: Graph, known: Known) -> Iterator[Finding]:
    for stage, path in _stages(graph):
        for step in _steps(stage):
            yield from _named(step, stage.id, path, known)


def _named(step: AnyStage, stage: str, path: Place, known: Known) -> Iterator[Finding]:
    if isinstance(step, (Call, Effect)):
        yield from _function(step.function, step.arguments, stage, path, known.functions)
    if isinstance(step, Effect):
        if step.compensation is not None and step.compensation not in known.undos:
            yield _error("unknown_undo", f"no undo {step.compensation!r} is registered ({_listed(known.undos)}); "
                         "put @app.undo above it", stage, path)  # fmt: skip
        if step.check is not None and step.check not in known.functions:
            yield _error("unknown_function", f"no function {step.check!r} is registered ({_listed(known.functions)})",
                         stage, path)  # fmt: skip
    if isinstance(step, SubWorkflow) and step.workflow and step.workflow not in known.workflows:
        yield _error("unknown_workflow", f"no workflow {step.workflow!r} is registered ({_listed(known.workflows)})",
                     stage, path)  # fmt: skip


def _function(
    name: str, arguments: dict[str, Any], stage: str, path: Place, functions: Mapping[str, Any]
) -> Iterator[Finding]:
    if name not in functions:
        yield _error("unknown_function", f"no function {name!r} is registered ({_listed(functions)}); put "
                     "@app.function above it", stage, path)  # fmt: skip
        return
    try:
        signature = inspect.signature(functions[name])
    except (TypeError, ValueError):  # a builtin may have no signature to look at
        return
    try:
        signature.bind(**arguments) if "idempotency_key" not in signature.parameters else signature.bind_partial(
            **arguments
        )
    except TypeError as error:
        yield _error("bad_arguments", f"function {name!r} cannot be called so: {error}", stage, (*path, "with"))


def _listed(names: Mapping[str, Any]) -> str:
    return "known: " + (", ".join(sorted(names)) or "none")
