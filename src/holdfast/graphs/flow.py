"""The flow: which stage can come after which. Pure.

`Flow` is an index of one graph; making it looks at each stage and each edge once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

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
        return tuple(graph.edges)
    pairs = zip(graph.stages, graph.stages[1:], strict=False)
    return tuple(Edge(source=one.id, target=two.id) for one, two in pairs if not isinstance(one, End))


def _in_order(edges: list[Edge]) -> list[Edge]:
    return sorted(edges, key=lambda edge: (edge.default, -edge.priority))


class Flow:
    """The stages of a graph by id, and the edges from each."""

    __slots__ = ("_from", "edges", "graph", "stages", "start")

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.start = start_of(graph)
        self.edges = edges_of(graph)
        self.stages: dict[str, AnyStage] = {stage.id: stage for stage in graph.stages}
        self._from: dict[str, list[Edge]] = {}
        for edge in self.edges:
            self._from.setdefault(edge.source, []).append(edge)
        self._from = {source: _in_order(edges) for source, edges in self._from.items()}

    def stage(self, stage_id: str) -> AnyStage | None:
        """The stage of that id."""
        return self.stages.get(stage_id)

    def edges_from(self, stage_id: str) -> list[Edge]:
        """The edges from a stage in the order in which they are looked at, the default edge last."""
        return self._from.get(stage_id, [])

    def chosen(self, stage_id: str, lookup: Lookup) -> Edge | None:
        """The edge that is taken: the first that fits."""
        return next((edge for edge in self.edges_from(stage_id) if all_hold(edge.conditions, lookup)), None)

    def ends_here(self, stage: AnyStage) -> bool:
        """Whether the run is over after this stage: it is the last one of a graph without declared edges."""
        return self.graph.edges is None and stage is self.graph.stages[-1]

    def reachable(self) -> set[str]:
        """The stages a run can come to."""
        ways = {source: [edge.target for edge in edges] for source, edges in self._from.items()}
        return _spread(ways, [self.start])

    def ending(self) -> set[str]:
        """The stages from which a way leads to an end, ends included."""
        back: dict[str, list[str]] = {}
        for edge in self.edges:
            back.setdefault(edge.target, []).append(edge.source)
        return _spread(back, (stage.id for stage in self.graph.stages if self.is_end(stage)))

    def is_end(self, stage: AnyStage) -> bool:
        """Whether a run can be over at this stage."""
        return isinstance(stage, End) or self.ends_here(stage)

    def cycles(self) -> list[list[str]]:
        """The groups of stages from which one can come back to the same stage, each in the order of the graph."""
        order = {stage: number for number, stage in enumerate(self.stages)}
        found = [
            sorted(group, key=order.__getitem__)
            for group in self._groups()
            if len(group) > 1 or any(edge.target == group[0] for edge in self.edges_from(group[0]))
        ]
        return sorted(found, key=lambda group: order[group[0]])

    def _groups(self) -> Iterator[list[str]]:
        """The strongly connected groups, by Tarjan's algorithm; its recursion is a list here, for long graphs."""
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


def _spread(ways: dict[str, list[str]], first: Iterable[str]) -> set[str]:
    """All that can be reached from these, themselves included."""
    found: set[str] = set()
    waiting = list(first)
    while waiting:
        stage = waiting.pop()
        if stage not in found:
            found.add(stage)
            waiting += ways.get(stage, ())
    return found
