"""Validation of what is written: every field must be one that Clawdia's own reader accepts.

That reader fails on the whole journal, or on all checkpoints of a run, if it fails on one of them. Reading here is
lenient (see `shape`); only writing is strict. The types are listed in `record_types.txt`.
"""

from __future__ import annotations

import decimal
import functools
import math
from collections.abc import Iterator
from importlib.resources import files
from typing import Any, Final, NamedTuple

from holdfast.errors import InvalidId, InvalidInput
from holdfast.ids import check_id

_BITS: Final = {"u8": 8, "u16": 16, "u32": 32, "u64": 64}
_SHOWN_MAX: Final = 60


class Field(NamedTuple):
    """A field of an object."""

    name: str
    type: str
    is_list: bool
    is_optional: bool


class Choice(NamedTuple):
    """One of several texts."""

    values: tuple[str, ...]


class Tagged(NamedTuple):
    """An object of one of several types."""

    tag: str
    """The field that says which; empty: the object's only field does."""
    content: str
    """The field with the fields of that type; empty: they stand beside the tag."""
    types: dict[str, str]


Type = tuple[Field, ...] | Choice | Tagged


def check_conformance(value: dict[str, Any], type_name: str, what: str) -> None:
    """Raise InvalidInput if the original could not read `value`; the error names the first field it fails on."""
    for problem in (*_problems(value, type_name, ""), *_number_problems(value.get("payload"), "payload")):
        raise InvalidInput(f"the original could not read {what}: {problem}; nothing was written")


def _problems(value: object, name: str, at: str) -> Iterator[str]:
    if name in _BITS:
        if type(value) is not int or not 0 <= value < 1 << _BITS[name]:
            yield f"`{at}` is {_shown(value)}, not a whole number from 0 to 2^{_BITS[name]} - 1"
    elif name == "text":
        if not isinstance(value, str):
            yield f"`{at}` is {_shown(value)}, not a text"
    elif name == "id":
        try:
            check_id(f"`{at}`", value)
        except InvalidId as error:
            yield str(error)
    elif name == "bool":
        if not isinstance(value, bool):
            yield f"`{at}` is {_shown(value)}, not true or false"
    else:
        yield from _composed_problems(value, _types()[name], at)


def _composed_problems(value: object, kind: Type, at: str) -> Iterator[str]:
    if isinstance(kind, Choice):
        if value not in kind.values:
            yield f"`{at}` is {_shown(value)}, not one of {', '.join(kind.values)}"
    elif not isinstance(value, dict):
        yield f"`{at}` is {_shown(value)}, not an object"
    elif isinstance(kind, Tagged):
        yield from _tagged_problems(value, kind, at)
    else:
        for field in kind:
            yield from _field_problems(value, field, at)


def _tagged_problems(value: dict[str, Any], kind: Tagged, at: str) -> Iterator[str]:
    tag = value.get(kind.tag) if kind.tag else next(iter(value), None)
    place = _join(at, kind.tag) if kind.tag else at
    if not isinstance(tag, str) or tag not in kind.types or (not kind.tag and len(value) != 1):
        yield f"`{place}` is {_shown(tag)}, not one of {', '.join(kind.types)}"
        return
    content = kind.content or ("" if kind.tag else tag)
    if content and content not in value:
        yield f"`{_join(at, content)}` is missing"
    elif kind.types[tag] != "nothing":
        yield from _problems(value[content] if content else value, kind.types[tag], _join(at, content))


def _field_problems(value: dict[str, Any], field: Field, at: str) -> Iterator[str]:
    place, found = _join(at, field.name), value.get(field.name)
    if field.name not in value:
        if not field.is_optional:
            yield f"`{place}` is missing"
    elif field.is_list:
        if not isinstance(found, (list, tuple)):
            yield f"`{place}` is {_shown(found)}, not a list"
            return
        for number, item in enumerate(found):
            yield from _problems(item, field.type, f"{place}[{number}]")
    elif found is not None or not field.is_optional:
        yield from _problems(found, field.type, place)


def _number_problems(value: object, at: str) -> Iterator[str]:
    """Numbers beyond every float: inside a payload the original fails on them even in fields that it ignores."""
    if isinstance(value, dict):
        for name, part in value.items():
            yield from _number_problems(part, _join(at, str(name)))
    elif isinstance(value, (list, tuple)):
        for number, part in enumerate(value):
            yield from _number_problems(part, f"{at}[{number}]")
    elif isinstance(value, (int, decimal.Decimal)) and not _is_float(value):
        yield f"`{at}` is a number that is too large"


def _is_float(value: int | decimal.Decimal) -> bool:
    try:
        return math.isfinite(float(value))
    except OverflowError:
        return False


def _join(at: str, name: str) -> str:
    return f"{at}.{name}" if at and name else at or name


def _shown(value: object) -> str:
    if isinstance(value, (dict, list, tuple)):
        return "an object" if isinstance(value, dict) else "a list"
    text = repr(value)
    return text if len(text) <= _SHOWN_MAX else text[:_SHOWN_MAX] + "…"


# --- the list of types -----------------------------------------------------------------------------------------------


@functools.cache
def _types() -> dict[str, Type]:
    text = files(__package__).joinpath("record_types.txt").read_text("utf-8").replace("\n  ", " ")
    lines = [line.split() for line in text.splitlines() if not line.startswith("#")]
    return {name: _type_of(operator, words) for name, operator, *words in lines}


def _type_of(operator: str, words: list[str]) -> Type:
    if operator == "|":
        return Choice(tuple(words))
    pairs = [(name, kind) for name, _, kind in (word.partition(":") for word in words)]
    if operator == "=":
        return tuple(Field(name, kind.rstrip("*?"), "*" in kind, kind.endswith("?")) for name, kind in pairs)
    tag, _, content = operator.removeprefix("@").partition("/")
    return Tagged(tag, content, dict(pairs))
