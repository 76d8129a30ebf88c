"""Checks a plain value against a JSON Schema and gives back a clean copy, with every problem it met.

Every form is checked here, whatever it was made from, so the same form accepts the same answers however it was written.
The schema must have passed `vetting.vet`; then no value makes a check raise.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Iterator
from fractions import Fraction
from typing import Any, Final

from holdfast.engine.forms import dates
from holdfast.engine.forms.bounds import CHECK_DEPTH_MAX, CHECK_PARTS_MAX, PATTERN_TEXT_CHARS_MAX, PROBLEMS_MAX
from holdfast.engine.forms.plain import key_of, same
from holdfast.engine.forms.problems import Problem, at, described, inside, shown
from holdfast.engine.forms.schemas import Schema, choice_keyword, choices_in, copied, listed, target_of, types_in

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


def check_value(schema: Schema, value: Any, path: str = "") -> tuple[Any, list[Problem]]:
    """The clean copy of `value`, and its problems. `schema` holds its own `$defs`; `value` is plain and not changed."""
    checking = _Checking(schema)
    clean = checking.part(schema, value, path, 0)
    if checking.is_exhausted:
        # Noted here and not where it happens: inside a combination it would only rule out one of several parts.
        checking.problems.append(Problem(path or "answer", "is too large to check"))
    return clean, checking.problems


class _Checking:
    """One check: what was found so far, and how much work it was."""

    def __init__(self, root: Schema) -> None:
        self._root = root
        self._parts = 0
        self.problems: list[Problem] = []

    def part(self, schema: Schema | bool, value: Any, path: str, depth: int) -> Any:
        """Apply one part of the schema to one part of the answer."""
        self._parts += 1
        if depth > CHECK_DEPTH_MAX:
            return self._bad(value, path, "is nested too deeply")
        if self.is_exhausted:
            return value
        if isinstance(schema, bool):
            return value if schema else self._bad(value, path, "is not accepted here")
        chosen = value
        choices = choices_in(schema)
        if choices is not None:
            match = next((choice for choice in choices if same(choice.value, value)), None)
            if match is None:
                return self._bad(value, path, f"must be one of {listed(choices)}, not {shown(value)}")
            chosen = copied(match.value)
        types = types_in(schema)
        if types and not any(_fits(value, name) for name in types):
            wanted = " or ".join(_EXPECTED[name] for name in types)
            return self._bad(value, path, f"must be {wanted}, not {described(value)}")
        clean = self._by_type(schema, types, value, path, depth)
        if choices is not None:
            clean = _merged(value, chosen, clean)
        for other in self._combined(schema, value, path, depth):
            clean = _merged(value, clean, other)
        return clean

    @property
    def is_exhausted(self) -> bool:
        """Whether the work has become more than a check may be; then nothing more is looked at."""
        return self._parts > CHECK_PARTS_MAX

    def _bad(self, value: Any, path: str, reason: str) -> Any:
        if len(self.problems) < PROBLEMS_MAX:
            self.problems.append(Problem(path or "answer", reason))
        return value

    def _by_type(self, schema: Schema, types: tuple[str, ...], value: Any, path: str, depth: int) -> Any:
        if isinstance(value, dict):
            return self._object(schema, value, path, depth)
        if isinstance(value, list):
            return self._array(schema, value, path, depth)
        if isinstance(value, str):
            return self._text(schema, value, path)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return self._number(schema, types, value, path)
        return value

    def _object(self, schema: Schema, value: dict[str, Any], path: str, depth: int) -> dict[str, Any]:
        known, rest = schema.get("properties", {}), schema.get("additionalProperties", True)
        clean: dict[str, Any] = {}
        for name, part in known.items():
            if name in value:
                clean[name] = self.part(part, value[name], inside(path, name), depth + 1)
            elif isinstance(part, dict) and "default" in part:
                clean[name] = copied(part["default"])
        for name in schema.get("required", ()):
            if name not in value and name not in clean:
                self._bad(None, inside(path, name), "is missing")
        for name in value:
            if name in known:
                continue
            if rest is False and "patternProperties" not in schema:
                fields = f"fields are {', '.join(known)}" if known else "it has none"
                self._bad(None, inside(path, name), f"is not a field of this form; {fields}")
            elif isinstance(rest, dict):
                clean[name] = self.part(rest, value[name], inside(path, name), depth + 1)
            else:
                clean[name] = copied(value[name])
        return clean

    def _array(self, schema: Schema, value: list[Any], path: str, depth: int) -> list[Any]:
        least, most = schema.get("minItems", 0), schema.get("maxItems")
        if len(value) < least:
            self._bad(None, path, f"must have at least {least} items, not {len(value)}")
        if most is not None and len(value) > most:
            self._bad(None, path, f"must have at most {most} items, not {len(value)}")
        if schema.get("uniqueItems") is True and len({key_of(item) for item in value}) < len(value):
            self._bad(None, path, "must not have the same item twice")
        first, rest = schema.get("prefixItems", ()), schema.get("items", True)
        return [
            self.part(first[index] if index < len(first) else rest, item, at(path, index), depth + 1)
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
            if len(value) > PATTERN_TEXT_CHARS_MAX:
                self._bad(None, path, f"is longer than {PATTERN_TEXT_CHARS_MAX} characters, too long for its pattern")
            elif not re.search(pattern, value):
                self._bad(None, path, f"must match the pattern {pattern}, and {shown(value)} does not")
        form = schema.get("format")
        if form == "date" and dates.read_date(value) is None:
            self._bad(None, path, f"must be a date such as 2026-03-31, not {shown(value)}")
        if form == "date-time" and dates.read_datetime(value) is None:
            self._bad(None, path, f"must be a time such as 2026-03-31T10:15:00Z, not {shown(value)}")
        return value

    def _number(self, schema: Schema, types: tuple[str, ...], value: float, path: str) -> float:
        for keyword, passes, words in _BOUNDS:
            bound = schema.get(keyword)
            if bound is not None and not passes(value, bound):
                self._bad(None, path, f"must be {words} {bound}, not {shown(value)}")
        step = schema.get("multipleOf")
        if step is not None and (Fraction(str(value)) / Fraction(str(step))).denominator != 1:
            self._bad(None, path, f"must be a multiple of {step}, not {shown(value)}")
        if isinstance(value, float) and "integer" in types and value.is_integer():
            return int(value)
        if isinstance(value, int) and "number" in types and "integer" not in types:
            try:
                return float(value)
            except OverflowError:
                self._bad(None, path, "is too large a number")
        return value

    def _combined(self, schema: Schema, value: Any, path: str, depth: int) -> Iterator[Any]:
        """The clean copies made by references and combinations in a schema. Each sees the value as given."""
        if "$ref" in schema:
            yield self.part(target_of(schema, self._root), value, path, depth + 1)
        for part in schema.get("allOf", ()):
            yield self.part(part, value, path, depth + 1)
        done = choice_keyword(schema)
        if "anyOf" in schema and done != "anyOf":
            yield self._any_of(schema["anyOf"], value, path, depth)
        if "oneOf" in schema and done != "oneOf":
            yield self._any_of(schema["oneOf"], value, path, depth, only_one=True)

    def _any_of(self, parts: list[Schema | bool], value: Any, path: str, depth: int, only_one: bool = False) -> Any:
        passed: list[Any] = []
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
            # 3 fits both a number and a whole number; the part that leaves it what it is fits best.
            return next((clean for clean in passed if type(clean) is type(value)), passed[0])
        apt = [found for part, found in zip(parts, failed, strict=True) if self._accepts_type(part, value)]
        if len(apt) == 1:
            self.problems.extend(apt[0][: PROBLEMS_MAX - len(self.problems)])
            return value
        reasons = dict.fromkeys(
            str(found[0]) if found[0].field != (path or "answer") else found[0].reason for found in failed
        )
        return self._bad(value, path, "fits none of the accepted forms: " + "; or ".join(reasons))

    def _accepts_type(self, part: Schema | bool, value: Any) -> bool:
        """Whether a failed part at least takes values of this type, so that its problems are the ones to tell."""
        for _ in range(CHECK_DEPTH_MAX):
            if not isinstance(part, dict) or "$ref" not in part:
                break
            part = target_of(part, self._root)
        types = types_in(part) if isinstance(part, dict) else ()
        return not types or any(_fits(value, name) for name in types)


def _fits(value: Any, name: str) -> bool:
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


def _merged(given: Any, ours: Any, theirs: Any) -> Any:
    """Two clean copies of one value as one: what either of them filled in or made exact is kept."""
    if isinstance(ours, dict) and isinstance(theirs, dict) and isinstance(given, dict):
        both = {
            name: _merged(given.get(name), ours[name], value) if name in ours else value
            for name, value in theirs.items()
        }
        return both | {name: value for name, value in ours.items() if name not in theirs}
    if isinstance(ours, list) and isinstance(theirs, list) and isinstance(given, list):
        return [_merged(*three) for three in zip(given, ours, theirs, strict=True)]
    return theirs if type(theirs) is not type(given) else ours
