"""Splitting and joining a serialised value yields the same bytes."""

from __future__ import annotations

from typing import Any

import ormsgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from holdfast.adapters.langgraph.serde import cut, join

_atoms = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text() | st.binary(max_size=900)
)
_ext = st.builds(ormsgpack.Ext, st.integers(0, 127), st.binary(max_size=12_000))
_values = st.recursive(
    _atoms | _ext,
    lambda inner: st.lists(inner, max_size=40) | st.dictionaries(st.text() | st.integers(-9, 9), inner, max_size=40),
    max_leaves=60,
)


@settings(max_examples=300)
@given(_values)
def test_any_value_is_joined_again(value: Any) -> None:
    data = ormsgpack.packb(value, option=ormsgpack.OPT_NON_STR_KEYS)
    assert join(cut(data)) == data


@given(st.binary(max_size=4000))
def test_bytes_that_are_not_a_value_are_not_split(data: bytes) -> None:
    assert join(cut(data)) == data


def test_a_conversation_is_cut_into_its_messages() -> None:
    messages = [HumanMessage("a" * 400, id=str(n)) for n in range(20)]
    pieces = cut(JsonPlusSerializer().dumps_typed(messages)[1])
    assert isinstance(pieces, list)
    assert len(pieces) == 20
    assert all(type(piece) is bytes for piece in pieces)


def test_a_snapshot_of_a_conversation_is_cut_too() -> None:
    messages = [AIMessage("b" * 700, id=str(n)) for n in range(30)]
    piece = cut(JsonPlusSerializer().dumps_typed(_DeltaSnapshot(messages))[1])
    assert isinstance(piece, dict)
    assert len(piece["d"]) == 30


@pytest.mark.parametrize("value", [[0.5] * 2000, list(range(5000)), "x" * 5000, {1: "a" * 600, 2: "b"}])
def test_a_vector_and_the_like_stay_whole(value: Any) -> None:
    assert type(cut(ormsgpack.packb(value, option=ormsgpack.OPT_NON_STR_KEYS))) is bytes
