"""Forms: what is accepted as one, what an answer to it may be, and what becomes of the answer."""

from __future__ import annotations

import copy
import dataclasses
import datetime as dt
import enum
import json
from decimal import Decimal
from typing import Annotated, Any, Literal, Optional

import msgspec
import pydantic
import pytest

from holdfast.errors import InvalidInput
from holdfast.forms import Choice, Form, field, form_of, typed
from holdfast.limits import FIELDS_MAX, FORM_NESTING_MAX


class Speed(enum.Enum):
    SLOW = 1
    FAST = 2


class Colour(enum.StrEnum):
    RED = "red"
    BLUE = "blue"


@dataclasses.dataclass
class Line:
    item: str
    count: int = 1


@dataclasses.dataclass
class Order:
    approve: bool
    lines: list[Line]
    due: dt.date | None = None
    speed: Speed = Speed.SLOW
    note: str = dataclasses.field(
        default="", metadata={"label": "Any note?", "help": "For the file", "multiline": True}
    )
    hidden: int = dataclasses.field(default=0, init=False)


@dataclasses.dataclass
class Tree:
    name: str
    children: list[Tree] = dataclasses.field(default_factory=list)


def reasons(form: Form, answer: Any) -> dict[str, str]:
    return {problem.field: problem.reason for problem in form.check(answer).problems}


# Fields


def test_a_dict_of_types_gives_one_field_each() -> None:
    form = form_of({"approve": bool, "count": int, "price": float, "note": str, "tags": list, "data": dict, "x": Any})
    assert [(each.name, each.kind) for each in form.fields] == [
        ("approve", "yes_no"),
        ("count", "integer"),
        ("price", "number"),
        ("note", "text"),
        ("tags", "list"),
        ("data", "object"),
        ("x", "any"),
    ]
    assert not form.single
    assert form.schema is None
    assert all(each.required for each in form.fields)


def test_a_label_is_made_from_the_name_unless_it_is_given() -> None:
    form = form_of({"refund_amount": int, "note": field(str, label="Say why", help="Shown to the customer")})
    assert [(each.label, each.help) for each in form.fields] == [
        ("Refund amount", ""),
        ("Say why", "Shown to the customer"),
    ]


@pytest.mark.parametrize(
    ("spec", "kind", "values"),
    [
        (Literal["a", "b"], "choice", ["a", "b"]),
        (Colour, "choice", ["red", "blue"]),
        (Speed, "choice", [1, 2]),
        (list[Literal["a", "b"]], "choices", ["a", "b"]),
        (set[Colour], "choices", ["red", "blue"]),
        (field(int, choices=[1, 2]), "choice", [1, 2]),
        (field(list[str], choices=["a"]), "choices", ["a"]),
        (dt.date, "date", []),
        (dt.datetime, "datetime", []),
        (Optional[int], "integer", []),  # noqa: UP045 - users write this
        (int | str, "any", []),
        (tuple[int, str], "list", []),
        (dict[str, int], "object", []),
        ({"inner": {"x": int}}, "object", []),
        (Order, "object", []),
        (None, "any", []),
    ],
)
def test_each_type_has_its_kind(spec: Any, kind: str, values: list[Any]) -> None:
    (found,) = form_of({"it": spec}).fields
    assert found.kind == kind
    assert [choice.value for choice in found.choices] == values


def test_choices_of_an_enum_without_text_are_labelled_by_name() -> None:
    assert form_of(Speed).fields[0].choices == (Choice(1, "Slow"), Choice(2, "Fast"))
    assert form_of(field(choices={"a": "Alpha"})).fields[0].choices == (Choice("a", "Alpha"),)


def test_a_field_that_may_be_none_need_not_be_answered_in_a_dict_of_types() -> None:
    form = form_of({"note": str | None, "more": field(str, required=False)})
    assert form.check({}).value == {"note": None, "more": None}
    assert form.check({"note": None, "more": "x"}).value == {"note": None, "more": "x"}


def test_a_dataclass_is_read_with_its_defaults_and_metadata() -> None:
    form = form_of(Order)
    assert [each.name for each in form.fields] == ["approve", "lines", "due", "speed", "note"]
    assert [each.required for each in form.fields] == [True, True, False, False, False]
    note, speed = form.fields[4], form.fields[3]
    assert (note.label, note.help, note.multiline, note.default) == ("Any note?", "For the file", True, "")
    assert speed.default == 1


def test_annotated_types_may_carry_a_field_or_the_notes_of_msgspec() -> None:
    form = form_of({"n": Annotated[int, field(minimum=1, label="N")], "m": Annotated[int, msgspec.Meta(gt=0, lt=9)]})
    assert (form.fields[0].label, form.fields[0].minimum) == ("N", 1)
    assert reasons(form, {"n": 0, "m": 9}) == {"n": "must be at least 1, not 0", "m": "must be less than 9, not 9"}


def test_a_pydantic_model_is_read_through_its_schema() -> None:
    class Quote(pydantic.BaseModel):
        """What it costs."""

        price: float = pydantic.Field(gt=0, title="Price in EUR", description="Without tax")
        speed: Speed = Speed.FAST
        code: str = pydantic.Field(default="AB", pattern="^[A-Z]{2}$", max_length=2)

    form = form_of(Quote)
    assert form.schema is not None
    price, speed, code = form.fields
    assert (price.kind, price.label, price.help) == ("number", "Price in EUR", "Without tax")
    assert (speed.kind, speed.label, speed.default) == ("choice", "Speed", 2)
    assert code.max_length == 2
    assert set(reasons(form, {"price": 0, "speed": 3, "code": "x", "typo": 1})) == {"price", "speed", "code", "typo"}
    nested = form_of({"ok": bool, "quote": Quote})
    assert reasons(nested, {"ok": True, "quote": {"price": -1}}) == {"quote.price": "must be more than 0, not -1"}
    assert typed({"ok": True, "quote": {"price": 2}}, {"ok": bool, "quote": Quote})["quote"] == Quote(price=2)


def test_types_that_hold_themselves_are_checked_all_the_way_down() -> None:
    form = Form.from_data(json.loads(json.dumps(form_of(Tree).as_data())))
    answer = {"name": "a", "children": [{"name": "b", "children": [{"name": 3}]}]}
    assert list(reasons(form, answer)) == ["children[0].children[0].name"]
    answer["children"] = [{"name": "b"}]
    assert typed(form.check(answer).value, Tree) == Tree("a", [Tree("b")])


@pytest.mark.parametrize(
    "spec", [bool, field(bool), Annotated[bool, field(label="Sure?")], {"$schema": "", "type": "boolean"}]
)
def test_a_single_type_takes_the_bare_value_or_the_wrapped_one(spec: Any) -> None:
    form = form_of(spec)
    assert form.single
    assert [each.name for each in form.fields] == ["answer"]
    assert form.check(True).value is form.check({"answer": True}).value is True
    assert typed(True, spec) is typed({"answer": True}, spec) is True
    assert reasons(form, "yes") == {"answer": "must be true or false, not the text 'yes'"}


def test_no_spec_is_a_free_answer() -> None:
    form = form_of(None)
    assert form.fields[0].kind == "any"
    for answer in (None, 1, "text", [1, {"a": None}]):
        assert form.check(answer).value == answer
        assert typed(answer, None) == answer
    assert form.json_schema() == {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Answer"}


# What is refused as a form


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (5, "accepted are bool"),
        ({"a": bytes}, "field 'a' cannot be made from"),
        ({"a": {"b": complex}}, "field 'b'"),
        ({"amount": Decimal}, "for an exact amount use int, counting cents, or str"),
        ({"type": "boolean"}, 'add "$schema"'),
        ({}, "no fields"),
        ({1: int}, "must be text"),
        ({"": int}, "must not be empty"),
        ({"a": dict[int, str]}, "keys of a dict must be str"),
        ({"a": field(minimum=1)}, "field 'a': minimum is for numbers"),
        ({f"f{number}": int for number in range(FIELDS_MAX + 1)}, "at most 100"),
        ({"type": "object", "properties": {"a": {"type": "strng"}}}, "which must be one of array"),
        ({"type": "object", "properties": {"a": {"pattern": "a" * 201}}}, "201 characters"),
        ({"type": "object", "properties": {"a": {"pattern": "("}}}, "cannot read"),
        ({"type": "object", "properties": {"a": {"$ref": "#/$defs/no"}}}, "does not exist"),
        ({"type": "object", "properties": {"a": {"$ref": "http://x/y"}}}, "does not exist"),
        ({"type": "object", "properties": {"a": {"minimum": "1"}}}, "must be a number"),
        ({"type": "object", "properties": {"a": {"enum": []}}}, "at least one value"),
        ({"type": "object", "properties": {"a": 1}}, "where a schema must be"),
    ],
)
def test_what_cannot_be_a_form_is_refused_with_a_reason(spec: Any, words: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        form_of(spec)
    assert words in str(caught.value)


def test_a_form_nested_too_deeply_is_refused() -> None:
    spec: Any = int
    schema: Any = {"type": "integer"}
    for _ in range(FORM_NESTING_MAX + 1):
        spec, schema = {"a": spec}, {"type": "object", "properties": {"a": schema}}
    for deep in (spec, schema):
        with pytest.raises(InvalidInput, match="nested deeper than 20"):
            form_of(deep)


@pytest.mark.parametrize(
    ("declared", "words"),
    [
        ({"type": str, "choices": []}, "must not be empty"),
        ({"type": str, "choices": "abc"}, "list of values"),
        ({"type": str, "choices": ["a", "a"]}, "twice"),
        ({"type": str, "choices": [1]}, "must be text"),
        ({"type": bool, "choices": [True]}, "choices are for"),
        ({"type": Colour, "choices": ["red"]}, "already lists"),
        ({"type": str, "choices": ["a"], "default": "b"}, "must be one of"),
        ({"type": int, "default": "1"}, "must be a whole number"),
        ({"type": bool, "default": 1}, "must be true or false"),
        ({"type": int, "minimum": 3, "default": 1}, "at least 3"),
        ({"type": str, "minimum": 1}, "minimum is for numbers"),
        ({"type": int, "max_length": 1}, "max_length is for text and lists"),
        ({"type": int, "multiline": True}, "multiline is for text"),
        ({"type": int, "minimum": 3, "maximum": 2}, "above maximum"),
        ({"type": str, "min_length": 3, "max_length": 2}, "above max_length"),
        ({"type": str, "min_length": -1}, "whole number from 0"),
        ({"type": str, "default": "", "required": True}, "required and has a default"),
        ({"type": str, "label": 3}, "label must be text"),
        ({"type": bytes}, "accepted are"),
    ],
)
def test_declarations_that_do_not_fit_are_refused_at_once_and_name_the_field(declared: Any, words: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        field(**{"label": "Amount", **declared})
    assert words in str(caught.value)
    if declared.get("label") is None:
        assert "Amount" in str(caught.value)


def test_a_default_of_a_class_must_fit_its_type() -> None:
    bad = dataclasses.make_dataclass("bad", [("a", int, dataclasses.field(default="x"))])
    with pytest.raises(InvalidInput, match="field 'a'"):
        form_of(bad)


# Answers


def test_all_problems_are_listed_each_with_its_place() -> None:
    form = form_of({"approve": bool, "lines": list[Line], "due": dt.date, "by": str})
    answer = {"approve": "true", "lines": [{"item": "a"}, {"item": 1, "size": 2}], "due": "tomorrow", "extra": 1}
    before = copy.deepcopy(answer)
    assert reasons(form, answer) == {
        "approve": "must be true or false, not the text 'true'",
        "lines[1].item": "must be text, not 1",
        "lines[1].size": "is not a field of this form; fields are item, count",
        "due": "must be a date such as 2026-03-31, not 'tomorrow'",
        "by": "is missing",
        "extra": "is not a field of this form; fields are approve, lines, due, by",
    }
    assert answer == before
    assert str(form.check([]).problems[0]).startswith("answer must be an object with the fields approve,")


def test_types_are_exact_and_numbers_are_made_exact() -> None:
    form = form_of({"count": int, "price": float})
    value = form.check({"price": 3, "count": 3.0}).value
    assert value == {"count": 3, "price": 3.0}
    assert [(name, type(each)) for name, each in value.items()] == [("count", int), ("price", float)]
    assert set(reasons(form, {"count": True, "price": False})) == {"count", "price"}
    assert set(reasons(form, {"count": 3.5, "price": float("nan")})) == {"count", "price"}
    assert set(reasons(form, {"count": 10**5000, "price": 10**400})) == {"count", "price"}


def test_objects_in_an_answer_become_plain() -> None:
    form = form_of(Order)
    order = Order(True, [Line("a")], dt.date(2026, 3, 31), Speed.FAST)
    plain = {"approve": True, "lines": [{"item": "a", "count": 1}], "due": "2026-03-31", "speed": 2, "note": ""}
    assert form.check(order).value == form.check(plain).value == plain
    assert typed(plain, Order) == order
    json.dumps(form.check(order).value)


def test_what_no_answer_can_hold_is_a_problem() -> None:
    form = form_of({"x": Any, "y": int})
    deep: list[Any] = []
    deep.append(deep)
    for bad in (b"x", object(), {1: 2}, "\ud800", deep, float("inf")):
        assert next(iter(reasons(form, {"x": bad, "y": 1}))).startswith("x"), bad


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"type": ["string", "null"]}, ["", None], [1]),
        ({"const": 1}, [1, 1.0], [True, 2]),
        ({"enum": ["a", 1, None, [1]]}, ["a", 1, None, [1]], [True, "b", [True]]),
        ({"minimum": 1, "maximum": 3}, [1, 3, "text"], [0, 4]),
        ({"exclusiveMinimum": 1, "exclusiveMaximum": 3}, [2], [1, 3]),
        ({"multipleOf": 0.01}, [0.07, 5, 19.99], [0.001]),
        ({"minLength": 1, "maxLength": 2}, ["a", 5], ["", "abc"]),
        ({"pattern": "^a+$"}, ["aa"], ["ab", "a" * 10_001]),
        ({"type": "array", "items": {"type": "integer"}}, [[], [1]], [["a"], {}]),
        ({"minItems": 1, "maxItems": 2}, [[1], [1, 2]], [[], [1, 2, 3]]),
        ({"uniqueItems": True}, [[1, True], [{"a": 1}, {"a": 2}]], [[1, 1.0], [{"a": 1}, {"a": 1}]]),
        ({"prefixItems": [{"type": "integer"}], "items": False}, [[1], []], [["a"], [1, 2]]),
        ({"anyOf": [{"type": "integer"}, {"minLength": 2}]}, [1, "ab"], ["a"]),
        ({"oneOf": [{"minimum": 1}, {"maximum": 3}]}, [0, 4], [2]),
        ({"allOf": [{"minimum": 1}, {"maximum": 3}]}, [2], [0, 4]),
        ({"enum": [1, 2], "oneOf": [{"const": 2}, {"const": 3}]}, [2], [1, 3]),
        ({"properties": {"a": {"type": "integer"}}, "required": ["a"]}, [{"a": 1, "b": 2}, 5], [{}, {"a": "x"}]),
        ({"properties": {"a": {}}, "additionalProperties": False}, [{"a": 1}], [{"b": 1}]),
        ({"additionalProperties": {"type": "integer"}}, [{"a": 1}], [{"a": "x"}]),
        ({"$ref": "#/$defs/n", "maximum": 3, "$defs": {"n": {"minimum": 1}}}, [2], [0, 4]),
        ({"$ref": "#/definitions/n", "definitions": {"n": {"minimum": 1}}}, [2], [0]),
        ({"format": "date"}, ["2026-02-28"], ["2026-02-29", "20260228", "x"]),
        (
            {"format": "date-time"},
            ["2026-02-28T10:00:00Z", "2026-02-28 10:00", "2026-02-28t10:00:00.123+01:00"],
            ["2026-02-28", "x"],
        ),
        ({"x-unknown": 1, "format": "uuid"}, [1, "a"], []),
    ],
)
def test_json_schema_keywords_mean_what_they_say(schema: Any, good: list[Any], bad: list[Any]) -> None:
    form = form_of(
        {"type": "object", "properties": {"it": schema}}
        | {word: schema.pop(word) for word in ("$defs", "definitions") if word in schema}
    )
    stored = Form.from_data(json.loads(json.dumps(form.as_data())))
    for answer in good:
        assert stored.check({"it": answer}).problems == []
    for answer in bad:
        assert stored.check({"it": answer}).problems, answer
        assert stored.check({"it": answer}) == form.check({"it": answer})


def test_defaults_are_filled_in_through_references_and_combinations() -> None:
    part = {"type": "object", "properties": {"b": {"default": [1]}}}
    form = form_of(
        {
            "type": "object",
            "properties": {
                "a": {"allOf": [{"$ref": "#/$defs/p"}, {"properties": {"c": {"default": 2}}}]},
                "d": {"default": {}},
            },
            "required": ["d"],
            "$defs": {"p": part},
        }
    )
    assert form.check({"a": {}}).value == {"a": {"b": [1], "c": 2}, "d": {}}
    form.check({"a": {}}).value["a"]["b"].append(2)
    assert form.check({"a": {}}).value["a"]["b"] == [1]


def test_schemas_that_run_in_circles_end_in_a_problem() -> None:
    circle = {"$schema": "", "$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}
    bomb = {
        "$schema": "",
        "$ref": "#/$defs/a",
        "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/a"}]}},
    }
    wide = {"$schema": "", "anyOf": [{"$ref": "#/$defs/a"}, {}], "$defs": bomb["$defs"]}
    for schema in (circle, bomb, wide):
        assert form_of(schema).check(1).problems


def test_a_failed_union_tells_what_would_have_been_accepted() -> None:
    reason = reasons(form_of({"a": int | bool}), {"a": None})["a"]
    assert (
        reason
        == "fits none of the accepted forms: must be a whole number, not null; or must be true or false, not null"
    )
    assert reasons(form_of({"a": Optional[Line]}), {"a": {"item": 1}}) == {"a.item": "must be text, not 1"}  # noqa: UP045
