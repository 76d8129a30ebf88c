"""Typed results: a function's return annotation says what its recorded result becomes, live and after replay."""

from __future__ import annotations

import dataclasses
import enum
import functools
import sys
import typing
import weakref
from collections.abc import Callable
from typing import Any

import msgspec

from holdfast.errors import InvalidInput

_PLAIN = (type(None), bool, int, float, str, bytes)

Convert = Callable[[Any], Any]
_converters: weakref.WeakKeyDictionary[Any, Convert | None] = weakref.WeakKeyDictionary()


def typed_result(fn: Callable[..., Any], value: Any, call: str) -> Any:
    """`value` as the function's annotation says, if that names a dataclass, Struct, Pydantic model or enum."""
    target = fn.func if isinstance(fn, functools.partial) else fn
    target = getattr(target, "__func__", target)
    try:
        convert = _converters[target]
    except KeyError:
        convert = _converters[target] = _converter(target)
    except TypeError:  # no weak references to it: nothing with an annotation
        convert = _converter(target)
    if convert is None:
        return value
    try:
        return convert(value)
    except (msgspec.ValidationError, TypeError, ValueError) as error:
        raise InvalidInput(f"the result of {call!r} does not fit the annotation of its function: {error}") from error


def _converter(fn: Any) -> Convert | None:
    if not hasattr(fn, "__annotations__") and hasattr(type(fn), "__call__"):  # noqa: B004 - an object with its own call
        fn = type(fn).__call__
    try:
        annotation = typing.get_type_hints(fn).get("return")
    except Exception:  # an annotation may name what exists only for a type checker
        return None
    return converter_of(annotation)


def converter_of(annotation: Any) -> Convert | None:
    """What makes the annotated type of builtins; None if they are fine as they are."""
    if annotation is None or annotation in _PLAIN or not _structured(annotation, 0):
        return None
    if _has_pydantic(annotation, 0):
        adapter = sys.modules["pydantic"].TypeAdapter(annotation)
        return adapter.validate_python  # type: ignore[no-any-return]
    return lambda value: value if _is_instance(value, annotation) else msgspec.convert(value, annotation)


def _is_instance(value: Any, annotation: Any) -> bool:
    return isinstance(annotation, type) and isinstance(value, annotation)


def _structured(annotation: Any, depth: int) -> bool:
    """Whether something in the annotation is more than builtins."""
    if depth > 20:
        return False
    if isinstance(annotation, type) and not typing.get_origin(annotation):
        return (
            dataclasses.is_dataclass(annotation)
            or issubclass(annotation, (msgspec.Struct, enum.Enum))
            or hasattr(annotation, "__pydantic_fields__")
            or (issubclass(annotation, tuple) and hasattr(annotation, "_fields"))
        )
    return any(_structured(inner, depth + 1) for inner in typing.get_args(annotation))


def _has_pydantic(annotation: Any, depth: int) -> bool:
    if hasattr(annotation, "__pydantic_fields__"):
        return True
    return depth < 20 and any(_has_pydantic(inner, depth + 1) for inner in typing.get_args(annotation))
