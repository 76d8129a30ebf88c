"""Paths: how parts of the state are named. `quote.items.0.price`: keys of dicts and numbers of items, joined by dots.

A key that has dots itself is found as well: at each place the longest key that is there counts.
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
    if not parts:
        return value
    if isinstance(value, Mapping):
        for count in range(len(parts), 0, -1):
            key = ".".join(parts[:count])
            if key in value:
                found = _find(value[key], parts[count:])
                if found is not MISSING:
                    return found
        return MISSING
    if isinstance(value, (list, tuple)) and parts[0].isascii() and parts[0].isdigit():
        number = int(parts[0])
        return _find(value[number], parts[1:]) if number < len(value) else MISSING
    return MISSING


def put(state: dict[str, Any], path: str, value: Any) -> None:
    """Put a value at a path of dicts, which are made where they are not there.

    The dicts on the way are copied: the same one may lie elsewhere in the state, which is not to change with it.
    """
    *way, last = parts_of(path)
    for part in way:
        inner = state.get(part)
        state[part] = dict(inner) if isinstance(inner, dict) else {}
        state = state[part]
    state[last] = value
