"""The flow: which stage can come after which. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.graphs.conditions import all_hold
from holdfast.graphs.definition import AnyStage, Edge, End, Graph
from holdfast.graphs.templates import Lookup


def start_of(graph: Graph) -> str:
    """Where a run begins."""
    return graph.start or graph.stages[0].id


def stage_of(graph: Graph, stage_id: str) -> AnyStage | None:
    """The stage of that id."""
    return next((stage for stage in graph.stages if stage.id == stage_id), None)


def edges_of(graph: Graph) -> tuple[Edge, ...]:
    """Its edges; if none are declared, those from each stage to the next."""
    if graph.edges is not None:
        return graph.edges
    pairs = zip(graph.stages, graph.stages[1:], strict=False)
    return tuple(Edge(source=one.id, target=two.id) for one, two in pairs if not isinstance(one, End))


def ends_here(graph: Graph, stage: AnyStage) -> bool:
    """Whether the run is over after this stage: it is the last one of a graph without declared edges."""
    return graph.edges is None and stage is graph.stages[-1]


def edges_from(graph: Graph, stage_id: str) -> list[Edge]:
    """The edges from a stage in the order in which they are looked at, the default edge last."""
    found = [edge for edge in edges_of(graph) if edge.source == stage_id]
    return sorted(found, key=lambda edge: (edge.default, -edge.priority))


def chosen(graph: Graph, stage_id: str, lookup: Lookup) -> Edge | None:
    """The edge that is taken: the first that fits."""
    return next((edge for edge in edges_from(graph, stage_id) if all_hold(edge.conditions, lookup)), None)


def reachable(graph: Graph, first: Iterable[str]) -> set[str]:
    """The stages that can be reached from these, themselves included."""
    found: set[str] = set()
    waiting = list(first)
    while waiting:
        stage = waiting.pop()
        if stage not in found:
            found.add(stage)
            waiting += [edge.target for edge in edges_of(graph) if edge.source == stage]
    return found


def cycles(graph: Graph) -> list[list[str]]:
    """The groups of stages from which one can come back to the same stage."""
    ways = {stage.id: reachable(graph, [e.target for e in edges_from(graph, stage.id)]) for stage in graph.stages}
    groups: list[list[str]] = []
    for stage in graph.stages:
        if stage.id in ways[stage.id] and not any(stage.id in group for group in groups):
            groups.append([other for other in ways if stage.id in ways[other] and other in ways[stage.id]])
    return groups
