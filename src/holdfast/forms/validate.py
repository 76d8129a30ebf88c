"""Checks values against JSON Schemas, and validates the schemas themselves.

Every answer is checked here, so equal forms accept the same answers whatever type they were built from. The schema must
have passed `validate_schema`; then no value makes a check raise.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeGuard

from holdfast import limits
from holdfast.errors import InvalidInput
from holdfast.forms.json_schema import (
    PART_LISTS,
    REFERENCE,
    Json,
    Problem,
    Schema,
    choice_keyword,
    choices_in,
    copy_plain,
    describe_value,
    field_path,
    is_same,
    item_path,
    key_of,
    list_choices,
    parts_of,
    plain_or_refuse,
    read_date,
    read_datetime,
    short_text,
    target_of,
    types_in,
)

_EXPECTED: Final = {
    "boolean": "true or false",
    "integer": "a whole number",
    "number": "a number",
    "string": "text",
    "array": "a list",
    "object": "an object",
    "null": "nothing (null)",
}
_BOUNDS: Final = (
    ("minimum", operator.ge, "at least"),
    ("maximum", operator.le, "at most"),
    ("exclusiveMinimum", operator.gt, "more than"),
    ("exclusiveMaximum", operator.lt, "less than"),
)


def check_value(schema: Schema, value: Json, path: str = "") -> tuple[Json, list[Problem]]:
    """The clean copy of `value`, and its problems. `schema` contains its `$defs`; `value` is not changed."""
    checking = _Checking(schema)
    clean = checking.part(schema, value, path, 0)
    if checking.is_exhausted:
        # Reported once for the whole value: inside a combination the problem would only rule out one part of several.
        checking.problems.append(Problem(path or "answer", "is too large to check"))
    return clean, checking.problems


class _Checking:
    """One check: the problems found so far, and how many parts were checked."""

    def __init__(self, root: Schema) -> None:
        self._root = root
        self._parts = 0
        self.problems: list[Problem] = []

    def part(self, schema: Schema | bool, value: Json, path: str, depth: int) -> Json:
        """Apply one part of the schema to one part of the answer."""
        self._parts += 1
        if depth > limits.CHECK_DEPTH_MAX:
            return self._bad(value, path, "is nested too deeply")
        if self.is_exhausted:
            return value
        if isinstance(schema, bool):
            return value if schema else self._bad(value, path, "is not accepted here")
        chosen = value
        choices = choices_in(schema)
        if choices is not None:
            match = next((choice for choice in choices if is_same(choice.value, value)), None)
            if match is None:
                return self._bad(value, path, f"must be one of {list_choices(choices)}, not {short_text(value)}")
            chosen = copy_plain(match.value)
        types = types_in(schema)
        if types and not any(_fits(value, name) for name in types):
            wanted = " or ".join(_EXPECTED[name] for name in types)
            return self._bad(value, path, f"must be {wanted}, not {describe_value(value)}")
        clean = self._by_type(schema, types, value, path, depth)
        if choices is not None:
            clean = _merge(value, chosen, clean)
        for other in self._combined(schema, value, path, depth):
            clean = _merge(value, clean, other)
        return clean

    @property
    def is_exhausted(self) -> bool:
        """Whether the check has reached its limit of parts; then it stops."""
        return self._parts > limits.CHECK_PARTS_MAX

    def _bad(self, value: Json, path: str, reason: str) -> Json:
        if len(self.problems) < limits.PROBLEMS_MAX:
            self.problems.append(Problem(path or "answer", reason))
        return value

    def _by_type(self, schema: Schema, types: tuple[str, ...], value: Json, path: str, depth: int) -> Json:
        if isinstance(value, dict):
            return self._object(schema, value, path, depth)
        if isinstance(value, list):
            return self._array(schema, value, path, depth)
        if isinstance(value, str):
            return self._text(schema, value, path)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return self._number(schema, types, value, path)
        return value

    def _object(self, schema: Schema, value: dict[str, Json], path: str, depth: int) -> dict[str, Json]:
        known, rest = schema.get("properties", {}), schema.get("additionalProperties", True)
        clean: dict[str, Json] = {}
        for name, part in known.items():
            if name in value:
                clean[name] = self.part(part, value[name], field_path(path, name), depth + 1)
            elif isinstance(part, dict) and "default" in part:
                clean[name] = copy_plain(part["default"])
        for name in schema.get("required", ()):
            if name not in value and name not in clean:
                self._bad(None, field_path(path, name), "is missing")
        for name in value:
            if name in known:
                continue
            if rest is False and "patternProperties" not in schema:
                fields = f"fields are {', '.join(known)}" if known else "it has none"
                self._bad(None, field_path(path, name), f"is not a field of this form; {fields}")
            elif isinstance(rest, dict):
                clean[name] = self.part(rest, value[name], field_path(path, name), depth + 1)
            else:
                clean[name] = copy_plain(value[name])
        return clean

    def _array(self, schema: Schema, value: list[Json], path: str, depth: int) -> list[Json]:
        least, most = schema.get("minItems", 0), schema.get("maxItems")
        if len(value) < least:
            self._bad(None, path, f"must have at least {least} items, not {len(value)}")
        if most is not None and len(value) > most:
            self._bad(None, path, f"must have at most {most} items, not {len(value)}")
        if schema.get("uniqueItems") is True and len({key_of(item) for item in value}) < len(value):
            self._bad(None, path, "must not have the same item twice")
        first, rest = schema.get("prefixItems", ()), schema.get("items", True)
        return [
            self.part(first[index] if index < len(first) else rest, item, item_path(path, index), depth + 1)
            for index, item in enumerate(value)
        ]

    def _text(self, schema: Schema, value: str, path: str) -> str:
        least, most = schema.get("minLength", 0), schema.get("maxLength")
        if len(value) < least:
            reason = "must not be empty" if least == 1 else f"must have at least {least} characters, not {len(value)}"
            self._bad(None, path, reason)
        if most is not None and len(value) > most:
            self._bad(None, path, f"must have at most {most} characters, not {len(value)}")
        pattern = schema.get("pattern")
        if pattern is not None:
            if len(value) > limits.PATTERN_TEXT_CHARS_MAX:
                self._bad(
                    None, path, f"is longer than {limits.PATTERN_TEXT_CHARS_MAX} characters, too long for its pattern"
                )
            elif not re.search(pattern, value):
                self._bad(None, path, f"must match the pattern {pattern}, and {short_text(value)} does not")
        form = schema.get("format")
        if form == "date" and read_date(value) is None:
            self._bad(None, path, f"must be a date such as 2026-03-31, not {short_text(value)}")
        if form == "date-time" and read_datetime(value) is None:
            self._bad(None, path, f"must be a time such as 2026-03-31T10:15:00Z, not {short_text(value)}")
        return value

    def _number(self, schema: Schema, types: tuple[str, ...], value: float, path: str) -> float:
        for keyword, passes, words in _BOUNDS:
            bound = schema.get(keyword)
            if bound is not None and not passes(value, bound):
                self._bad(None, path, f"must be {words} {bound}, not {short_text(value)}")
        step = schema.get("multipleOf")
        if step is not None and not _is_multiple(value, step):
            self._bad(None, path, f"must be a multiple of {step}, not {short_text(value)}")
        if isinstance(value, float) and "integer" in types and value.is_integer():
            return int(value)
        if isinstance(value, int) and "number" in types and "integer" not in types:
            try:
                return float(value)
            except OverflowError:
                self._bad(None, path, "is too large a number")
        return value

    def _combined(self, schema: Schema, value: Json, path: str, depth: int) -> Iterator[Json]:
        """The clean copies made by references and combinations in a schema; each checks the given value."""
        if "$ref" in schema:
            yield self.part(target_of(schema, self._root), value, path, depth + 1)
        for part in schema.get("allOf", ()):
            yield self.part(part, value, path, depth + 1)
        done = choice_keyword(schema)
        if "anyOf" in schema and done != "anyOf":
            yield self._any_of(schema["anyOf"], value, path, depth)
        if "oneOf" in schema and done != "oneOf":
            yield self._any_of(schema["oneOf"], value, path, depth, only_one=True)

    def _any_of(self, parts: list[Schema | bool], value: Json, path: str, depth: int, only_one: bool = False) -> Json:
        passed: list[Json] = []
        failed: list[list[Problem]] = []
        for part in parts:
            held, self.problems = self.problems, []
            clean = self.part(part, value, path, depth + 1)
            found, self.problems = self.problems, held
            if found:
                failed.append(found)
            else:
                passed.append(clean)
        if only_one and len(passed) > 1:
            return self._bad(value, path, "fits more than one of the accepted forms, and must fit exactly one")
        if passed:
            # 3 fits both a number and a whole number; the part that keeps its type fits best.
            return next((clean for clean in passed if type(clean) is type(value)), passed[0])
        apt = [found for part, found in zip(parts, failed, strict=True) if self._accepts_type(part, value)]
        if len(apt) == 1:
            self.problems.extend(apt[0][: limits.PROBLEMS_MAX - len(self.problems)])
            return value
        reasons = dict.fromkeys(
            str(found[0]) if found[0].field != (path or "answer") else found[0].reason for found in failed
        )
        return self._bad(value, path, "fits none of the accepted forms: " + "; or ".join(reasons))

    def _accepts_type(self, part: Schema | bool, value: Json) -> bool:
        """Whether a failed part accepts values of this type, so that its problems are the relevant ones."""
        for _ in range(limits.CHECK_DEPTH_MAX):
            if not isinstance(part, dict) or "$ref" not in part:
                break
            part = target_of(part, self._root)
        types = types_in(part) if isinstance(part, dict) else ()
        return not types or any(_fits(value, name) for name in types)


def _fits(value: Json, name: str) -> bool:
    match name:
        case "boolean":
            return isinstance(value, bool)
        case "integer":
            whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
            return whole and not isinstance(value, bool)
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "string":
            return isinstance(value, str)
        case "array":
            return isinstance(value, list)
        case "object":
            return isinstance(value, dict)
        case _:
            return value is None


def _merge(given: Json, ours: Json, theirs: Json) -> Json:
    """Two clean copies of one value as one, with the defaults and conversions of both."""
    if isinstance(ours, dict) and isinstance(theirs, dict) and isinstance(given, dict):
        both = {
            name: _merge(given.get(name), ours[name], value) if name in ours else value
            for name, value in theirs.items()
        }
        return both | {name: value for name, value in ours.items() if name not in theirs}
    if isinstance(ours, list) and isinstance(theirs, list) and isinstance(given, list):
        return [_merge(*three) for three in zip(given, ours, theirs, strict=True)]
    return theirs if type(theirs) is not type(given) else ours


_TYPES: Final = frozenset(("boolean", "integer", "number", "string", "array", "object", "null"))


def validate_schema(schema: object, what: str = "the JSON Schema") -> Schema:
    """A copy of `schema` that is safe to check with; raises InvalidInput if it is not valid.

    `definitions`, the older name of `$defs`, is renamed.
    """
    copy = plain_or_refuse(schema, f"{what} must be plain data", limits.SCHEMA_NESTING_MAX)
    if not isinstance(copy, dict):
        raise InvalidInput(f"{what} must be a dict, not {type(schema).__name__}")
    renamed = _rename_definitions(copy)
    _validate_part(renamed, renamed, what, 0)
    return renamed


def _rename_definitions(schema: Schema) -> Schema:
    if "definitions" not in schema or "$defs" in schema:
        return schema
    old = "#/definitions/"

    def rename(value: object) -> Any:
        if isinstance(value, list):
            return [rename(item) for item in value]
        if not isinstance(value, dict):
            return value
        reference = value.get("$ref")
        if isinstance(reference, str) and reference.startswith(old):
            value = {**value, "$ref": REFERENCE + reference.removeprefix(old)}
        return {name: rename(item) for name, item in value.items()}

    copy: Schema = rename(schema)
    copy["$defs"] = copy.pop("definitions")
    return copy


def _validate_part(schema: object, root: Schema, what: str, depth: int) -> None:
    if isinstance(schema, bool):
        return
    if not isinstance(schema, dict):
        raise InvalidInput(f"{what} has {short_text(schema)} where a schema must be")
    if depth > limits.FORM_NESTING_MAX:
        raise InvalidInput(f"{what} is nested deeper than {limits.FORM_NESTING_MAX} levels, which a form cannot show")
    for keyword, (is_valid, rule) in _RULES.items():
        if keyword in schema and not is_valid(schema[keyword]):
            raise InvalidInput(f"{what} has {keyword!r}: {short_text(schema[keyword])}, which must be {rule}")
    if len(schema.get("properties", ())) > limits.FIELDS_MAX:
        raise InvalidInput(f"{what} has {len(schema['properties'])} fields, at most {limits.FIELDS_MAX} are allowed")
    if "pattern" in schema:
        _validate_pattern(schema["pattern"], what)
    if "$ref" in schema:
        target_of(schema, root)
    for part in parts_of(schema):
        _validate_part(part, root, what, depth + 1)


def _validate_pattern(pattern: str, what: str) -> None:
    if len(pattern) > limits.PATTERN_CHARS_MAX:
        raise InvalidInput(
            f"{what} has a pattern of {len(pattern)} characters, at most {limits.PATTERN_CHARS_MAX} are allowed: "
            "long patterns can be very slow"
        )
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise InvalidInput(f"{what} has the pattern {pattern!r}, which Python cannot read: {error}") from error


def _is_type(value: object) -> bool:
    names = value if isinstance(value, list) else [value]
    return bool(names) and all(isinstance(name, str) and name in _TYPES for name in names)


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_multiple(value: float, step: float) -> bool:
    """Whether `value` is a whole number of steps, without rounding errors."""
    from fractions import Fraction  # loaded when a schema has a step

    return (Fraction(str(value)) / Fraction(str(step))).denominator == 1


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_full_list(value: object) -> bool:
    return isinstance(value, list) and bool(value)


def _is_dict(value: object) -> bool:
    return isinstance(value, dict)


_Rule = tuple[Callable[[object], bool], str]
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
