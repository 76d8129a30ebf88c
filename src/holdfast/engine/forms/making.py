"""`form_of`: the form for whatever a user says an answer is."""

from __future__ import annotations

from typing import Any, Final

from holdfast.engine.forms.annotations import Builder
from holdfast.engine.forms.fields import field_of, opened
from holdfast.engine.forms.form import ANSWER, Form
from holdfast.engine.forms.members import has_members, is_json_schema, is_pydantic
from holdfast.engine.forms.schemas import Schema
from holdfast.engine.forms.vetting import vetted
from holdfast.ids import check_id


def form_of(spec: Any) -> Form:
    """The form for a dict of types, a class with fields, a JSON Schema, one type, or None for a free answer.

    Raises InvalidInput saying what is wrong, and what is accepted.
    """
    key = tuple(spec.items()) if type(spec) is dict and all(type(one) is type for one in spec.values()) else None
    if key is None:
        return _made(spec)
    found = _known.get(key)
    if found is None:
        if len(_known) >= _KNOWN_MAX:
            _known.clear()
        found = _known[key] = _made(spec)
    return found


_KNOWN_MAX: Final = 256
_known: dict[Any, Form] = {}
"""The forms of dicts of plain types, which are asked for at every pause and every resume."""


def _made(spec: Any) -> Form:
    builder = Builder()
    schema = builder.schema(spec, "the form")
    whole: Schema = {**schema, "$defs": builder.defs} if builder.defs else schema
    whole = vetted(whole, "the form")
    is_given = is_pydantic(spec) or is_json_schema(spec)
    given = whole if is_given else None
    shape = opened(schema, whole)[0] if is_given or has_members(spec) else {}
    if not isinstance(shape.get("properties"), dict):
        # The title of a Pydantic model is the name of a class, not of a field.
        shown = {word: value for word, value in whole.items() if word != "title" or not is_pydantic(spec)}
        return Form((field_of(ANSWER, shown, whole, required=True),), given, single=True)
    required = shape.get("required", ())
    fields = tuple(
        field_of(check_id("the name of a field", name), part, whole, required=name in required)
        for name, part in shape["properties"].items()
        if part is not False
    )
    return Form(fields, given)
