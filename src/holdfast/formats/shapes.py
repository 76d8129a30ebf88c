"""Shapes: what the originals insist on in a file, declared per system, checked before writing and after reading.

A shape is a msgspec struct, used only to check: the dict itself is what is kept, with every field it has.
"""

from __future__ import annotations

import functools
from typing import Annotated, Any, Final, get_type_hints

import msgspec

from holdfast.errors import DamagedFile, InvalidInput
from holdfast.formats.lossless import read_json

Count = Annotated[int, msgspec.Meta(ge=0)]
"""A whole number from 0 on; the originals take up to 64 bits."""

U32 = Annotated[int, msgspec.Meta(ge=0, le=2**32 - 1)]
"""A whole number of 32 bits."""
Id = Annotated[str, msgspec.Meta(min_length=1)]
"""A text that names something, and so is not empty."""

_BITS: Final = 64


class Shape(msgspec.Struct):
    """Base of shapes. Fields it does not name are allowed."""


def checked(value: object, shape: type[Shape], what: str) -> dict[str, Any]:
    """A caller's value, if it has the shape; else InvalidInput says which field has not."""
    if not isinstance(value, dict):
        raise InvalidInput(f"{what} must be a dict, not {type(value).__name__}")
    problem = find_problem(value, shape)
    if problem:
        raise InvalidInput(f"{what} does not have the form the original reads: {problem}; nothing was written")
    return value


def read_checked(data: bytes, shape: type[Shape], place: str) -> dict[str, Any]:
    """What a file holds, if it has the shape; else DamagedFile."""
    value = read_json(data, place)
    if not isinstance(value, dict):
        raise DamagedFile(place, "it holds no JSON object")
    problem = find_problem(value, shape)
    if problem:
        raise DamagedFile(place, problem)
    return value


def has_shape(value: object, shape: type[Shape]) -> bool:
    """Whether a value has the shape."""
    return isinstance(value, dict) and not find_problem(value, shape)


def find_problem(value: dict[str, Any], shape: type[Shape]) -> str:
    """Why a value does not have the shape; empty if it has."""
    try:
        found = msgspec.convert(value, shape)
    except (msgspec.ValidationError, TypeError, ValueError) as error:
        return str(error)
    return _too_large(found)


def _too_large(found: Shape) -> str:
    for name in _numbers(type(found)):
        if getattr(found, name).bit_length() > _BITS:
            return f"`{name}` needs more than {_BITS} bits"
    return ""


@functools.cache
def _numbers(shape: type[Shape]) -> tuple[str, ...]:
    """The fields that are whole numbers to the original; what may be anything may be any number."""
    return tuple(name for name, hint in get_type_hints(shape).items() if hint is int)
