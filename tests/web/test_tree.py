"""Values as trees and texts of limited length, whatever their size and content."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.web.tree import Path, Tree, crumbs, find, one_line, pointer, preview, search, shorten
from tests.strategies import values


def link(path: Path, at: int = 0) -> str:
    return f"/state?path={pointer(path)}&at={at}"


@given(values)
def test_every_storable_value_has_a_tree_and_a_preview(value: object) -> None:
    markup = Tree(link).render(value)
    assert "<script" not in markup
    text, is_cut = preview(value, nodes=10_000, chars=1_000_000)
    assert json.loads(text) is not None or value is None
    assert isinstance(is_cut, bool)
    assert len(one_line(value, 50)) <= 50


def test_a_preview_is_short_however_large_the_value_is() -> None:
    text, is_cut = preview({"a": ["word"] * 100_000, "b": "x" * 10_000_000, "c": {"d": 1}}, nodes=50, chars=1_000)
    assert is_cut
    assert len(text) < 3_000
    deep: Any = 1
    for _ in range(100_000):
        deep = [deep]
    assert len(preview(deep)[0]) < 10_000
    assert shorten({"a": 1})[1] is False


def test_parts_are_found_by_pointers() -> None:
    state = {"a/b": [{"~": "x"}], "": 1, "pair": (1, 2)}
    assert find(state, "") == ((), state)
    assert find(state, "/a~1b/0/~0") == (("a/b", 0, "~"), "x")
    assert find(state, "/") == (("",), 1)
    assert find(state, "/pair/$tuple/1") == (("pair", "$tuple", 1), 2)
    for missing in ("a", "/c", "/a~1b/1", "/a~1b/-1", "/a~1b/x", "/a~1b/0/~0/deeper", "/a~1b/²"):
        with pytest.raises(KeyError):
            find(state, missing)


keys = st.text("ab/~.é", max_size=3)


@given(
    st.recursive(st.integers(), lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner), max_leaves=15)
)
def test_every_path_that_a_search_finds_leads_to_its_part(state: object) -> None:
    for path in search(state, "1").paths:
        found, part = find(state, pointer(path))
        assert found == path
        assert "1" in str(part) or "1" in str(path[-1])


def test_a_search_finds_keys_and_values_and_shows_only_them() -> None:
    state = {"Order": {"id": "A-17", "note": "x"}, "other": ["order", {"z": 2}], "n": 17}
    found = search(state, "order")
    assert found.paths == [("Order",), ("other", 0)]
    shown = Tree(link, found.paths).render(state)
    assert "A-17" in shown
    assert "order" in shown
    assert ">z<" not in shown
    assert search(state, "17").paths == [("Order", "id"), ("n",)]


def test_long_lists_and_texts_are_cut_with_links_to_the_rest() -> None:
    markup = Tree(link).render({"list": list(range(120)), "text": "<b>" * 1_000})
    assert "70 more" in markup
    assert "path=/list&amp;at=50" in markup
    assert "1,000 more characters" in markup
    assert "<b>" not in markup
    rest = Tree(link).render(list(range(120)), ("list",), 100)
    assert "[100]" in rest
    assert "[99]" not in rest
    assert "more" not in rest


def test_the_way_to_a_part_is_a_list_of_links() -> None:
    shown = crumbs(("a<b", 3), link)
    assert 'href="/state?path=/a&lt;b&amp;at=0"' in shown
    assert "[3]" in shown
