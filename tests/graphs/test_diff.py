"""What counts as a change of a definition: everything a run goes by, and no words for people."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from holdfast import Graph
from holdfast.graphs.diff import changes

END: dict[str, Any] = {"id": "end", "type": "end"}
ASK: dict[str, Any] = {"id": "ask", "type": "ask", "prompt": "Go?", "fields": {"ok": "bool"}, "output_key": "go"}
CALL: dict[str, Any] = {"id": "c", "type": "call", "function": "f"}


def found(old: Any, new: Any) -> list[str]:
    return changes(Graph.from_data(old).as_data(), Graph.from_data(new).as_data())


def flow(*stages: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"id": "f", "stages": [*stages, END], **more}


@pytest.mark.parametrize("word", ["name", "label", "description", "metadata"])
def test_words_for_people_are_data_where_they_are_keys_of_data(word: str) -> None:
    def ways(value: str) -> list[dict[str, Any]]:
        data: Any = {word: value}
        inner = flow({"id": "s", "type": "set", "values": data})
        return [
            flow({"id": "s", "type": "set", "values": data}), flow({**END, "id": "e", "result": {"deep": [data]}}),
            flow({**ASK, "show": data}), flow({**ASK, "fields": {word: {"choices": [value]}}}),
            flow({**CALL, "with": data}), flow(variables=data), flow(input={word: {"choices": [value]}}),
            flow({"id": "b", "type": "sub_workflow", "graph": inner}),
            flow({"id": "l", "type": "loop_until", "max_iterations": 1, "body": {"type": "set", "values": data}}),
            flow({**CALL, "retry": 2}, edges=[{"from": "c", "to": "end", "conditions": [{"key": "x", "value": data}]}]),
        ]  # fmt: skip

    for old, new in zip(ways("one"), ways("two"), strict=True):
        assert found(old, new), old
        assert found(old, old) == []


def test_words_for_people_are_no_change_where_people_read_them() -> None:
    def whole(words: str) -> dict[str, Any]:
        said = {"name": words, "description": words}
        condition = {"key": "go.ok", "value": True, "description": words}
        inner_edge = {"from": "c", "to": "end", "label": words, "conditions": [{"any": [condition]}]}
        inner = {**flow({**CALL, **said}), **said, "metadata": {"by": words}, "edges": [inner_edge]}
        loop = {"id": "l", "type": "loop_until", "until": [condition], "max_iterations": 1,
                "body": {"type": "sub_workflow", "graph": inner, **said}, **said}  # fmt: skip
        each = {"id": "e", "type": "for_each", "items_from": "input.x", "body": {**CALL, "id": "", **said}}
        edges = [{"from": "ask", "to": "l", "label": words, "conditions": [condition, {"all": [condition]}]},
                 {"from": "l", "to": "e"}, {"from": "e", "to": "end"}]  # fmt: skip
        return {**flow({**ASK, **said}, loop, each, edges=edges), **said, "metadata": {"by": words}}

    assert found(whole("one"), whole("two")) == []


def test_null_and_nothing_are_not_the_same() -> None:
    assert found(flow({**CALL, "with": {"a": None}}), flow({**CALL, "with": {}})) == [
        "stage 'c'.with: {'a': None} → nothing"
    ]
    assert found(flow({**CALL, "with": {"a": 1}}), flow({**CALL, "with": {"a": 1, "b": None}})) == [
        "stage 'c'.with.b: nothing → None"
    ]


def test_very_many_edges_are_compared() -> None:
    stages = [{**CALL, "id": f"s{number}"} for number in range(2_000)]
    edges = [{"from": one["id"], "to": two["id"]} for one, two in itertools.pairwise(stages)]
    old, new = {"id": "f", "stages": stages, "edges": edges}, {"id": "f", "stages": stages, "edges": edges[1:]}
    assert changes(old, new) == ["the edge s0 → s1 was removed"]
