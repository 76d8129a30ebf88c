"""Answers, defaults and schemas as plain data: what JSON can hold, and nothing else.

Everything that enters a form passes here first. The result is a copy that shares no container with what was given,
so neither side can change the other.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import math
import re
from collections.abc import Hashable, Mapping
from typing import Any, Final

import msgspec

from holdfast.engine.forms.bounds import ANSWER_NESTING_MAX, INTEGER_BITS_MAX, PROBLEMS_MAX
from holdfast.engine.forms.problems import Problem, at, inside, refusal, shown

_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def plain(value: Any, problems: list[Problem], path: str = "", room: int = ANSWER_NESTING_MAX) -> Any:
    """`value` as plain data.

    Enum members become their values, dates ISO text, tuples and sets lists, instances of dataclasses, Structs and
    Pydantic models dicts. What cannot be plain is noted in `problems` and becomes None. Never raises.
    """
    if value is None or value is True or value is False:
        return value
    if isinstance(value, enum.Enum):
        return (
            plain(value.value, problems, path, room - 1) if room > 0 else _bad(problems, path, "is nested too deeply")
        )
    if isinstance(value, str):
        return _text(value, problems, path)
    if isinstance(value, int | float):
        return _number(value, problems, path)
    if isinstance(value, dt.date):  # A datetime is a date, too.
        return value.isoformat()
    if room <= 0:
        return _bad(problems, path, "is nested too deeply")
    try:
        opened = _opened(value)
    except Exception as error:  # The value's own code ran; whatever it raised, the answer is what is wrong.
        return _bad(problems, path, f"cannot be read: {type(error).__name__}: {error}")
    if isinstance(opened, dict):
        return _dict(opened, problems, path, room - 1)
    if isinstance(opened, list):
        return [plain(item, problems, at(path, index), room - 1) for index, item in enumerate(opened)]
    return _bad(problems, path, f"is of the type {type(value).__name__}, which an answer cannot hold")


def plain_or_refuse(value: Any, what: str, room: int = ANSWER_NESTING_MAX) -> Any:
    """`value` as plain data; raises InvalidInput naming `what` if it cannot be."""
    problems: list[Problem] = []
    copy = plain(value, problems, "", room)
    if problems:
        raise refusal(what, [Problem(problem.field or "it", problem.reason) for problem in problems])
    return copy


def key_of(value: Any) -> Hashable:
    """A key that two plain values share exactly if JSON calls them equal: 1 and 1.0 are, 1 and true are not."""
    if isinstance(value, bool):
        return ("bool", value)
    if isinstance(value, list):
        return ("list", tuple(key_of(item) for item in value))
    if isinstance(value, dict):
        return ("dict", frozenset((name, key_of(item)) for name, item in value.items()))
    return value  # type: ignore[no-any-return]


def same(left: Any, right: Any) -> bool:
    """Whether JSON calls two plain values equal."""
    return key_of(left) == key_of(right)


def _bad(problems: list[Problem], path: str, reason: str) -> Any:
    if len(problems) < PROBLEMS_MAX:
        problems.append(Problem(path, reason))
    return None


def _text(value: str, problems: list[Problem], path: str) -> Any:
    text = str.__str__(value)
    if not text.isascii() and _SURROGATE.search(text):
        return _bad(problems, path, "has a lone surrogate, which no store can keep")
    return text


def _number(value: int | float, problems: list[Problem], path: str) -> Any:
    if isinstance(value, float):
        number = float.__float__(value)
        return number if math.isfinite(number) else _bad(problems, path, f"is {number}, which is not a finite number")
    whole = int.__int__(value)
    if whole.bit_length() > INTEGER_BITS_MAX:
        return _bad(problems, path, f"is a whole number of more than {INTEGER_BITS_MAX} bits")
    return whole


def _opened(value: Any) -> dict[Any, Any] | list[Any] | None:
    """A container as a dict or a list of what is in it, else None."""
    if isinstance(value, list | tuple):
        return list(value)
    if isinstance(value, set | frozenset):
        return sorted(value, key=shown)  # The order of a set differs between processes.
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, type):
        return None
    if isinstance(value, msgspec.Struct):
        return msgspec.structs.asdict(value)
    if hasattr(type(value), "__pydantic_fields__") and hasattr(value, "model_dump"):
        dumped = value.model_dump(mode="json", by_alias=True)
        return dumped if isinstance(dumped, dict | list) else None
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value) if field.init}
    return None


def _dict(items: dict[Any, Any], problems: list[Problem], path: str, room: int) -> dict[str, Any]:
    copy: dict[str, Any] = {}
    for key, value in items.items():
        name = key.value if isinstance(key, enum.Enum) else key
        if not isinstance(name, str):
            _bad(problems, path, f"has the key {shown(key)}, which is not text")
            continue
        text = _text(name, problems, path)
        if text is not None:
            copy[text] = plain(value, problems, inside(path, text), room)
    return copy
