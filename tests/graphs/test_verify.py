"""Verification, dry runs and pictures: what can be known of a definition without running it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import holdfast
from holdfast import Graph, InvalidInput
from holdfast.graphs.flow import Flow
from tests.graphs.conftest import edge_of

END = {"id": "end", "type": "end"}


def graph_of(stages: list[dict[str, Any]], edges: Any = None, **more: Any) -> Graph:
    data: dict[str, Any] = {"id": "flow", "stages": stages, **more}
    if edges is not None:
        data["edges"] = [edge_of(*edge) for edge in edges]
    return Graph.from_data(data)


def codes(graph: Graph, app: Any = None) -> list[tuple[str, str, str | None]]:
    return [(finding.level, finding.code, finding.stage) for finding in graph.verify(app)]


def one(stage_id: str, **values: Any) -> dict[str, Any]:
    return {"id": stage_id, "type": "set", "values": values or {"x": 1}}


def test_a_sound_graph_has_no_findings() -> None:
    assert codes(graph_of([one("a"), END])) == []


def test_stages_no_way_leads_to_and_stages_no_way_leads_from() -> None:
    found = graph_of([one("a"), one("b"), one("c"), one("lost"), END], [("a", "b"), ("b", "a"), ("lost", "c")])
    assert codes(found) == [
        ("error", "no_end", "a"), ("error", "no_end", "b"), ("warning", "unreachable", "c"),
        ("warning", "unreachable", "lost"), ("warning", "unreachable", "end"),
    ]  # fmt: skip
    assert codes(graph_of([one("a"), END], []))[0] == ("error", "no_end", "a")


def test_edges_that_may_all_fail_and_edges_never_taken() -> None:
    assert codes(graph_of([one("a"), END], [("a", "end", ("x", "eq", 1))])) == [("warning", "no_default", "a")]
    assert codes(graph_of([one("a"), END], [("a", "end"), ("a", "a", ("x", "eq", 1))])) == [
        ("warning", "never_taken", "a")
    ]


def test_loops_without_a_bound() -> None:
    edges = [("a", "a", ("x", "eq", 1)), ("a", "end", None)]
    assert codes(graph_of([one("a"), END], edges)) == []
    assert codes(graph_of([one("a"), END], edges, max_iterations=None)) == [("warning", "no_bound", "a")]
    loop: dict[str, Any] = {"id": "l", "type": "loop_until", "body": {"type": "set", "values": {"x": 1}}}
    assert codes(graph_of([loop, END])) == [("error", "no_bound", "l")]
    assert codes(graph_of([{**loop, "until": [{"key": "x", "value": 1}]}, END])) == [("warning", "no_bound", "l")]
    assert codes(graph_of([{**loop, "max_iterations": 3}, END])) == []


@pytest.mark.parametrize(
    ("stage", "expected"),
    [
        (one("a", y="{{ nothing }}"), ("error", "unwritten_key", "a")),
        (one("a", y="{{ input.nam }}"), ("error", "unwritten_key", "a")),
        (one("a", y="{{ stage.b.answer }}"), ("error", "unwritten_key", "a")),
        (one("a", y="{{ stage.end.anwser }}"), ("error", "unwritten_key", "a")),
        (one("a", y="{{ item }}"), ("error", "unwritten_key", "a")),
        ({"id": "a", "type": "for_each", "items_from": "nothing", "body": {"type": "sleep", "seconds": 0}},
         ("error", "unwritten_key", "a")),
        ({"id": "a", "type": "loop_until", "max_iterations": 2, "until": [{"key": "nothing"}],
          "body": {"type": "set", "values": {"x": 1}}}, ("warning", "unwritten_key", "a")),
    ],
)  # fmt: skip
def test_keys_nobody_writes(stage: dict[str, Any], expected: Any) -> None:
    assert codes(graph_of([stage, END], input={"name": "str"})) == [expected]


def test_keys_somebody_writes_are_found_however_they_are_written() -> None:
    ask = {
        "id": "ask",
        "type": "ask",
        "prompt": "{{ input.name }} {{ v.w }}?",
        "fields": {"ok": "bool"},
        "output_key": "a.b",
    }
    each = {"id": "each", "type": "for_each", "items_from": "list", "output_key": "out",
            "body": {"type": "wait", "event": "{{ item.x }} {{ index }} {{ a.b.ok }}"}}  # fmt: skip
    graph = graph_of(
        [ask, each, one("s", z="{{ state }} {{ goal }} {{ a }} {{ stage.ask.answer.ok }} {{ out.0 }}"), END],
        variables={"v": {"w": 1}, "list": [1]}, input={"name": "str"}, goal="x",
    )  # fmt: skip
    assert codes(graph) == []


def test_a_comparison_that_can_never_hold() -> None:
    graph = graph_of([one("a"), END], [("a", "end", ("x", "gt", "5")), ("a", "a", None)])
    assert codes(graph) == [("warning", "not_a_number", "a")]


def test_names_an_app_does_not_know_and_arguments_a_function_does_not_take() -> None:
    app = holdfast.App("memory:")

    @app.function
    def price(order: str, idempotency_key: str = "") -> None: ...

    @app.function
    def pay(order: str) -> None: ...

    call = {"type": "call", "with": {"order": "x"}}
    stages: list[dict[str, Any]] = [
        {**call, "id": "a", "function": "prize"}, {**call, "id": "b", "function": "price", "with": {"ordr": "x"}},
        {**call, "id": "c", "type": "effect", "function": "pay", "compensation": "undo_it", "check": "look"},
        {"id": "d", "type": "sub_workflow", "workflow": "other"}, {**call, "id": "e", "function": "pay", "with": {}},
        {"id": "f", "type": "for_each", "items_from": "input.x", "body": {**call, "function": "nobody"}},
    ]  # fmt: skip
    assert codes(graph_of([*stages, END]), app) == [
        ("error", "unknown_function", "a"), ("error", "bad_arguments", "b"), ("error", "unknown_undo", "c"),
        ("error", "unknown_function", "c"), ("error", "unknown_workflow", "d"), ("error", "bad_arguments", "e"),
        ("error", "unknown_function", "f"),
    ]  # fmt: skip


def test_a_graph_inside_is_verified_as_well() -> None:
    inner = {"id": "inner", "stages": [one("a", y="{{ nothing }}")]}
    graph = graph_of([{"id": "sub", "type": "sub_workflow", "graph": inner}, END])
    (finding,) = graph.verify()
    assert str(finding) == "error: stage 'sub': in its graph, stage 'a': no stage or variable writes 'nothing'"
    assert finding.path == ("stages", 0, "graph", "stages", 0, "values")


@pytest.mark.parametrize("kind", ["for_each", "loop_until"])
def test_a_graph_inside_a_body_is_verified_as_well(kind: str) -> None:
    inner = {"id": "inner", "stages": [{"id": "c", "type": "call", "function": "nobody"}, one("a", y="{{ nothing }}")]}
    more: dict[str, Any] = {"items_from": "input.x"} if kind == "for_each" else {"max_iterations": 1}
    graph = graph_of([{"id": "s", "type": kind, "body": {"type": "sub_workflow", "graph": inner}, **more}, END])
    found = {finding.code: finding for finding in graph.verify(holdfast.App("memory:"))}
    assert found.keys() == {"unwritten_key", "unknown_function"}
    assert found["unwritten_key"].path == ("stages", 0, "body", "graph", "stages", 1, "values")
    message = "error: stage 's': in its graph, stage 'a': no stage or variable writes 'nothing'"
    assert str(found["unwritten_key"]) == message


def test_the_longest_id_of_a_stage_counts() -> None:
    stages = [one("a"), one("a.b"), one("s", y="{{ stage.a.b.status }} {{ stage.a.status }} {{ stage.a.b }}"), END]
    assert codes(graph_of(stages)) == []
    wrong = graph_of([one("a"), one("a.b"), one("s", y="{{ stage.a.b.stats }}"), END])
    assert codes(wrong) == [("error", "unwritten_key", "s")]


def test_what_an_expired_question_is_answered_with_is_looked_at() -> None:
    ask = {"id": "a", "type": "ask", "prompt": "?", "fields": {"t": "str"}, "output_key": "x", "expires_s": 5}
    assert codes(graph_of([{**ask, "expired": {"t": "{{ nothing }}"}}, END])) == [("error", "unwritten_key", "a")]
    assert codes(graph_of([{**ask, "expired": {"t": "{{ input.t }}"}}, END])) == []
    with pytest.raises(InvalidInput, match="a path into the state"):
        graph_of([{**ask, "expired": {"t": "{{ 1 + 1 }}"}}, END])


def test_what_the_value_of_a_condition_names_is_looked_at() -> None:
    edges = [("a", "end", ("x", "gt", "{{ nothing }}")), ("a", "end", None)]
    assert codes(graph_of([one("a"), END], edges)) == [("error", "unwritten_key", "a")]
    until = [{"any": [{"key": "x", "value": "{{ nothing }}"}]}]
    body = {"type": "set", "values": {"x": 1}}
    loop = {"id": "l", "type": "loop_until", "max_iterations": 2, "until": until, "body": body}
    assert codes(graph_of([loop, END])) == [("error", "unwritten_key", "l")]


def test_the_goal_and_the_compensation_are_there_only_if_there_are_such() -> None:
    def read(key: str) -> list[dict[str, Any]]:
        return [one("a", y=f"{{{{ {key} }}}}"), END]

    assert codes(graph_of(read("goal"))) == [("error", "unwritten_key", "a")]
    assert codes(graph_of(read("goal"), goal="x")) == []
    assert codes(graph_of(read("compensation.undone"))) == [("error", "unwritten_key", "a")]
    effect = {"id": "e", "type": "effect", "function": "f", "compensation": "g", "on_failure": "compensate"}
    assert codes(graph_of([effect, *read("compensation.undone")])) == []


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 7)), max_size=16))
def test_ways_and_circles_are_those_one_finds_by_walking(pairs: list[tuple[int, int]]) -> None:
    names = [*(f"s{number}" for number in range(7)), "end"]
    edges = [(names[one], names[two], ("x", "eq", 1)) for one, two in pairs]
    flow = Flow(graph_of([*(one(name) for name in names[:-1]), END], edges))
    after = {name: {names[two] for one, two in pairs if names[one] == name} for name in names}
    for _ in names:
        after = {name: found.union(*(after[other] for other in found)) for name, found in after.items()}
    assert flow.reachable() == {"s0"} | after["s0"]
    assert flow.ending() == {name for name in names if name == "end" or "end" in after[name]}
    groups = {tuple(other for other in names if other in after[name] and name in after[other]) for name in names} - {()}
    assert [tuple(group) for group in flow.cycles()] == sorted(groups, key=lambda group: names.index(group[0]))


def test_compensate_without_anything_to_undo() -> None:
    assert codes(graph_of([{**one("a"), "on_failure": "compensate"}, END])) == [("warning", "nothing_to_undo", "a")]


# --- dry runs --------------------------------------------------------------------------------------------------------


REFUND: dict[str, Any] = {
    "id": "refund", "input": {"order": "str"},
    "stages": [
        {"id": "price", "type": "call", "function": "price", "with": {"order": "{{ input.order }}"},
         "output_key": "quote"},
        {"id": "ask", "type": "ask", "prompt": "Refund {{ quote.amount }}?", "fields": {"ok": "bool"},
         "output_key": "a"},
        {"id": "pay", "type": "effect", "function": "pay", "with": {"amount": "{{ quote.amount }}"},
         "compensation": "back"},
        {"id": "paid", "type": "end", "result": "{{ quote.amount }}"},
        {"id": "denied", "type": "end", "failed": "denied"},
    ],
    "edges": [
        edge_of("price", "ask", ("quote.amount", "gt", 100)), edge_of("price", "pay", None),
        edge_of("ask", "pay", ("a.ok", "eq", True)), edge_of("ask", "denied", None), edge_of("pay", "paid"),
    ],
}  # fmt: skip


def test_a_dry_run_says_what_would_be_done_and_what_it_assumed() -> None:
    dry = Graph.from_data(REFUND).dry_run({"order": "A-17"})
    assert [(visit.stage, visit.does, visit.to, visit.assumed, visit.instead) for visit in dry.visits] == [
        ("price", "calls price(order='A-17')", "ask", True, ("pay",)),
        ("ask", "asks 'Refund <quote.amount>?' (ok)", "pay", True, ("denied",)),
        ("pay", "performs pay(amount='<quote.amount>'), undone by back", "paid", False, ()),
        ("paid", "ends with <quote.amount>", None, False, ()),
    ]
    assert dry.outcome == "ends"


def test_a_dry_run_takes_results_and_answers_that_are_told_it() -> None:
    graph = Graph.from_data(REFUND)
    cheap = graph.dry_run({"order": "A"}, results={"price": {"amount": 40}})
    assert [visit.stage for visit in cheap.visits] == ["price", "pay", "paid"]
    assert cheap.visits[1].does == "performs pay(amount=40), undone by back"
    assert not any(visit.assumed for visit in cheap.visits)
    dear = graph.dry_run({"order": "A"}, results={"price": {"amount": 400}}, answers={"ask": {"ok": False}})
    assert [visit.stage for visit in dear.visits] == ["price", "ask", "denied"]
    assert (dear.outcome, dear.why) == ("fails", "fails with 'denied'")
    with pytest.raises(InvalidInput, match="given for 'prize', but no stage"):
        graph.dry_run({"order": "A"}, results={"prize": 1})
    with pytest.raises(InvalidInput, match="order"):
        graph.dry_run({})


def test_a_dry_run_calls_nothing_and_stores_nothing() -> None:
    app, called = holdfast.App("memory:"), []
    for name in ("price", "pay"):
        app.function(name=name)(lambda **given: called.append(given))
    app.undo(name="back")(lambda result, **given: called.append(given))
    app.graph(REFUND).graph.dry_run({"order": "A"})  # type: ignore[attr-defined]
    assert called == []
    assert app.runs() == []


def test_a_dry_run_through_a_loop_comes_to_its_end() -> None:
    wait = {"id": "w", "type": "wait", "event": "x", "output_key": "got"}
    dry = graph_of([wait, END], [("w", "w", ("got", "eq", 1)), ("w", "end", None)]).dry_run()
    assert [(visit.stage, visit.to) for visit in dry.visits] == [("w", "w"), ("w", "end"), ("end", None)]
    for stage in ({"id": "s", "type": "sleep", "seconds": 5},
                  {"id": "s", "type": "sleep", "until": "2026-01-01T00:00:00Z"},
                  {"id": "s", "type": "for_each", "items_from": "input.x", "body": wait | {"id": "", "output_key": ""}},
                  {"id": "s", "type": "loop_until", "max_iterations": 2, "body": wait | {"id": ""}},
                  {"id": "s", "type": "sub_workflow", "workflow": "o", "with": {"a": 1}}):  # fmt: skip
        assert graph_of([stage, END]).dry_run({"x": [1, 2]}).outcome == "ends"


# --- pictures --------------------------------------------------------------------------------------------------------


def test_a_picture_has_every_stage_and_edge_and_marks_where_the_run_stands() -> None:
    text = Graph.from_data(REFUND).mermaid(current="ask")
    assert text.splitlines()[0] == "flowchart TD"
    assert text.count("-->") == 1 + len(REFUND["edges"])
    assert "class s1 current" in text
    assert "class" not in Graph.from_data(REFUND).mermaid().replace("classDef", "class ")
    assert 's0 -- "quote.amount &gt; 100" --> s1' in text
    assert 's1 -- "otherwise" --> s4' in text


def test_a_picture_takes_no_text_for_its_own_syntax() -> None:
    text = graph_of([{**one("a"), "name": 'x"] --> b; click a "javascript:alert(1)"\n<script>{{ y }}'}, END]).mermaid()
    line = next(line for line in text.splitlines() if "javascript" in line)
    assert line.count('"') == 2
    assert "<script>" not in line
    assert "{{" not in line


def test_a_question_that_cannot_count_as_denied_when_it_expires_is_found() -> None:
    fields = {"ok": "bool", "tone": {"choices": ["plain", "proud"]}}
    ask = {"id": "a", "type": "ask", "prompt": "?", "fields": fields, "output_key": "x", "expires_s": 5}
    with pytest.raises(InvalidInput, match=r"field 'tone' would have no value that fits .*give expired= or a default"):
        graph_of([ask, END])
    tone = {"choices": ["plain", "proud"], "default": "plain"}
    for sound in ({"expired": "fail"}, {"expires_s": None}, {"fields": {"ok": "bool", "tone": tone}}):
        assert codes(graph_of([{**ask, **sound}, END])) == []
