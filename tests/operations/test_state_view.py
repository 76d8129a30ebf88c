"""Lazy views of states: equal to what a load returns, at the cost of what is read, and never wrong data."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import holdfast
from holdfast.clock import SystemClock
from holdfast.errors import BlockingCall, CheckpointNotFound, DamagedData, Unstorable
from holdfast.operations import state_commit
from holdfast.operations.context import StoreContext
from holdfast.operations.state_view import DictView, ListView, _copy
from holdfast.state import compression
from holdfast.state.encoder import encode
from holdfast.store.memory import MemoryStore
from tests.state.test_tracked_machine import TINY
from tests.state.tracked_saves import message
from tests.strategies import exactly


@pytest.fixture(params=["memory", "sqlite", "dir"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    with holdfast.open("memory:" if request.param == "memory" else f"{request.param}:{tmp_path / 'runs'}") as opened:
        yield opened


def view_of(store: holdfast.Store, run_id: str = "r", **choice: Any) -> Any:
    found = store.view(run_id, **choice)
    assert found is not None
    return found.state


def count_fetches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many chunks each fetch reads."""
    counts: list[int] = []
    fetch = StoreContext.fetch

    def counted(self: StoreContext, family: int) -> Any:
        real = fetch(self, family)

        def call(hashes: Sequence[bytes]) -> Any:
            counts.append(len(hashes))
            return real(list(hashes))

        return call

    monkeypatch.setattr(StoreContext, "fetch", counted)
    return counts


def test_a_read_of_a_large_state_fetches_a_few_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    with holdfast.open("memory:") as store:
        messages = [{"n": number, "text": f"message {number}"} for number in range(100_000)]
        store.save("r", {"messages": messages, "title": "long"})
        counts = count_fetches(monkeypatch)
        state = view_of(store)
        assert (len(state["messages"]), state["title"], "none" in state, list(state)) == (
            100_000,
            "long",
            False,
            ["messages", "title"],
        )
        assert sum(counts) <= 1, "the part of the state with the messages"
        assert state["messages"][-1] == messages[-1]
        assert state["messages"][50_000]["text"] == "message 50000"
        assert state["messages"][-20:] == messages[-20:]
        assert sum(counts) < 150
        counts.clear()
        assert state["messages"][-7]["n"] == 99_993
        assert counts == [], "pages that were read are kept for a while"
        assert state["messages"] == messages


def test_a_view_reads_like_the_value_and_cannot_be_changed(store: holdfast.Store) -> None:
    value: dict[str, Any] = {
        "messages": [message(number) for number in range(300)],
        "by_id": {f"m{number}": message(number) for number in range(300)},
        "small": {"list": [1, (2, [3])], "none": None},
        "text": "x" * 300_000,
        "pair": (1, ["y" * 9000] * 3),
    }
    store.save("r", value)
    store.save("r", {"later": True})
    state = view_of(store, step=1)
    assert (type(state), type(state["messages"])) == (DictView, ListView)
    assert state == value
    assert value == state
    assert state != {**value, "text": ""}
    assert state["messages"] == value["messages"]
    assert state["messages"] != value["messages"][1:]
    assert state["messages"][5:250:7] == value["messages"][5:250:7]
    assert state["messages"][250:5:-7] == value["messages"][250:5:-7]
    assert state["messages"][3:2] == []
    assert list(reversed(state["messages"])) == value["messages"][::-1]
    assert value["messages"][7] in state["messages"]
    assert state["by_id"]["m299"]["tags"] == [299]
    assert state["by_id"].get("none", 5) == 5
    assert list(state["by_id"]) == list(value["by_id"])
    assert dict(state["by_id"].items()) == value["by_id"]
    assert list(state["by_id"].values()) == list(value["by_id"].values())
    assert state["small"]["list"][1][1][0] == 3
    assert state["pair"] == value["pair"]
    with pytest.raises(TypeError):
        state["a"] = 1
    with pytest.raises(AttributeError):
        state["messages"].append(1)
    for place in (300, -301):
        with pytest.raises(IndexError, match="list index out of range"):
            state["messages"][place]
    with pytest.raises(KeyError):
        state["none"]
    whole = state.value()
    assert exactly(whole) == exactly(value)
    whole["small"]["list"].append(9)
    assert state["small"].value() == value["small"]


def test_encoders_refuse_a_view(store: holdfast.Store) -> None:
    store.save("r", {"messages": [message(number) for number in range(40)], "small": {}})
    state = view_of(store)
    for part in (state, state["messages"], state["small"], state["messages"][0]):
        for refuse in (json.dumps, msgspec.json.encode, msgspec.msgpack.encode):
            with pytest.raises(TypeError):
                refuse(part)
        with pytest.raises(Unstorable):
            store.save("other", {"part": part})
        assert json.loads(json.dumps(part.value())) == part


def test_a_state_of_any_kind_has_a_view_and_one_that_does_not_exist_has_none(store: holdfast.Store) -> None:
    value: Any
    for value in (5, "x" * 20_000, b"y" * 700_000, [], {}, [1], ("a", "b" * 9000), [[["z" * 9000]]]):
        store.save("r", value)
        assert _copy(view_of(store)) == value
        assert view_of(store) == value
    assert store.view("none") is None
    assert store.view("r", step=99) is None
    assert view_of(store, at="journal.0") == value
    with pytest.raises(holdfast.InvalidInput):
        store.view("r", step=1, at=0)


def test_a_view_of_a_removed_checkpoint_raises_and_never_returns_other_data(store: holdfast.Store) -> None:
    store.save("r", {"messages": [message(number) for number in range(400)]})
    first = view_of(store)
    assert first["messages"][0] == message(0)
    store.save("r", {"messages": [message(number) for number in range(400, 800)]})
    second = view_of(store)
    store.prune("r", holdfast.Keep(last=1))
    assert first["messages"][0] == message(0), "it was read before"
    with pytest.raises(CheckpointNotFound):
        first["messages"][300]
    assert second["messages"][300] == message(700)
    store.delete("r")
    store.save("r", {"messages": []})
    with pytest.raises(CheckpointNotFound):
        second["messages"].value()


def test_a_damaged_chunk_is_reported_when_it_is_reached() -> None:
    port = MemoryStore(SystemClock())
    store = holdfast.Store(port)
    messages = [message(number) for number in range(400)]
    store.save("r", {"messages": messages})
    real = port.chunks

    def chunks(family: int, hashes: Sequence[bytes]) -> dict[bytes, bytes]:
        found = real(family, hashes)
        pieces = {name: compression.plain(body, 10**6, "it") for name, body in found.items()}
        return {name: b"\x00" + piece.replace(b"200 200", b"201 201") for name, piece in pieces.items()}

    port.chunks = chunks  # type: ignore[method-assign]
    state = view_of(store)
    assert state["messages"][399] == messages[399]
    with pytest.raises(DamagedData, match="chunk"):
        state["messages"].value()
    found: list[Any] = []
    with pytest.raises(DamagedData):
        found.extend(item.value() for item in state["messages"])
    assert found == messages[: len(found)]
    assert len(found) <= 200


def test_a_read_is_repeated_if_the_run_was_changed_meanwhile() -> None:
    port = MemoryStore(SystemClock())
    store = holdfast.Store(port)
    messages = [message(number) for number in range(400)]
    store.save("r", {"messages": messages})
    state, real, changes = view_of(store), port.chunks, [1, 2, 3]

    def chunks(family: int, hashes: Sequence[bytes]) -> dict[bytes, bytes]:
        if not changes:
            return real(family, hashes)
        changes.pop()
        store.append("r", [{"kind": "note"}])
        return {}

    port.chunks = chunks  # type: ignore[method-assign]
    assert state["messages"][399] == messages[399]
    assert state["messages"][5].value() == messages[5]
    assert not changes


def test_async_callers_read_a_view_outside_the_loop(tmp_path: Path) -> None:
    async def main() -> None:
        store = holdfast.open(f"sqlite:{tmp_path / 'runs.db'}")
        messages = [message(number) for number in range(400)]
        await store.aio.save("r", {"messages": messages})
        found = await store.aio.view("r", step=1)
        assert found is not None
        assert found.step == 1
        assert await found.state.read(lambda state: state["messages"][-1]) == messages[-1]
        assert type(await found.state.read(lambda state: state["messages"][-2:])) is list
        assert exactly(await found.state.read(lambda state: state)) == exactly({"messages": messages})
        escaped: list[Any] = []
        await found.state.read(escaped.append)
        with pytest.raises(BlockingCall, match="view"):
            escaped[0]["messages"].value()
        assert await store.aio.view("none") is None
        await store.aio.close()

    asyncio.run(main())


leaves = st.one_of(st.none(), st.integers(), st.text("ab", max_size=150), st.binary(max_size=400), st.floats(-9, 9))
values = st.recursive(
    leaves | st.lists(st.text("xy", max_size=90), max_size=60),
    lambda inner: (
        st.lists(inner, max_size=20)
        | st.dictionaries(st.text("abcdefgh", max_size=3), inner, max_size=20)
        | st.tuples(inner, inner)
        | st.sets(st.integers(), max_size=5)
    ),
    max_leaves=60,
)


@settings(max_examples=150, deadline=None)
@given(values, st.lists(st.integers(-40, 40), max_size=4))
def test_a_view_equals_what_a_load_returns(value: Any, places: list[int]) -> None:
    with pytest.MonkeyPatch.context() as patched, holdfast.open("memory:") as store:
        for module, names in TINY.items():
            for name, number in names.items():
                patched.setattr(module, name, number)
        tracked = store.tracked("r", as_type=object)  # divides with the tiny limits
        tracked.state = value if isinstance(value, dict) else {"value": value}
        tracked.save()
        loaded: Any = store.load("r").state  # type: ignore[union-attr]
        compare(view_of(store), loaded, places)
        # as finely as the state of a LangGraph thread
        patched.setattr(state_commit, "encode", lambda value, memo, known, _: encode(value, memo, known, 60))
        store.save("fine", value)
        compare(view_of(store, "fine"), store.load("fine").state, places)  # type: ignore[union-attr]


def compare(state: Any, expected: Any, places: list[int]) -> None:
    assert state == expected
    assert exactly(_copy(state)) == exactly(expected)
    if isinstance(expected, dict):
        assert list(state) == list(expected)
        for key, part in state.items():
            compare(part, expected[key], places)
            assert state[key] == part
    elif isinstance(expected, list):
        assert len(state) == len(expected)
        assert exactly([_copy(item) for item in state]) == exactly(expected)
        for a, b in itertools.pairwise(places):
            assert state[a:b] == expected[a:b]
            assert state[a : b : a or 1] == expected[a : b : a or 1]
        for at in range(-len(expected), len(expected)):
            assert state[at] == expected[at]
        for part, item in zip(state, expected, strict=True):
            compare(part, item, places)
