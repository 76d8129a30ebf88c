"""The layered layout of a graph: every stage in a layer below those that lead to it, with few crossings.

Edges that lead back are turned around for the layout, edges over several layers pass through invisible nodes in the
layers between. The order in a layer follows the mean place of the neighbours, the coordinates too. The same graph
always gets the same layout.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

BOX_WIDTH: Final = 190
BOX_HEIGHT: Final = 50
GAP_X: Final = 36
GAP_Y: Final = 56
_BEND_WIDTH: Final = 14
_SWEEPS: Final = 8
_ALIGNMENTS: Final = 12

Arc = tuple[str, str]


class Point(NamedTuple):
    """A place in the picture."""

    x: float
    y: float


class Layout(NamedTuple):
    """Where everything is."""

    boxes: dict[str, Point]
    """The centre of each node."""
    routes: dict[Arc, list[Point]]
    """The points that an edge passes, from its source to its target, without both."""
    back: set[Arc]
    """Edges that lead back to an earlier layer, or to their own source."""
    width: float
    height: float


def layout(nodes: Sequence[str], arcs: Iterable[Arc], start: str) -> Layout:
    """Compute the layout of a graph that begins at `start`."""
    edges = list(dict.fromkeys(arcs))
    back = _back_edges(nodes, edges, start)
    forward = [(two, one) if (one, two) in back else (one, two) for one, two in edges if one != two]
    layer = _layers(nodes, forward)
    rows, chains = _with_bends(nodes, edges, back, layer)
    _order(rows, chains)
    xs = _coordinates(rows, chains)
    left = min((x - _width(node) / 2 for node, x in xs.items()), default=0.0)
    right = max((x + _width(node) / 2 for node, x in xs.items()), default=0.0)
    shift = GAP_X - left
    place = {
        node: Point(xs[node] + shift, GAP_Y / 2 + BOX_HEIGHT / 2 + number * (BOX_HEIGHT + GAP_Y))
        for number, row in enumerate(rows)
        for node in row
    }
    routes = {}
    for one, two in edges:
        chain = [place[node] for node in chains.get((one, two), [])]
        routes[one, two] = chain[::-1] if (one, two) in back else chain
    return Layout(
        boxes={node: place[node] for node in nodes},
        routes=routes,
        back=back | {(one, two) for one, two in edges if one == two},
        width=right - left + 2 * GAP_X,
        height=len(rows) * (BOX_HEIGHT + GAP_Y),
    )


def _width(node: str | Bend) -> float:
    return BOX_WIDTH if isinstance(node, str) else _BEND_WIDTH


class Bend(NamedTuple):
    """A point at which an edge passes a layer."""

    arc: Arc
    layer: int


Node = str | Bend


def _back_edges(nodes: Sequence[str], edges: list[Arc], start: str) -> set[Arc]:
    """The edges that close a cycle, found by a search in depth from the start."""
    following: dict[str, list[str]] = {}
    for one, two in edges:
        following.setdefault(one, []).append(two)
    back: set[Arc] = set()
    done: set[str] = set()
    for root in (start, *nodes):
        if root in done:
            continue
        on_path = {root: None}
        work = [(root, iter(following.get(root, ())))]
        while work:
            node, rest = work[-1]
            for target in rest:
                if target in on_path:
                    if target != node:
                        back.add((node, target))
                elif target not in done:
                    on_path[target] = None
                    work.append((target, iter(following.get(target, ()))))
                    break
            else:
                work.pop()
                on_path.pop(node)
                done.add(node)
    return back


def _layers(nodes: Sequence[str], forward: list[Arc]) -> dict[str, int]:
    """The layer of each node: below all nodes that lead to it."""
    following: dict[str, list[str]] = {}
    open_: dict[str, int] = dict.fromkeys(nodes, 0)
    for one, two in forward:
        following.setdefault(one, []).append(two)
        open_[two] += 1
    layer = dict.fromkeys(nodes, 0)
    ready = [node for node in nodes if not open_[node]]
    for node in ready:  # grows
        for target in following.get(node, ()):
            layer[target] = max(layer[target], layer[node] + 1)
            open_[target] -= 1
            if not open_[target]:
                ready.append(target)
    return layer


def _with_bends(
    nodes: Sequence[str], edges: list[Arc], back: set[Arc], layer: dict[str, int]
) -> tuple[list[list[Node]], dict[Arc, list[Node]]]:
    """The layers with the bends of long edges, and the bends of each edge from its upper to its lower end."""
    rows: list[list[Node]] = [[] for _ in range(max(layer.values(), default=0) + 1)]
    for node in nodes:
        rows[layer[node]].append(node)
    chains: dict[Arc, list[Node]] = {}
    for one, two in edges:
        upper, lower = (two, one) if (one, two) in back else (one, two)
        bends: list[Node] = [Bend((one, two), number) for number in range(layer[upper] + 1, layer[lower])]
        chains[one, two] = bends
        for bend in bends:
            assert isinstance(bend, Bend)
            rows[bend.layer].append(bend)
    return rows, chains


def _neighbours(rows: list[list[Node]], chains: dict[Arc, list[Node]]) -> dict[Node, list[Node]]:
    """The nodes of the layers above and below that each node is connected with."""
    at = {node: number for number, row in enumerate(rows) for node in row}
    found: dict[Node, list[Node]] = {node: [] for node in at}
    for (one, two), bends in chains.items():
        if one == two:
            continue
        upper, lower = (one, two) if at[one] < at[two] else (two, one)
        for first, second in pairwise([upper, *bends, lower]):
            found[first].append(second)
            found[second].append(first)
    return found


def _order(rows: list[list[Node]], chains: dict[Arc, list[Node]]) -> None:
    """Sort each layer by the mean place of its neighbours in the layer before, down and up again."""
    neighbours = _neighbours(rows, chains)
    for sweep in range(_SWEEPS):
        order = range(1, len(rows)) if sweep % 2 == 0 else range(len(rows) - 2, -1, -1)
        for number in order:
            fixed = {node: at for at, node in enumerate(rows[number - 1 if sweep % 2 == 0 else number + 1])}
            own = {node: at for at, node in enumerate(rows[number])}

            def mean(node: Node, fixed: dict[Node, int] = fixed, own: dict[Node, int] = own) -> float:
                places = [fixed[other] for other in neighbours[node] if other in fixed]
                return sum(places) / len(places) if places else float(own[node])

            rows[number].sort(key=mean)


def _coordinates(rows: list[list[Node]], chains: dict[Arc, list[Node]]) -> dict[Node, float]:
    """The centre of each node: near its neighbours, without overlaps."""
    neighbours = _neighbours(rows, chains)
    xs: dict[Node, float] = {}
    for row in rows:
        at = 0.0
        for node in row:
            xs[node] = at + _width(node) / 2
            at += _width(node) + GAP_X
        middle = (at - GAP_X) / 2
        for node in row:
            xs[node] -= middle
    for turn in range(_ALIGNMENTS):
        for row in rows if turn % 2 == 0 else reversed(rows):
            wanted = [
                sum(xs[other] for other in neighbours[node]) / len(neighbours[node]) if neighbours[node] else xs[node]
                for node in row
            ]
            xs.update(zip(row, _apart(row, wanted), strict=True))
    return xs


def _apart(row: list[Node], wanted: list[float]) -> list[float]:
    """Places close to the wanted ones, in order and without overlaps.

    Nodes that would overlap form a group, which is moved as a whole to the mean of what its nodes want.
    """
    offsets = [0.0]
    for one, two in pairwise(row):
        offsets.append(offsets[-1] + (_width(one) + _width(two)) / 2 + GAP_X)
    groups: list[tuple[float, int]] = []  # the mean of the wanted starts, and how many nodes
    for want, offset in zip(wanted, offsets, strict=False):
        mean, count = want - offset, 1
        while groups and groups[-1][0] > mean:
            before, size = groups.pop()
            mean, count = (before * size + mean * count) / (size + count), size + count
        groups.append((mean, count))
    starts = [mean for mean, count in groups for _ in range(count)]
    return [start + offset for start, offset in zip(starts, offsets, strict=False)]
