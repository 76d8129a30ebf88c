"""Looks a JSON Schema over before it becomes a form, so that checking an answer with it can never raise."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from holdfast.engine.forms.bounds import FIELDS_MAX, NESTING_MAX, PATTERN_CHARS_MAX, SCHEMA_NESTING_MAX
from holdfast.engine.forms.plain import plain_or_refuse
from holdfast.engine.forms.problems import shown
from holdfast.engine.forms.schemas import PART_LISTS, REFERENCE, Schema, parts_of, target_of
from holdfast.errors import InvalidInput

_TYPES: Final = frozenset(("boolean", "integer", "number", "string", "array", "object", "null"))


def vetted(schema: Any, what: str = "the JSON Schema") -> Schema:
    """A copy of `schema` that is safe to check with; raises InvalidInput saying what is wrong with it.

    `definitions`, the older name of `$defs`, is brought up to date.
    """
    copy = plain_or_refuse(schema, f"{what} must be plain data", SCHEMA_NESTING_MAX)
    if not isinstance(copy, dict):
        raise InvalidInput(f"{what} must be a dict, not {type(schema).__name__}")
    copy = _modern(copy)
    _vet(copy, copy, what, 0)
    return copy


def _modern(schema: Schema) -> Schema:
    if "definitions" not in schema or "$defs" in schema:
        return schema
    old = "#/definitions/"

    def bring(value: Any) -> Any:
        if isinstance(value, list):
            return [bring(item) for item in value]
        if not isinstance(value, dict):
            return value
        reference = value.get("$ref")
        if isinstance(reference, str) and reference.startswith(old):
            value = {**value, "$ref": REFERENCE + reference.removeprefix(old)}
        return {name: bring(item) for name, item in value.items()}

    copy: Schema = bring(schema)
    copy["$defs"] = copy.pop("definitions")
    return copy


def _vet(schema: Any, root: Schema, what: str, depth: int) -> None:
    if isinstance(schema, bool):
        return
    if not isinstance(schema, dict):
        raise InvalidInput(f"{what} has {shown(schema)} where a schema must be")
    if depth > NESTING_MAX:
        raise InvalidInput(f"{what} is nested deeper than {NESTING_MAX} levels, which no form can show")
    for keyword, (is_sound, rule) in _RULES.items():
        if keyword in schema and not is_sound(schema[keyword]):
            raise InvalidInput(f"{what} has {keyword!r}: {shown(schema[keyword])}, which must be {rule}")
    if len(schema.get("properties", ())) > FIELDS_MAX:
        raise InvalidInput(f"{what} has {len(schema['properties'])} fields, at most {FIELDS_MAX} are allowed")
    if "pattern" in schema:
        _vet_pattern(schema["pattern"], what)
    if "$ref" in schema:
        target_of(schema, root)
    for part in parts_of(schema):
        _vet(part, root, what, depth + 1)


def _vet_pattern(pattern: str, what: str) -> None:
    if len(pattern) > PATTERN_CHARS_MAX:
        raise InvalidInput(
            f"{what} has a pattern of {len(pattern)} characters, at most {PATTERN_CHARS_MAX} are allowed: "
            "long patterns can take forever to apply"
        )
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise InvalidInput(f"{what} has the pattern {pattern!r}, which Python cannot read: {error}") from error


def _is_type(value: Any) -> bool:
    names = value if isinstance(value, list) else [value]
    return bool(names) and all(isinstance(name, str) and name in _TYPES for name in names)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_full_list(value: Any) -> bool:
    return isinstance(value, list) and bool(value)


def _is_dict(value: Any) -> bool:
    return isinstance(value, dict)


_Rule = tuple[Callable[[Any], bool], str]

_RULES: Final[dict[str, _Rule]] = {
    "type": (_is_type, f"one of {', '.join(sorted(_TYPES))}, or a list of them"),
    "properties": (_is_dict, "a dict of schemas"),
    "$defs": (_is_dict, "a dict of schemas"),
    "required": (lambda value: isinstance(value, list) and all(map(_is_text, value)), "a list of field names"),
    "enum": (_is_full_list, "a list of at least one value"),
    "title": (_is_text, "text"),
    "description": (_is_text, "text"),
    "pattern": (_is_text, "text"),
    "$ref": (_is_text, "text"),
    "multipleOf": (lambda value: _is_number(value) and value > 0, "a number above 0"),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), (_is_number, "a number")),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems"), (_is_count, "a whole number from 0")),
    **dict.fromkeys(PART_LISTS, (_is_full_list, "a list of at least one schema")),
}
