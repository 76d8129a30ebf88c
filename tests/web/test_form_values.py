"""Any form and any answer: what is shown is submitted as it was, and whatever is submitted is read or refused."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any, Literal

from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import InvalidInput
from holdfast.forms import Form, field, form_of
from holdfast.web.forms import FormView, Values, edit_rows, parse, to_values
from tests.web.shown_forms import shown

unhurried = settings(deadline=None)

words = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
times = st.datetimes(timezones=st.none() | st.just(dt.UTC) | st.just(dt.timezone(dt.timedelta(hours=-5.5))))
plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=5,
)
Pair = tuple[Any, st.SearchStrategy[Any]]
"""A spec, and answers that fit."""
leaves: st.SearchStrategy[Pair] = st.sampled_from(
    [
        (bool, st.booleans()),
        (int, st.integers()),
        (field(int, minimum=-3, maximum=3), st.integers(-3, 3)),
        (float, st.floats(allow_nan=False, allow_infinity=False)),
        (str, words),
        (field(str, multiline=True), words),
        (field(str, help="Help <b>", label="Label & more"), words),
        (dt.date, st.dates().map(dt.date.isoformat)),
        (dt.datetime, times.map(dt.datetime.isoformat)),
        (Literal["a", "b & c", 3, True], st.sampled_from(["a", "b & c", 3, True])),
        (field(int, choices=list(range(12))), st.integers(0, 11)),
        (list[Literal["a", "b", "1"]], st.lists(st.sampled_from(["a", "b", "1"]), max_size=4)),
        (Any, plain),
        (dict, st.dictionaries(words, plain, max_size=3)),
        (dict[str, int], st.dictionaries(words, st.integers(), max_size=3)),
        (tuple[int, bool], st.tuples(st.integers(), st.booleans()).map(list)),
        (str | int, words | st.integers()),
    ]
)
names = st.text(st.characters(exclude_categories=["C"]), min_size=1, max_size=6) | st.sampled_from(
    ["a", "b", "a/b", "a~b", "~n", "#", "a.b", "a[0]", "ü ", "answer"]
)


def _optional(pair: Pair) -> Pair:
    return pair[0] | None if not isinstance(pair[0], dict) and _is_type(pair[0]) else pair[0], (
        pair[1] | st.none() if not isinstance(pair[0], dict) and _is_type(pair[0]) else pair[1]
    )


def _is_type(spec: Any) -> bool:
    return spec in (bool, int, float, str, dt.date, dt.datetime) or getattr(spec, "__origin__", None) is list


def _listed(pair: Pair) -> Pair:
    if isinstance(pair[0], dict) or not _is_type(pair[0]):
        return pair
    return list.__class_getitem__(pair[0]), st.lists(pair[1], max_size=3)


def _object(fields: dict[str, Pair]) -> Pair:
    return {name: spec for name, (spec, _) in fields.items()}, st.fixed_dictionaries(
        {name: answers for name, (_, answers) in fields.items()}
    )


specs: st.SearchStrategy[Pair] = st.recursive(
    leaves,
    lambda inner: st.one_of(
        inner.map(_optional), inner.map(_listed), st.dictionaries(names, inner, min_size=1, max_size=3).map(_object)
    ),
    max_leaves=6,
)


def round_trip(form: Form, answer: Any) -> Any:
    """Show a form with an answer, submit it as it is shown, and read it."""
    values = shown(FormView(form, answer=answer)).forms[0].submit()
    raw, problems = parse(form, values)
    assert problems == []
    again = shown(FormView(form, values)).forms[0].submit()
    assert again == values, "what was typed is shown again as it was"
    return form.check(raw).value


def exact(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


@settings(deadline=None, max_examples=200)
@given(specs, st.data())
def test_a_shown_answer_is_submitted_as_it_was(pair: Pair, data: st.DataObject) -> None:
    form = form_of(pair[0])
    answer = data.draw(pair[1])
    checked = form.check({"answer": answer} if form.single else answer)
    assert checked.problems == []
    assert exact(round_trip(form, checked.value)) == exact(checked.value)


keywords: st.SearchStrategy[dict[str, Any]] = st.deferred(
    lambda: st.fixed_dictionaries(
        {},
        optional={
            "type": st.sampled_from(["object", "array", "string", "integer", "boolean", ["integer", "null"]]),
            "properties": st.dictionaries(st.sampled_from("ab"), schemas, max_size=2),
            "required": st.lists(st.sampled_from("ab")),
            "additionalProperties": schemas,
            "items": schemas,
            "anyOf": st.lists(schemas, min_size=1, max_size=3),
            "enum": st.lists(plain, min_size=1, max_size=2),
            "format": st.sampled_from(["uri", "date", "date-time"]),
            "$ref": st.sampled_from(["#/$defs/a", "#/$defs/b"]),
            "default": plain,
            "uniqueItems": st.booleans(),
        },
    )
)
schemas: st.SearchStrategy[Any] = st.booleans() | keywords
near = plain | st.dictionaries(st.sampled_from("ab"), plain, max_size=2)


@settings(deadline=None, max_examples=100)
@given(keywords, st.dictionaries(st.sampled_from("ab"), schemas), near)
def test_any_schema_is_shown_and_any_accepted_answer_submitted(schema: Any, defs: Any, answer: Any) -> None:
    try:
        form = form_of({"$schema": "", **schema, "$defs": defs})
    except InvalidInput:
        return
    new = shown(FormView(form)).forms[0].submit()
    parse(form, new)
    checked = form.check({"answer": answer} if form.single else answer)
    again = form.check({"answer": checked.value} if form.single else checked.value)
    if checked.ok and again.ok:  # a schema may have a default that it does not accept
        assert exact(round_trip(form, checked.value)) == exact(checked.value)


NAMES = st.sampled_from(
    ["f/a", "f/a~n", "f/a~g", "f/a/0", "f/a~o", "f/b~z", "f/answer", "f/answer~n", "f/answer~o", "f~x"]
)
TEXTS = st.sampled_from(["1", "null", "true", "[]", "3", "{}"])


@unhurried
@given(specs, st.dictionaries(st.text(max_size=8) | NAMES, st.lists(words | TEXTS, min_size=1, max_size=2)))
def test_any_submitted_values_are_read_and_shown(pair: Pair, values: Values) -> None:
    form = form_of(pair[0])
    _, problems = parse(form, values)
    shown(FormView(form, values, problems))
    edit_rows(form, {**values, "f/a~del": ["0"]})
    to_values(form)
