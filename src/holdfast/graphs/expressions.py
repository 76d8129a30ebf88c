"""Templates, paths into the state, and conditions over it.

A template refers to parts of the state: `"{{ input.order }}"` alone is the value itself; inside other text it is the
value as text. There are no calculations, calls or filters. `\\{{` stands for two braces, whether or not `}}` follows.
`{{` that is not closed before the next `{{` is plain text.

Conditions are nine comparisons, joined by AND and OR. `gt`, `lt`, `gte` and `lte` hold only between two numbers. A
missing value equals nothing, not even null. In a dry run the answer is `None` if it depends on a value that no stage
has computed.
"""

from __future__ import annotations

import datetime as dt
import json
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Any, Final, Protocol, TypeGuard
from uuid import UUID

from holdfast.errors import InvalidInput
from holdfast.graphs.definition import Condition, JsonObject

_EXPRESSION: Final = re.compile(r"\\\{\{|\{\{((?:[^{}]|\{(?!\{)|\}(?!\}))*+)\}\}")
"""Two escaped braces, or a path between braces. Each search ends at the next braces, so parsing takes linear time."""
_PATH: Final = re.compile(r"[^\s{}|()\[\]'\"+*/%<>=!,;\\]+\Z")


class Lookup(Protocol):
    """A function that returns the value at a path, or MISSING."""

    def __call__(self, path: str, /) -> object: ...


class Unresolved(InvalidInput):
    """A template refers to a part of the state that does not exist."""

    def __init__(self, path: str, template: str) -> None:
        super().__init__(f"the state has nothing at {path!r}, which {_short(template)} refers to")
        self.path = path


def expressions(text: str) -> Iterator[str]:
    """The paths that a text refers to; InvalidInput if there is something else between braces."""
    for match in _EXPRESSION.finditer(text):
        if match[1] is not None:
            yield _check_path(match[1].strip(), text)


def _check_path(path: str, text: str) -> str:
    if not _PATH.match(path):
        raise InvalidInput(
            f"{_short(text)}: {_short(path)} is not a path; write only a path into the state between {{{{ and }}}}, "
            "such as {{ input.order }}"
        )
    parts_of(path)
    return path


def _short(text: str) -> str:
    return repr(text) if len(text) <= 200 else f"{text[:150]!r}…"


def paths_in(value: object) -> Iterator[str]:
    """All paths that the texts in a value refer to."""
    if isinstance(value, str):
        yield from expressions(value)
    elif isinstance(value, dict):
        for key, part in value.items():
            yield from paths_in(key)
            yield from paths_in(part)
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from paths_in(part)


def is_alone(text: str) -> bool:
    """Whether a text is exactly one path between braces, which stands for the value itself."""
    whole = _EXPRESSION.fullmatch(text.strip())
    return whole is not None and whole[1] is not None


def render(value: object, lookup: Lookup) -> Any:
    """Return a value with the references in its texts resolved. Raises Unresolved."""
    if isinstance(value, str):
        return _render_one(value, lookup)
    if isinstance(value, dict):
        return {str(_render_one(key, lookup)): render(part, lookup) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [render(part, lookup) for part in value]
    return value


def render_text(text: str, lookup: Lookup) -> str:
    """Return a text with its references resolved, as text."""
    found = _render_one(text, lookup)
    return found if isinstance(found, str) else as_text(found)


def _render_one(text: str, lookup: Lookup) -> object:
    if "{{" not in text:
        return text
    if is_alone(text):
        return _value(text.strip()[2:-2], text, lookup)

    def fill(match: re.Match[str]) -> str:
        return "{{" if match[1] is None else as_text(_value(match[1], text, lookup))

    return _EXPRESSION.sub(fill, text)


def _value(path: str, text: str, lookup: Lookup) -> object:
    path = _check_path(path.strip(), text)
    found = lookup(path)
    if found is MISSING:
        raise Unresolved(path, text)
    return found


def as_text(value: object) -> str:
    """Return a value as it appears inside other text: text unchanged, everything else as JSON.

    The result is the same in every process, because keys of effects are made of it. Raises InvalidInput if the value
    has no such text.
    """
    try:
        plain = _plain(value)
        return plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)
    except ValueError as error:  # an integer of thousands of digits
        raise InvalidInput(f"a value cannot be written as text: {error}") from None


def _plain(value: object) -> object:
    """Return a value as JSON data. A set becomes a sorted list, because its order differs between processes."""
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    if isinstance(value, dict):
        return {key if isinstance(key, str) else as_text(key): _plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    if isinstance(value, (set, frozenset)):
        return sorted((_plain(part) for part in value), key=lambda part: json.dumps(part, sort_keys=True))
    if isinstance(value, (dt.date, dt.time)):
        return value.isoformat()
    if isinstance(value, (dt.timedelta, Decimal, UUID)):
        return str(value)
    raise InvalidInput(
        f"a value of type {type(value).__name__} cannot be part of a text; make the reference the whole value, or "
        "convert it with a function"
    )


PARTS_MAX: Final = 32


class _Sentinel:
    """A value that is compared by identity, so a deep copy of the state must not copy it."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return self._name

    def __deepcopy__(self, memo: object) -> _Sentinel:
        return self


MISSING: Final = _Sentinel("MISSING")
"""Returned for a path at which there is no value."""
UNKNOWN: Final = _Sentinel("UNKNOWN")
"""In a dry run, a value that no stage has computed."""
RESERVED: Final = frozenset({"input", "goal", "stage", "graph", "state", "item", "index", "compensation"})
"""Keys of the state that output_key, variables and set must not use."""


def parts_of(path: str) -> list[str]:
    """Return the parts of a path. Raises InvalidInput if it is not a path."""
    parts = path.split(".")
    if not all(part and part == part.strip() for part in parts) or len(parts) > PARTS_MAX:
        raise InvalidInput(f"{path!r} is not a path; write at most {PARTS_MAX} keys joined by single dots")
    return parts


def find(value: object, path: str) -> object:
    """Return the value at the path, or MISSING."""
    return _find(value, parts_of(path))


def _find(value: object, parts: list[str]) -> object:
    while parts:
        if isinstance(value, Mapping):
            key, parts = _longest(value, parts)
            if key not in value:
                return MISSING
            value = value[key]
        elif isinstance(value, (list, tuple)) and parts[0].isascii() and parts[0].isdigit():
            number, parts = int(parts[0]), parts[1:]
            if number >= len(value):
                return MISSING
            value = value[number]
        else:
            return MISSING
    return value


def _longest(holder: Mapping[str, object], parts: list[str]) -> tuple[str, list[str]]:
    """Return the longest existing key that begins the path, or its first part, and the rest of the path."""
    for count in range(len(parts), 1, -1):
        key = ".".join(parts[:count])
        if key in holder:
            return key, parts[count:]
    return parts[0], parts[1:]


def put(state: JsonObject, path: str, value: object) -> None:
    """Store a value at a path, so that `find` returns it. Dicts are created where there is nothing, or null.

    Keys that contain dots are resolved as in `find`, and those below the path are removed: storing `approval` removes
    an older `approval.ok` beside it. Dicts along the path are copied, because the same dict may also be part of another
    value in the state. Raises InvalidInput, and changes nothing, if there is a value other than a dict on the path.
    """
    _put(state, parts_of(path), value, path)


def _put(holder: JsonObject, parts: list[str], value: object, path: str) -> None:
    key, rest = _longest(holder, parts)
    if rest:
        inner = {} if holder.get(key) is None else holder[key]
        if not isinstance(inner, dict):
            raise InvalidInput(
                f"cannot store a value at {path!r}: {path.removesuffix('.' + '.'.join(rest))!r} is "
                f"{_KINDS.get(type(inner), 'a value')}, not an object"
            )
        inner = dict(inner)
        _put(inner, rest, value, path)
        value = inner
    holder[key] = value
    below = ".".join(parts) + "."
    for other in [other for other in holder if isinstance(other, str) and other.startswith(below)]:
        del holder[other]


_KINDS: Final[dict[type, str]] = {
    list: "a list",
    tuple: "a list",
    str: "text",
    bool: "true or false",
    int: "a number",
    float: "a number",
}


# --- conditions ------------------------------------------------------------------------------------------------------

_SIZES: Final[dict[str, Callable[[int | Decimal, int | Decimal], bool]]] = {
    "gt": operator.gt,
    "lt": operator.lt,
    "gte": operator.ge,
    "lte": operator.le,
}


def holds(condition: Condition, lookup: Lookup) -> bool | None:
    """Whether the condition holds; None if that is unknown."""
    if condition.all is not None:
        return all_hold(condition.all, lookup)
    if condition.any is not None:
        answers = [holds(part, lookup) for part in condition.any]
        return True if True in answers else (None if None in answers else False)
    found = lookup(condition.key)
    if found is UNKNOWN or (condition.operator not in ("exists", "not_exists") and has_unknown(found)):
        return None
    value = render_or_unknown(condition.value, lookup)
    return None if value is UNKNOWN else compare(condition.operator, found, value)


def render_or_unknown(value: object, lookup: Lookup) -> Any:
    """Return a value with the references in its texts resolved; UNKNOWN if one of them is unknown."""
    known = True

    def find_known(path: str, /) -> object:
        nonlocal known
        found = lookup(path)
        if not has_unknown(found):
            return found
        known = False
        return None

    found = render(value, find_known)
    return found if known else UNKNOWN


def has_unknown(value: object) -> bool:
    """Whether a value is, or contains, UNKNOWN."""
    if isinstance(value, dict):
        return any(has_unknown(part) for part in value.values())
    return value is UNKNOWN or (isinstance(value, (list, tuple)) and any(has_unknown(part) for part in value))


def all_hold(conditions: Iterable[Condition], lookup: Lookup) -> bool | None:
    """Whether all conditions hold; None if that is unknown."""
    answers = [holds(condition, lookup) for condition in conditions]
    return False if False in answers else (None if None in answers else True)


def compare(name: str, found: object, value: object) -> bool:
    """Compare the value found in the state with the condition's value."""
    if name == "exists":
        return found is not MISSING
    if name == "not_exists":
        return found is MISSING
    if name == "eq":
        return found is not MISSING and same(found, value)
    if name == "neq":
        return found is MISSING or not same(found, value)
    if name == "contains":
        return _contains(found, value)
    return is_number(found) and is_number(value) and _SIZES[name](_exact(found), _exact(value))


def same(a: object, b: object) -> bool:
    """Whether two values are equal; unlike in Python, True is not equal to 1."""
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    if any(isinstance(one, Decimal) and one.is_snan() for one in (a, b)):  # comparing it raises
        return False
    return bool(a == b)


def _contains(found: object, value: object) -> bool:
    if isinstance(found, str):
        return isinstance(value, str) and value in found
    if isinstance(found, dict):
        return isinstance(value, str) and value in found
    return isinstance(found, (list, tuple, set, frozenset)) and any(same(part, value) for part in found)


def is_number(value: object) -> TypeGuard[int | float | Decimal]:
    """Whether a value is a number that can be ordered: neither a bool nor a NaN."""
    if isinstance(value, Decimal):
        return not value.is_nan()
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value == value


def _exact(number: int | float | Decimal) -> int | Decimal:
    """Return a number that compares exactly with every other one, whatever the decimal context traps."""
    return Decimal.from_float(number) if isinstance(number, float) else number


def each(conditions: Iterable[Condition]) -> Iterator[Condition]:
    """Every comparison in the conditions, including nested ones."""
    for condition in conditions:
        inner = condition.all if condition.all is not None else condition.any
        if inner is None:
            yield condition
        else:
            yield from each(inner)
