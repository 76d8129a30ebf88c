"""Forms, compared: with each other, with their stored selves, and with random answers; and what answers become."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import datetime as dt
import enum
import json
from typing import Any, Literal, NotRequired, TypedDict

import msgspec
import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import InvalidInput
from holdfast.forms import Field, Form, field, form_of, parse_text, typed


class Level(enum.Enum):
    LOW = "low"
    HIGH = "high"


class AsTypedDict(TypedDict):
    approve: bool
    count: int
    level: Level
    price: NotRequired[float]
    note: NotRequired[str | None]
    tags: NotRequired[list[str]]
    due: NotRequired[dt.date]


class AsStruct(msgspec.Struct):
    approve: bool
    count: int
    level: Level
    price: float = 1.5
    note: str | None = None
    tags: list[str] = []
    due: dt.date = dt.date(2026, 1, 1)


@dataclasses.dataclass
class AsDataclass:
    approve: bool
    count: int
    level: Level
    price: float = 1.5
    note: str | None = None
    tags: list[str] = dataclasses.field(default_factory=list)
    due: dt.date = dt.date(2026, 1, 1)


class AsModel(pydantic.BaseModel):
    approve: bool
    count: int
    level: Level
    price: float = 1.5
    note: str | None = None
    tags: list[str] = []
    due: dt.date = dt.date(2026, 1, 1)


AS_DICT = {
    "approve": bool,
    "count": int,
    "level": Level,
    "price": field(float, default=1.5),
    "note": str | None,
    "tags": field(list[str], default=[]),
    "due": field(dt.date, default=dt.date(2026, 1, 1)),
}
AS_SCHEMA = {
    "type": "object",
    "properties": {
        "approve": {"type": "boolean"},
        "count": {"type": "integer"},
        "level": {"enum": ["low", "high"]},
        "price": {"type": "number", "default": 1.5},
        "note": {"type": ["string", "null"], "default": None},
        "tags": {"type": "array", "items": {"type": "string"}, "default": []},
        "due": {"type": "string", "format": "date", "default": "2026-01-01"},
    },
    "required": ["approve", "count", "level"],
    "additionalProperties": False,
}
SPECS = [AS_DICT, AsDataclass, AsStruct, AsModel, AS_SCHEMA, AsTypedDict]
FORMS = [form_of(spec) for spec in SPECS]
OTHERS = [
    form_of(spec)
    for spec in (None, bool, list[int], {"a": {"b": int | str}, "c": Any, "d": dict[str, list[int]], "e": set[int]})
]

unhurried = settings(deadline=None)

plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.sampled_from(["low", "2026-01-01", 1, 1.0]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
near = st.fixed_dictionaries(
    {},
    optional={
        "approve": st.booleans() | plain,
        "count": st.integers() | plain,
        "level": st.sampled_from(["low", "high"]) | plain,
        "price": st.floats() | st.integers() | plain,
        "note": st.none() | st.text() | plain,
        "tags": st.lists(st.text()) | plain,
        "due": st.dates().map(dt.date.isoformat) | plain,
        "other": plain,
    },
)


good = st.fixed_dictionaries(
    {"approve": st.booleans(), "count": st.integers(), "level": st.sampled_from(["low", "high"])},
    optional={
        "price": st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(10**9), 10**9),
        "note": st.none() | st.text(st.characters(exclude_categories=["Cs"])),
        "tags": st.lists(st.text(st.characters(exclude_categories=["Cs"]))),
        "due": st.dates() | st.dates().map(dt.date.isoformat),
    },
)


@unhurried
@given(good | near | plain)
def test_the_same_form_accepts_the_same_answers_however_it_was_written(answer: Any) -> None:
    checks = [form.check(answer) for form in FORMS]
    places = [sorted(problem.field for problem in check.problems) for check in checks]
    assert places.count(places[0]) == len(places), places
    if checks[0].ok:
        assert all(check.value == checks[0].value for check in checks[:-1])  # A TypedDict has no defaults.


@unhurried
@given(near | plain)
def test_checking_never_raises_and_leaves_the_answer_as_it_was(answer: Any) -> None:
    before = copy.deepcopy(answer)
    for form in (*FORMS, *OTHERS):
        checked = form.check(answer)
        json.dumps(checked.value, allow_nan=False)
        if checked.ok:
            assert form.check_bare(checked.value).value == checked.value
    assert repr(answer) == repr(before)  # NaN is not equal to itself.


@unhurried
@given(near | plain)
def test_a_stored_form_checks_like_the_one_it_was_made_from(answer: Any) -> None:
    for form in (*FORMS, *OTHERS):
        stored = Form.from_data(json.loads(json.dumps(form.as_data())))
        assert stored == form
        assert stored.check(answer) == form.check(answer)


@unhurried
@given(good)
def test_an_accepted_answer_becomes_what_the_spec_promises(answer: Any) -> None:
    checked = FORMS[0].check(answer)
    assert checked.problems == []
    made, plain_dict = typed(checked.value, AsDataclass), typed(checked.value, AS_DICT)
    assert dataclasses.asdict(made) == plain_dict
    assert msgspec.structs.asdict(typed(checked.value, AsStruct)) == plain_dict
    assert typed(checked.value, AsModel).model_dump() == plain_dict
    assert typed(checked.value, AsTypedDict) == plain_dict
    assert typed(checked.value, AS_SCHEMA) == checked.value
    assert (made.level, type(made.due), type(made.price)) == (Level(answer["level"]), dt.date, float)


@unhurried
@given(
    st.dictionaries(
        st.sampled_from("abcdef"),
        st.sampled_from([bool, str, int, float, bool | None, str | None, int | None, field(str, default="x")]),
        min_size=1,
    )
)
def test_a_denied_answer_passes_the_form_it_denies(spec: dict[str, Any]) -> None:
    form = form_of({"approve": bool, **spec})
    assert form.check(form.denial()).problems == []
    assert form.denial()["approve"] is False
    assert typed(form.denial(), {"approve": bool, **spec}) == form.denial()


def test_what_is_denied_is_no_or_the_default_or_empty() -> None:
    kinds = [bool, bool | None, field(bool, default=True), field(str, default="-"), int, float, list[Level], Level]
    spec = {f"field{number}": kind for number, kind in enumerate([*kinds, dict, dt.date, Any])}
    denied = form_of(spec).denial()
    assert list(denied.values()) == [False, False, False, "-", 0, 0.0, [], None, {}, None, None]
    assert typed(denied, spec) == denied
    assert form_of(bool).denial() == {"answer": False}
    for nothing_to_deny in ({"note": str}, None, Level):
        with pytest.raises(InvalidInput, match="cannot be denied"):
            form_of(nothing_to_deny).denial()


def test_stored_forms_are_plain_versioned_and_independent() -> None:
    form = form_of({"n": field(int, minimum=-(2**70), maximum=2.5), "nested": {"a": list[int]}})
    data = form.as_data()
    assert data["v"] == 1
    data["fields"][1]["schema"]["properties"].clear()
    assert form == form_of({"n": field(int, minimum=-(2**70), maximum=2.5), "nested": {"a": list[int]}})
    assert Form.from_data(json.loads(json.dumps(form.as_data()))) == form


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"v": 2}, "newer Holdfast"),
        ({"v": None}, "no version"),
        ({"fields": 3}, "not the data of a form"),
        ({"fields": [{"name": "a", "kind": "strange", "label": "A"}]}, "not those of a form"),
        ({"fields": [{"name": "a", "kind": "any", "label": "A", "schema": {"$ref": "#/$defs/x"}}]}, "does not exist"),
        ({"fields": [{"name": "a", "kind": "choice", "label": "A"}]}, "at least one value"),
        ({"schema": {"type": 3}}, "the stored schema"),
        ({"single": True, "fields": []}, "not those of a form"),
    ],
)
def test_damaged_or_newer_stored_forms_are_refused(change: Any, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        Form.from_data({**form_of({"a": int}).as_data(), **change})
    with pytest.raises(InvalidInput):
        Form.from_data([change])


def test_typed_refuses_what_does_not_fit() -> None:
    class Picky(pydantic.BaseModel):
        n: int = pydantic.Field(gt=0)

    @dataclasses.dataclass
    class Strict:
        n: int

        def __post_init__(self) -> None:
            raise RuntimeError("not today")

    for answer, spec in [
        ({"n": -1}, Picky),
        ({"n": 1}, dataclasses.make_dataclass("Strict", [("n", int)], bases=(Strict,))),
        ({"n": "1"}, {"n": int}),
        ({}, {"n": int}),
        ({"n": 1, "m": 2}, {"n": int}),
        ({"n": "middle"}, {"n": Level}),
        ({"n": "soon"}, {"n": dt.date}),
        ({"n": [1, 2]}, {"n": tuple[int, int, int]}),
        ({"n": b""}, {"n": Any}),
        ("low", bool),
    ]:
        with pytest.raises(InvalidInput):
            typed(answer, spec)


def test_typed_builds_containers_and_picks_the_right_part_of_a_union() -> None:
    spec = {"a": tuple[int, ...], "b": set[Level], "c": float | int, "d": dt.date | str, "e": AsStruct | None}
    answer = {"a": [1, 2], "b": ["low"], "c": 3, "d": "later", "e": {"approve": True, "count": 1, "level": "low"}}
    made = typed(form_of(spec).check(answer).value, spec)
    assert list(made.values()) == [(1, 2), {Level.LOW}, 3, "later", AsStruct(True, 1, Level.LOW)]
    assert typed({"d": "2026-01-01"}, {"d": dt.date | str}) == {"d": dt.date(2026, 1, 1)}
    moment = dt.datetime(2026, 1, 1, 10, tzinfo=dt.UTC)
    assert typed(moment, dt.datetime) == typed("2026-01-01T10:00:00Z", dt.datetime) == moment


def one(spec: Any) -> Field:
    return form_of({"it": spec}).fields[0]


@pytest.mark.parametrize(
    ("spec", "text", "value"),
    [
        *((bool, text, True) for text in ("y", "Yes", "TRUE", "1", "on", " t ")),
        *((bool, text, False) for text in ("n", "No", "false", "0", "off", "F")),
        (int, " -12 ", -12),
        (int, "3.0", 3),
        (float, "1e3", 1000.0),
        (str, " as it is ", " as it is "),
        (str, "a\r\nb", "a\nb"),
        (str, "", ""),
        (str | None, "", None),
        (int | None, " ", None),
        (field(int, default=7), "", 7),
        (dt.date, "2026-01-31", "2026-01-31"),
        (dt.datetime, "2026-01-31T10:00", "2026-01-31T10:00"),
        (Level, "HIGH", "high"),
        (field(int, choices={1: "One", 2: "Two"}), "two", 2),
        (list[Literal["a", "b, c"]], "a, a", ["a", "a"]),
        (list[Literal["a", "b, c"]], "b, c", ["b, c"]),
        (list[str], "one, two", ["one", "two"]),
        (list[str], "one, 1\r\ntwo", ["one, 1", "two"]),
        (list[int], "1,2", [1, 2]),
        (list[int], "", []),
        (dict[str, int], '{"a": 1.0}', {"a": 1}),
        (Any, "true", True),
        (Any, "ship it", "ship it"),
        (str | bool, "12", "12"),
    ],
)
def test_text_typed_by_a_person_becomes_a_value(spec: Any, text: str, value: Any) -> None:
    found = parse_text(one(spec), text)
    assert (found, type(found)) == (value, type(value))
    assert form_of({"it": spec}).check({"it": found}).ok


@pytest.mark.parametrize(
    ("spec", "text", "words"),
    [
        (bool, "maybe", "It: expected yes or no, not 'maybe'"),
        (bool, "", "must not be empty"),
        (int, "1.5", "whole number"),
        (int, "9" * 2000, "whole number"),
        (field(int, minimum=2), "1", "at least 2"),
        (float, "1,5", "a number"),
        (field(str, min_length=1), "", "must not be empty"),
        (dt.date, "31.1.2026", "a date such as"),
        (dt.datetime, "2026-01-31", "a time such as"),
        (Level, "middle", "one of low, high"),
        (list[Level], "low,middle", "one of low, high"),
        (list[list[int]], "1,2", "a JSON list"),
        (dict, "[1]", "a JSON object"),
        (dict, "[" * 100_000, "JSON"),
        (int | bool, "x", "fits none"),
    ],
)
def test_text_that_means_nothing_is_refused_with_a_sentence(spec: Any, text: str, words: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_text(one(spec), text)
    assert words in str(caught.value)


@unhurried
@given(st.text(), st.sampled_from([each for form in (*FORMS, *OTHERS) for each in form.fields]))
def test_any_text_is_read_or_refused(text: str, asked: Field) -> None:
    with contextlib.suppress(InvalidInput):
        value = parse_text(asked, text)
        assert Form((asked,)).check({asked.name: value}).ok


def test_models_of_the_same_name_in_one_form_stay_apart() -> None:
    def model(kind: Any) -> Any:
        inner = pydantic.create_model("Inner", value=(kind, ...))
        return pydantic.create_model("Outer", inner=(inner, ...))

    form = form_of({"a": model(int), "b": model(str)})
    assert form.check({"a": {"inner": {"value": 1}}, "b": {"inner": {"value": "x"}}}).ok
    problems = form.check({"a": {"inner": {"value": "x"}}, "b": {"inner": {"value": 1}}}).problems
    assert [problem.field for problem in problems] == ["a.inner.value", "b.inner.value"]


keywords: st.SearchStrategy[dict[str, Any]] = st.deferred(
    lambda: st.fixed_dictionaries(
        {},
        optional={
            "type": st.sampled_from(["object", "array", "string", "integer", "number", "null", ["integer", "null"]]),
            "properties": st.dictionaries(st.sampled_from("ab"), schemas, max_size=2),
            "required": st.lists(st.sampled_from("ab")),
            "additionalProperties": schemas,
            "items": schemas,
            "anyOf": st.lists(schemas, min_size=1, max_size=3),
            "oneOf": st.lists(schemas, min_size=1, max_size=3),
            "allOf": st.lists(schemas, min_size=1, max_size=2),
            "enum": st.lists(plain, max_size=2),
            "const": plain,
            "$ref": st.sampled_from(["#/$defs/a", "#/$defs/b", "#"]),
            "default": plain,
            "minimum": st.integers() | plain,
        },
    )
)
schemas: st.SearchStrategy[Any] = st.booleans() | keywords | st.builds(lambda value: {"const": value}, plain)


@unhurried
@given(keywords, st.dictionaries(st.sampled_from("ab"), schemas), plain, st.text())
def test_any_json_schema_is_refused_or_makes_a_form_that_never_raises(
    schema: Any, defs: Any, answer: Any, text: str
) -> None:
    before = repr(schema)
    try:
        form = form_of({"$schema": "", **schema, "$defs": defs})
    except InvalidInput:
        return
    checked = form.check(answer)
    assert Form.from_data(json.loads(json.dumps(form.as_data()))).check(answer) == checked
    assert repr(schema) == before
    for asked in form.fields:
        with contextlib.suppress(InvalidInput):
            parse_text(asked, text)
