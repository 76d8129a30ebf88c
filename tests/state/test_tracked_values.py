"""Values inside tracked states, and trees of them: plain to their users, and no change is missed."""

from __future__ import annotations

import copy
import dataclasses
import enum
import heapq
import json
import operator as typed_operator
import pickle
import random
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from holdfast.state import tracked
from holdfast.state.edit_log import EditLog
from holdfast.state.encoder import encode
from holdfast.state.rope import decode
from holdfast.state.settlement import to_tracked
from holdfast.state.tracked import TrackedDict, TrackedList
from holdfast.state.tracked_encoder import encode_tracked
from holdfast.state.values import canonical_bytes, pack
from tests.state.tracked_saves import Saves, conversation, message, plain

operator: Any = typed_operator


# --- values that are not tracked -------------------------------------------------------------------------------------


@dataclasses.dataclass
class Point:
    x: int


class Model(msgspec.Struct):
    x: list[int]


class Kind(enum.Enum):
    A = "a"


class Text(str, enum.Enum):  # noqa: UP042 - such classes exist
    A = "a"


class OwnDict(dict[str, int]):
    pass


def test_changes_inside_foreign_objects_are_found_by_their_bytes() -> None:
    point, model, own, blob, many = Point(1), Model([1]), OwnDict(a=1), bytearray(b"a"), {1, 2}
    inner: list[int] = []
    saves = Saves(conversation())
    saves.state["messages"][50]["objects"] = [point, model]
    saves.state["messages"].append(own)
    saves.state |= {"blob": blob, "set": many, "tuple": (1, inner), "kind": Kind.A, "text": (Text.A,)}
    saves.save()
    changes: list[Callable[[], object]] = [
        lambda: setattr(point, "x", 2),
        lambda: model.x.append(2),
        lambda: own.update(b=2),
        lambda: blob.extend(b"b"),
        lambda: many.add(3),
        lambda: inner.append(4),
    ]
    for change in changes:
        root = saves.save().root
        change()
        assert saves.save().root != root


def test_a_list_stays_the_callers_as_long_as_the_caller_has_it() -> None:
    saves = Saves(conversation())
    kept: list[Any] = []
    saves.state["kept"] = kept
    saves.state["messages"].append({"kept": kept})
    assert saves.state["kept"] is kept
    for number in range(3):
        saves.save()
        kept.append([number])
        assert saves.state["kept"] == kept == saves.state["messages"][-1]["kept"]
    inner = kept[0]
    saves.state["messages"].pop()
    del kept
    saves.save()
    assert isinstance(saves.state["kept"], TrackedList)
    inner.append("x")
    assert saves.load()["kept"][0] == [0, "x"]
    del inner
    saves.save()
    assert not saves.state.foreign
    saves.state["kept"][0].append("y")
    assert saves.load()["kept"][0] == [0, "x", "y"]


def test_a_new_list_is_tracked_when_it_is_read() -> None:
    state = TrackedDict[str, Any]()
    state["a"] = []
    assert type(state["a"]) is TrackedList
    new = state.setdefault("b", {})
    assert type(new) is TrackedDict
    state["c"] = [{}]
    assert type(state.get("c")) is TrackedList
    assert type(state["c"][0]) is TrackedDict
    assert state.get("d", 5) == 5


def test_a_part_that_was_foreign_is_saved_by_every_state_that_contains_it() -> None:
    """One save makes the part tracked; the other state was saved when the change could not be tracked."""
    kept = [1]
    shared = to_tracked({"log": [message(i) for i in range(99)]})
    first, second = Saves({"shared": 0, **conversation()}), Saves({"shared": 0, **conversation()})
    for saves in (first, second):
        saves.state["shared"] = shared
        saves.state["messages"].append(shared)
    shared["log"].append(kept)
    first.save()
    second.save()
    kept.append(2)
    del kept
    first.save()
    assert not shared.foreign
    assert second.load()["shared"]["log"][-1] == [1, 2]


# --- trees -----------------------------------------------------------------------------------------------------------


def test_a_part_at_two_places_is_saved_at_both() -> None:
    saves = Saves(conversation())
    part = saves.state["messages"][10]
    saves.state["messages"].append(part)
    saves.state["by_id"]["part"] = part
    saves.state["part"] = part
    saves.save()
    for number in range(2):
        part["content"] = f"edited {number}"
        found = saves.load()
        assert found["messages"][10] == found["messages"][-1] == found["by_id"]["part"] == found["part"] == part


def test_a_part_that_moved_to_another_state_is_saved_there_and_not_missed_here() -> None:
    first, second = Saves(conversation()), Saves(conversation())
    part = first.state["messages"].pop(3)
    second.state["messages"].insert(5, part)
    first.state["by_id"] = second.state["by_id"]
    for saves in (first, second):
        saves.save()
    part["content"] = "edited"
    first.state["by_id"]["m1"]["content"] = "edited"
    assert second.load()["messages"][5]["content"] == "edited"
    assert first.load()["by_id"]["m1"] == second.load()["by_id"]["m1"]


def test_a_removed_part_stays_usable_and_can_come_back() -> None:
    saves = Saves(conversation())
    part = saves.state["messages"].pop()
    saves.save()
    part["content"] = "changed outside"
    part["tags"].append(1)
    saves.save()
    saves.state["messages"].append(part)
    saves.save()
    part["tags"].append(2)
    assert saves.load()["messages"][-1] == part


def test_a_state_does_not_keep_itself_alive() -> None:
    saves = Saves(conversation())
    gone = weakref.ref(saves.state["messages"])
    del saves
    assert gone() is None, "no reference from a part to what contains it"


def test_a_state_inside_itself_is_refused_and_can_be_repaired() -> None:
    saves = Saves(conversation())
    saves.state["self"] = saves.state
    with pytest.raises(Exception, match="nested more than"):
        encode_tracked(saves.state, saves.memo)
    del saves.state["self"]
    saves.save()


# --- beside the methods ----------------------------------------------------------------------------------------------


def test_changes_by_functions_in_c_are_found_in_fields() -> None:
    saves = Saves({**conversation(), "heap": [], "queue": [], "map": TrackedDict()})
    for number in range(120):
        heapq.heappush(saves.state["heap"], (number % 7, "x" * 50, number))
        list.append(saves.state["queue"], {"number": number})
        dict.__setitem__(saves.state["map"], f"k{number}", [number])
        assert len(saves.load()["map"]) == number + 1
    for number in range(9):
        heapq.heapreplace(saves.state["heap"], (number, "y"))
        assert saves.load()["heap"] == saves.state["heap"]
    list.append(saves.state["messages"], {"by": "C"})
    saves.save()
    saves.state["messages"][-1]["by"] = "me"
    assert saves.load()["messages"][-1] == {"by": "me"}


def test_random_and_operator_functions_are_tracked() -> None:
    saves = Saves(conversation())
    random.Random(1).shuffle(saves.state["messages"])
    saves.save()
    operator.iconcat(saves.state["messages"], [1])
    operator.ior(saves.state["by_id"], {"a": 1})
    saves.save()


def test_encoders_read_a_tracked_state_like_a_plain_one() -> None:
    state, expected = to_tracked(conversation(5)), conversation(5)
    assert json.dumps(state) == json.dumps(expected)
    assert json.dumps(state, indent=1, sort_keys=True) == json.dumps(expected, indent=1, sort_keys=True)
    assert msgspec.json.encode(state) == msgspec.json.encode(expected)
    assert msgspec.msgpack.encode(state) == msgspec.msgpack.encode(expected)
    assert msgspec.convert(state, dict[str, Any]) == expected
    assert pack(state) == pack(expected)
    assert canonical_bytes(state) == canonical_bytes(expected)
    assert encode(state).root == encode(expected).root


def test_copies_are_plain_and_independent() -> None:
    state, expected = to_tracked(conversation(5)), conversation(5)
    shallow: list[Any] = [copy.copy(state), state.copy(), dict(state), state | {}, {} | state, {**state}]
    assert all(type(made) is dict and made["messages"] is state["messages"] for made in shallow)
    parts: list[Any] = [
        copy.copy(state["messages"]),
        state["messages"][:],
        state["messages"] + [],
        [] + state["messages"],
    ]
    assert all(type(made) is list and made[0] is state["messages"][0] for made in parts)
    for made in (copy.deepcopy(state), pickle.loads(pickle.dumps(state))):
        assert type(made) is dict
        assert type(made["messages"]) is list
        assert type(made["messages"][0]) is dict
        made["messages"][0]["tags"].append(1)
    assert state == expected == dict(state)
    assert expected == state
    assert repr(state) == repr(expected)
    assert isinstance(state, dict)
    assert isinstance(state["messages"], list)
    both = copy.deepcopy([state["messages"], state["messages"]])
    assert both[0] is both[1]


def test_a_subclass_is_refused() -> None:
    with pytest.raises(TypeError, match="cannot be subclassed"):
        type("Mine", (TrackedDict,), {})


# --- failures --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("record", ["add_splice", "add_key", "add_child"])
def test_a_change_that_was_interrupted_is_saved(monkeypatch: pytest.MonkeyPatch, record: str) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    def change() -> None:
        if record == "add_splice":
            saves.state["messages"].append(message(5))
        elif record == "add_key":
            saves.state["by_id"]["m5"] = message(5)
        else:
            saves.state["messages"][5]["tags"] = [5]

    saves = Saves(conversation())
    with monkeypatch.context() as patched:
        patched.setattr(EditLog, record, interrupted)
        with pytest.raises(KeyboardInterrupt):
            change()
    saves.save()
    saves.state["messages"][-1]["tags"] = [6]
    saves.save()


def test_no_change_of_another_thread_is_lost() -> None:
    saves = Saves(conversation(60))
    failures: list[BaseException] = []

    def edit(name: str) -> None:
        try:
            for number in range(300):
                saves.state["messages"].append({"by": name, "number": number})
                saves.state["messages"][number % 50][name] = number
                if number % 3 == 0:
                    saves.state["messages"].insert(1, message(number, 300))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=edit, args=(name,)) for name in ("a", "b")]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        encoded = encode_tracked(saves.state, saves.memo, saves.chunks.keys())  # type: ignore[arg-type]
        saves.chunks |= encoded.chunks
        saves.memo = encoded.memo
        decode(encoded.root, lambda names: {name: b"\x00" + saves.chunks[name] for name in names}, "it")
    assert not failures
    assert saves.load() == plain(saves.state)


def test_many_changes_of_one_turn_are_saved() -> None:
    saves, rnd = Saves(conversation(900)), random.Random(5)
    for count in (400, 1500, 3000):
        for number in range(count):
            place = rnd.randrange(len(saves.state["messages"]))
            if number % 3:
                saves.state["messages"][place] = message(number, 100)
            else:
                saves.state["messages"].insert(place, number)
            saves.state["by_id"][f"m{place}"] = number
        saves.save()


def test_plain_values_stay_as_they_are_where_references_cannot_be_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    assert tracked._count_sole() > 0
    with monkeypatch.context() as changed:
        changed.setattr(tracked, "_references", lambda *_: 2)  # references of variables are not counted
        assert tracked._count_sole() == -1
    with monkeypatch.context() as changed:
        counts = iter(range(10**6))
        changed.setattr(tracked, "_references", lambda *_: next(counts))
        assert tracked._count_sole() == -1
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: False, raising=False)
    assert tracked._count_sole() == -1
    monkeypatch.setattr(tracked, "_SOLE", -1)
    state: Any = TrackedDict()
    state["list"] = []
    assert type(state["list"]) is list
