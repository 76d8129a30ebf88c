"""Paths: how parts of the state are named. `quote.items.0.price`: keys of dicts and numbers of items, joined by dots.

A key that has dots itself is found as well: at each place the longest key that is there counts, and no other. What was
put at a path is what is found there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from holdfast.errors import InvalidInput

PARTS_MAX: Final = 32


class _Missing:
    def __repr__(self) -> str:
        return "MISSING"

    def __deepcopy__(self, memo: object) -> _Missing:  # there is only one
        return self


MISSING: Final = _Missing()
"""There is nothing at the path."""

RESERVED: Final = frozenset({"input", "goal", "stage", "graph", "state", "item", "index", "compensation"})
"""Keys of the state that are not for output_key, variables or set."""


def parts_of(path: str) -> list[str]:
    """The parts of a path; InvalidInput if it is none."""
    parts = path.split(".")
    if not all(part and part == part.strip() for part in parts) or len(parts) > PARTS_MAX:
        raise InvalidInput(f"{path!r} is no path: it is keys joined by single dots, at most {PARTS_MAX}")
    return parts


def find(value: Any, path: str) -> Any:
    """What is at the path, or MISSING."""
    return _find(value, parts_of(path))


def _find(value: Any, parts: list[str]) -> Any:
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


def _longest(holder: Mapping[str, Any], parts: list[str]) -> tuple[str, list[str]]:
    """The longest key that is there and begins the path, else its first part; and what is left of the path."""
    for count in range(len(parts), 1, -1):
        key = ".".join(parts[:count])
        if key in holder:
            return key, parts[count:]
    return parts[0], parts[1:]


def put(state: dict[str, Any], path: str, value: Any) -> None:
    """Put a value at a path of dicts, which are made where nothing, or null, is. From then on `find` finds it there.

    So it goes through keys that have dots themselves as `find` does, and such keys as lie below the path are gone:
    after `approval` was put, an older `approval.ok` beside it does not count. The dicts on the way are copied: the same
    one may lie elsewhere in the state, which is not to change with it. InvalidInput if something else than a dict is on
    the way; then nothing has changed.
    """
    _put(state, parts_of(path), value, path)


def _put(holder: dict[str, Any], parts: list[str], value: Any, path: str) -> None:
    key, rest = _longest(holder, parts)
    if rest:
        inner = {} if holder.get(key) is None else holder[key]
        if not isinstance(inner, dict):
            raise InvalidInput(
                f"nothing can be put at {path!r}: at {path.removesuffix('.' + '.'.join(rest))!r} is "
                f"{_KINDS.get(type(inner), 'a value')}, and only a dict has keys"
            )
        inner = dict(inner)
        _put(inner, rest, value, path)
        value = inner
    holder[key] = value
    below = ".".join(parts) + "."
    for other in [other for other in holder if isinstance(other, str) and other.startswith(below)]:
        del holder[other]


_KINDS: Final[dict[type, str]] = {
    list: "a list", tuple: "a list", str: "text", bool: "true or false", int: "a number", float: "a number",
}  # fmt: skip
