"""How deep a definition may be: one limit for files, data and what is made in Python, so that nothing that goes through
a definition part by part ever comes to the end of Python's stack.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec

DEPTH_MAX: Final = 100
"""How many dicts, lists and parts may lie in one another."""


def is_deeper(value: Any, limit: int = DEPTH_MAX) -> bool:
    """Whether more than `limit` containers lie in one another. What contains itself is deeper than anything."""
    level = {id(value): value} if _is_container(value) else {}
    for _ in range(limit):
        if not level:
            return False
        level = {id(part): part for holder in level.values() for part in _inside(holder) if _is_container(part)}
    return bool(level)


def _is_container(value: Any) -> bool:
    return isinstance(value, (dict, list, tuple, set, frozenset, msgspec.Struct))


def _inside(holder: Any) -> Iterable[Any]:
    if isinstance(holder, dict):
        return holder.values()
    return (
        [getattr(holder, name) for name in holder.__struct_fields__] if isinstance(holder, msgspec.Struct) else holder
    )
