"""Conditions and templates: every operator, missing and odd values, and no way to compute."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.graphs import Condition
from holdfast.graphs.conditions import UNKNOWN, all_hold, compared, holds
from holdfast.graphs.paths import MISSING, find, put
from holdfast.graphs.templates import Unresolved, paths_in, render, render_text

STATE = {
    "n": 3, "t": "text", "yes": True, "none": None, "list": [1, {"a": "x"}], "quote": {"amount": 40, "a.b": 1},
    "a.b": {"c": 2},
}  # fmt: skip


def lookup(path: str, /) -> Any:
    return find(STATE, path)


@pytest.mark.parametrize(
    ("key", "operator", "value", "expected"),
    [
        ("n", "eq", 3, True), ("n", "eq", 3.0, True), ("n", "eq", "3", False), ("yes", "eq", True, True),
        ("yes", "eq", 1, False), ("n", "neq", 4, True), ("nothing", "eq", None, False), ("none", "eq", None, True),
        ("nothing", "neq", 1, True), ("n", "gt", 2, True), ("n", "gt", 3, False), ("n", "gte", 3, True),
        ("n", "lt", 3.5, True), ("n", "lte", 2, False), ("t", "gt", 1, False), ("n", "gt", "1", False),
        ("yes", "gt", 0, False), ("nothing", "lt", 1, False), ("none", "lt", 1, False), ("n", "exists", None, True),
        ("none", "exists", None, True), ("nothing", "exists", None, False), ("nothing", "not_exists", None, True),
        ("t", "contains", "ex", True), ("t", "contains", 1, False), ("list", "contains", 1, True),
        ("list", "contains", True, False), ("list", "contains", {"a": "x"}, True),
        ("quote", "contains", "amount", True),
        ("nothing", "contains", "x", False), ("quote.amount", "eq", 40, True), ("list.1.a", "eq", "x", True),
        ("list.7", "exists", None, False), ("a.b.c", "eq", 2, True), ("quote.a.b", "eq", 1, True),
        ("n", "eq", "{{ n }}", True), ("quote.amount", "gt", "{{ n }}", True),
    ],
)  # fmt: skip
def test_every_comparison(key: str, operator: Any, value: Any, expected: bool) -> None:
    assert holds(Condition(key=key, operator=operator, value=value), lookup) is expected


def test_what_is_not_known_leaves_the_answer_open_unless_the_rest_decides() -> None:
    def some(path: str, /) -> Any:
        return UNKNOWN if path == "later" else lookup(path)

    later, true, false = Condition(key="later"), Condition(key="n", value=3), Condition(key="n", value=4)
    assert holds(later, some) is None
    assert all_hold([later, true], some) is None
    assert all_hold([later, false], some) is False
    assert holds(Condition(any=(later, true)), some) is True
    assert holds(Condition(any=(later, false)), some) is None


@given(st.sampled_from(["eq", "neq", "gt", "lt", "gte", "lte", "exists", "not_exists", "contains"]), st.data())
def test_any_comparison_of_any_values_has_an_answer(operator: str, data: st.DataObject) -> None:
    plain = st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
        max_leaves=6,
    )
    found = data.draw(plain | st.just(MISSING))
    assert compared(operator, found, data.draw(plain)) in (True, False)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{{ n }}", 3), (" {{n}} ", 3), ("{{ list }}", [1, {"a": "x"}]), ("n={{ n }}", "n=3"), ("{{ n }}{{ n }}", "33"),
        ("{{ quote }}!", '{"amount": 40, "a.b": 1}!'), ("{{ none }}", None), ("a {{ none }}", "a null"),
        (r"\{{ n }}", "{{ n }}"), ("plain", "plain"), ("{ n }", "{ n }"), ("{{ n", "{{ n"),
        ("{{ yes }} {{ t }}", "true text"),
    ],
)  # fmt: skip
def test_a_template_alone_is_the_value_and_inside_text_is_text(text: str, expected: Any) -> None:
    assert render(text, lookup) == expected
    assert type(render(text, lookup)) is type(expected)


def test_templates_are_filled_in_at_any_depth_in_keys_as_well() -> None:
    assert render({"{{ t }}": ["{{ n }}", {"x": ("{{ t }}",)}]}, lookup) == {"text": [3, {"x": ["text"]}]}
    assert sorted(paths_in({"{{ t }}": ["{{ n }}", {"x": ("{{ t }}",)}]})) == ["n", "t", "t"]
    assert render_text("{{ n }}", lookup) == "3"


def test_what_is_not_there_is_an_error_that_names_it() -> None:
    with pytest.raises(
        Unresolved, match=r"nothing at 'quote.nothing' in the state, which 'a \{\{ quote.nothing \}\}' names"
    ):
        render("a {{ quote.nothing }}", lookup)


@given(st.text(), st.text())
def test_what_a_value_says_is_never_read_as_a_template(value: str, around: str) -> None:
    text = around.replace("{", "").replace("\\", "") + "{{ x }}"
    assert render(text, lambda _: value) == (value if text.strip() == "{{ x }}" else text.replace("{{ x }}", value))


def test_putting_a_value_does_not_change_what_lay_there_before() -> None:
    inner = {"b": 1}
    state: dict[str, Any] = {"a": inner}
    put(state, "a.c.d", 2)
    assert state == {"a": {"b": 1, "c": {"d": 2}}}
    assert inner == {"b": 1}
