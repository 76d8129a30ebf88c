"""The timeline of a declared workflow: its stages, by their names."""

from __future__ import annotations

from typing import Any

import pytest

import holdfast
from holdfast.inspect.calls import fold_stages
from holdfast.inspect.timeline import fold_turns, timeline

REFUND: dict[str, Any] = {
    "id": "refund",
    "input": {"order": "text"},
    "stages": [
        {"id": "quote", "type": "call", "function": "price", "with": {"order": "{{ input.order }}"}, "output_key": "q"},
        {"id": "approve", "type": "ask", "prompt": "Refund {{ q }}?", "fields": {"ok": "bool"}, "output_key": "a"},
        {"id": "paid", "type": "end", "result": "{{ q }}"},
        {"id": "denied", "type": "end", "result": "denied"},
    ],
    "edges": [
        {"from": "quote", "to": "approve"},
        {"from": "approve", "to": "paid", "conditions": [{"key": "a.ok", "value": True}]},
        {"from": "approve", "to": "denied", "default": True},
    ],
}


def test_stages_are_rows_of_their_own_and_are_not_folded() -> None:
    app = holdfast.App("memory:")

    @app.function
    def price(order: str) -> int:
        return 40

    app.graph(REFUND)
    app.start("refund", {"order": "A-17"}, run_id="r")
    seen = timeline(app.store, "r")
    assert [(row.kind, row.name, row.state) for row in seen.rows if row.kind != "gap"] == [
        ("started", "refund", "done"),
        ("loop", "loop", "waiting"),
        ("stage", "quote", "done"),
        ("step", "quote", "done"),
        ("ask", "approve", "waiting"),
    ]
    assert seen.standing.next_node == "approve"
    assert seen.standing.sentence.startswith("waiting for an answer to 'Refund 40?'")
    app.answer("r", {"ok": True}, by="ana")
    seen = timeline(app.store, "r")
    assert [row.name for row in fold_turns(seen.rows) if row.kind == "stage"] == ["quote", "approve"]
    assert [row.next_node for row in seen.rows if row.kind == "stage"] == ["approve", "paid"]
    assert seen.standing.next_node is None
    app.rollback("r", to="loop#1[2]/approve#1")
    app.answer("r", {"ok": False}, by="ben")
    stages = [(row.name, row.state) for row in timeline(app.store, "r").rows if row.kind == "stage"]
    assert stages == [("quote", "done"), ("approve", "taken_back"), ("approve", "done")]
    app.close()


@pytest.mark.parametrize("is_last", [True, False])
@pytest.mark.parametrize(("limit", "state"), [(3, "done"), (2, "unsatisfied")])
def test_a_loop_that_ended_without_its_condition_being_met_is_not_shown_as_done(
    is_last: bool, limit: int, state: str
) -> None:
    app = holdfast.App("memory:")
    counted: list[int] = []

    @app.function
    def count() -> int:
        counted.append(1)
        return len(counted)

    body = {"type": "call", "function": "count", "output_key": "n"}
    until = [{"key": "n", "operator": "gte", "value": 3}]
    loop = {"id": "again", "type": "loop_until", "body": body, "until": until, "max_iterations": limit}
    end = [] if is_last else [{"id": "end", "type": "end", "result": "{{ n }}"}]
    app.graph({"id": "counting", "stages": [loop, *end]})
    app.start("counting", {}, run_id="r").result()
    seen = timeline(app.store, "r").rows
    assert {row.state for row in seen if row.kind == "stage" and row.name == "again"} == {"done", state}
    rows = fold_stages(seen)
    last = [row for row in rows if row.name == "again"][-2:]
    assert [row.state for row in last] == (["done", "done"] if state == "done" else [state, "done"])


def test_a_loop_without_a_condition_is_done_when_it_was_done_as_often_as_it_says() -> None:
    app = holdfast.App("memory:")
    loop = {"id": "again", "type": "loop_until", "body": {"type": "set", "values": {"n": 1}}, "max_iterations": 2}
    app.graph({"id": "counting", "stages": [loop, {"id": "end", "type": "end"}]})
    app.start("counting", {}, run_id="r").result()
    assert {row.state for row in timeline(app.store, "r").rows if row.kind == "stage"} == {"done"}
