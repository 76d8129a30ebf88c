"""Random changes of a tracked state and of a plain twin: what is saved and loaded is always equal.

The pages are tiny, so a few dozen items make a deep tree.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from holdfast.operations.state_commit import SavedAs
from holdfast.operations.tracked_state import replace_content
from holdfast.state import chunker, encoder, loaded_memo, tracked_encoder
from holdfast.state.encoder import encode
from holdfast.state.loaded_memo import memo_of_loaded
from holdfast.state.rope import Outline, decode
from holdfast.state.settlement import to_tracked
from holdfast.state.tracked import TrackedDict
from holdfast.state.tracked_encoder import TrackedPart, encode_tracked
from tests.state.tracked_saves import plain
from tests.strategies import exactly

TINY: dict[Any, dict[str, int]] = {
    chunker: {"LEAF": 8, "LEAF_MIN": 8, "LEAF_MAX": 40, "PAGE": 16, "PAGE_MIN": 16, "PAGE_MAX": 200}
    | {"FANOUT": 2, "FANOUT_MIN": 2, "FANOUT_MAX": 5},
    encoder: {
        "SPLIT_MIN": 100,
        "ITEM_SPLIT_MIN": 120,
        "LITERAL_MAX": 20,
        "EMBED_MAX": 60,
        "BLOB": 300,
        "FIELDS_MAX": 6,
    },
    loaded_memo: {"SPLIT_MIN": 100, "ITEM_SPLIT_MIN": 120, "LITERAL_MAX": 20, "EMBED_MAX": 60, "FIELDS_MAX": 6}
    | {"FANOUT_MAX": 5},
    tracked_encoder: {"SPLIT_MIN": 100, "ITEM_SPLIT_MIN": 120, "LITERAL_MAX": 20, "EMBED_MAX": 60, "FIELDS_MAX": 6}
    | {"_COMPARED_MAX": 100, "_SNAPSHOT_MAX": 30},
}
_SPLIT_MIN = 100
Pair = tuple[Any, Any]
"""A value of the tracked state, and its twin."""

numbers = st.integers(0, 10**6)
new_values = st.one_of(
    st.integers(0, 3),
    st.text("ab", max_size=200),
    st.builds(lambda words: [{"text": word} for word in words], st.lists(st.text("xyz", max_size=30), max_size=30)),
    st.dictionaries(st.text("abcdefgh", max_size=2), st.text("xy", max_size=40) | st.lists(st.integers(), max_size=4)),
    st.sets(st.integers(0, 9), max_size=3),
    st.tuples(st.integers(), st.lists(st.integers(), max_size=2)),
)
LIST_CHANGES: list[Callable[[list[Any], int, int, Any], object]] = [
    lambda x, i, _, v: x.append(v),
    lambda x, i, _, v: x.insert(i % (len(x) + 1), v),
    lambda x, i, _, v: x.__setitem__(i % len(x), v),
    lambda x, i, *_: x.pop(i % len(x)),
    lambda x, i, j, v: x.__setitem__(slice(i % (len(x) + 1), j % (len(x) + 1)), [v, j]),
    lambda x, i, j, _: x.__delitem__(slice(i % (len(x) + 1), i % (len(x) + 1) + j % 20)),
    lambda x, i, j, _: x.__delitem__(slice(i % (len(x) + 1), None, 1 + j % 7)),
    lambda x, i, j, v: x.extend([v, i, j] * (j % 9)),
    lambda x, i, *_: x.append(x[i % len(x)]),
    lambda x, i, *_: x.append(x.pop(i % len(x))),
    lambda x, *_: x.sort(key=lambda item: str(type(item).__mro__[-2])),
    lambda x, *_: x.reverse(),
    lambda x, *_: x.__imul__(2) if len(x) < 40 else None,
    lambda x, *_: x.clear(),
]
DICT_CHANGES: list[Callable[[dict[str, Any], int, int, Any], object]] = [
    lambda x, i, _, v: x.__setitem__(f"k{i % 40}", v),
    lambda x, i, _, v: x.__setitem__(list(x)[i % len(x)], v),
    lambda x, i, *_: x.pop(list(x)[i % len(x)]),
    lambda x, i, *_: x.__setitem__(key := list(x)[i % len(x)], x.pop(key)),
    lambda x, i, j, v: x.update({f"u{n}": n for n in range(i % 30)}, last=v),
    lambda x, i, _, v: x.setdefault(f"k{i % 9}", v),
    lambda x, i, j, _: x.__setitem__(f"a{i % 9}", x[list(x)[j % len(x)]]),
    lambda x, *_: x.popitem(),
    lambda x, *_: x.__ior__({"merged": {}}),
    lambda x, i, *_: x.clear() if i % 9 == 0 else None,
]


class TrackedStates(RuleBasedStateMachine):
    """Changes, saves, failed saves, loads, and a second state that shares all parts with the first."""

    def __init__(self) -> None:
        super().__init__()
        self._patched = pytest.MonkeyPatch()
        for module, names in TINY.items():
            for name, value in names.items():
                self._patched.setattr(module, name, value)
        self.state: Any = TrackedDict()
        self.twin: dict[str, Any] = {}
        self.held: list[Pair] = []
        self.memos: list[TrackedPart | None] = [None, None]
        self.known: list[dict[bytes, bytes]] = [{}, {}]

    def teardown(self) -> None:
        self._patched.undo()

    @initialize(count=st.integers(0, 120))
    def begin(self, count: int) -> None:
        for name in ("messages", "map"):
            for target in (self.state, self.twin):
                pairs = [(f"n{i}", {"text": f"{i} " * (i % 11)}) for i in range(count)]
                target[name] = dict(pairs) if name == "map" else [message for _, message in pairs]

    def _find(self, place: int) -> Pair:
        """A container somewhere in the state, often a large one near the root."""
        found: Pair = (self.state, self.twin)
        while place % 4:
            values = list(found[0].values()) if isinstance(found[0], dict) else found[0]
            places = [at for at, value in enumerate(values) if isinstance(value, (dict, list))]
            if not places:
                break
            at = places[place // 4 % len(places)]
            twins = list(found[1].values()) if isinstance(found[1], dict) else found[1]
            key = list(found[0])[at] if isinstance(found[0], dict) else at
            found, place = (found[0][key], twins[at]), place // 40
        return found

    def _change(self, pair: Pair, how: int, i: int, j: int, value: Pair) -> None:
        changes: list[Any] = LIST_CHANGES if isinstance(pair[0], list) else DICT_CHANGES
        for target, new in zip(pair, value, strict=True):
            try:
                changes[how % len(changes)](target, i, j, new)
            except (LookupError, ZeroDivisionError):
                assert not target

    @rule(place=numbers, how=numbers, i=numbers, j=numbers, value=new_values, hold=st.booleans())
    def change(self, place: int, how: int, i: int, j: int, value: Any, hold: bool) -> None:
        pair = (value, plain(value)) if isinstance(value, (dict, list)) else (value, value)
        if hold and isinstance(value, (dict, list)):
            self.held.append(pair)
        self._change(self._find(place), how, i, j, pair)

    @rule(place=numbers)
    def hold(self, place: int) -> None:
        self.held.append(self._find(place))

    @rule(number=numbers, how=numbers, i=numbers, j=numbers)
    def change_held(self, number: int, how: int, i: int, j: int) -> None:
        if self.held:
            self._change(self.held[number % len(self.held)], how, i, j, (i, i))

    @rule(number=numbers, place=numbers, i=numbers)
    def place_held(self, number: int, place: int, i: int) -> None:
        if self.held:
            part, target = self.held[number % len(self.held)], self._find(place)
            if not _contains(part[1], target[1]) and len(str(self.twin)) < 30_000:
                self._change(target, 0, i, i, part)

    @rule()
    def let_go(self) -> None:
        self.held.clear()

    @rule(which=st.integers(0, 1), fails=st.booleans())
    def save(self, which: int, fails: bool) -> None:
        known = self.known[which]
        expected = encode(plain(self.twin), split_min=_SPLIT_MIN)
        encoded = encode_tracked(self.state, self.memos[which], set(known))
        assert self.state == self.twin
        assert encoded.root == expected.root
        assert encoded.size == expected.size
        assert expected.chunks.keys() <= known.keys() | encoded.chunks.keys()
        if not fails:
            known |= encoded.chunks
            self.memos[which] = encoded.memo
            found = decode(encoded.root, lambda names: {name: b"\x00" + known[name] for name in names}, "it")[0]
            assert exactly(found) == exactly(plain(self.twin))

    @rule(is_remembered=st.booleans(), into=st.sampled_from(["new", "same", "changed"]))
    def load(self, is_remembered: bool, into: str) -> None:
        """Into a new state, or into the one there is, as a run restores it; perhaps an upgrade changes it before."""
        self.save(0, fails=False)
        before, memo = self.state, self.memos[0]
        self.twin = plain(self.twin)
        known, outline = self.known[0], Outline()
        root = encode(self.twin, split_min=_SPLIT_MIN).root
        loaded = decode(root, lambda names: {name: b"\x00" + known[name] for name in names}, "it", outline=outline)[0]
        self.state, self.held = to_tracked(loaded), []
        self.memos = [memo_of_loaded(self.state, root, outline) if is_remembered else None, None]
        assert not is_remembered or (self.memos[0] is None) == (root[:1] == b"\x01")
        if into == "changed":
            self._change((self.state, self.twin), 0, 7, 0, (["x" * 200], ["x" * 200]))
        if into != "new":
            self.state.memo, before.memo = SavedAs(None, self.memos[0]), SavedAs(None, memo)
            replace_content(before, self.state)
            self.state, self.memos[0] = before, before.memo.memo


def _contains(value: Any, part: Any) -> bool:
    if value is part:
        return True
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(_contains(each, part) for each in parts)


TestTrackedStates = TrackedStates.TestCase
TestTrackedStates.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
