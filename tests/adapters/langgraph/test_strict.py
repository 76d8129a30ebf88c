"""A strict saver neither writes nor reads types that were not allowed, and imports nothing to find that out."""

from __future__ import annotations

import dataclasses
import enum
import json
import sys
from pathlib import Path
from typing import Annotated, Any, TypedDict

import ormsgpack
import pytest
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.graph import END, START, StateGraph
from langgraph.types import Send
from pydantic import BaseModel

from holdfast.adapters.langgraph import HoldfastSaver, StrictSerializer, TypeRefused, ValueUnreadable
from holdfast.errors import InvalidInput, LimitExceeded
from tests.adapters.langgraph.material import checkpoint, config, described
from tests.adapters.langgraph.sync_and_async_caller import Caller


@dataclasses.dataclass
class Order:
    """A type of the user's own."""

    number: int


class Customer(BaseModel):
    """Another one."""

    name: str


@pytest.fixture
def caller(caller: Caller) -> Caller:
    """A strict saver on one of the stores, and a way to call it."""
    caller.saver = HoldfastSaver(caller.saver.store, strict=True)
    return caller


def _foreign(code: int, *parts: Any) -> bytes:
    """Bytes that name something to import."""
    return ormsgpack.packb([1, ormsgpack.Ext(code, ormsgpack.packb(parts))])


@pytest.mark.parametrize(
    "value",
    [
        Order(1),
        [HumanMessage("m"), Order(1)],
        {"a": {"b": [Customer(name="x")]}},
        [HumanMessage("m")] * 20 + [Order(1)],
    ],
    ids=["alone", "in a list", "deep", "at the end"],
)
def test_a_type_that_is_not_allowed_is_not_written(caller: Caller, thread: str, value: Any) -> None:
    good = caller.put(config(thread), checkpoint({"a": 1}), described(), {"a": 1})
    with pytest.raises(TypeRefused, match=r"allow=\[(Order|Customer)\]") as refused:
        caller.put(good, checkpoint({"a": value}, version=2), described(), {"a": 2})
    assert refused.value.module == __name__
    with pytest.raises(TypeRefused):
        caller.put_writes(good, [("b", 1), ("a", value)], "task")
    found = caller.list(config(thread))
    assert [(one.checkpoint["channel_values"], one.pending_writes) for one in found] == [({"a": 1}, [])]


def test_a_type_that_was_allowed_comes_back(folder: Path, thread: str) -> None:
    values = {"order": Order(1), "customers": [Customer(name="x")] * 20}
    with HoldfastSaver("memory:", allow=[Order, (__name__, "Customer")]) as saver:
        saver.put(config(thread), checkpoint(values), described(), {"order": 1, "customers": 1})
        found = saver.get_tuple(config(thread))
        assert found is not None
        assert found.checkpoint["channel_values"] == values
        strict = HoldfastSaver(saver.store, strict=True)
        with pytest.raises(TypeRefused, match="Order"):
            strict.get_tuple(config(thread))
        assert found == HoldfastSaver(saver.store, serde=JsonPlusSerializer()).get_tuple(config(thread))


@pytest.mark.parametrize(
    ("body", "named"),
    [
        (_foreign(0, "os", "system", "true"), "os.system"),
        (_foreign(1, "subprocess", "run", ["true"]), "subprocess.run"),
        (_foreign(2, "antigravity", "Thing", {}), "antigravity.Thing"),
        (_foreign(3, "datetime", "datetime", "2026", "strptime"), "datetime.datetime.strptime"),
        (_foreign(4, "builtins", "eval", {}), "builtins.eval"),
        (_foreign(5, "antigravity", "Thing", {}, "model_validate_json"), "antigravity.Thing"),
        (_foreign(0, "builtins", "set", [ormsgpack.Ext(0, ormsgpack.packb(["os", "system", "true"]))]), "os.system"),
    ],
)
def test_crafted_bytes_are_refused_and_import_nothing(body: bytes, named: str) -> None:
    serde = StrictSerializer()
    serde.loads_typed(serde.dumps_typed({"when": Path("x")}))  # what it knows already must not open a way
    for read in (lambda: serde.loads_typed(("msgpack", body)), lambda: serde.check(body)):
        with pytest.raises(TypeRefused, match="allow=") as refused:
            read()
        assert f"{refused.value.module}.{refused.value.name}" == named
    assert "antigravity" not in sys.modules


@pytest.mark.parametrize(
    "data",
    [
        ("msgpack", b"\xc1"),
        ("msgpack", ormsgpack.packb(ormsgpack.Ext(99, b"\x90"))),
        ("msgpack", _foreign(2, "langgraph.types", "Send", {"wrong": 1})),
        ("msgpack", _foreign(0, "uuid", "UUID", "no uuid")),
        ("msgpack", _foreign(0, "uuid")),
        ("pickle", b"\x80\x04N."),
        ("other", b""),
    ],
)
def test_what_cannot_be_read_is_an_error_and_not_something_else(data: tuple[str, bytes]) -> None:
    with pytest.raises(ValueUnreadable):
        StrictSerializer().loads_typed(data)


def test_the_older_json_format_is_strict_too() -> None:
    serde = StrictSerializer()
    known = b'{"lc": 2, "type": "constructor", "id": ["uuid", "UUID"], "kwargs": {"int": 7}}'
    assert serde.loads_typed(("json", known)).int == 7
    with pytest.raises(TypeRefused, match="system"):
        serde.loads_typed(("json", known.replace(b'"uuid", "UUID"', b'"os", "system"')))


def test_the_bytes_are_langgraphs_own() -> None:
    values = [HumanMessage("m", id="1"), {"a": {1, 2}}, Path("a/b"), None, b"x"]
    for value in values:
        assert StrictSerializer().dumps_typed(value) == JsonPlusSerializer().dumps_typed(value)
        data = JsonPlusSerializer().dumps_typed(value)
        assert StrictSerializer().loads_typed(data) == JsonPlusSerializer().loads_typed(data)


def test_a_graph_raises_if_a_node_returns_a_refused_type(caller: Caller, thread: str) -> None:
    class State(TypedDict):
        order: Annotated[Any, lambda _old, new: new]

    graph = StateGraph(State)
    graph.add_node("make", lambda _: {"order": Order(1)})
    graph.add_edge(START, "make")
    graph.add_edge("make", END)
    with pytest.raises(TypeRefused, match="allow="):
        caller.run(graph.compile(checkpointer=caller.saver), {"order": None}, config(thread))
    allowed = HoldfastSaver(caller.saver.store, allow=[Order])
    assert caller.run(graph.compile(checkpointer=allowed), {"order": None}, config(thread)) == {"order": Order(1)}


def test_the_allowlist_langgraph_derives_is_added_to_ours() -> None:
    saver = HoldfastSaver("memory:", allow=[Order])
    more = saver.with_allowlist([(__name__, "Customer")])
    assert more is not saver
    for value in (Order(1), Customer(name="x")):
        assert more.serde.loads_typed(more.serde.dumps_typed(value)) == value
    with pytest.raises(TypeRefused):
        saver.serde.loads_typed(saver.serde.dumps_typed(Customer(name="x")))


def test_what_else_a_checkpoint_has_is_checked_too(caller: Caller, thread: str) -> None:
    with pytest.raises(TypeRefused, match="Order"):
        caller.put(config(thread), checkpoint({}, pending_sends=[Send("node", Order(1))]), described(), {})
    with pytest.raises(LimitExceeded, match="without its values"):
        caller.put(config(thread), checkpoint({}, something_new=b"x" * 17 * 2**20), described(), {})
    assert caller.get_tuple(config(thread)) is None
    large = checkpoint({}, something_new=b"x" * 15 * 2**20)
    caller.put(config(thread), large, described(), {})
    assert caller.get_tuple(config(thread)).checkpoint == large


@pytest.mark.parametrize("wrong", [Order, "shop.Order", ["shop.Order"], [("shop", "models", "Order")], [7]])
def test_only_types_and_their_names_can_be_allowed(wrong: Any) -> None:
    with pytest.raises(InvalidInput, match="allow"):
        HoldfastSaver("memory:", allow=wrong)


@pytest.mark.parametrize("wrong", [None, 7, Path("agent.db"), b"memory:"])
def test_a_saver_needs_a_store_or_a_url(wrong: Any) -> None:
    with pytest.raises(InvalidInput, match="store or its URL"):
        HoldfastSaver(wrong)


@pytest.mark.parametrize("how", [{"allow": [Order]}, {"strict": True}])
def test_strict_and_a_serde_exclude_each_other(how: Any) -> None:
    with pytest.raises(InvalidInput, match="strict= and allow="):
        HoldfastSaver("memory:", serde=JsonPlusSerializer(), **how)


class Odd(enum.Enum):
    """A type whose values do not come back."""

    PAIR = (1, 2)


def test_what_could_not_be_read_is_not_written_even_if_it_is_allowed(caller: Caller, thread: str) -> None:
    @dataclasses.dataclass
    class Local:
        number: int

    saver = HoldfastSaver(caller.saver.store, allow=[Odd, Local])
    for value in (Odd.PAIR, Local(1)):
        with pytest.raises(ValueUnreadable):
            saver.put(config(thread), checkpoint({"a": [value]}), described(), {"a": 1})
    assert saver.get_tuple(config(thread)) is None


@pytest.mark.parametrize(
    "value",
    [
        {"lc": 1, "type": "constructor", "id": ["langchain", "prompts", "prompt", "PromptTemplate"], "kwargs": {}},
        {"lc": 1, "type": "constructor", "id": ["langchain_core", "runnables", "base", "RunnableSequence"]},
        {"lc": 2, "type": "constructor", "id": ["os", "system"], "args": ["true"]},
    ],
)
def test_the_older_json_format_imports_nothing_unknown(value: Any) -> None:
    before = set(sys.modules)
    with pytest.raises(TypeRefused):
        StrictSerializer().loads_typed(("json", json.dumps(value).encode()))
    assert set(sys.modules) == before


def test_messages_of_the_older_json_format_are_messages() -> None:
    named = ["langchain", "schema", "messages", "HumanMessage"]
    stored = {"lc": 1, "type": "constructor", "id": named, "kwargs": {"content": "hi", "type": "human"}}
    assert StrictSerializer().loads_typed(("json", json.dumps(stored).encode())) == HumanMessage("hi")
    allowed = {"lc": 2, "type": "constructor", "id": [*__name__.split("."), "Order"], "kwargs": {"number": 1}}
    assert StrictSerializer([Order]).loads_typed(("json", json.dumps(allowed).encode())) == Order(1)


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b'{"lc": 2, "type": "constructor", "id": "os.system"}',
        b'{"lc": 2, "type": "constructor", "id": ["uuid", "UUID"], "args": ["no"]}',
    ],
)
def test_damaged_values_of_the_older_json_format_are_errors(body: bytes) -> None:
    with pytest.raises(ValueUnreadable):
        StrictSerializer().loads_typed(("json", body))
