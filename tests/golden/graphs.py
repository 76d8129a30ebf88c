"""The declared workflows whose runs are in the golden stores. As with `flows`, existing ones must not change."""

from __future__ import annotations

from typing import Any, Final

_INNER: Final[dict[str, Any]] = {
    "id": "inner",
    "stages": [
        {"type": "ask", "id": "inside", "prompt": "Inside {{ input.order }}?", "fields": {"ok": "bool"},
         "output_key": "inside"},
        {"type": "end", "id": "end", "result": "{{ inside.ok }}"},
    ],
}  # fmt: skip

_ORDER: Final[dict[str, Any]] = {
    "id": "order",
    "name": "An order",
    "description": "Every kind of stage",
    "start": "begin",
    "goal": "show {{ input.order }}",
    "max_iterations": 50,
    "metadata": {"team": "a"},
    "variables": {"words": ["a", "bb", "ccc"], "count": 0},
    "input": {"order": "text", "amount": {"type": "int", "minimum": 1, "default": 3}},
    "stages": [
        {"type": "set", "id": "begin", "name": "Begin", "values": {"order.id": "{{ input.order }}"}},
        {"type": "call", "id": "price", "function": "price", "with": {"order": "{{ order.id }}"},
         "output_key": "quote.net", "retry": {"attempts": 2, "first_s": 1.0, "factor": 1.5, "longest_s": 2.0,
         "jitter": 0.1}, "timeout_s": 60.0, "on_failure": "retry"},
        {"type": "for_each", "id": "sizes", "items_from": "words", "max_concurrent": 2, "output_key": "sizes",
         "body": {"type": "call", "function": "size", "with": {"item": "{{ item }}"}, "on_failure": "skip"}},
        {"type": "loop_until", "id": "again", "max_iterations": 2, "until": [{"key": "never", "operator": "exists"}],
         "body": {"type": "call", "function": "size", "with": {"item": "xyz"}, "output_key": "count"}},
        {"type": "effect", "id": "pay", "function": "charge", "with": {"order": "{{ order.id }}",
         "amount": "{{ input.amount }}"}, "output_key": "receipt", "compensation": "refund", "check": "was_charged",
         "in_doubt": "ask", "key": "pay {{ order.id }}"},
        {"type": "sub_workflow", "id": "nested", "graph": _INNER, "with": {"order": "{{ order.id }}"},
         "output_key": "nested"},
        {"type": "sub_workflow", "id": "named", "workflow": "small", "with": {"name": "child"}, "output_key": "named"},
        {"type": "wait", "id": "shipped", "event": "shipped-{{ order.id }}", "timeout_s": 7200.0, "default": "late",
         "output_key": "parcel"},
        {"type": "sleep", "id": "rest", "seconds": 3600.0},
        {"type": "ask", "id": "approve", "prompt": "Approve {{ quote.net }}?", "output_key": "approval",
         "fields": {"ok": {"type": "bool", "label": "Good?", "help": "Look twice"}, "why": "long_text"},
         "show": {"receipt": "{{ receipt }}"}, "who": ["ana"], "expires_s": 360000.0, "expired": "deny",
         "breakpoint": "look before it asks"},
        {"type": "end", "id": "good", "result": {"receipt": "{{ receipt }}", "nested": "{{ nested }}"}},
        {"type": "end", "id": "bad", "failed": "{{ order.id }} was denied"},
    ],
    "edges": [
        {"from": "begin", "to": "price"},
        {"from": "price", "to": "sizes", "priority": 2, "label": "dear", "conditions": [
            {"all": [{"key": "quote.net", "operator": "gt", "value": 0}, {"any": [
                {"key": "stage.price.succeeded", "operator": "eq", "value": True},
                {"key": "words", "operator": "contains", "value": "a"}]}], "description": "it has a price"}]},
        {"from": "price", "to": "bad", "default": True},
        {"from": "sizes", "to": "again"},
        {"from": "again", "to": "pay"},
        {"from": "pay", "to": "nested"},
        {"from": "nested", "to": "named"},
        {"from": "named", "to": "shipped"},
        {"from": "shipped", "to": "rest"},
        {"from": "rest", "to": "approve"},
        {"from": "approve", "to": "good", "conditions": [{"key": "approval.ok", "value": True}]},
        {"from": "approve", "to": "bad", "default": True},
    ],
}  # fmt: skip

_COMPENSATED: Final[dict[str, Any]] = {
    "id": "compensated",
    "stages": [
        {"type": "effect", "id": "one", "function": "charge", "with": {"order": "one", "amount": 1},
         "compensation": "refund"},
        {"type": "effect", "id": "two", "function": "charge", "with": {"order": "two", "amount": 2},
         "compensation": "refuse"},
        {"type": "effect", "id": "three", "function": "charge", "with": {"order": "three", "amount": 3}},
        {"type": "call", "id": "fail", "function": "fail", "with": {"reason": "on purpose"},
         "on_failure": "compensate"},
    ],
}  # fmt: skip

_WAITING: Final[dict[str, Any]] = {
    "id": "waiting",
    "stages": [{"type": "wait", "id": "event", "event": "go", "output_key": "event"}],
}

GRAPHS: Final[dict[str, dict[str, Any]]] = {
    graph["id"]: graph for graph in (_ORDER, _COMPENSATED, _WAITING)
}  # fmt: skip
