"""HTML forms: what is shown for the fields of a form, and what is submitted."""

from __future__ import annotations

import datetime as dt
from typing import Any, Literal

import pytest

from holdfast.forms import Problem, field, form_of
from holdfast.web import form_nodes
from holdfast.web.forms import FormView, Values, edit_rows, parse
from tests.web.html_page import HtmlForm
from tests.web.shown_forms import shown


def the_form(spec: Any, **options: Any) -> HtmlForm:
    return shown(FormView(form_of(spec), **options)).forms[0]


def answered(spec: Any, values: Values) -> Any:
    """The answer in submitted values, which has no problems."""
    form = form_of(spec)
    raw, problems = parse(form, values)
    assert problems == []
    return form.check(raw).value


# --- what is shown ---------------------------------------------------------------------------------------------------


def test_yes_and_no_are_two_radio_buttons_and_none_is_chosen() -> None:
    form = the_form({"approve": bool})
    radios = [control for control in form.controls if control.type == "radio"]
    assert [(radio.value, radio.checked) for radio in radios] == [("true", False), ("false", False)]
    assert parse(form_of({"approve": bool}), form.submit())[1] == [Problem("approve", "is missing")]
    form.fill(approve="false")
    assert answered({"approve": bool}, form.submit()) == {"approve": False}


def test_a_default_is_chosen() -> None:
    spec = {"approve": field(bool, default=True), "n": field(int, default=3), "tone": field(str, default="x")}
    assert answered(spec, the_form(spec).submit()) == {"approve": True, "n": 3, "tone": "x"}


def test_few_choices_are_radio_buttons_and_many_are_a_menu() -> None:
    few, many = list("abcdefg"), list("abcdefgh")
    assert {c.type for c in the_form({"x": field(str, choices=few)}).controls if c.name} == {"radio"}
    menu = the_form({"x": field(str, choices=many)})
    (select,) = [c for c in menu.controls if c.tag == "select"]
    assert select.options[0] == ("", False)
    assert parse(form_of({"x": field(str, choices=many)}), menu.submit())[1] == [Problem("x", "is missing")]
    menu.fill(x='"h"')
    assert answered({"x": field(str, choices=many)}, menu.submit()) == {"x": "h"}


def test_several_choices_are_checkboxes() -> None:
    spec = {"x": list[Literal["a", "b", 3]]}
    form = the_form(spec)
    assert answered(spec, form.submit()) == {"x": []}
    form.fill(x="3")
    form.fill(x='"a"')
    assert answered(spec, form.submit()) == {"x": ["a", 3]}


def test_numbers_are_typed_as_text_with_their_limits_as_help() -> None:
    page = shown(FormView(form_of({"n": field(int, minimum=2, maximum=9), "m": field(float, minimum=0.5)})))
    assert "From 2 to 9." in page.text
    assert "At least 0.5." in page.text
    page.forms[0].fill(n=" 7 ", m="1e1")
    assert answered({"n": int, "m": float}, page.forms[0].submit()) == {"n": 7, "m": 10.0}


def test_dates_and_times_have_pickers_and_a_time_without_an_offset_is_utc() -> None:
    spec = {"day": dt.date, "at": dt.datetime}
    page = shown(FormView(form_of(spec)))
    form = page.forms[0]
    assert {c.name: c.type for c in form.controls if c.name} == {
        "f/day": "date",
        "f/at": "datetime-local",
        "f/at~z": "text",
    }
    assert "The time is in UTC, unless you give its offset" in page.text
    form.fill(day="2026-03-31", at="2026-03-31T10:15")
    assert answered(spec, form.submit()) == {"day": "2026-03-31", "at": "2026-03-31T10:15Z"}
    for zone, end in [("+02:00", "+02:00"), ("-0530", "-05:30"), ("utc", "Z"), ("Z", "Z")]:
        form.set("f/at~z", zone)
        assert answered(spec, form.submit())["at"] == f"2026-03-31T10:15{end}"
    form.set("f/at~z", "Europe/Berlin")
    assert [problem.field for problem in parse(form_of(spec), form.submit())[1]] == ["at"]
    form.set("f/at", "2026-03-31T10:15+01:00")
    assert answered(spec, form.submit())["at"] == "2026-03-31T10:15+01:00"


def test_long_text_is_a_text_area_and_a_reference_to_a_file_is_an_address() -> None:
    schema = {
        "type": "object",
        "properties": {
            "file": {"type": "string", "format": "uri"},
            "scan": {"type": "string", "contentMediaType": "x/y"},
        },
    }
    assert {c.type for c in the_form(schema).controls if c.name} == {"url"}
    assert the_form({"note": field(str, multiline=True)}).controls[0].tag == "textarea"
    assert the_form({"note": str}).controls[0].tag == "input"
    assert the_form({"note": str}, answer={"note": "two\nlines"}).controls[0].tag == "textarea"


ADDRESS = {"street": str, "zip": field(int, minimum=1000), "country": field(str, default="DE")}


def test_objects_are_nested_fieldsets() -> None:
    spec = {"to": {"address": ADDRESS, "express": bool}}
    form = the_form(spec)
    form.fill(street="Main St", zip="12345", express="true")
    assert answered(spec, form.submit()) == {
        "to": {"address": {"street": "Main St", "zip": 12345, "country": "DE"}, "express": True}
    }


def test_an_optional_object_is_left_out_until_it_is_filled_in() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "object", "properties": {"s": {"type": "string"}}}}}
    form = the_form(schema)
    assert answered(schema, form.submit()) == {}
    form.set("f/a~g", "1")
    assert answered(schema, form.submit()) == {"a": {}}
    form = the_form(schema)
    form.set("f/a/s", "typed, but the box was not checked")
    assert answered(schema, form.submit()) == {"a": {"s": "typed, but the box was not checked"}}


def rows(spec: Any, values: Values) -> HtmlForm:
    """The form after a button of a list."""
    edited = edit_rows(form_of(spec), values)
    assert edited is not None
    return shown(FormView(form_of(spec), edited[0], focus=edited[1])).forms[0]


def test_rows_are_added_and_removed_by_buttons_that_submit() -> None:
    spec = {"tags": list[str], "note": str}
    form = the_form(spec)
    form.fill(note="kept")
    form = rows(spec, form.submit("f/tags~add", "1"))
    form.set("f/tags/0", "one")
    form = rows(spec, form.submit("f/tags~add", "1"))
    assert [c.id for c in form.controls if "autofocus" in c.attributes] == ["f-tags_2f_1"]
    form.set("f/tags/1", "two")
    form = rows(spec, form.submit("f/tags~add", "1"))
    assert answered(spec, form.submit()) == {"tags": ["one", "two"], "note": "kept"}, "a row left empty does not count"
    form = rows(spec, form.submit("f/tags~del", "0"))
    assert answered(spec, form.submit()) == {"tags": ["two"], "note": "kept"}


def test_enter_presses_the_button_that_answers_and_not_one_of_a_row() -> None:
    form = the_form({"tags": list[str]}, answer={"tags": ["a"]})
    assert next(c for c in form.controls if c.tag == "button").name == ""
    assert edit_rows(form_of({"tags": list[str]}), form.submit()) is None


def test_lists_of_objects_have_rows_of_fieldsets() -> None:
    spec = {"lines": list[dict[str, int]], "x": bool}
    assert the_form(spec).controls[0].tag == "textarea", "any keys: written as JSON"
    schema = {
        "type": "object",
        "properties": {
            "lines": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "name": {"type": "string"},
                        "parts": {"type": "array", "items": {"type": "integer"}},
                    },
                    "required": ["name", "parts"],
                },
            }
        },
        "required": ["lines"],
    }
    form = rows(schema, the_form(schema).submit("f/lines~add", "1"))
    form.set("f/lines/0/name", "screw")
    form = rows(schema, form.submit("f/lines/0/parts~add", "1"))
    form.set("f/lines/0/parts/0", "17")
    form = rows(schema, form.submit("f/lines~add", "1"))
    form.set("f/lines/1/name", "nut")
    assert answered(schema, form.submit()) == {
        "lines": [{"name": "screw", "parts": [17]}, {"name": "nut", "parts": []}]
    }
    form = rows(schema, form.submit("f/lines~del", "0"))
    assert answered(schema, form.submit()) == {"lines": [{"name": "nut", "parts": []}]}


def test_what_has_no_fields_of_its_own_is_written_as_json_or_text() -> None:
    form = the_form(None)
    form.fill(answer="ship it")
    assert answered(None, form.submit()) == "ship it"
    form.fill(answer='{"answer": 3}')
    assert answered(None, form.submit()) == {"answer": 3}
    spec = {"pair": tuple[int, str], "table": dict[str, list[int]]}
    form = the_form(spec)
    form.fill(pair='[1, "x"]', table='{"a": [1]}')
    assert answered(spec, form.submit()) == {"pair": [1, "x"], "table": {"a": [1]}}
    form.fill(table='{"a": [1')
    page = shown(FormView(form_of(spec), form.submit(), parse(form_of(spec), form.submit())[1]))
    assert "Table: Is not valid JSON:" in page.text
    assert next(c for c in page.forms[0].controls if c.name == "f/table").value == '{"a": [1'


def test_fields_that_a_schema_allows_but_does_not_list_are_json() -> None:
    schema = {"$schema": "x", "type": "object", "properties": {"a": {"type": "integer"}}}
    form = the_form(schema, answer={"a": 1, "b": [2]})
    assert answered(schema, form.submit()) == {"a": 1, "b": [2]}
    form.set("f~x", "[")
    page = shown(FormView(form_of(schema), form.submit(), parse(form_of(schema), form.submit())[1]))
    assert "Is not valid JSON" in page.text
    assert "f~x" not in {c.name for c in the_form(schema).controls}
    nothing = {"$schema": "x", "type": "object", "properties": {}}
    form = the_form(nothing)
    form.set("f~x", '{"any": true}')
    assert answered(nothing, form.submit()) == {"any": True}


def test_a_class_inside_itself_is_json_at_some_depth() -> None:
    schema: dict[str, Any] = {
        "$schema": "x",
        "type": "object",
        "properties": {"tree": {"$ref": "#/$defs/tree"}},
        "required": ["tree"],
        "$defs": {
            "tree": {
                "type": "object",
                "properties": {"name": {"type": "string"}, "sub": {"type": "array", "items": {"$ref": "#/$defs/tree"}}},
                "required": ["name"],
            }
        },
    }
    deep: dict[str, Any] = {"name": "leaf"}
    for number in range(8):
        deep = {"name": str(number), "sub": [deep]}
    form = the_form(schema, answer={"tree": deep})
    assert answered(schema, form.submit()) == {"tree": deep}


def test_very_large_objects_and_lists_are_json() -> None:
    wide = {f"f{number}": str for number in range(99)}
    spec = {"a": {"b": wide, "c": wide}, "numbers": list[int]}
    numbers = list(range(form_nodes.ROWS_MAX + 1))
    both = {"a": {"b": dict.fromkeys(wide, "x"), "c": dict.fromkeys(wide, "y")}, "numbers": numbers}
    form = the_form(spec, answer=both)
    assert {c.name for c in form.controls if c.tag == "textarea"} == {"f/a", "f/numbers"}
    assert answered(spec, form.submit()) == both


# --- problems --------------------------------------------------------------------------------------------------------


def test_problems_are_shown_at_their_fields_and_above_with_links() -> None:
    spec = {"n": field(int, minimum=2, help="How many."), "to": {"address": ADDRESS}, "lines": list[int]}
    form = the_form(
        spec, answer={"n": 5, "to": {"address": {"street": "x", "zip": 1000, "country": "DE"}}, "lines": [1, 2]}
    )
    form.set("f/n", "1")
    form.set("f/to/address/zip", "12")
    form.set("f/lines/1", "two")
    values = form.submit()
    raw, problems = parse(form_of(spec), values)
    assert [problem.field for problem in problems] == ["n", "to.address.zip", "lines[1]"]
    page = shown(FormView(form_of(spec), values, problems))
    assert page.links == ["#f-n", "#f-to_2f_address_2f_zip", "#f-lines_2f_1"]
    assert "There are 3 problems" in page.text
    assert "Lines 2: Must be a whole number, not the text 'two'" in page.text
    wrong = {c.name: c for c in page.forms[0].controls}
    assert wrong["f/n"].attributes["aria-invalid"] == "true"
    assert wrong["f/n"].attributes["aria-describedby"] == "f-n-help f-n-wrong"
    assert wrong["f/lines/1"].value == "two"
    assert "aria-invalid" not in wrong["f/lines/0"].attributes
    assert raw["n"] == 1


def test_a_problem_inside_json_is_shown_at_the_json_and_one_of_no_field_above() -> None:
    form = form_of({"table": dict[str, int]})
    values = {"f/table": ['{"a": "x"}']}
    view = FormView(
        form, values, [*parse(form, values)[1], Problem("answer", "is too large to check"), Problem("z", "?")]
    )
    assert view.fields[0].problems == ["a: Must be a whole number, not the text 'x'"]
    assert [text for _, text in view.problems[:2]] == ["Is too large to check", "z: ?"]
    shown(view)


@pytest.mark.parametrize(
    ("spec", "typed", "words"),
    [
        (int, "1.5", "must be a whole number, not the text '1.5'"),
        (int, "", "must not be empty"),
        (field(int, default=7), "", "must not be empty"),
        (float, "1,5", "must be a number"),
        (float, "1e999", "is inf"),
        (dt.date, "31.1.2026", "must be a date such as"),
        (dt.datetime, "tomorrow", "must be a time such as"),
        (field(str, min_length=1), "", "must not be empty"),
        (dict, "[1]", "must be an object"),
        (dict, "", "must not be empty"),
        (dict, "[" * 100_000, "is nested too deeply"),
        (bool, "maybe", "must be true or false"),
        (Literal["a"], "b", "must be one of"),
        (Any, "", "must not be empty"),
    ],
)
def test_what_was_typed_wrongly_is_kept_with_its_problem(spec: Any, typed: str, words: str) -> None:
    form, values = form_of({"it": spec}), {"f/it": [typed]}
    (problem,) = parse(form, values)[1]
    assert problem.field == "it"
    assert words in problem.reason
    page = shown(FormView(form, values, [problem]))
    controls = [c for c in page.forms[0].controls if c.name == "f/it"]
    assert controls[0].type == "radio" or controls[0].value == typed


@pytest.mark.parametrize(
    ("spec", "typed", "value"),
    [
        (str | None, "", None),
        (int | None, " ", None),
        (str, "", ""),
        (str, " as it is ", " as it is "),
        (str, "a\r\nb", "a\nb"),
        (Any, "true", True),
        (Any, "12 apples", "12 apples"),
        (str | bool, "12", "12"),
        (field(Any, default=None), "", None),
        (bool | None, "null", None),
        (int, "3.0", 3),
    ],
)
def test_text_means_what_it_means_in_a_terminal(spec: Any, typed: str, value: Any) -> None:
    found = answered({"it": spec}, {"f/it": [typed]})["it"]
    assert (found, type(found)) == (value, type(value))


def test_values_of_any_origin_are_read_or_refused() -> None:
    form = form_of({"lines": list[int], "at": dt.datetime | None, "pick": list[Literal["a"]], "o": ADDRESS})
    for values in (
        {},
        {"f/lines~n": ["99999999999999"]},
        {"f/lines~n": ["x"], "f/lines~o": ["["], "f/o~n": ["1"], "f/at~o": ["{}"]},
        {"f/lines": ["[1]"], "f/lines~o": ['{"a": 1}'], "f/o": ["{}"], "f/pick": ["a", '"a"']},
        {f"f/lines/{number}~n": ["200"] for number in range(500)},
        {"f/lines~add": ["1"], "f/lines~del": ["x"]},
    ):
        parse(form, values)
        edited = edit_rows(form, values)
        shown(FormView(form, values if edited is None else edited[0]))
    assert parse(form, {f"f/{number}~n": ["200"] for number in range(500)})[1][0].reason.startswith("has more than")


def test_help_and_limits_are_sentences() -> None:
    page = shown(FormView(form_of({"n": field(int, minimum=0, maximum=500, help="At most 500 EUR")})))
    assert "At most 500 EUR. From 0 to 500." in page.text
