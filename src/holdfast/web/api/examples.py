"""Examples for the OpenAPI document: of ids in paths, and of each result."""

from __future__ import annotations

from typing import Any, Final

PATHS: Final = {
    "run_id": ("order-17", "The run, percent-encoded. For the ids `.`, `..` and `~` write `~` and the query `run`."),
    "checkpoint_id": ("2.5f6a7b8c9d", "The checkpoint, percent-encoded."),
    "gate": ("approve", "The gate, percent-encoded: its full name, or the name people see if that means one gate."),
}

_RUN: Final = {
    "run_id": "order-17",
    "workflow": "refund",
    "status": "waiting",
    "metadata": {"team": "a"},
    "created_at": "2026-11-16T09:12:30.120000Z",
    "updated_at": "2026-11-16T09:12:31.480000Z",
    "position": 4,
    "checkpoint_id": "2.5f6a7b8c9d",
    "step": 1,
    "owner": None,
    "forked_from": None,
    "cursor": "runs.17",
}
_GATE: Final = {
    "run_id": "order-17",
    "workflow": "refund",
    "gate": "approve#1",
    "name": "approve",
    "state": "open",
    "prompt": "Refund 40 EUR for A-17?",
    "answer_schema": {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {"approve": {"type": "boolean", "title": "Approve"}},
        "required": ["approve"],
        "additionalProperties": False,
    },
    "show": {"amount": 40},
    "who": ["group:finance"],
    "not_by": ["ana"],
    "approvals": 1,
    "approved": [],
    "escalations": [{"at": "2026-11-16T10:12:31.480000Z", "who": ["group:leads"], "due": False}],
    "assigned": [],
    "purpose": "ask",
    "opened_at": "2026-11-16T09:12:31.480000Z",
    "expires_at": None,
    "answered_at": None,
    "answered_by": None,
    "question": "1f0c77a2d35b9e4c08",
    "may_answer": True,
    "may_not": None,
    "cursor": "1794561151480000/17/approve#1",
}
_EFFECT: Final = {
    "key": "pay:5f0c9a3e7b1d2468#1",
    "state": "done",
    "tool": "pay",
    "target": None,
    "reversible": True,
    "result": {"receipt": "R-1"},
    "created_at": "2026-11-16T09:12:30.900000Z",
    "updated_at": "2026-11-16T09:12:31.200000Z",
    "idempotency_key": "4f6c1b2a9d8e7f60",
}
_CHECKPOINT: Final = {
    "checkpoint_id": "2.5f6a7b8c9d",
    "parent_id": "1.0a1b2c3d4e",
    "lane": "",
    "step": 1,
    "next_node": None,
    "covers": 3,
    "status": "running",
    "metadata": {},
    "created_at": "2026-11-16T09:12:31.480000Z",
    "number": 2,
}
_ROW: Final = {
    "kind": "effect",
    "name": "pay",
    "call": "pay#1",
    "depth": 0,
    "state": "done",
    "first": 2,
    "last": 3,
    "attempts": 1,
    "attempt_rows": [],
    "started_at": "2026-11-16T09:12:30.900000Z",
    "ended_at": "2026-11-16T09:12:31.200000Z",
    "duration_us": 300000,
    "text": "",
    "by": None,
    "result": {"receipt": "R-1"},
    "error": None,
    "checkpoint_id": None,
    "reason": "",
    "count": 0,
}

RESULTS: Final[dict[str, Any]] = {
    "RunPage": {"runs": [_RUN], "next": None},
    "RunDetail": {
        "run": _RUN,
        "sentence": "waiting for an answer to 'Refund 40 EUR for A-17?' (gate approve)",
        "since": "2026-11-16T09:12:31.480000Z",
        "waiting": [
            {
                "reason": "person",
                "what": "approve#1",
                "text": "Refund 40 EUR for A-17?",
                "since": "2026-11-16T09:12:31.480000Z",
                "until": None,
            }
        ],
        "gates": [_GATE],
        "next_node": None,
        "cancel_requested_by": None,
        "result": None,
        "error": None,
        "commit": "9f3c2b1a0d4e5f67",
    },
    "Journal": {
        "entries": [
            {
                "position": 1,
                "kind": "started",
                "data": {
                    "kind": "started",
                    "workflow": "refund",
                    "version": 1,
                    "args": [],
                    "kwargs": {"order": "A-17"},
                },
                "created_at": "2026-11-16T09:12:30.120000Z",
            }
        ],
        "next": 1,
    },
    "Timeline": {"run": _RUN, "rows": [_ROW], "left_out": 0, "worked_us": 300000, "idle_us": 0, "waited_us": 0},
    "CheckpointPage": {"checkpoints": [_CHECKPOINT], "next": None},
    "CheckpointState": {"checkpoint": _CHECKPOINT, "state": {"order": {"amount": 40}}},
    "Diff": {
        "a": "1.0a1b2c3d4e",
        "b": "2.5f6a7b8c9d",
        "changes": [{"op": "replace", "path": "/order/amount", "old": 30, "new": 40}],
    },
    "Ledger": {"effects": [_EFFECT]},
    "Family": {
        "branches": [
            {
                "run_id": "order-17",
                "workflow": "refund",
                "status": "waiting",
                "created_at": "2026-11-16T09:12:30.120000Z",
                "forked_from": None,
                "forked_at": None,
                "depth": 0,
                "position": 4,
            }
        ],
        "more_runs": False,
    },
    "GatePage": {"gates": [_GATE], "next": None},
    "Gate": _GATE,
    "Accepted": {"run": _RUN, "message": "asked to pause; a worker stops it before its next call"},
    "Plan": {
        "run_id": "order-17",
        "to": 1,
        "basis": "9f3c2b1a0d4e5f67",
        "undo": [
            {
                "run_id": "order-17",
                "key": "pay:5f0c9a3e7b1d2468#1",
                "tool": "pay",
                "undo": "take_back",
                "arguments": ["A-17", 40],
                "keywords": {},
                "result": {"receipt": "R-1"},
            }
        ],
        "irreversible": [],
        "in_doubt": [],
        "compensated": [],
        "detached_effects": [],
        "hidden_effects": 0,
        "calls": ["pay#1"],
        "gates": [],
        "fork_calls": ["pay#1"],
        "fork_gates": [],
        "children": [],
        "missing": [],
        "detached": [],
        "forks": [],
        "problems": [],
        "warnings": [],
    },
    "Workflows": {
        "workflows": [
            {
                "name": "refund",
                "version": 1,
                "doc": "Refund an order after an approval.",
                "input_schema": {
                    "$schema": "https://json-schema.org/draft/2020-12/schema",
                    "type": "object",
                    "properties": {"order": {"type": "string", "title": "Order"}},
                    "required": ["order"],
                    "additionalProperties": False,
                },
                "published_at": "2026-11-16T09:00:00Z",
            }
        ]
    },
    "Counts": {"runs": {"waiting": 3, "completed": 120}, "open_gates": 4, "estimated": []},
    "Me": {"name": "ben", "role": "approver", "groups": ["finance"], "workflows": ["*"]},
}
