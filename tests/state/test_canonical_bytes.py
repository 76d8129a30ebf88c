"""Likeness: equal values have equal bytes, whatever the order of their keys; made fast, and the same as made slowly."""

from __future__ import annotations

from typing import Any

from hypothesis import given

from holdfast.state.values import canonical_bytes, pack_sorted
from tests.strategies import values


@given(values)
def test_the_fast_way_gives_what_the_slow_way_gives(value: Any) -> None:
    assert canonical_bytes(value) == pack_sorted(value)


def test_the_order_of_keys_does_not_matter_at_any_depth() -> None:
    one = {"b": [{"y": 1, "x": {"d": 2, "c": 3}}], "a": ({"q": 1, "p": 2},)}
    other = {"a": ({"p": 2, "q": 1},), "b": [{"x": {"c": 3, "d": 2}, "y": 1}]}
    assert canonical_bytes(one) == canonical_bytes(other)
