"""Verification, dry runs and pictures: what can be known of a definition without running it."""

from __future__ import annotations

from typing import Any

import pytest

import holdfast
from holdfast import Graph, InvalidInput
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
    assert str(finding) == "error: stage 'sub': in its graph, stage 'a': nobody writes 'nothing'"
    assert finding.path == ("stages", 0, "graph", "stages", 0, "values")


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
    with pytest.raises(InvalidInput, match="no stage 'prize'"):
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
