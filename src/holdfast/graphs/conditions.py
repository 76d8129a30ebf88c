"""Conditions over the state. There is nothing to evaluate but nine comparisons, joined by AND and OR.

A comparison of sizes holds only between two numbers. What is missing equals nothing, not even null. An answer may be
`None`, "that is not known": in a dry run, about what no stage has computed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from typing import Any, Final

from holdfast.graphs.definition import Condition
from holdfast.graphs.paths import MISSING
from holdfast.graphs.templates import Lookup, render

_SIZES: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "gt": lambda a, b: a > b,
    "lt": lambda a, b: a < b,
    "gte": lambda a, b: a >= b,
    "lte": lambda a, b: a <= b,
}


class _Unknown:
    def __repr__(self) -> str:
        return "UNKNOWN"

    def __deepcopy__(self, memo: object) -> _Unknown:  # there is only one
        return self


UNKNOWN: Final = _Unknown()
"""A value that nobody has computed, in a dry run."""


def holds(condition: Condition, lookup: Lookup) -> bool | None:
    """Whether the condition holds; None if that cannot be known."""
    if condition.all is not None:
        return all_hold(condition.all, lookup)
    if condition.any is not None:
        answers = [holds(part, lookup) for part in condition.any]
        return True if True in answers else (None if None in answers else False)
    found = lookup(condition.key)
    if found is UNKNOWN or (condition.operator not in ("exists", "not_exists") and has_unknown(found)):
        return None
    value = rendered(condition.value, lookup)
    return None if value is UNKNOWN else compared(condition.operator, found, value)


def rendered(value: Any, lookup: Lookup) -> Any:
    """A value with what its texts name filled in; UNKNOWN if something of that is not known."""
    known = True

    def look(path: str, /) -> Any:
        nonlocal known
        found = lookup(path)
        if not has_unknown(found):
            return found
        known = False
        return None

    found = render(value, look)
    return found if known else UNKNOWN


def has_unknown(value: Any) -> bool:
    """Whether something in a value is not known."""
    if isinstance(value, dict):
        return any(has_unknown(part) for part in value.values())
    return value is UNKNOWN or (isinstance(value, (list, tuple)) and any(has_unknown(part) for part in value))


def all_hold(conditions: Iterable[Condition], lookup: Lookup) -> bool | None:
    """Whether all of them hold; None if that cannot be known."""
    answers = [holds(condition, lookup) for condition in conditions]
    return False if False in answers else (None if None in answers else True)


def compared(operator: str, found: Any, value: Any) -> bool:
    """One comparison."""
    if operator == "exists":
        return found is not MISSING
    if operator == "not_exists":
        return found is MISSING
    if operator == "eq":
        return found is not MISSING and same(found, value)
    if operator == "neq":
        return found is MISSING or not same(found, value)
    if operator == "contains":
        return _contains(found, value)
    return is_number(found) and is_number(value) and _SIZES[operator](_exact(found), _exact(value))


def same(a: Any, b: Any) -> bool:
    """Whether two values are the same; True is not 1."""
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    if any(isinstance(one, Decimal) and one.is_snan() for one in (a, b)):  # which cannot even be compared
        return False
    return bool(a == b)


def _contains(found: Any, value: Any) -> bool:
    if isinstance(found, str):
        return isinstance(value, str) and value in found
    if isinstance(found, dict):
        return isinstance(value, str) and value in found
    return isinstance(found, (list, tuple, set, frozenset)) and any(same(part, value) for part in found)


def is_number(value: Any) -> bool:
    """Whether a value has a size."""
    if isinstance(value, Decimal):
        return not value.is_nan()
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value == value


def _exact(number: int | float | Decimal) -> int | Decimal:
    """A number as one that compares with every other to the last digit, whatever the decimal context traps."""
    return Decimal.from_float(number) if isinstance(number, float) else number


def each(conditions: Iterable[Condition]) -> Iterator[Condition]:
    """Every single comparison in them."""
    for condition in conditions:
        inner = condition.all if condition.all is not None else condition.any
        if inner is None:
            yield condition
        else:
            yield from each(inner)
