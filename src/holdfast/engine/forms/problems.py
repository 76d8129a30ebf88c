"""What is wrong with an answer, and where: the path of the field and a reason that reads on after its name."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from holdfast.errors import InvalidInput

_SHORT: Final = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxlong = _SHORT.maxother = 60

_WORDS: Final = {list: "a list", dict: "an object", type(None): "nothing"}


class Problem(msgspec.Struct, frozen=True):
    """One thing to put right. `field` is a path such as `note`, `lines[2].price` or, for all of it, `answer`."""

    field: str
    reason: str

    def __str__(self) -> str:
        return f"{self.field} {self.reason}"


def inside(path: str, name: str) -> str:
    """The path of a field in an object."""
    return f"{path}.{name}" if path else name


def at(path: str, index: int) -> str:
    """The path of an item in a list."""
    return f"{path}[{index}]"


def shown(value: Any) -> str:
    """A value as a message can show it: short, whatever its size."""
    try:
        return _SHORT.repr(value)
    except Exception:  # A number of very many digits, or an object that cannot show itself.
        return f"a {type(value).__name__}"


def described(value: Any) -> str:
    """What a plain value is, in words, or the value itself where that says it."""
    return f"the text {shown(value)}" if isinstance(value, str) else _WORDS.get(type(value)) or shown(value)


def refusal(what: str, problems: Iterable[Problem]) -> InvalidInput:
    """All problems as one error."""
    return InvalidInput(f"{what}: " + "; ".join(str(problem) for problem in problems))
