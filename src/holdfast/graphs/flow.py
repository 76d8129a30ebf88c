"""The flow of a graph: which stage can follow which.

`Flow` is an index of one graph, built in one pass over its stages and edges. The module performs no I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from holdfast.graphs.definition import (
    AnyStage,
    Ask,
    Call,
    Edge,
    Effect,
    End,
    ForEach,
    Graph,
    LoopUntil,
    Set,
    Sleep,
    SubWorkflow,
    Wait,
)
from holdfast.graphs.expressions import Lookup, all_hold


def start_of(graph: Graph) -> str:
    """Return the id of the stage at which a run begins."""
    return graph.start or graph.stages[0].id


def stage_of(graph: Graph, stage_id: str) -> AnyStage | None:
    """Return the stage with this id."""
    return next((stage for stage in graph.stages if stage.id == stage_id), None)


def edges_of(graph: Graph) -> tuple[Edge, ...]:
    """Return the edges of a graph; if none are declared, an edge from each stage to the next."""
    if graph.edges is not None:
        return tuple(graph.edges)
    pairs = zip(graph.stages, graph.stages[1:], strict=False)
    return tuple(Edge(source=one.id, target=two.id) for one, two in pairs if not isinstance(one, End))


def choose_edge(edges: Iterable[Edge], lookup: Lookup) -> Edge | None:
    """Return the first edge whose conditions hold."""
    return next((edge for edge in edges if all_hold(edge.conditions, lookup)), None)


class Flow:
    """The stages of a graph by id, and the edges that leave each of them."""

    __slots__ = ("_from", "edges", "graph", "stages", "start")

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.start = start_of(graph)
        self.edges = edges_of(graph)
        self.stages: dict[str, AnyStage] = {stage.id: stage for stage in graph.stages}
        self._from: dict[str, list[Edge]] = {}
        for edge in self.edges:
            self._from.setdefault(edge.source, []).append(edge)
        for edges in self._from.values():
            edges.sort(key=lambda edge: (edge.default, -edge.priority))

    def edges_from(self, stage_id: str) -> list[Edge]:
        """Return the edges from a stage in the order in which they are tried, the default edge last."""
        return self._from.get(stage_id, [])

    def ends_here(self, stage: AnyStage) -> bool:
        """Whether the run is over after this stage: it is the last one of a graph without declared edges."""
        return self.graph.edges is None and stage is self.graph.stages[-1]

    def reachable(self) -> set[str]:
        """Return the stages that a run can reach."""
        targets = {source: [edge.target for edge in edges] for source, edges in self._from.items()}
        return _reachable_from([self.start], targets)

    def ending(self) -> set[str]:
        """Return the stages from which an end can be reached, ends included."""
        sources: dict[str, list[str]] = {}
        for edge in self.edges:
            sources.setdefault(edge.target, []).append(edge.source)
        return _reachable_from((stage.id for stage in self.graph.stages if self.is_end(stage)), sources)

    def is_end(self, stage: AnyStage) -> bool:
        """Whether a run can be over at this stage."""
        return isinstance(stage, End) or self.ends_here(stage)

    def cycles(self) -> list[list[str]]:
        """Return the groups of stages that form a cycle, each in the order of the graph."""
        order = {stage: number for number, stage in enumerate(self.stages)}
        found = [
            sorted(group, key=order.__getitem__)
            for group in self._groups()
            if len(group) > 1 or any(edge.target == group[0] for edge in self.edges_from(group[0]))
        ]
        return sorted(found, key=lambda group: order[group[0]])

    def _groups(self) -> Iterator[list[str]]:
        """Yield the strongly connected groups by Tarjan's algorithm, with a list for its stack, for long graphs."""
        number: dict[str, int] = {}
        lowest: dict[str, int] = {}
        open_: dict[str, None] = {}
        for first in self.stages:
            work = [] if first in number else [(first, iter(self.edges_from(first)))]
            while work:
                stage, edges = work[-1]
                if stage not in number:
                    number[stage] = lowest[stage] = len(number)
                    open_[stage] = None
                for edge in edges:
                    if edge.target not in number:
                        work.append((edge.target, iter(self.edges_from(edge.target))))
                        break
                    if edge.target in open_:
                        lowest[stage] = min(lowest[stage], number[edge.target])
                else:
                    work.pop()
                    if work:
                        before = work[-1][0]
                        lowest[before] = min(lowest[before], lowest[stage])
                    if lowest[stage] == number[stage]:
                        group: list[str] = []
                        while not group or group[-1] != stage:
                            group.append(open_.popitem()[0])
                        yield group


def _reachable_from(first: Iterable[str], neighbours: dict[str, list[str]]) -> set[str]:
    """Return all stages that can be reached from these, themselves included."""
    found: set[str] = set()
    waiting = list(first)
    while waiting:
        stage = waiting.pop()
        if stage not in found:
            found.add(stage)
            waiting += neighbours.get(stage, ())
    return found


def texts_of(stage: AnyStage) -> Iterator[tuple[str, object]]:
    """Yield the fields of a stage whose texts may refer to the state, without those of its body."""
    match stage:
        case Call() | SubWorkflow():
            yield "with", stage.arguments
        case Effect():
            yield "with", stage.arguments
            yield "key", stage.key
        case Ask():
            yield "prompt", stage.prompt
            yield "show", stage.show
            yield "who", stage.who
            yield "not_by", stage.not_by
            yield "escalate", [level.who for level in stage.escalate]
            yield "expired", stage.expired
        case Wait():
            yield "event", stage.event
            yield "default", stage.default
        case Sleep():
            yield "seconds", stage.seconds
            yield "until", stage.until
        case Set():
            yield "values", stage.values
        case End():
            yield "result", stage.result
            yield "failed", stage.failed


def written_by(stage: AnyStage) -> Iterator[str]:
    """Yield the keys that a stage writes to the state, without `stage.<id>`."""
    match stage:
        case Set():
            yield from stage.values
        case LoopUntil():
            yield from written_by(stage.body)
        case _:
            if key := output_key_of(stage):
                yield key


def output_key_of(stage: AnyStage) -> str:
    """Return the key under which a stage stores its result; "" if it has none."""
    match stage:
        case ForEach() | Call() | Effect() | Ask() | SubWorkflow() | Wait():
            return stage.output_key
        case _:
            return ""


def body_of(stage: AnyStage) -> AnyStage | None:
    """Return the body of a stage that has one."""
    return stage.body if isinstance(stage, (LoopUntil, ForEach)) else None
