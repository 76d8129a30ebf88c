"""Definitions from files: YAML and JSON say the same, everything wrong is said at once, with its line."""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Graph, InvalidInput
from holdfast.errors import InvalidGraph
from holdfast.graphs import Ask, Call, Condition, Edge, End, ForEach, SubWorkflow

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
        ("id: g\nstages: []\n", r"has no stages; add at least one \(line 2\)"),
        ("id: g\nid: h\n", r"line 2: duplicate key 'id'"),
        ("id: &a g\nname: *a\n", r"line 2: aliases"),
        ("id: !!python/object/apply:os.system [true]\n", r"line 1: tags"),
        ("id: [\n", r"not valid YAML"),
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
        "`start` is 'nowhere', but no stage has this id (line 2)", "the key 'input' is reserved",
        "'x..y' is not a path",
        "'1 + 1' is not a path", "2 stages have this id; ids must be unique (line 5)", "needs an output_key",
        "has an unknown type 'colour'",
        "'e#1' could be mistaken", "cannot be the body", "cannot have `id` or `breakpoint`", "attempts must be 1 to",
        "timeout_s must be a number", "`to` of an edge is 'z', but no stage has this id (line 11)",
        "remove its conditions",
        "starts at 'e#1', but an end stage has no edges",
    ):  # fmt: skip
        assert part in said, part


def test_json_with_a_key_twice_or_with_no_numbers_is_refused(tmp_path: Path) -> None:
    for text in ('{"id": "g", "id": "h"}', '{"id": NaN}', "{", "[" * 100_000):
        with pytest.raises(InvalidInput, match="not valid JSON for a definition"):
            Graph.load(written(tmp_path, text, "flow.json"))


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [("flow.txt", b"", "must be a .yaml, .yml or .json"), ("flow.yaml", b"id: \xff", "not UTF-8"),
     ("flow.yaml", b"#" * 2_000_000, "may have at most")],
)  # fmt: skip
def test_files_that_are_no_definitions_are_refused(tmp_path: Path, name: str, data: bytes, said: str) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(InvalidInput, match=said):
        Graph.load(tmp_path / name)
    with pytest.raises(InvalidInput, match="cannot be read"):
        Graph.load(tmp_path / "nothing.yaml")


def test_yaml_without_the_library_for_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(InvalidInput, match=r"install holdfast\[cli\]`, or write it as JSON"):
        Graph.load(written(tmp_path, YAML))


def deep_conditions(depth: int) -> dict[str, Any]:
    condition: Any = {"key": "a", "value": 1}
    for _ in range(depth):
        condition = {"all": [condition]}
    edges = [{"from": "s", "to": "e", "conditions": [condition]}, {"from": "s", "to": "e", "default": True}]
    stages = [{"id": "s", "type": "set", "values": {"a": 1}}, {"id": "e", "type": "end"}]
    return {"id": "g", "stages": stages, "edges": edges}


def deep_graphs(depth: int) -> dict[str, Any]:
    graph: dict[str, Any] = {"id": "g", "stages": [{"id": "end", "type": "end"}]}
    for _ in range(depth):
        graph = {"id": "g", "stages": [{"id": "s", "type": "sub_workflow", "graph": graph}]}
    return graph


def deep_value(depth: int) -> dict[str, Any]:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return {"id": "g", "stages": [{"id": "s", "type": "end", "result": value}]}


@pytest.mark.parametrize("depth", [120, 400, 3_000, 50_000])
@pytest.mark.parametrize("made", [deep_conditions, deep_graphs, deep_value])
def test_what_is_nested_deeper_than_the_limit_is_refused_as_data(made: Any, depth: int) -> None:
    with pytest.raises(InvalidGraph, match="nested deeper than 100 levels"):
        Graph.from_data(made(depth))


@pytest.mark.parametrize("depth", [120, 2_000, 100_000])
def test_what_is_nested_deeper_than_the_limit_is_refused_in_files(tmp_path: Path, depth: int) -> None:
    for text in ("[" * depth + "]" * depth, "{a: " * depth + "1" + "}" * depth, "[" * depth):
        with pytest.raises(InvalidInput, match="line 2: the definition is nested deeper than 100 levels"):
            Graph.load(written(tmp_path, "id: x\nstages: " + text))
    block = "id: x\nstages:\n" + "".join(" " * number + "- \n" for number in range(1, min(depth, 1_000)))
    with pytest.raises(InvalidInput, match="line 102: the definition is nested deeper than 100 levels"):
        Graph.load(written(tmp_path, block))
    with pytest.raises(InvalidInput, match=r"nested deeper than 100|not valid JSON for a definition"):
        Graph.load(written(tmp_path, '{"id": ' + "[" * depth + "]" * depth + "}", "flow.json"))


@pytest.mark.parametrize("data", [deep_conditions(46), deep_graphs(32), deep_value(96)])
def test_what_is_just_not_too_deep_can_be_used_everywhere(tmp_path: Path, data: dict[str, Any]) -> None:
    graph = Graph.from_data(data)
    assert [finding for finding in graph.verify() if finding.level == "error"] == []
    assert graph.mermaid()
    assert graph.dry_run().outcome == "ends"
    assert Graph.load(written(tmp_path, json.dumps(data))) == graph
    assert Graph.load(written(tmp_path, json.dumps(data), "flow.json")) == graph
    if not isinstance(graph.stages[0], SubWorkflow):  # runs in one another have ids that grow, and a limit of their own
        app = holdfast.App("memory:")
        app.graph(graph)
        assert app.start("g", {}).status() == "completed"


def test_deep_graphs_made_in_python_are_findings_and_no_end_of_the_stack() -> None:
    condition = Condition(key="a", value=1)
    for _ in range(400):
        condition = Condition(all=(condition,))
    circle: list[Any] = []
    circle.append(circle)
    graph = Graph(id="g", stages=(End(id="e", result=1),))
    for _ in range(60):
        graph = Graph(id="g", stages=(SubWorkflow(id="s", graph=graph),))
    ways = (Edge(source="c", target="e", conditions=(condition,)),)
    for unsound in (
        Graph(id="g", stages=(Call(id="c", function="f"), End(id="e")), edges=ways),
        Graph(id="g", stages=(End(id="e", result=circle),)), graph,
    ):  # fmt: skip
        assert [finding.code for finding in unsound.verify()] == ["too_deep"]
        for use in (unsound.mermaid, unsound.dry_run):
            with pytest.raises(InvalidGraph, match="nested deeper"):
                use()


@pytest.mark.parametrize(
    "unsound",
    [
        Graph(id="g", stages=()), Graph(id="g", stages=(End(id="e"),), start="nowhere"),
        Graph(id="g", stages=(Call(id="c", function="f"), End(id="e")), edges=(Edge(source="c", target="x"),)),
        Graph(id="g", stages=(End(id="e"), End(id="e"))),
    ],
)  # fmt: skip
def test_an_unsound_graph_made_in_python_is_refused_wherever_it_is_used(unsound: Graph) -> None:
    assert [finding for finding in unsound.verify() if finding.level == "error"]
    for use in (unsound.mermaid, unsound.dry_run):
        with pytest.raises(InvalidGraph):
            use()


# --- what means nothing ----------------------------------------------------------------------------------------------


CALL: dict[str, Any] = {"type": "call", "function": "f"}
EACH: dict[str, Any] = {"type": "for_each", "items_from": "input.x", "body": CALL}
ASK: dict[str, Any] = {"type": "ask", "prompt": "?", "fields": {"ok": "bool"}, "output_key": "x"}


def refused(stage: dict[str, Any], said: str, **more: Any) -> None:
    data = {"id": "g", "stages": [{"id": "a", **stage}], **more}
    with pytest.raises(InvalidGraph, match=said):
        Graph.from_data(data)
    inner = {"id": "outer", "stages": [{"id": "b", "type": "sub_workflow", "graph": data}]}
    with pytest.raises(InvalidGraph, match=f"in its graph: .*{said}"):
        Graph.from_data(inner)


@pytest.mark.parametrize("number", [-1, float("nan"), float("inf"), 1e300, 1e12, -float("inf")])
def test_times_no_run_could_wait_for_are_refused(number: float) -> None:
    refused({**CALL, "timeout_s": number}, "timeout_s must be a number of seconds, above 0")
    refused({**CALL, "type": "effect", "timeout_s": number}, "timeout_s must be a number of seconds, above 0")
    refused({**ASK, "expires_s": number}, "expires_s must be a number of seconds, above 0")
    refused({**ASK, "expires_s": number, "expired": "fail"}, "expires_s must be a number of seconds, above 0")
    refused({"type": "wait", "event": "e", "timeout_s": number}, "timeout_s must be a number of seconds, 0 or more")
    refused({"type": "sleep", "seconds": number}, "seconds must be a number of seconds, 0 or more")
    for name in ("first_s", "longest_s"):
        refused({**CALL, "retry": {name: number}}, f"{name} must be a number of seconds, 0 or more")
    refused({**CALL, "retry": {"factor": number}}, "factor must be between 1 and 30")
    refused({**CALL, "retry": {"jitter": number}}, "jitter.* 0 (to|and) 1")


def test_times_a_run_can_wait_for_are_fine() -> None:
    for stage in ({**CALL, "timeout_s": 0.1}, {**ASK, "expires_s": 9 * 365 * 86_400},
                  {"type": "wait", "event": "e", "timeout_s": 0},
                  {"type": "sleep", "seconds": 0}, {"type": "sleep", "seconds": " {{ input.wait }} "},
                  {"type": "sleep", "until": "2026-11-16T09:00:00+01:00"},
                  {"type": "sleep", "until": "2026-11-16T09:00Z"},
                  {"type": "sleep", "until": "{{ input.day }}T09:00Z"},
                  {**CALL, "retry": {"first_s": 0, "longest_s": 3600, "factor": 30, "jitter": 1}}):  # fmt: skip
        assert Graph.from_data({"id": "g", "stages": [{"id": "a", **stage}]})


@pytest.mark.parametrize(
    ("stage", "said"),
    [
        ({"type": "sleep", "seconds": "5"}, "seconds must be a number, or a reference to one alone"),
        ({"type": "sleep", "seconds": "{{ input.n }}0"}, "seconds must be a number, or a reference to one alone"),
        ({"type": "sleep", "until": "tomorrow"}, "until must be a time such as 2026"),
        ({"type": "sleep", "until": "2026-11-16T09:00:00"}, "without a time zone"),
        ({**EACH, "max_concurrent": 0}, "max_concurrent must be between 1 and 10000"),
        ({**EACH, "max_concurrent": 10**9}, "max_concurrent must be between 1 and 10000"),
        ({"type": "set", "values": {"{{ input.key }}": 1}}, "cannot be a template"),
        ({"type": "set", "values": {r"\\{{ x": 1}}, "cannot be a template"),
        ({"type": "set", "values": {"graph.at": 1}}, "the key 'graph.at' is reserved"),
        ({**CALL, "output_key": "{{ input.key }}"}, "cannot be a template"),
        ({"type": "end", "breakpoint": True}, "an end stage cannot have a breakpoint"),
        ({"type": "end", "breakpoint": "look"}, "an end stage cannot have a breakpoint"),
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_refused(stage: dict[str, Any], said: str) -> None:
    refused(stage, said)


@pytest.mark.parametrize(
    "stage",
    [
        {"type": "loop_until", "max_iterations": 1, "body": CALL}, EACH,
        {"type": "sub_workflow", "workflow": "w"}, ASK, {"type": "wait", "event": "e"}, {"type": "sleep", "seconds": 1},
        {"type": "set", "values": {"x": 1}}, {"type": "end"},
    ],
)  # fmt: skip
def test_retry_is_refused_where_nothing_is_tried_again(stage: dict[str, Any]) -> None:
    refused({**stage, "on_failure": "retry"}, "on_failure: retry is only for call and effect")


def test_what_the_body_of_a_loop_does_on_failure_belongs_to_the_stage() -> None:
    for policy, instead in (
        ("skip", "put it on the stage"),
        ("compensate", "put it on the stage"),
        ("retry", "give the body"),
    ):
        body = {**CALL, "on_failure": policy}
        refused(
            {"type": "loop_until", "max_iterations": 1, "body": body},
            f"on_failure: {policy} is not allowed on this body; {instead}",
        )
    for policy in ("skip", "retry"):
        each = {"id": "a", "type": "for_each", "items_from": "input.x", "body": {**CALL, "on_failure": policy}}
        assert Graph.from_data({"id": "g", "stages": [each]})


def test_a_variable_inside_of_another_is_refused() -> None:
    refused(CALL, "the variable 'a.b' is part of the variable 'a'", variables={"a": {"b": 1}, "a.b": 2})
    assert Graph.from_data({"id": "g", "stages": [{"id": "a", **CALL}], "variables": {"a.b": 1, "ab": 2, "a.c": 3}})


# --- time ------------------------------------------------------------------------------------------------------------


def calls_for(declared: bool, count: int) -> int:
    """How many functions are called to read and verify a definition with this number of stages."""
    stages: list[dict[str, Any]] = [
        {"id": f"s{number}", "type": "set", "values": {f"a{number}": f"{{{{ a{number - 1} }}}}" if number else 1}}
        for number in range(count)
    ]
    data: dict[str, Any] = {"id": "f", "stages": [*stages, {"id": "end", "type": "end"}], "max_iterations": None}
    if declared:
        ways = itertools.pairwise(stage["id"] for stage in data["stages"])
        back = [
            {"from": f"s{number}", "to": "s0", "conditions": [{"key": "a0", "value": 2}]} for number in range(count)
        ]
        data["edges"] = [*back, *({"from": one, "to": two, "default": True} for one, two in ways)]
    calls = 0

    def profile(_frame: object, _event: str, _argument: object) -> None:
        nonlocal calls
        calls += 1

    sys.setprofile(profile)
    try:
        codes = [finding.code for finding in Graph.from_data(data).verify()]
    finally:
        sys.setprofile(None)
    assert codes == (["no_bound"] if declared else [])
    return calls


@pytest.mark.parametrize("declared", [False, True])
def test_reading_and_verifying_a_definition_grows_with_its_length_only(declared: bool) -> None:
    short, long = calls_for(declared, 250), calls_for(declared, 1_000)
    assert long < 5 * short


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


def test_the_schema_in_the_documents_is_the_one_of_today() -> None:
    path = Path(__file__).parents[2] / "docs" / "graph.schema.json"
    assert json.loads(path.read_text("utf-8")) == Graph.json_schema(), "`holdfast graph schema` prints it"
