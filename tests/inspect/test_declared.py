"""The timeline of a declared workflow: its stages, by their names."""

from __future__ import annotations

from typing import Any

import holdfast
from holdfast.inspect.timeline import folded, timeline

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
    assert [row.name for row in folded(seen.rows) if row.kind == "stage"] == ["quote", "approve"]
    assert [row.next_node for row in seen.rows if row.kind == "stage"] == ["approve", "paid"]
    assert seen.standing.next_node is None
    app.rollback("r", to="loop#1[2]/approve#1")
    app.answer("r", {"ok": False}, by="ben")
    stages = [(row.name, row.state) for row in timeline(app.store, "r").rows if row.kind == "stage"]
    assert stages == [("quote", "done"), ("approve", "taken_back"), ("approve", "done")]
    app.close()
