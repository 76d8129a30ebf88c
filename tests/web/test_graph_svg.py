"""The picture of a declared workflow: boxes that do not overlap, arrows that reach their stages, facts as text."""

from __future__ import annotations

import random
import re
import xml.etree.ElementTree as ET
from itertools import combinations, pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import holdfast
from holdfast.web.graph_layout import BOX_HEIGHT, BOX_WIDTH, layout
from holdfast.web.graph_svg import StageState, describe, draw

REFUND: dict[str, Any] = {
    "id": "refund",
    "name": "Refund <flow>",
    "stages": [
        {"id": "quote", "type": "call", "function": "price", "output_key": "q"},
        {"id": "approve", "type": "ask", "prompt": "Refund?", "fields": {"ok": "bool"}, "output_key": "a"},
        {"id": "pay", "type": "effect", "function": "pay"},
        {"id": "child", "type": "sub_workflow", "workflow": "ship"},
        {"id": "again", "type": "set", "values": {"x": 1}},
        {"id": "done", "type": "end"},
    ],
    "edges": [
        {"from": "quote", "to": "approve"},
        {"from": "approve", "to": "pay", "conditions": [{"key": "a.ok", "value": True}]},
        {"from": "approve", "to": "again", "default": True},
        {"from": "again", "to": "quote"},
        {"from": "pay", "to": "child"},
        {"from": "child", "to": "child", "conditions": [{"key": "more"}]},
        {"from": "child", "to": "done", "label": "all <shipped>"},
    ],
}


def elements(graph: holdfast.Graph, **states: StageState) -> ET.Element:
    """The picture as a tree: it is well-formed."""
    return ET.fromstring(str(draw(graph, states)))


def texts(root: ET.Element) -> list[str]:
    return [str(one.text) for one in root.iter() if one.tag in ("text", "title")]


def test_each_stage_and_each_edge_is_drawn_once() -> None:
    root = elements(holdfast.Graph.from_data(REFUND))
    groups = [one.get("class", "") for one in root.iter("g")]
    assert len([one for one in groups if one.startswith("stage")]) == 6
    assert len([one for one in groups if one.startswith("arc")]) == 7
    assert len([one for one in groups if one == "arc back"]) == 2, "the way back, and the stage that repeats"
    arrows = [one for one in root.iter("path") if one.get("marker-end") == "url(#arrow)"]
    assert len(arrows) == 8, "and one from the beginning"
    assert "all <shipped>" in texts(root)


def test_states_are_words_and_signs_and_not_only_colours() -> None:
    graph = holdfast.Graph.from_data(REFUND)
    states = {"quote": StageState("done", 3), "approve": StageState("current"), "pay": StageState("failed")}
    root = elements(graph, **states)
    found = texts(root)
    assert "✓ quote" in found
    assert "▶ approve" in found
    assert "✗ pay" in found
    assert "call · done · 3 times" in found
    assert "again" in found
    assert "approve: ask, current" in found
    assert "the run is at approve" in root.get("aria-label", "")
    lines = {one.id: one for one in describe(graph, states)}
    assert (lines["quote"].state, lines["quote"].times, lines["quote"].sign) == ("done", 3, "✓")
    assert lines["again"].state == "not reached"
    assert lines["approve"].leads_to == (("pay", "a.ok = True"), ("again", "otherwise"))


def test_a_graph_without_edges_ends_after_its_last_stage() -> None:
    stages: list[dict[str, Any]] = [{"id": name, "type": "set", "values": {}} for name in ("one", "two")]
    root = elements(holdfast.Graph.from_data({"id": "flow", "stages": stages}))
    assert [one.get("class") for one in root.iter("circle")] == ["begin", "finish"]
    assert "two to the end" in texts(root)


def big_graph(count: int, seed: int) -> dict[str, Any]:
    chance = random.Random(seed)
    edges = [{"from": f"s{number}", "to": f"s{number + 1}"} for number in range(count - 1)]
    for number in range(count):
        further, back = min(count - 1, number + chance.randint(2, 9)), max(0, number - chance.randint(1, 9))
        edges += [{"from": f"s{number}", "to": f"s{further}"}] if chance.random() < 0.4 else []
        edges += [{"from": f"s{number}", "to": f"s{back}"}] if chance.random() < 0.2 else []
    stages = [{"id": f"s{number}", "type": "set", "values": {}, "name": "n" * 60} for number in range(count)]
    return {"id": "big", "stages": stages, "edges": edges}


def test_sixty_stages_are_drawn_without_overlaps() -> None:
    data = big_graph(60, 3)
    names = [stage["id"] for stage in data["stages"]]
    placed = layout(names, [(edge["from"], edge["to"]) for edge in data["edges"]], "s0")
    assert overlaps(placed.boxes) == []
    root = elements(holdfast.Graph.from_data(data))
    assert len([one for one in root.iter("g") if one.get("class", "").startswith("stage")]) == 60
    numbers = [float(number) for one in root.iter("path") for number in re.findall(r"-?\d+\.?\d*", one.get("d", ""))]
    assert max(numbers) <= max(placed.width, placed.height) + 60


def overlaps(boxes: dict[str, Any]) -> list[tuple[str, str]]:
    found = []
    for (one, a), (two, b) in combinations(boxes.items(), 2):
        if abs(a.x - b.x) < BOX_WIDTH and abs(a.y - b.y) < BOX_HEIGHT:
            found.append((one, two))
    return found


names = st.integers(2, 14).map(lambda count: [f"s{number}" for number in range(count)])


@settings(deadline=None)
@given(names.flatmap(lambda all_: st.tuples(
    st.just(all_), st.lists(st.tuples(st.sampled_from(all_), st.sampled_from(all_)), max_size=40),
)))  # fmt: skip
def test_any_graph_has_a_layout(graph: tuple[list[str], list[tuple[str, str]]]) -> None:
    nodes, arcs = graph
    placed = layout(nodes, arcs, nodes[0])
    assert set(placed.boxes) == set(nodes)
    assert overlaps(placed.boxes) == []
    assert layout(nodes, arcs, nodes[0]) == placed, "the same graph always looks the same"
    for one, two in dict.fromkeys(arcs):
        path = [placed.boxes[one], *placed.routes[one, two], placed.boxes[two]]
        steps = [after.y - before.y for before, after in pairwise(path)]
        if one == two:
            continue
        assert all(step < 0 for step in steps) if (one, two) in placed.back else all(step > 0 for step in steps)
    for box in placed.boxes.values():
        assert BOX_WIDTH / 2 <= box.x <= placed.width - BOX_WIDTH / 2
        assert BOX_HEIGHT / 2 <= box.y <= placed.height - BOX_HEIGHT / 2


@pytest.mark.parametrize("kind", ["current", "paused", "failed", "skipped", "done", ""])
def test_every_state_has_a_picture(kind: str) -> None:
    assert elements(holdfast.Graph.from_data(REFUND), quote=StageState(kind))
