"""Definitions from files: YAML and JSON say the same, everything wrong is said at once, with its line."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Graph, InvalidGraph, InvalidInput
from holdfast.graphs import Ask, Call, Condition, Edge, End, ForEach

YAML = """\
# A refund.
id: refund
name: Refund
start: price
variables: {limit: 100, country: no, on: 1_0, day: 2026-11-16}
stages:
  - id: price
    type: call
    function: price
    with:
      order: "{{ input.order }}"
      note: |
        two
        lines
    retry: {attempts: 3, first_s: .5}
    output_key: quote
  - {id: end, type: end, result: "{{ quote }}"}
edges:
  - {from: price, to: end, conditions: [{key: quote.amount, operator: gt, value: 1e2}]}
  - {from: price, to: end, default: true, priority: -1}
"""


def written(folder: Path, text: str, name: str = "flow.yaml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_a_yaml_file_says_what_json_and_python_say(tmp_path: Path) -> None:
    graph = Graph.load(written(tmp_path, YAML))
    again = Graph.load(written(tmp_path, json.dumps(graph.as_data()), "flow.json"))
    assert graph == again == Graph.from_data(graph.as_data())
    assert graph.variables == {"limit": 100, "country": "no", "on": "1_0", "day": "2026-11-16"}
    assert graph.edges is not None
    assert graph.edges[0].conditions == (Condition(key="quote.amount", operator="gt", value=100.0),)
    call = graph.stages[0]
    assert isinstance(call, Call)
    assert call.arguments == {"order": "{{ input.order }}", "note": "two\nlines\n"}


def test_a_graph_made_in_python_is_the_one_its_data_says() -> None:
    graph = Graph(
        id="g",
        stages=(
            Ask(id="ask", prompt="Well?", fields={"ok": "bool"}, output_key="a"),
            ForEach(id="each", items_from="input.items", body=Call(function="f")),
            End(id="end"),
        ),
        edges=(Edge(source="ask", target="each"), Edge(source="each", target="end")),
    )
    assert json.loads(json.dumps(graph.as_data())) == graph.as_data()
    assert Graph.from_data(json.loads(json.dumps(graph.as_data()))) == graph
    app = holdfast.App("memory:")
    app.graph(graph, functions=[abs])
    assert [finding.code for finding in graph.verify(app)] == ["unknown_function"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("id: g\nstages:\n  - {id: a, type: call, functoin: x}\n", r"line 3: .*functoin"),
        ("id: g\nstages:\n  - {id: a, type: call}\n", r"line 3: .*function"),
        ("id: g\nstages:\n  - id: a\n    type: dance\n", r"line 4: .*dance"),
        ("id: g\nstages: 7\n", r"line 2: "),
        ("stages: []\n", r"`id`"),
        ("id: g\nstages: []\n", r"has no stages \(line 2\)"),
        ("id: g\nid: h\n", r"line 2: the key 'id' stands here twice"),
        ("id: &a g\nname: *a\n", r"line 2: aliases"),
        ("id: !!python/object/apply:os.system [true]\n", r"line 1: tags"),
        ("id: [\n", r"no YAML"),
        ("- 1\n", r"object with `id` and `stages`"),
        ("", r"object with `id` and `stages`"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_with_its_line(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        Graph.load(written(tmp_path, text))


def test_all_that_is_wrong_with_the_structure_is_said_at_once(tmp_path: Path) -> None:
    text = """\
id: g
start: nowhere
variables: {input: 1}
stages:
  - {id: a, type: set, values: {"x..y": 1, "ok": "{{ 1 + 1 }}"}}
  - {id: a, type: ask, prompt: "Well?", fields: {x: {type: colour}}, output_key: ""}
  - {id: "e#1", type: end}
  - {id: each, type: for_each, items_from: input.x, body: {type: end, id: inner}}
  - {id: r, type: call, function: f, retry: 0, timeout_s: -1}
edges:
  - {from: a, to: z}
  - {from: e#1, to: a, default: true, conditions: [{key: x}]}
"""
    with pytest.raises(InvalidGraph) as refused:
        Graph.load(written(tmp_path, text))
    said = "\n".join(refused.value.problems)
    for part in (
        "starts at 'nowhere', and there is no such stage (line 2)", "the key 'input' is not free", "'x..y' is no path",
        "'1 + 1' is none", "2 stages have this id (line 5)", "needs an output_key", "is of type 'colour'",
        "'e#1' could be taken", "cannot be its body", "no id and no breakpoint", "it is tried once or more",
        "timeout_s is a number", "leads to 'z', and there is no such stage (line 11)", "has no conditions",
        "leads from 'e#1', which is an end",
    ):  # fmt: skip
        assert part in said, part


def test_json_with_a_key_twice_or_with_no_numbers_is_refused(tmp_path: Path) -> None:
    for text in ('{"id": "g", "id": "h"}', '{"id": NaN}', "{", "[" * 100_000):
        with pytest.raises(InvalidInput, match="no JSON a definition can have"):
            Graph.load(written(tmp_path, text, "flow.json"))


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [("flow.txt", b"", "is a .yaml, .yml or .json"), ("flow.yaml", b"id: \xff", "not UTF-8"),
     ("flow.yaml", b"#" * 2_000_000, "has at most")],
)  # fmt: skip
def test_files_that_are_no_definitions_are_refused(tmp_path: Path, name: str, data: bytes, said: str) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(InvalidInput, match=said):
        Graph.load(tmp_path / name)
    with pytest.raises(InvalidInput, match="cannot be read"):
        Graph.load(tmp_path / "nothing.yaml")


def test_yaml_without_the_library_for_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(InvalidInput, match=r"install holdfast\[cli\], or write it as JSON"):
        Graph.load(written(tmp_path, YAML))


def test_deep_nesting_is_refused_not_recursed_into(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput):
        Graph.load(written(tmp_path, "id: g\nx: " + "[" * 300 + "]" * 300))


def test_the_schema_accepts_what_is_accepted_and_refuses_typos() -> None:
    schema = Graph.json_schema()
    stage: Any = schema["$defs"]["Call"]
    assert stage["required"] == ["id", "type", "function"]
    assert stage["additionalProperties"] is False
    assert stage["properties"]["type"] == {"enum": ["call"]}
    assert set(schema["properties"]) == {
        "id", "stages", "name", "description", "start", "goal", "edges", "max_iterations", "metadata", "variables",
        "input",
    }  # fmt: skip
    assert "id" not in schema["$defs"]["CallBody"]["properties"]
    assert json.loads(json.dumps(schema)) == schema
