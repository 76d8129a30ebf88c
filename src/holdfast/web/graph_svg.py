"""The picture of a declared workflow: its stages and edges as SVG, with what a run has done and where it is.

Every fact is also text: in the boxes, and in the list that `describe` returns. Colours only repeat it.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Final, NamedTuple

from markupsafe import Markup

from holdfast.graphs import definition
from holdfast.graphs.flow import Flow
from holdfast.graphs.mermaid import label_of
from holdfast.web.graph_layout import BOX_HEIGHT, BOX_WIDTH, Layout, Point, layout

_TITLE_CHARS: Final = 22
_WHAT_CHARS: Final = 26
_LABEL_CHARS: Final = 26
_SIGNS: Final = {"done": "✓", "current": "▶", "failed": "✗", "skipped": "↷", "paused": "⏸"}
_WORDS: Final = {
    "done": "done",
    "current": "current",
    "failed": "failed",
    "skipped": "failed and skipped",
    "paused": "paused here",
    "": "not reached",
}
_SIDE: Final = 34
_FINISH: Final = "\0finish"


class StageState(NamedTuple):
    """What a run has done with a stage."""

    state: str
    """`done`, `current`, `failed`, `skipped`, `paused`, or empty if it was not reached."""
    times: int = 0
    """How often it was performed, if that is known."""


class StageText(NamedTuple):
    """A stage in words."""

    id: str
    name: str
    kind: str
    state: str
    """The state in words."""
    sign: str
    times: int
    leads_to: tuple[tuple[str, str], ...]
    """The stages that can follow, each with its condition."""


def draw(graph: definition.Graph, states: Mapping[str, StageState]) -> Markup:
    """The picture of a graph."""
    flow = Flow(graph)
    nodes = [stage.id for stage in graph.stages]
    arcs = [(edge.source, edge.target) for edge in flow.edges]
    ends = [stage.id for stage in graph.stages[-1:] if flow.ends_here(stage) and not isinstance(stage, definition.End)]
    if ends:
        nodes, arcs = [*nodes, _FINISH], [*arcs, (ends[0], _FINISH)]
    placed = layout(nodes, arcs, flow.start)
    labels: dict[tuple[str, str], list[str]] = {}
    for edge in flow.edges:
        labels.setdefault((edge.source, edge.target), []).append(label_of(edge))
    parts = [_edge(placed, arc, " or ".join(filter(None, labels.get(arc, [])))) for arc in dict.fromkeys(arcs)]
    parts.append(_beginning(placed.boxes[flow.start]))
    parts += [_box(stage, placed.boxes[stage.id], states.get(stage.id, StageState(""))) for stage in graph.stages]
    parts += (
        [Markup('<circle class="finish" cx="{:.0f}" cy="{:.0f}" r="9"/>').format(*placed.boxes[_FINISH])]
        if ends
        else []
    )
    current = [stage for stage, one in states.items() if one.state in ("current", "paused", "failed")]
    name = f"Graph of {graph.name or graph.id} with {len(graph.stages)} stages"
    name += f"; the run is at {current[0]}" if current else ""
    width, height = placed.width + _SIDE, placed.height
    return Markup(
        '<svg class="graph" role="img" aria-label="{}" aria-describedby="stages" width="{:.0f}" height="{:.0f}" '
        'viewBox="0 0 {:.0f} {:.0f}"><defs><marker id="arrow" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" '
        'markerHeight="8" orient="auto-start-reverse"><path class="head" d="M0 0L10 5L0 10z"/></marker></defs>{}</svg>'
    ).format(name, width, height, width, height, Markup("").join(parts))


def describe(graph: definition.Graph, states: Mapping[str, StageState]) -> list[StageText]:
    """The stages in words, in the order of the definition."""
    flow = Flow(graph)
    found = []
    for stage in graph.stages:
        now = states.get(stage.id, StageState(""))
        leads_to = tuple((edge.target, label_of(edge)) for edge in flow.edges_from(stage.id))
        found.append(
            StageText(
                stage.id, stage.name, _kind(stage), _WORDS[now.state], _SIGNS.get(now.state, ""), now.times, leads_to
            )
        )
    return found


def _kind(stage: definition.AnyStage) -> str:
    return str(type(stage).__struct_config__.tag).replace("_", " ")


def _cut(text: str, chars: int) -> str:
    text = " ".join(text.split())
    return text if len(text) <= chars else f"{text[: chars - 1]}…"


# --- boxes -----------------------------------------------------------------------------------------------------------


def _box(stage: definition.AnyStage, at: Point, now: StageState) -> Markup:
    title = stage.name or stage.id
    sign = f"{_SIGNS[now.state]} " if now.state else ""
    times = f" · {now.times} times" if now.times > 1 else ""
    words = f" · {_WORDS[now.state]}" if now.state else ""
    shape = _SHAPES.get(type(stage), _rounded)(at)
    return Markup(
        '<g class="stage {}"><title>{}: {}, {}</title>{}'
        '<text class="name" x="{:.0f}" y="{:.0f}">{}</text><text class="what" x="{:.0f}" y="{:.0f}">{}</text></g>'
    ).format(
        now.state or "untouched",
        stage.id,
        _kind(stage),
        _WORDS[now.state],
        shape,
        at.x,
        at.y - 4,
        f"{sign}{_cut(title, _TITLE_CHARS)}",
        at.x,
        at.y + 14,
        _cut(f"{_kind(stage)}{words}{times}", _WHAT_CHARS),
    )


def _rounded(at: Point, radius: float = 8) -> Markup:
    return Markup('<rect class="box" x="{:.0f}" y="{:.0f}" width="{}" height="{}" rx="{}"/>').format(
        at.x - BOX_WIDTH / 2, at.y - BOX_HEIGHT / 2, BOX_WIDTH, BOX_HEIGHT, radius
    )


def _pill(at: Point) -> Markup:
    return _rounded(at, BOX_HEIGHT / 2)


def _polygon(at: Point, left: float, right: float, *, slanted: bool = False) -> Markup:
    """A box whose sides are pointed, or slanted."""
    x, y, w, h = at.x, at.y, BOX_WIDTH / 2, BOX_HEIGHT / 2
    if slanted:
        points = [(x - w + left, y - h), (x + w, y - h), (x + w - right, y + h), (x - w, y + h)]
    else:
        points = [(x - w + left, y - h), (x + w - right, y - h), (x + w, y), (x + w - right, y + h)]
        points += [(x - w + left, y + h), (x - w, y)]
    return Markup('<polygon class="box" points="{}"/>').format(" ".join(f"{a:.0f},{b:.0f}" for a, b in points))


def _hexagon(at: Point) -> Markup:
    return _polygon(at, 14, 14)


def _slanted(at: Point) -> Markup:
    return _polygon(at, 14, 14, slanted=True)


def _doubled(at: Point) -> Markup:
    lines = [at.x - BOX_WIDTH / 2 + 7, at.x + BOX_WIDTH / 2 - 7]
    sides = [
        Markup('<path class="side" d="M{:.0f} {:.0f}V{:.0f}"/>').format(x, at.y - BOX_HEIGHT / 2, at.y + BOX_HEIGHT / 2)
        for x in lines
    ]
    return _rounded(at, 2) + Markup("").join(sides)


_SHAPES: Final = {
    definition.Ask: _hexagon,
    definition.Effect: _doubled,
    definition.SubWorkflow: _slanted,
    definition.End: _pill,
}


def _beginning(at: Point) -> Markup:
    top = at.y - BOX_HEIGHT / 2
    return Markup(
        '<circle class="begin" cx="{:.0f}" cy="{:.0f}" r="6"/>'
        '<path class="edge" d="M{:.0f} {:.0f}V{:.0f}" marker-end="url(#arrow)"/>'
    ).format(at.x, top - 20, at.x, top - 14, top - 1)


# --- edges -----------------------------------------------------------------------------------------------------------


def _edge(placed: Layout, arc: tuple[str, str], label: str) -> Markup:
    source, target = placed.boxes[arc[0]], placed.boxes[arc[1]]
    bends = placed.routes[arc]
    if arc[0] == arc[1]:
        path, middle = _loop(source)
    elif arc in placed.back:
        path, middle = _upward(source, target, bends)
    else:
        path, middle = _downward(source, target, bends, 9 if arc[1] == _FINISH else BOX_HEIGHT / 2)
    names = "the end" if arc[1] == _FINISH else arc[1]
    line = Markup(
        '<g class="arc{}"><title>{} to {}{}</title><path class="edge" d="{}" marker-end="url(#arrow)"/>'
    ).format(" back" if arc in placed.back else "", arc[0], names, f": {label}" if label else "", path)
    if label:
        line += Markup('<text class="label" x="{:.0f}" y="{:.0f}">{}</text>').format(
            middle.x, middle.y, _cut(label, _LABEL_CHARS)
        )
    return line + Markup("</g>")


def _downward(source: Point, target: Point, bends: list[Point], room: float) -> tuple[str, Point]:
    first, last = Point(source.x, source.y + BOX_HEIGHT / 2), Point(target.x, target.y - room - 1)
    points = [first, *bends, last]
    return _curve(points), Point((points[0].x + points[1].x) / 2, (points[0].y + points[1].y) / 2 + 4)


def _upward(source: Point, target: Point, bends: list[Point]) -> tuple[str, Point]:
    """An edge that leads back: through its bends, or along the right sides of two boxes that are next to each other."""
    first, last = Point(source.x + BOX_WIDTH / 2, source.y), Point(target.x + BOX_WIDTH / 2 + 1, target.y)
    if not bends:
        right = max(first.x, last.x) + _SIDE
        path = (
            f"M{first.x:.0f} {first.y:.0f}C{right:.0f} {first.y:.0f} {right:.0f} {last.y:.0f} {last.x:.0f} {last.y:.0f}"
        )
        return path, Point(right - 8, (first.y + last.y) / 2)
    first = Point(_within(bends[0].x, source), source.y - BOX_HEIGHT / 2)
    last = Point(_within(bends[-1].x, target), target.y + BOX_HEIGHT / 2 + 1)
    return _curve([first, *bends, last]), bends[0]


def _within(x: float, box: Point) -> float:
    """The place on the upper or lower side of a box that is nearest, but not in the middle: there edges leave it."""
    half = BOX_WIDTH / 2 - 16
    near = min(max(x, box.x - half), box.x + half)
    return near if abs(near - box.x) > 20 else box.x + 40


def _loop(at: Point) -> tuple[str, Point]:
    x, y = at.x + BOX_WIDTH / 2, at.y
    return f"M{x:.0f} {y - 10:.0f}c{_SIDE} -14 {_SIDE} 34 1 20", Point(x + _SIDE - 8, y + 4)


def _curve(points: list[Point]) -> str:
    """A smooth line through points, one below the other."""
    path = f"M{points[0].x:.0f} {points[0].y:.0f}"
    for one, two in pairwise(points):
        half = (one.y + two.y) / 2
        path += f"C{one.x:.0f} {half:.0f} {two.x:.0f} {half:.0f} {two.x:.0f} {two.y:.0f}"
    return path
