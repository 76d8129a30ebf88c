"""The fields of a question or of the input, as a definition declares them, and the form they make.

    approve: bool
    note: {type: text, label: A note, required: false}
    level: {choices: [low, high], default: low}

or a JSON Schema of an object. Types: bool, text (str, string), long_text, int, number (float), date, datetime, list,
object, any.
"""

from __future__ import annotations

from typing import Any, Final

from holdfast.engine.forms import Form, form_of
from holdfast.engine.forms.members import is_json_schema
from holdfast.engine.forms.schemas import DIALECT
from holdfast.errors import InvalidInput

_BASIC: Final[dict[str, dict[str, Any]]] = {
    "bool": {"type": "boolean"},
    "text": {"type": "string"},
    "long_text": {"type": "string", "x-multiline": True},
    "int": {"type": "integer"},
    "number": {"type": "number"},
    "date": {"type": "string", "format": "date"},
    "datetime": {"type": "string", "format": "date-time"},
    "list": {"type": "array"},
    "object": {"type": "object"},
    "any": {},
}
_ALSO: Final = {
    "boolean": "bool", "yes_no": "bool", "str": "text", "string": "text", "integer": "int", "float": "number",
    "dict": "object",
}  # fmt: skip
_TYPES: Final = _BASIC | {other: _BASIC[name] for other, name in _ALSO.items()}
_WORDS: Final = {
    "label": "title", "help": "description", "minimum": "minimum", "maximum": "maximum", "min_length": "minLength",
    "max_length": "maxLength", "pattern": "pattern",
}  # fmt: skip
_KNOWN: Final = frozenset({"type", "choices", "options", "required", "default", *_WORDS})


def form_of_fields(fields: dict[str, Any]) -> Form:
    """The form; InvalidInput says what is wrong with the fields."""
    return form_of(schema_of_fields(fields))


def schema_of_fields(fields: dict[str, Any]) -> dict[str, Any]:
    """The JSON Schema that the fields mean."""
    if is_json_schema(fields):
        return {"$schema": DIALECT, **fields}
    found: dict[str, Any] = {"$schema": DIALECT, "type": "object", "properties": {}, "additionalProperties": False}
    required = []
    for name, given in fields.items():
        field = {"type": given} if isinstance(given, str) else given
        if not isinstance(field, dict):
            raise InvalidInput(f"field {name!r} is the name of a type, or a dict that describes it, not {given!r}")
        found["properties"][name] = _property(name, field)
        if field.get("required", "default" not in field):
            required.append(name)
    return found | ({"required": required} if required else {})


def _property(name: str, field: dict[str, Any]) -> dict[str, Any]:
    unknown = sorted(set(field) - _KNOWN)
    if unknown:
        raise InvalidInput(f"field {name!r} has {unknown[0]!r}; a field has only {', '.join(sorted(_KNOWN))}")
    kind = field.get("type", "text" if "choices" not in field and "options" not in field else "any")
    if not isinstance(kind, str) or kind not in _TYPES:
        raise InvalidInput(f"field {name!r} is of type {kind!r}; known are {', '.join(_TYPES)}")
    found = dict(_TYPES[kind])
    choices = field.get("choices", field.get("options"))
    if choices is not None:
        if not isinstance(choices, (list, dict)) or not choices:
            raise InvalidInput(f"field {name!r}: choices are a list of values, or a dict of values and their labels")
        found = _limited(found, choices)
    found |= {word: field[ours] for ours, word in _WORDS.items() if ours in field}
    if kind == "list" and "minLength" in found:
        found["minItems"] = found.pop("minLength")
    if kind == "list" and "maxLength" in found:
        found["maxItems"] = found.pop("maxLength")
    if "default" in field:
        found["default"] = field["default"]
    elif not field.get("required", True):
        found = {"anyOf": [found, {"type": "null"}], "default": None} if choices else _or_null(found)
    return found


def _limited(found: dict[str, Any], choices: Any) -> dict[str, Any]:
    if isinstance(choices, dict):
        limit: dict[str, Any] = {"oneOf": [{"const": value, "title": str(label)} for value, label in choices.items()]}
    else:
        limit = {"enum": choices}
    return {"type": "array", "items": limit} if found.get("type") == "array" else limit


def _or_null(found: dict[str, Any]) -> dict[str, Any]:
    return found | ({"type": [found["type"], "null"]} if "type" in found else {}) | {"default": None}
