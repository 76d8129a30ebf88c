"""Values as a person reads them."""

from __future__ import annotations

import datetime as dt
import decimal
from typing import Any

import pytest
from hypothesis import given, settings

from holdfast.web.render import renderer
from holdfast.web.shown import Shown, show
from tests.strategies import values
from tests.web.html_page import HtmlPage

MACRO = renderer()._environment.from_string('{% from "_shown.html" import shown %}{{ shown(s, "id") }}')


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("*text*", "markdown"),
        (None, "nothing"),
        ({"a": 1}, "pairs"),
        ([{"a": 1}, {"b": "x"}], "table"),
        (["a", 2, None], "list"),
        (("a", 2), "list"),
        ([[1]], "json"),
        ({}, "json"),
        ([], "json"),
        ({1: 2}, "json"),
        ([{"a": {"b": 1}}], "json"),
        (b"bytes", "json"),
        (3.5, "text"),
        ([{str(number): 1 for number in range(20)}], "json"),
        (list(range(1000)), "json"),
    ],
)
def test_each_kind_of_value_has_its_form(value: Any, kind: str) -> None:
    assert show(value).kind == kind


def test_simple_values_are_words() -> None:
    value = {"a": True, "b": None, "c": decimal.Decimal("1.50"), "d": dt.date(2026, 1, 2), "e": "as *it* is"}
    assert [part.text for _, part in show(value).pairs] == ["yes", "none", "1.50", "2026-01-02", "as *it* is"]


def test_long_values_are_folded_and_very_long_ones_are_cut() -> None:
    found = show({"a": "x" * 1_000, "b": "short"})
    assert [part.fold for _, part in found.pairs] == ["1,000 characters", ""]
    assert not found.is_cut
    found = show({"a": "x" * 1_000}, chars_max=500)
    assert (found.kind, found.is_cut) == ("json", True)
    assert "more characters are not shown here" in found.text
    assert show("x" * 1_000, chars_max=500).is_cut
    assert show([{"a": 1}] * 20).fold == "20 rows"


def _parts(found: Shown) -> int:
    return 1 + sum(map(_parts, found.items)) + sum(_parts(part) for _, part in found.pairs)


@settings(deadline=None)
@given(values)
def test_any_value_is_shown_without_becoming_markup(value: Any) -> None:
    found = show(value)
    page = HtmlPage(MACRO.render(s=found))
    assert len(page.ids) == len(set(page.ids))
    allowed = {"a", "details", "summary", "pre", "dl", "div", "dt", "dd", "ul", "li", "span", "table", "thead", "tbody"}
    allowed |= {"tr", "th", "td", "p", "br", "hr", "ol", "em", "strong", "code", "blockquote", "h4", "h5", "h6"}
    assert {tag for tag, _ in page.tags} <= allowed
    assert _parts(found) < 5_000
