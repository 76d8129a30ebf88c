"""States as ropes of shared chunks: equal back, small when little changed, never dependent on memory."""

from __future__ import annotations

import copy
import decimal
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.model.views import Change
from holdfast.state import compression, encoder
from holdfast.state import values as state_values
from holdfast.state.diff import diff
from holdfast.state.encoder import SPLIT_MIN, Memo, encode
from holdfast.state.rope import decode
from tests.strategies import exactly, messages, text, values


class Chunks:
    """A family's chunks: what a store would keep, with counts of what was written and read."""

    def __init__(self, split_min: int = SPLIT_MIN) -> None:
        self.split_min = split_min
        self.bodies: dict[bytes, bytes] = {}
        self.known: set[bytes] = set()
        self.memo: Memo | None = None
        self.fetched: list[bytes] = []
        self._compressor = compression.Compressor()

    def save(self, state: Any) -> tuple[bytes, int]:
        """Encode like a store does; the root, and how many plain bytes it added."""
        encoded = encode(state, self.memo, self.known, self.split_min)
        for name, plain in encoded.chunks.items():
            self.bodies[name] = self._compressor.body(plain)
        self.known |= encoded.chunks.keys()
        self.memo = encoded.memo
        return encoded.root, len(encoded.root) + sum(map(len, encoded.chunks.values()))

    def fetch(self, names: list[bytes]) -> dict[bytes, bytes]:
        self.fetched += names
        return {name: self.bodies[name] for name in names if name in self.bodies}

    def load(self, root: bytes) -> Any:
        return decode(root, self.fetch, "it")[0]


states = st.dictionaries(
    text,
    values
    | st.lists(messages, max_size=120)
    | st.dictionaries(text, messages, max_size=120)
    | st.binary(min_size=1000, max_size=5000),
    max_size=6,
)


def turned(value: Any, rnd: random.Random) -> Any:
    """The same content in a container of another kind."""
    if isinstance(value, dict):
        return list(value.values())
    if isinstance(value, list):
        return tuple(value) if rnd.random() < 0.5 else {f"k{i}": part for i, part in enumerate(value)}
    if isinstance(value, tuple):
        return list(value)
    return value


def edited(state: Any, rnd: random.Random) -> Any:
    """The state after one random change somewhere in it, made in place."""
    spots: list[Any] = [state]
    while True:
        spot = spots[-1]
        inner = [
            part
            for part in (spot.values() if isinstance(spot, dict) else spot)
            if isinstance(part, (dict, list)) and part
        ]
        if not inner or rnd.random() < 0.4:
            break
        spots.append(rnd.choice(inner))
    spot = spots[-1]
    new: Any = rnd.choice([None, 7, 1.5, "text" * rnd.randrange(40), {"k": [1, (2,)]}, b"b" * rnd.randrange(3000), []])
    if isinstance(spot, dict):
        key = rnd.choice([*spot, "new"]) if spot else "new"
        how = rnd.randrange(6)
        if how == 0 and key in spot:
            del spot[key]
        elif how == 1 and key in spot:
            spot[key] = turned(spot[key], rnd)
        elif how == 2 and key in spot:
            spot["moved"] = spot.pop(key)
        else:
            spot[key] = new
    else:
        at = rnd.randrange(len(spot) + 1)
        how = rnd.randrange(4)
        if how == 0 or at == len(spot):
            spot.insert(at, new)
        elif how == 1:
            del spot[at]
        elif how == 2:
            spot[at] = turned(spot[at], rnd)
        else:
            spot[at] = new
    return state


@pytest.mark.parametrize("split_min", [SPLIT_MIN, 512])
@settings(max_examples=60, deadline=None)
@given(state=states, rnd=st.randoms(use_true_random=False))
def test_edited_states_come_back_exactly_whatever_was_saved_before(
    split_min: int, state: dict[str, Any], rnd: random.Random
) -> None:
    chunks, saved = Chunks(split_min), []
    for _ in range(6):
        root, _ = chunks.save(state)
        saved.append((root, copy.deepcopy(state)))
        fresh = encode(state, split_min=split_min)
        assert fresh.root == root, "what a state becomes must not depend on what is remembered"
        assert fresh.chunks.keys() <= chunks.known, "and all it leads to must have been written"
        edited(state, rnd)
    for root, expected in saved:
        assert exactly(chunks.load(root)) == exactly(expected)


_MANY = {f"k{i}": {"id": i, "text": f"x{i}" * 250} for i in range(400)}
_WIDE = {f"k{i}": f"v{i}" * 2300 for i in range(40)}
_LONG = [f"w{i}" * 2300 for i in range(45)]
_IDS = [f"id-{i:06d}" for i in range(10_000)]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (_MANY, list(_MANY.values())),
        (list(_MANY.values()), _MANY),
        (_WIDE, _LONG),
        (_LONG, _WIDE),
        (tuple(_IDS), set(_IDS)),
        (set(_IDS), tuple(_IDS)),
        (tuple(_IDS), _IDS),
        (_IDS, tuple(_IDS)),
        ("x" * 100_000, b"x" * 100_000),
        (frozenset(_IDS), set(_IDS)),
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("split_min", [SPLIT_MIN, 512])
def test_a_container_that_becomes_one_of_another_kind_is_saved_as_it_is_now(old: Any, new: Any, split_min: int) -> None:
    chunks = Chunks(split_min)
    chunks.save({"items": old, "n": 1})
    root, _ = chunks.save({"items": new, "n": 2})
    assert root == encode({"items": new, "n": 2}, split_min=split_min).root
    assert exactly(chunks.load(root)) == exactly({"items": new, "n": 2})


def test_what_becomes_small_leaves_no_chunks_behind() -> None:
    chunks = Chunks()
    pad = "".join(map(str, range(1000)))
    chunks.save({"pad": pad, "field": {"a": "A" * 1500, "b": "B" * 1500}})
    small = {"pad": pad, "field": {"a": "".join(map(str, range(375))), "b": "small"}}
    assert encode(small, chunks.memo, chunks.known).chunks.keys() <= encode(small).chunks.keys()


@pytest.mark.parametrize(("old", "new"), [(-0.0, 0.0), (decimal.Decimal("1.0"), decimal.Decimal("1.00")), (1, True)])
def test_a_diff_sees_what_only_looks_equal(old: Any, new: Any) -> None:
    chunks = Chunks()
    roots = [chunks.save({"x": value, "list": [value]})[0] for value in (old, new)]
    assert [change.path for change in diff(roots[0], roots[1], chunks.fetch, "it")] == [("x",), ("list", 0)]


def test_a_diff_shows_what_was_moved_and_never_what_stands_for_it() -> None:
    chunks = Chunks()
    moved = {f"k{i}": f"v{i}" * 60 for i in range(100)}
    roots = [chunks.save(state)[0] for state in ({"a": moved}, {"b": moved}, {"a": {}, "b": moved})]
    removed, added = diff(roots[0], roots[1], chunks.fetch, "it")
    assert (removed.op, removed.path, removed.old) == ("remove", ("a",), moved)
    assert (added.op, added.path, added.new) == ("add", ("b",), moved)
    assert {change.path[0] for change in diff(roots[0], roots[2], chunks.fetch, "it")} == {"a", "b"}
    assert all(len(str(key)) < 10 for change in diff(roots[0], roots[2], chunks.fetch, "it") for key in change.path)


@settings(max_examples=40, deadline=None)
@given(states, st.randoms(use_true_random=False))
def test_a_diff_leads_from_one_state_to_the_other(state: dict[str, Any], rnd: random.Random) -> None:
    chunks = Chunks()
    old_root, _ = chunks.save(state)
    old = copy.deepcopy(state)
    for _ in range(rnd.randrange(1, 4)):
        edited(state, rnd)
    new_root, _ = chunks.save(state)
    changes = diff(old_root, new_root, chunks.fetch, "it")
    assert exactly(sort(applied(old, changes))) == exactly(sort(state))


def applied(state: Any, changes: list[Change]) -> Any:
    """The state after the changes, done one after another."""
    holder = [copy.deepcopy(state)]
    for change in changes:
        place: Any = holder
        *path, last = (0, *change.path)
        for step in path:
            place = place[step]
        if change.op == "remove":
            assert exactly(place[last]) == exactly(change.old)
            del place[last]
        elif change.op == "add" and isinstance(place, list):
            assert isinstance(last, int)
            place.insert(last, change.new)
        else:
            place[last] = change.new
    return holder[0]


def sort(value: Any) -> Any:
    """A diff says nothing about the order of keys."""
    if isinstance(value, dict):
        return {key: sort(value[key]) for key in sorted(value)}
    if isinstance(value, (list, tuple)):
        return type(value)(sort(part) for part in value)
    return value


def conversation(count: int, seed: int = 1) -> list[dict[str, Any]]:
    rnd = random.Random(seed)
    words = ["order", "invoice", "payment", "refund", "customer", "agent", "tool", "result", "weather", "plan"]
    return [
        {
            "id": f"m{i}",
            "role": "user",
            "content": " ".join(rnd.choice(words) + str(rnd.randrange(999)) for _ in range(100)),
        }
        for i in range(count)
    ]


def test_an_append_costs_what_was_appended() -> None:
    chunks = Chunks()
    state: dict[str, Any] = {"messages": [], "turn": 0}
    added, largest = 0, 0
    for turn, message in enumerate(conversation(1000)):
        state["messages"].append(message)
        state["turn"] = turn
        root, size = chunks.save(state)
        added += size
        largest = max(largest, len(root))
    raw = sum(len(m["content"]) for m in conversation(1000))
    assert added < 3 * raw, "plain bytes: each message once by itself and once in its page, and the roots"
    assert sum(map(len, chunks.bodies.values())) < 1.5 * raw
    assert largest < 2500
    assert chunks.load(root) == state


@pytest.mark.parametrize("size", [200, 2000, 8000])
@pytest.mark.parametrize("kind", ["replace", "insert", "delete"])
def test_an_edit_in_the_middle_costs_a_few_pages(size: int, kind: str) -> None:
    chunks, state = Chunks(), {"messages": conversation(size)}
    chunks.save(state)
    rnd = random.Random(3)
    costs = []
    for _ in range(10):
        at = rnd.randrange(size - 10)
        if kind == "replace":
            state["messages"][at] = {"id": "x", "content": "edited"}
        elif kind == "insert":
            state["messages"].insert(at, {"id": "x", "content": "inserted"})
        else:
            del state["messages"][at]
        root, cost = chunks.save(state)
        costs.append(cost)
        assert encode(state).root == root
    assert sorted(costs)[5] < 40_000, (
        "a page of about 12 KiB, its index nodes and the root, whatever the size of the state"
    )
    assert chunks.load(root) == state


def test_small_items_in_long_lists_and_dicts_are_cheap_too() -> None:
    for state in ({"n": list(range(50_000))}, {"d": {f"key-{i}": i for i in range(20_000)}}):
        chunks = Chunks()
        chunks.save(state)
        (container,) = state.values()
        for i in range(10):
            if isinstance(container, list):
                container.append(i)
            else:
                container[f"new-{i}"] = i
            root, cost = chunks.save(state)
            assert cost < 8_000
        assert chunks.load(root) == state


def test_many_equal_items_are_stored_once() -> None:
    chunks, state = Chunks(), {"zeros": [0] * 200_000, "same": [{"text": "same " * 100}] * 2_000}
    root, added = chunks.save(state)
    assert added < 200_000, "of 1.2 MB"
    assert chunks.load(root) == state


def test_a_large_blob_that_stays_costs_nothing_and_one_that_grows_costs_its_end() -> None:
    chunks, rnd = Chunks(), random.Random(1)
    state: dict[str, Any] = {"blob": rnd.randbytes(1_000_000), "log": "line " * 50_000, "turn": 0}
    chunks.save(state)
    state["turn"] = 1
    assert chunks.save(state)[1] < 2_000
    state["log"] += "one more line"
    root, added = chunks.save(state)
    assert added < 70_000
    assert chunks.load(root) == state


def test_nested_structures_are_cut_where_they_are_large() -> None:
    chunks = Chunks()
    state: dict[str, Any] = {
        "agents": {f"agent-{i}": {"history": conversation(60, seed=i), "name": f"a{i}"} for i in range(5)}
    }
    chunks.save(state)
    state["agents"]["agent-3"]["history"].append({"id": "x", "content": "more"})
    root, added = chunks.save(state)
    assert added < 10_000
    assert chunks.load(root) == state


def test_a_load_fetches_few_chunks_and_a_diff_only_what_differs() -> None:
    chunks = Chunks()
    state: dict[str, list[Any]] = {"messages": []}
    for message in conversation(1000):
        state["messages"].append(message)
        old, _ = chunks.save(state)
    chunks.load(old)
    assert len(chunks.fetched) < 160
    state["messages"][500] = {"id": "m500", "content": "edited"}
    new, _ = chunks.save(state)
    chunks.fetched.clear()
    (change,) = [c for c in diff(old, new, chunks.fetch, "it") if c.path[-1] == "content"]
    assert change.path == ("messages", 500, "content")
    assert len(chunks.fetched) < 12


_LARGE: dict[str, Any] = {
    "messages": {"messages": [{"role": "user", "content": f"{i} " + "word " * 40} for i in range(2_000)], "turn": 1},
    "text": {"text": "x" * 500_000},
    "many keys": {f"key {i}": "y" * 500 for i in range(1_000)},
    "a list": ["z" * 100 for _ in range(5_000)],
}


@pytest.mark.parametrize("name", _LARGE)
def test_a_first_large_state_is_packed_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    packed: list[int] = []
    packb = state_values._packb

    def counting(*args: Any) -> bytes:
        data: bytes = packb(*args)
        packed.append(len(data))
        return data

    monkeypatch.setattr(state_values, "_packb", counting)
    encoded = encode(_LARGE[name])
    assert encoded.size <= sum(packed) + 100
    assert sum(packed) < 1.01 * encoded.size


@given(state=values, split_min=st.sampled_from([512, SPLIT_MIN]))
@settings(max_examples=50, deadline=None)
def test_guessing_that_a_value_is_large_changes_nothing_but_the_work(state: Any, split_min: int) -> None:
    state = {"small": state, "list": [state] * 40, "large": {f"{i}": state for i in range(40)}, "text": "x" * 3_000}
    after = {**state, "list": [*state["list"], "one more"]}
    outcomes = []
    for guess in (encoder.looks_large, lambda value, _: type(value) in (dict, list), lambda *_: False):
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(encoder, "looks_large", guess)
            first = encode(state, split_min=split_min)
            second = encode(after, first.memo, set(first.chunks), split_min)
        outcomes.append([(each.root, each.chunks, each.linked, each.size) for each in (first, second)])
    assert outcomes[0] == outcomes[1] == outcomes[2]
