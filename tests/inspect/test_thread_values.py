"""Values of LangGraph threads for people: readable, without importing anything, whatever the bytes are."""

from __future__ import annotations

import datetime as dt
import decimal
import enum
import json
import pathlib
import sys
import uuid
from collections import deque
from dataclasses import dataclass
from typing import Any, NamedTuple

import ormsgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.types import Interrupt, Send
from pydantic import BaseModel, SecretStr

from holdfast.adapters.langgraph.serde import cut
from holdfast.inspect.threads import readable_value
from holdfast.limits import DEPTH_MAX
from holdfast.state.diff import compare
from holdfast.state.json_preview import to_jsonable


class Colour(enum.Enum):
    RED = "red"


class Order(BaseModel):
    order: str
    type: str = "refund"
    secret: SecretStr = SecretStr("hidden")


@dataclass
class Point:
    x: int
    y: Any


class Pair(NamedTuple):
    one: int
    two: str


_HERE = __name__


@pytest.mark.parametrize(("value", "expected"), [
    ({"a": [1, 2.5, None, True, "x"]}, {"a": [1, 2.5, None, True, "x"]}),
    ({1: "a", (2, 3): "b"}, {"1": "a", "(2, 3)": "b"}),
    (HumanMessage("hi", id="1"), {"$type": "HumanMessage", "content": "hi", "id": "1"}),
    (AIMessage("", id="2", tool_calls=[{"name": "f", "args": {"x": 1}, "id": "t", "type": "tool_call"}]),
     {"$type": "AIMessage", "content": "", "id": "2",
      "tool_calls": [{"name": "f", "args": {"x": 1}, "id": "t", "type": "tool_call"}]}),
    (ToolMessage("42", tool_call_id="t", id="3"),
     {"$type": "ToolMessage", "content": "42", "id": "3", "tool_call_id": "t", "status": "success"}),
    (Point(1, Point(2, "z")), {"$type": f"{_HERE}.Point", "x": 1, "y": {"$type": f"{_HERE}.Point", "x": 2, "y": "z"}}),
    (Pair(1, "b"), {"$type": f"{_HERE}.Pair", "one": 1, "two": "b"}),
    (Colour.RED, {"$type": f"{_HERE}.Colour", "value": "red"}),
    (Order(order="A"), {"$type": f"{_HERE}.Order", "order": "A", "type": "refund",
                        "secret": {"$type": "pydantic.types.SecretStr"}}),
    ({1, 2}, {"$set": [1, 2]}),
    (deque([1]), {"$deque": [1]}),
    (uuid.UUID(int=7), {"$uuid": "00000000-0000-0000-0000-000000000007"}),
    (decimal.Decimal("1.50"), {"$decimal": "1.50"}),
    (dt.datetime(2026, 1, 2, 3, tzinfo=dt.UTC), {"$datetime": "2026-01-02T03:00:00+00:00"}),
    (dt.date(2026, 1, 2), {"$date": "2026-01-02"}),
    (dt.timedelta(days=1, seconds=10), {"$timedelta": "1 day, 0:00:10"}),
    (pathlib.Path("/a/b"), {"$path": "/a/b"}),
    (Send("node", {"x": 1}), {"$type": "Send", "node": "node", "arg": {"x": 1}}),
    (Interrupt(value="sure?", id="i"), {"$type": "Interrupt", "value": "sure?", "id": "i", "response_schema": None}),
    (_DeltaSnapshot([HumanMessage("hi", id="1")]), [{"$type": "HumanMessage", "content": "hi", "id": "1"}]),
    (b"\x00\xff", b"\x00\xff"),
])  # fmt: skip
def test_values_are_shown_as_what_they_are(value: Any, expected: Any) -> None:
    kind, body = JsonPlusSerializer().dumps_typed(value)
    stored = body if kind == "msgpack" else {"t": kind, "d": body}
    assert readable_value(stored) == expected


def test_a_value_in_pieces_is_shown_like_a_whole_one() -> None:
    value = {"messages": [HumanMessage("word " * 50, id=str(n)) for n in range(40)], "x": {"y": ["z" * 400] * 9}}
    for each in (value, _DeltaSnapshot(value)):
        body = JsonPlusSerializer().dumps_typed(each)[1]
        piece = cut(body)
        assert piece != body
        assert readable_value(piece) == readable_value(body)


@pytest.mark.parametrize(("stored", "expected"), [
    (None, None),
    ({"t": "pickle", "d": b"cos\nsystem\n"}, {"$unreadable": "pickle of 11 bytes"}),
    ({"t": "msgpack+aes", "d": b"..."}, {"$unreadable": "msgpack+aes of 3 bytes"}),
    ({"t": "json", "d": b'{"a": 1}'}, {"a": 1}),
    ({"t": "json", "d": b"[NaN, 1e999, -1e999]"}, [{"$float": "NaN"}, {"$float": "Infinity"}, {"$float": "-Infinity"}]),
    ({"t": "json", "d": rb'{"\ud800": "\ud83d\ude00 \udc00"}'}, {"\\ud800": "\U0001f600 \\udc00"}),
    (ormsgpack.packb([float("inf")]), [{"$float": "Infinity"}]),
    ({"t": "json", "d": b"{"}, {"$unreadable": "damaged JSON of 1 bytes"}),
    (b"\xc1", {"$unreadable": "damaged MessagePack of 1 bytes"}),
    (b"", {"$unreadable": "damaged MessagePack of 0 bytes"}),
    (b"\xdd\xff\xff\xff\xff", {"$unreadable": "damaged MessagePack of 5 bytes"}),
    (ormsgpack.packb(ormsgpack.Ext(99, b"\xc0")), {"$unreadable": "an extension of code 99"}),
    (ormsgpack.packb(ormsgpack.Ext(2, ormsgpack.packb([1, 2, 3]))), {"$unreadable": "an extension of code 2"}),
    ({"x": "y"}, {"$unreadable": "None of 0 bytes"}),
])  # fmt: skip
def test_what_cannot_be_read_says_what_it_is(stored: Any, expected: Any) -> None:
    assert readable_value(stored) == expected


def test_deeply_nested_bytes_are_not_followed_for_ever() -> None:
    body = b"\xc0"
    piece: Any = None
    for _ in range(3_000):
        body = ormsgpack.packb(ormsgpack.Ext(7, body))
        piece = [piece]
    assert readable_value(body) == {"$unreadable": "too deeply nested"}
    assert "too deeply nested" in json.dumps(readable_value(piece))


@pytest.mark.parametrize("depth", [300, 900, 100_000])
def test_a_value_is_shown_as_deep_as_holdfast_stores_one(depth: int) -> None:
    bodies = [{"t": "json", "d": b"[" * depth + b"]" * depth}, b"\x91" * depth + b"\x90"]
    bodies += [{"t": "json", "d": b'{"a":' * depth + b"1" + b"}" * depth}]
    for body in bodies:
        found = readable_value(body)
        assert "$unreadable" in json.dumps(to_jsonable(found), indent=2)
        assert compare(found, None)
    whole = readable_value({"t": "json", "d": b"[" * DEPTH_MAX + b"]" * DEPTH_MAX})
    assert json.dumps(whole) == "[" * DEPTH_MAX + "]" * DEPTH_MAX


def test_no_class_is_imported_for_what_a_value_names() -> None:
    named = ormsgpack.packb(ormsgpack.Ext(0, ormsgpack.packb(["antigravity", "geohash", "x"])))
    assert readable_value(named) == {"$type": "antigravity.geohash", "value": "x"}
    assert "antigravity" not in sys.modules


_pieces = st.recursive(
    st.none() | st.binary(max_size=40) | st.text(max_size=5) | st.integers(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["m", "x", "d", "t", "k"]), inner),
)


@given(_pieces)
def test_any_stored_bytes_are_shown_as_something_that_json_can_say(stored: Any) -> None:
    json.dumps(to_jsonable(readable_value(stored)), ensure_ascii=False, allow_nan=False).encode()
