"""Fields of a question or of the input, and the form they declare.

    approve: bool
    note: {type: text, label: A note, required: false}
    level: {choices: [low, high], default: low}

or a JSON Schema of an object. Types: bool, text (str, string), long_text, int, number (float), date, datetime, list,
object, any.
"""

from __future__ import annotations

from typing import Final

from holdfast.errors import InvalidInput
from holdfast.forms import Form, form_of
from holdfast.forms.json_schema import DIALECT, Schema
from holdfast.forms.spec import is_json_schema
from holdfast.graphs.definition import JsonObject

_BASIC: Final[dict[str, Schema]] = {
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
    "boolean": "bool",
    "yes_no": "bool",
    "str": "text",
    "string": "text",
    "integer": "int",
    "float": "number",
    "dict": "object",
}
_TYPES: Final = _BASIC | {other: _BASIC[name] for other, name in _ALSO.items()}
_WORDS: Final = {
    "label": "title",
    "help": "description",
    "minimum": "minimum",
    "maximum": "maximum",
    "min_length": "minLength",
    "max_length": "maxLength",
    "pattern": "pattern",
}
_KNOWN: Final = frozenset({"type", "choices", "options", "required", "default", *_WORDS})


def form_of_fields(fields: JsonObject) -> Form:
    """Return the form. Raises InvalidInput if a field is invalid."""
    return form_of(schema_of_fields(fields))


def schema_of_fields(fields: JsonObject) -> Schema:
    """Return the JSON Schema that the fields declare."""
    if is_json_schema(fields):
        return {"$schema": DIALECT, **fields}
    found: Schema = {"$schema": DIALECT, "type": "object", "properties": {}, "additionalProperties": False}
    required = []
    for name, given in fields.items():
        field = {"type": given} if isinstance(given, str) else given
        if not isinstance(field, dict):
            raise InvalidInput(
                f"field {name!r} is {given!r}; write the name of a type, or an object such as {{type: text}}"
            )
        found["properties"][name] = _property(name, field)
        if field.get("required", "default" not in field):
            required.append(name)
    return found | ({"required": required} if required else {})


def _property(name: str, field: JsonObject) -> Schema:
    unknown = sorted(set(field) - _KNOWN)
    if unknown:
        raise InvalidInput(f"field {name!r} has an unknown key {unknown[0]!r}; use one of {', '.join(sorted(_KNOWN))}")
    kind = field.get("type", "text" if "choices" not in field and "options" not in field else "any")
    if not isinstance(kind, str) or kind not in _TYPES:
        raise InvalidInput(f"field {name!r} has an unknown type {kind!r}; use one of {', '.join(_TYPES)}")
    found = dict(_TYPES[kind])
    choices = field.get("choices", field.get("options"))
    if choices is not None:
        if not isinstance(choices, (list, dict)) or not choices:
            raise InvalidInput(f"field {name!r}: choices must be a list of values, or an object of values and labels")
        found = _restrict(found, choices)
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


def _restrict(found: Schema, choices: JsonObject | list[object]) -> Schema:
    if isinstance(choices, dict):
        limit: Schema = {"oneOf": [{"const": value, "title": str(label)} for value, label in choices.items()]}
    else:
        limit = {"enum": choices}
    return {"type": "array", "items": limit} if found.get("type") == "array" else limit


def _or_null(found: Schema) -> Schema:
    return found | ({"type": [found["type"], "null"]} if "type" in found else {}) | {"default": None}
