"""Dry runs go the way a run would go, and say where they cannot know."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import Graph
from tests.graphs.conftest import GraphStage, edge_of

END: dict[str, Any] = {"id": "end", "type": "end", "result": "end"}


def one(stage_id: str, **values: Any) -> dict[str, Any]:
    return {"id": stage_id, "type": "set", "values": values or {"a": 1}}


def graph_of(*stages: dict[str, Any], edges: Any = None, **more: Any) -> Graph:
    ways = {} if edges is None else {"edges": [edge_of(*edge) for edge in edges]}
    return Graph.from_data({"id": "flow", "stages": [*stages, END], **ways, **more})


def loop(body: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"id": "l", "type": "loop_until", "body": body, **more}


def test_it_counts_how_often_a_stage_is_done() -> None:
    graph = graph_of(one("s"), edges=[("s", "s", ("stage.s.iteration", "lt", 3)), ("s", "end", None)])
    assert [visit.stage for visit in graph.dry_run().visits] == ["s", "s", "s", "end"]


@pytest.mark.parametrize("bound", [1, 2, 3, None])
def test_it_fails_at_the_bound_where_the_run_does(stage: GraphStage, bound: int | None) -> None:
    stages = [one("a"), one("b"), one("c")]
    stage.graph(stages, max_iterations=bound)
    dry = Graph.from_data({"id": "flow", "stages": stages, "max_iterations": bound}).dry_run()
    assert (stage.go().status(), dry.outcome) == (("failed", "fails") if bound in (1, 2) else ("completed", "ends"))


def test_many_stages_without_a_bound_come_to_their_end() -> None:
    dry = graph_of(*(one(f"s{number}") for number in range(1_100)), max_iterations=None).dry_run()
    assert (dry.outcome, len(dry.visits)) == ("ends", 1_101)


@pytest.mark.parametrize("condition", [("a", "eq", 1), ("got.x", "eq", 1)])
def test_a_circle_stops_in_time(condition: tuple[Any, ...]) -> None:
    wait = {"id": "w", "type": "wait", "event": "e", "output_key": "got"}
    edges = [("s", "w"), ("w", "s", condition), ("w", "s", condition), ("w", "end", ("nothing", "exists"))]
    dry = graph_of(one("s"), wait, edges=edges, max_iterations=10**9).dry_run()
    assert dry.outcome == "stops"
    if condition[0] == "got.x":
        assert dry.why == "it would assume the edge to 's' a second time"
        assert len(dry.visits) == 4


def test_each_way_out_of_a_stage_is_assumed_once() -> None:
    wait = {"id": "w", "type": "wait", "event": "e", "output_key": "got"}
    edges = [("w", "a", ("got", "eq", 1)), ("w", "b", ("got", "eq", 2)), ("w", "end", None), ("a", "w"), ("b", "w")]
    dry = graph_of(wait, one("a"), one("b"), edges=edges).dry_run()
    assert [visit.stage for visit in dry.visits] == ["w", "a", "w", "b", "w", "end"]
    back = graph_of(wait, one("a"), edges=[("w", "a", ("got", "eq", 1)), ("w", "w", None), ("a", "w")]).dry_run()
    assert back.outcome == "stops"
    assert [(visit.stage, visit.to) for visit in back.visits] == [
        ("w", "a"), ("a", "w"), ("w", "w"), ("w", "a"),
    ]  # fmt: skip


# --- loops -----------------------------------------------------------------------------------------------------------


def test_what_a_loop_sets_is_set_until_its_conditions_hold() -> None:
    body = {"type": "set", "values": {"a": "{{ b }}", "b": "{{ c }}"}}
    until = [{"key": "a", "value": 3}]
    end = {**END, "id": "e", "result": "{{ stage.l.iteration }} {{ a }}"}
    graph = graph_of(loop(body, until=until, max_iterations=9), end, variables={"a": 1, "b": 2, "c": 3})
    assert graph.dry_run().visits[-1].does == "ends with 2 3"


def test_a_loop_that_surely_goes_to_its_bound_is_not_satisfied() -> None:
    edges = [("l", "l", ("stage.l.satisfied", "eq", True)), ("l", "end", ("stage.l.iteration", "eq", 4))]
    body = {"type": "set", "values": {"a": 1}}
    graph = graph_of(loop(body, until=[{"key": "a", "value": 2}], max_iterations=4), edges=edges)
    dry = graph.dry_run()
    assert (dry.outcome, [visit.assumed for visit in dry.visits]) == ("ends", [False, False])


def test_a_loop_that_surely_never_ends_stops_the_walk() -> None:
    dry = graph_of(loop({"type": "set", "values": {"a": 1}}, until=[{"key": "a", "value": 2}])).dry_run()
    assert (dry.outcome, dry.why) == ("stops", "the loop 'l' does not end in 1000 iterations")


def test_how_often_a_loop_is_done_is_not_known_if_that_depends_on_a_function() -> None:
    body = {"type": "call", "function": "f", "output_key": "got"}
    graph = graph_of(loop(body, until=[{"key": "got.done", "value": True}], max_iterations=3),
                     edges=[("l", "end", ("stage.l.satisfied", "eq", True)), ("l", "l", None)])  # fmt: skip
    assert graph.dry_run().visits[0].assumed
    assert not graph.dry_run(results={"l": {"done": True}}).visits[0].assumed
    never = graph.dry_run(results={"l": {"done": False}})
    assert (never.visits[0].to, never.outcome) == ("l", "fails")


# --- what fails ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", [{"xs": None}, {"xs": 5}, {"xs": "text"}, {}])
def test_a_for_each_over_what_is_no_list_fails_as_it_does_in_a_run(stage: GraphStage, given: dict[str, Any]) -> None:
    each = {"id": "e", "type": "for_each", "items_from": "input.xs", "body": {"type": "sleep", "seconds": 0}}
    stage.graph([each, END])
    assert stage.go(**given).status() == "failed"
    dry = graph_of(each).dry_run(given)
    assert dry.outcome == "fails"
    assert dry.visits[-1].does == f"fails: {dry.why}"
    skipped = graph_of({**each, "on_failure": "skip"}, edges=[("e", "end", ("stage.e.status", "eq", "skipped"))])
    assert skipped.dry_run(given).outcome == "ends"


def test_a_for_each_knows_its_items() -> None:
    body = {"type": "call", "function": "f", "with": {"x": "{{ item.name }}"}}
    each = {"id": "e", "type": "for_each", "items_from": "input.xs", "body": body, "output_key": "out"}
    count = ("stage.e.count", "eq", 2)
    assert graph_of(each, edges=[("e", "end", count)]).dry_run({"xs": [{"name": 1}, {"name": 2}]}).outcome == "ends"
    assert graph_of(each).dry_run({"xs": [{"name": 1}, {}]}).why.startswith("the state has nothing at 'item.name'")
    assert graph_of({**each, "body": {**body, "on_failure": "skip"}}).dry_run({"xs": [{}]}).outcome == "ends"
    empty = graph_of(each, edges=[("e", "end", ("out", "eq", []))]).dry_run({"xs": []})
    assert (empty.outcome, empty.visits[0].assumed) == ("ends", False)


def test_a_condition_that_names_nothing_fails_with_what_was_walked_so_far() -> None:
    graph = graph_of(
        one("s"), one("t"), edges=[("s", "t"), ("t", "end", ("a", "eq", "{{ input.x }}")), ("t", "s", None)]
    )
    dry = graph.dry_run()
    assert dry.outcome == "fails"
    assert [visit.stage for visit in dry.visits] == ["s", "t"]
    assert dry.visits[-1].does == f"sets a=1; then it fails: {dry.why}"
    assert graph.dry_run({"x": 1}).outcome == "ends"
    none = graph_of(one("s"), edges=[("s", "end", ("a", "eq", 2))]).dry_run()
    assert (none.outcome, none.why) == ("fails", "none of its 1 edges fits the state; give one of them `default: true`")


def test_what_is_made_of_the_unknown_is_not_known() -> None:
    wait = {"id": "w", "type": "wait", "event": "e", "output_key": "got"}
    for value in ("{{ got.n }}", "about {{ got.n }}", {"deep": ["{{ got }}"]}):
        graph = graph_of(wait, one("s", x=value), edges=[("w", "s"), ("s", "end", ("x", "eq", "7")), ("s", "w", None)])
        assert graph.dry_run().visits[1].assumed, value
    into = graph_of(
        wait, one("s", **{"got.more": 1}), edges=[("w", "s"), ("s", "end", ("got.more", "eq", 1)), ("s", "w", None)]
    )
    assert into.dry_run().visits[1].assumed
    text = graph_of(wait, edges=[("w", "end", ("stage.w.status", "eq", "is {{ got }}")), ("w", "w", None)])
    assert text.dry_run().visits[0].assumed


def test_values_without_a_text_can_be_shown() -> None:
    graph = graph_of({**END, "id": "e", "result": {"data": "{{ input.data }}"}}, edges=[])
    assert graph.dry_run({"data": b"x"}).visits[-1].does == "ends with <dict>"


def test_what_is_given_too_deep_is_refused() -> None:
    deep: Any = 1
    for _ in range(3_000):
        deep = [deep]
    with pytest.raises(Exception, match="nested deeper than"):
        graph_of(one("s")).dry_run({"x": deep})
