"""Names in the code of tools, which show whether a tool asks for an approval by itself."""

from __future__ import annotations

import functools
import inspect
from types import CodeType, FunctionType
from typing import Any, Final

_FUNCTIONS_MAX: Final = 200


def mentions(function: Any, name: str) -> bool:
    """Whether the code of a function, or of a function of its module that it uses, has this name."""
    left, seen = [function], set[int]()
    while left and len(seen) < _FUNCTIONS_MAX:
        found = left.pop()
        found = inspect.unwrap(found.func if isinstance(found, functools.partial) else found)
        if not hasattr(found, "__code__"):  # an object with its own call
            found = type(found).__dict__.get("__call__")
        code = getattr(found, "__code__", None)
        if code is None or id(code) in seen:
            continue
        seen.add(id(code))
        names = _names_of(code)
        if name in names:
            return True
        own = getattr(found, "__globals__", {})
        used = [own.get(each) for each in names] + [cell.cell_contents for cell in _cells(found)]
        left += [each for each in used if isinstance(each, FunctionType)]
    return False


def _names_of(code: CodeType) -> set[str]:
    inner = [part for part in code.co_consts if isinstance(part, CodeType)]
    return {*code.co_names, *code.co_freevars}.union(*map(_names_of, inner))


def _cells(function: Any) -> list[Any]:
    cells = getattr(function, "__closure__", None) or ()
    return [cell for cell in cells if _is_filled(cell)]


def _is_filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - reading an empty cell raises
    except ValueError:
        return False
    return True
