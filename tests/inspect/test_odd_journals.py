"""Journals that no engine wrote, but that look as if one had: looking at them never fails."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import holdfast
from holdfast.inspect.calls import FACTS, KINDS
from holdfast.inspect.timeline import fold_turns, timeline
from holdfast.inspect.views import as_data

ODD = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=5), st.lists(st.integers(0, 9), max_size=3), st.just({"type": 1, "message": ["x"]}), st.just({}),
    st.sampled_from(["a#1", "loop#1", "loop#1[1]", "loop#1[2]/x", "[", "…abc"]),
)  # fmt: skip
FIELDS = (
    "call", "in", "name", "key", "us", "attempts", "error", "result", "due_us", "gate", "prompt", "answer", "by",
    "at_us", "event", "value", "child", "workflow", "detached", "count", "loop", "turn", "to", "void", "undo",
    "message", "level", "doubt", "how", "timer", "expired", "failed", "number", "data", "from", "left",
)  # fmt: skip
MORE = ("turn", "log", "rolling_back", "undoing", "undone", "undo_failed", "rolled_back", "forked", "mine")
KIND = st.sampled_from(sorted({*KINDS, *FACTS, *MORE} - {"pruned"}))
ENTRY = st.builds(
    lambda kind, fields: {**fields, "kind": kind}, KIND, st.dictionaries(st.sampled_from(FIELDS), ODD, max_size=8)
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(ENTRY, max_size=12))
def test_a_timeline_of_anything_can_be_made(entries: list[dict[str, Any]]) -> None:
    with holdfast.open("memory:") as store:
        store.append("r", [{"kind": "started", "args": 1, "version": None, "workflow": []}, *entries])
        seen = timeline(store, "r")
        assert len({row.first for row in seen.rows}) >= 1
        assert len(fold_turns(seen.rows)) <= len(seen.rows)
        json.dumps(as_data(seen), allow_nan=False)
        told = {at for row in seen.rows for at in range(row.first, row.last + 1)}
        assert told >= set(range(1, len(entries) + 2)), "every entry is part of some row"
