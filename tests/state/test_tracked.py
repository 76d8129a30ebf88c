"""Tracked dicts and lists: they behave like plain ones, and no change is missed."""

from __future__ import annotations

import operator as typed_operator
from collections.abc import Callable
from typing import Any

import pytest

from holdfast.state import encoder, tracked_encoder
from holdfast.state.tracked import TrackedDict, TrackedList
from holdfast.state.tracked_encoder import encode_tracked
from holdfast.state.values import pack
from tests.state.tracked_saves import Saves, conversation, message, plain

operator: Any = typed_operator

LIST_CHANGES: dict[str, list[Callable[[Any], object]]] = {
    "__setitem__": [
        lambda x: operator.setitem(x, 7, 1),
        lambda x: operator.setitem(x, -7, {"new": [1]}),
        lambda x: operator.setitem(x, slice(5, 9), [1, 2]),
        lambda x: operator.setitem(x, slice(9, 5), [1, 2]),
        lambda x: operator.setitem(x, slice(0, 30, 3), list(range(10))),
        lambda x: operator.setitem(x, slice(None), x[40:]),
        lambda x: operator.setitem(x, slice(10, 20), iter([x[1], x[1]])),
    ],
    "__delitem__": [
        lambda x: operator.delitem(x, 0),
        lambda x: operator.delitem(x, -1),
        lambda x: operator.delitem(x, slice(2, 80)),
        lambda x: operator.delitem(x, slice(1, None, 7)),
        lambda x: operator.delitem(x, slice(9, 2)),
    ],
    "append": [lambda x: x.append(message(1)), lambda x: x.append(x[3])],
    "extend": [lambda x: x.extend(message(i) for i in range(9)), lambda x: x.extend(x)],
    "insert": [lambda x: x.insert(0, 1), lambda x: x.insert(-3, message(2)), lambda x: x.insert(10**6, 3)],
    "remove": [lambda x: x.remove(x[17])],
    "pop": [lambda x: x.pop(), lambda x: x.pop(0), lambda x: x.pop(-40)],
    "clear": [lambda x: x.clear()],
    "sort": [lambda x: x.sort(key=str), lambda x: x.sort(key=str, reverse=True)],
    "reverse": [lambda x: x.reverse()],
    "__iadd__": [lambda x: operator.iadd(x, [message(1)])],
    "__imul__": [lambda x: operator.imul(x, 2), lambda x: operator.imul(x, 0)],
    "__init__": [lambda x: x.__init__([1, 2]), lambda x: x.__init__()],
}
DICT_CHANGES: dict[str, list[Callable[[Any], object]]] = {
    "__setitem__": [
        lambda x: operator.setitem(x, "m7", 1),
        lambda x: operator.setitem(x, "new", message(1)),
        lambda x: operator.setitem(x, "m1", x["m2"]),
    ],
    "__delitem__": [lambda x: operator.delitem(x, "m40"), lambda x: operator.setitem(x, "m3", x.pop("m3"))],
    "pop": [lambda x: x.pop("m0"), lambda x: x.pop("missing", None)],
    "popitem": [lambda x: x.popitem()],
    "clear": [lambda x: x.clear()],
    "update": [lambda x: x.update(m1=2, other=[3]), lambda x: x.update([("m2", 1)]), lambda x: x.update({"z": 1}, y=2)],
    "setdefault": [lambda x: x.setdefault("m1", 5), lambda x: x.setdefault("list", []).append(1)],
    "__ior__": [lambda x: operator.ior(x, {"m9": 9})],
    "__init__": [lambda x: x.__init__(m1=1)],
}
READS = {
    "__class__", "__class_getitem__", "__contains__", "__delattr__", "__dir__", "__doc__", "__eq__", "__format__",
    "__ge__", "__getattribute__", "__getitem__", "__getstate__", "__gt__", "__hash__", "__init_subclass__", "__iter__",
    "__le__", "__len__", "__lt__", "__ne__", "__new__", "__reduce__", "__reduce_ex__", "__repr__", "__reversed__",
    "__setattr__", "__sizeof__", "__str__", "__subclasshook__", "copy",
    "__add__", "__mul__", "__rmul__", "count", "index",
    "__or__", "__ror__", "fromkeys", "get", "items", "keys", "values",
}  # fmt: skip


@pytest.mark.parametrize(
    ("base", "kind", "changes"), [(list, TrackedList, LIST_CHANGES), (dict, TrackedDict, DICT_CHANGES)]
)
def test_every_method_of_a_list_or_dict_either_reads_or_is_tracked(base: type, kind: type, changes: Any) -> None:
    assert set(dir(base)) - READS == changes.keys(), "a new method must be tracked, or be known to change nothing"
    assert all(name in kind.__dict__ for name in changes)


def changed(state: dict[str, Any], name: str, change: Callable[[Any], object]) -> object:
    """What the change returned or raised."""
    try:
        return change(state[name])
    except Exception as error:
        return type(error)


@pytest.mark.parametrize("name", ["messages", "by_id"])
def test_every_change_is_saved_with_its_pages_and_those_above_only(name: str) -> None:
    for changes in (LIST_CHANGES if name == "messages" else DICT_CHANGES).values():
        for change in changes:
            saves, twin = Saves(conversation()), conversation()
            for _ in range(2):
                returned, expected = changed(saves.state, name, change), changed(twin, name, change)
                assert (returned is None) == (expected is None)
                assert plain(saves.state) == twin
                saves.save(fails=True)
                saves.save()
                saves.state["messages"].append(1)
                twin["messages"].append(1)
                saves.save()


def test_a_refused_change_raises_what_a_list_or_dict_raises() -> None:
    refused: list[Callable[[Any, Any], object]] = [
        lambda x, _: x.pop(99),
        lambda x, _: operator.setitem(x, 99, 1),
        lambda x, _: operator.setitem(x, slice(0, 4, 2), [1]),
        lambda x, _: operator.delitem(x, 99),
        lambda x, _: x.remove("missing"),
        lambda x, _: x.extend(5),
        lambda _, y: operator.delitem(y, "missing"),
        lambda _, y: y.pop("missing"),
        lambda _, y: operator.setitem(y, [], 1),
        lambda _, y: y.update(5),
        lambda _, y: TrackedDict().popitem() if isinstance(y, TrackedDict) else {}.popitem(),
    ]
    for act in refused:
        with pytest.raises(Exception) as expected:
            act([1, 2, 3, 4], {})
        with pytest.raises(expected.type):
            act(TrackedList([1, 2, 3, 4]), TrackedDict())


def count_packed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    sizes: list[int] = []

    def counted(*args: Any) -> bytes:
        data = pack(*args)
        sizes.append(len(data))
        return data

    monkeypatch.setattr(tracked_encoder, "pack", counted)
    monkeypatch.setattr(encoder, "pack", counted)
    return sizes


@pytest.mark.parametrize(
    "change",
    [
        lambda messages: messages.append(message(1)),
        lambda messages: messages[50].update(content="edited"),
        lambda messages: messages[50]["tags"].append(5),
        lambda messages: messages.insert(0, message(1)),
        lambda messages: (messages.pop(0), messages.append(message(1))),
        lambda messages: messages.__setitem__(slice(20, 22), [message(3)]),
        lambda messages: (messages[0].update(content="system"), messages.append(message(1))),
        lambda messages: (messages.pop(1), messages[70].update(content="edited")),
    ],
)
def test_a_save_of_many_messages_encodes_as_much_as_one_of_few(
    monkeypatch: pytest.MonkeyPatch, change: Callable[[Any], object]
) -> None:
    few, many = Saves({"messages": [message(i) for i in range(100)]}), Saves(conversation(5000))
    sizes = []
    packed = count_packed(monkeypatch)
    for saves in (few, many):
        change(saves.state["messages"])
        packed.clear()
        encode_tracked(saves.state, saves.memo, saves.chunks.keys())  # type: ignore[arg-type]
        sizes.append((len(packed), sum(packed)))
        saves.save()
    assert sizes[1][0] <= sizes[0][0] + 40
    assert sizes[1][1] <= sizes[0][1] + 40_000


def test_a_large_item_is_encoded_in_part_wherever_it_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    saves = Saves({"threads": [{"log": [message(i) for i in range(60)], "title": str(i)} for i in range(50)]})
    packed = count_packed(monkeypatch)
    changes: list[Callable[[Any], object]] = [lambda x: x.pop(3), lambda x: x.insert(1, 5), lambda x: x.append(6)]
    for place, change in enumerate(changes, start=20):
        change(saves.state["threads"])
        saves.state["threads"][place]["log"].append(message(1))
        packed.clear()
        encode_tracked(saves.state, saves.memo, saves.chunks.keys())  # type: ignore[arg-type]
        assert sum(packed) < 60_000
        saves.save()


def test_an_edit_anywhere_in_a_deep_tree_of_pages_is_saved() -> None:
    saves = Saves({"messages": [message(i, 400) for i in range(6000)]})
    for place in range(0, 6000, 750):
        saves.state["messages"][place]["content"] = "edited"
        saves.state["messages"].insert(place, message(place, 300))
        saves.save()
