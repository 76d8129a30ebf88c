"""Verification: what is wrong with a definition, and what looks wrong. Pure."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

from holdfast.graphs.conditions import each, is_number
from holdfast.graphs.definition import (
    AnyStage,
    Call,
    Condition,
    Effect,
    ForEach,
    Graph,
    LoopUntil,
    SubWorkflow,
)
from holdfast.graphs.findings import Finding, Known, Place
from holdfast.graphs.flow import Flow
from holdfast.graphs.keys import Keys
from holdfast.graphs.reads import body_of, texts_of
from holdfast.graphs.structure import structure
from holdfast.graphs.templates import paths_in


def verify(graph: Graph, known: Known | None = None) -> list[Finding]:
    """All findings, errors first. A graph that is not sound is not looked at any further."""
    return sorted(structure(graph) or _meaning(graph, known), key=lambda finding: finding.level)


def _meaning(graph: Graph, known: Known | None) -> Iterator[Finding]:
    flow = Flow(graph)
    yield from _ways(flow)
    yield from _loops(flow)
    yield from _keys(flow)
    for stage, path in _stages(graph):
        for step, place in _steps(stage, path):
            if known is not None:
                yield from _named(step, stage.id, place, known)
            if isinstance(step, SubWorkflow) and step.graph is not None:
                for finding in _meaning(step.graph, known):
                    yield _inside(stage.id, place, finding)


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


def _steps(stage: AnyStage, path: Place) -> Iterator[tuple[AnyStage, Place]]:
    """A stage and what it has as its body, with their places."""
    step: AnyStage | None = stage
    while step is not None:
        yield step, path
        step, path = body_of(step), (*path, "body")


# --- ways ------------------------------------------------------------------------------------------------------------


def _ways(flow: Flow) -> Iterator[Finding]:
    seen, ending = flow.reachable(), flow.ending()
    for stage, path in _stages(flow.graph):
        if stage.id not in seen:
            yield _warning("unreachable", "no way leads to it from the start", stage.id, path)
            continue
        edges = flow.edges_from(stage.id)
        if not edges and not flow.is_end(stage):
            yield _error("no_end", "no edge leads on from it, and it is no end; add an edge or an end", stage.id, path)
        elif stage.id not in ending:
            yield _error("no_end", "no way leads from it to an end", stage.id, path)
        always = next((number for number, edge in enumerate(edges) if not edge.conditions and not edge.default), None)
        if edges and always is None and not edges[-1].default:
            why = "all its edges have conditions: if none fits, the run fails; add a default edge"
            yield _warning("no_default", why, stage.id, path)
        if always is not None and always < len(edges) - 1:
            later = ", ".join(repr(edge.target) for edge in edges[always + 1 :])
            first = edges[always].target
            yield _warning("never_taken", f"the edge to {first!r} always fits: never taken: {later}", stage.id, path)


def _loops(flow: Flow) -> Iterator[Finding]:
    if flow.graph.max_iterations is None:
        for group in flow.cycles():
            way = " → ".join([*group, group[0]])
            yield _warning("no_bound", f"the loop {way} has no bound: max_iterations is null", group[0],
                           ("max_iterations",))  # fmt: skip
    for stage, path in _stages(flow.graph):
        if isinstance(stage, LoopUntil) and stage.max_iterations is None:
            if not stage.until:
                yield _error("no_bound", "it has neither `until` nor max_iterations, so it never ends", stage.id, path)
            else:
                yield _warning("no_bound", "it has no max_iterations, so only `until` ends it", stage.id, path)


# --- keys ------------------------------------------------------------------------------------------------------------


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
            yield _warning(
                "nothing_to_undo", "no effect has a compensation, so there is nothing to undo", stage.id, path
            )
    for number, edge in enumerate(flow.edges):
        yield from _asked(keys, edge.conditions, edge.source, ("edges", number, "conditions"))


def _read_by(keys: Keys, step: AnyStage, name: str, path: Place, *, inside: bool) -> Iterator[Finding]:
    read = [(field, key) for field, value in texts_of(step) for key in paths_in(value)]
    if isinstance(step, ForEach):
        read.append(("items_from", step.items_from))
    for field, key in read:
        problem = keys.unknown(key, inside=inside)
        if problem:
            yield _error("unwritten_key", problem, name, (*path, field))
    if isinstance(step, LoopUntil):
        yield from _asked(keys, step.until, name, (*path, "until"))


def _asked(keys: Keys, conditions: tuple[Condition, ...], name: str, path: Place) -> Iterator[Finding]:
    for condition in each(conditions):
        problem = keys.unknown(condition.key, inside=False)
        if problem:
            yield _warning("unwritten_key", f"{problem}; the condition can never see it", name, path)
        named = list(paths_in(condition.value))
        for key in named:
            problem = keys.unknown(key, inside=False)
            if problem:
                yield _error("unwritten_key", f"{problem}; the condition cannot be asked", name, path)
        if condition.operator in ("gt", "lt", "gte", "lte") and not named and not is_number(condition.value):
            why = f"{condition.operator} compares numbers, and {condition.value!r} is none, so it never holds"
            yield _warning("not_a_number", why, name, path)


# --- names -----------------------------------------------------------------------------------------------------------


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
