"""Conditions and templates: every operator, missing and odd values, and no way to compute."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import InvalidInput
from holdfast.formats.convert.car_converter import plain
from holdfast.graphs import Condition
from holdfast.graphs.expressions import (
    MISSING,
    UNKNOWN,
    Unresolved,
    all_hold,
    as_text,
    compare,
    find,
    holds,
    paths_in,
    put,
    render,
    render_text,
)

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


@pytest.mark.parametrize(
    ("found", "operator", "value", "expected"),
    [
        (Decimal(500), "gt", 100, True), (Decimal("0.1"), "eq", 0.1, False), (Decimal("0.1"), "lt", 0.1, True),
        (0.1, "gt", Decimal("0.1"), True), (Decimal("0.5"), "eq", 0.5, True), (Decimal("0.5"), "gte", 0.5, True),
        (2**53 + 1, "gt", float(2**53), True), (Decimal("1e400"), "gt", float("inf"), False),
        (Decimal("NaN"), "gt", 1, False), (Decimal("sNaN"), "eq", 1, False), (Decimal("sNaN"), "lt", 1, False),
        (float("nan"), "gt", Decimal(1), False), (Decimal(1), "lte", float("nan"), False),
        (Decimal(1), "gt", True, False),
    ],
)  # fmt: skip
def test_a_decimal_is_a_number_and_compared_to_the_last_digit(
    found: Any, operator: str, value: Any, expected: bool
) -> None:
    assert compare(operator, found, value) is expected


@given(st.sampled_from(["eq", "neq", "gt", "lt", "gte", "lte", "exists", "not_exists", "contains"]), st.data())
def test_any_comparison_of_any_values_has_an_answer(operator: str, data: st.DataObject) -> None:
    plain = st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.decimals(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
        max_leaves=6,
    )
    found = data.draw(plain | st.just(MISSING))
    assert compare(operator, found, data.draw(plain)) in (True, False)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{{ n }}", 3), (" {{n}} ", 3), ("{{ list }}", [1, {"a": "x"}]), ("n={{ n }}", "n=3"), ("{{ n }}{{ n }}", "33"),
        ("{{ quote }}!", '{"amount": 40, "a.b": 1}!'), ("{{ none }}", None), ("a {{ none }}", "a null"),
        (r"\{{ n }}", "{{ n }}"), ("plain", "plain"), ("{ n }", "{ n }"), ("{{ n", "{{ n"),
        ("{{ yes }} {{ t }}", "true text"), ("{{ n }}}", "3}"), ("{{ n }} or }}", "3 or }}"),
        ("{{ n {{ n }}", "{{ n 3"),
        (r"a \{{ b", "a {{ b"), (r"\{{", "{{"), (r"\\{{ n }}", r"\{{ n }}"), (r"\{{{ n }}}", "{{{ n }}}"),
    ],
)  # fmt: skip
def test_a_template_alone_is_the_value_and_inside_text_is_text(text: str, expected: Any) -> None:
    assert render(text, lookup) == expected
    assert type(render(text, lookup)) is type(expected)


@pytest.mark.parametrize(
    "text", ["use {{ for braces", "{{ a {{ b }} c", r"\{{ x }}", "{{{{ x }}}}", "{{{", "a \\", "}}{{"]
)
def test_a_text_of_car_comes_back_as_it_was(text: str) -> None:
    assert render(plain(text), lambda path: 1) == text


@given(st.text(alphabet="{}\\ ax."))
def test_any_text_of_braces_comes_back_if_it_is_meant_as_plain(text: str) -> None:
    assert render(plain(text), lambda path: 1) == text


def test_a_text_of_very_many_braces_is_read_in_time() -> None:
    for text in ("{{ " * 300_000, "{" * 1_000_000, "{{ x" + " }" * 300_000, "{{{ a" * 200_000, "\\{{" * 300_000):
        assert not list(paths_in(text))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"plum", "fig", "apple"}, '["apple", "fig", "plum"]'), (frozenset({10, 9, "a"}), '["a", 10, 9]'),
        ({(1, 2), (1, 1)}, "[[1, 1], [1, 2]]"), (("a", {"k": {2, 1}}), '["a", {"k": [1, 2]}]'),
        (dt.date(2026, 11, 16), "2026-11-16"),
        ([dt.datetime(2026, 11, 16, 9, tzinfo=dt.UTC)], '["2026-11-16T09:00:00+00:00"]'),
        (dt.time(9, 30), "09:30:00"), (Decimal("12.50"), "12.50"), ([Decimal("12.50")], '["12.50"]'),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"), (dt.timedelta(days=1, seconds=10), "1 day, 0:00:10"),
    ],
)  # fmt: skip
def test_what_json_has_no_words_for_has_one_text_in_every_process(value: Any, expected: str) -> None:
    assert as_text(value) == expected
    assert render("<{{ x }}>", lambda path: value) == f"<{expected}>"


@pytest.mark.parametrize("value", [b"x", [b"x"], {"k": object()}, [10**5000], {10**5000}])
def test_what_has_no_such_text_is_refused_inside_text_and_fine_alone(value: Any) -> None:
    with pytest.raises(InvalidInput):
        render("<{{ x }}>", lambda path: value)
    assert render("{{ x }}", lambda path: value) is value


def test_templates_are_filled_in_at_any_depth_in_keys_as_well() -> None:
    assert render({"{{ t }}": ["{{ n }}", {"x": ("{{ t }}",)}]}, lookup) == {"text": [3, {"x": ["text"]}]}
    assert sorted(paths_in({"{{ t }}": ["{{ n }}", {"x": ("{{ t }}",)}]})) == ["n", "t", "t"]
    assert render_text("{{ n }}", lookup) == "3"


def test_what_is_not_there_is_an_error_that_names_it() -> None:
    with pytest.raises(Unresolved, match=r"nothing at 'quote.nothing', which 'a \{\{ quote.nothing \}\}' refers to"):
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


@pytest.mark.parametrize(
    ("state", "path", "value", "reads"),
    [
        ({"quote.amount": 0}, "quote.amount", 200, {"quote.amount": 200}),
        ({"approval.ok": False, "approval.by": "ana"}, "approval", {"ok": True},
         {"approval.ok": True, "approval.by": MISSING, "approval": {"ok": True}}),
        ({"a.b": {"c": 1, "d": 2}}, "a.b.c", 5, {"a.b.c": 5, "a.b.d": 2}),
        ({"a": {"b": 0}, "a.b.c": 9}, "a.b", {"c": 1}, {"a.b.c": 1, "a.b": {"c": 1}}),
        ({"a": {"b": {"x": 1}}, "a.b": {}}, "a.b", {"y": 1}, {"a.b.x": MISSING, "a.b.y": 1}),
        ({"a": None}, "a.b", 1, {"a.b": 1}),
        ({"approvals": 1, "approval.ok": 1}, "approval", 2, {"approvals": 1, "approval": 2, "approval.ok": MISSING}),
    ],
)  # fmt: skip
def test_what_was_put_last_is_found_also_beside_keys_that_have_dots(
    state: dict[str, Any], path: str, value: Any, reads: dict[str, Any]
) -> None:
    put(state, path, value)
    assert {key: find(state, key) for key in reads} == reads


_paths = st.lists(st.sampled_from("abc"), min_size=1, max_size=3).map(".".join)


@given(
    st.dictionaries(_paths, st.just(0) | st.dictionaries(_paths, st.just(0)), max_size=4), st.lists(_paths, max_size=6)
)
def test_whatever_is_put_where_is_found_there(state: dict[str, Any], paths: list[str]) -> None:
    for number, path in enumerate(paths):
        before = repr(state)
        try:
            put(state, path, {"new": number})
        except InvalidInput:
            assert repr(state) == before
            continue
        assert find(state, path) == {"new": number}
        assert find(state, f"{path}.new") == number
        assert find(state, f"{path}.a") is MISSING


@pytest.mark.parametrize("there", [[1, 2, 3], "text", 5, True, (1,)])
def test_nothing_is_put_into_what_is_no_dict_and_then_nothing_has_changed(there: Any) -> None:
    state = {"found": {"deep": there}, "found.deep.x.y": 1}
    with pytest.raises(InvalidInput, match=r"cannot store a value at 'found.deep.extra': 'found.deep' is "):
        put(state, "found.deep.extra", 1)
    assert state == {"found": {"deep": there}, "found.deep.x.y": 1}
