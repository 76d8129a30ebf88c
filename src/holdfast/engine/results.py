"""Converts recorded results to the return annotations of functions.

The first execution and every replay convert alike, so both return equal values.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import functools
import inspect
import sys
import types
import typing
import uuid
import weakref
from collections import abc
from collections.abc import Callable
from typing import Any, Final

import msgspec

from holdfast.engine.commands import UserFunction
from holdfast.errors import InvalidInput

_PLAIN = (type(None), bool, int, float, str, bytes)
_MOMENTS = (dt.datetime, dt.date, dt.time, dt.timedelta, uuid.UUID, decimal.Decimal)
_CONTAINERS = (list, tuple, set, frozenset, dict, abc.Sequence, abc.Mapping)
CONVERSION_ERRORS: Final = (msgspec.ValidationError, TypeError, ValueError, AttributeError)

Convert = Callable[[Any], Any]
_converters: weakref.WeakKeyDictionary[object, Convert | None] = weakref.WeakKeyDictionary()


def typed_result(fn: UserFunction, value: object, call: str) -> Any:
    """`value` converted to the annotation of the function, if it names a dataclass, Struct, Pydantic model or enum."""
    target = fn.func if isinstance(fn, functools.partial) else fn
    target = getattr(target, "__func__", target)
    try:
        convert = _converters[target]
    except KeyError:
        convert = _converters[target] = _converter(target)
    except TypeError:  # it cannot be referenced weakly, so it has no annotations
        convert = _converter(target)
    if convert is None:
        return value
    try:
        return convert(value)
    except CONVERSION_ERRORS as error:
        raise InvalidInput(f"the result of {call!r} does not fit the annotation of its function: {error}") from error


def _converter(fn: object) -> Convert | None:
    return converter_of(hints_of(fn).get("return"))


def hints_of(fn: Any) -> dict[str, Any]:
    """The annotations of a function, without those that only a type checker can resolve."""
    fn = fn.func if isinstance(fn, functools.partial) else fn
    if not hasattr(fn, "__annotations__") and hasattr(type(fn), "__call__"):  # noqa: B004 - an object with its own call
        fn = type(fn).__call__
    try:
        return typing.get_type_hints(fn, include_extras=True)
    except Exception:
        return {name: hint for name in getattr(fn, "__annotations__", {}) for hint in _hint(inspect.unwrap(fn), name)}


def _hint(fn: Any, name: str) -> list[object]:
    alone = types.SimpleNamespace(__annotations__={name: fn.__annotations__.get(name)})
    try:
        return [typing.get_type_hints(alone, getattr(fn, "__globals__", {}), include_extras=True)[name]]
    except Exception:
        return []


def converter_of(annotation: object, *, moments: bool = False) -> Convert | None:
    """The conversion of built-in values to the annotated type; None if they need none.

    `moments`: also dates, times, UUIDs and decimals, which have their own stored types but arrive as text from JSON.
    """
    if annotation is None or annotation in _PLAIN or not _has_structure(annotation, _MOMENTS if moments else (), 0):
        return None
    return _conversion(annotation)


def checker_of(annotation: object) -> Convert | None:
    """The conversion to the annotated type, which raises if a value does not fit; None for unknown annotations."""
    return _conversion(annotation) if annotation is not Any and _is_known(annotation, 0) else None


def _conversion(annotation: Any) -> Convert | None:
    if _has_pydantic(annotation, 0):
        try:
            return sys.modules["pydantic"].TypeAdapter(annotation).validate_python  # type: ignore[no-any-return]
        except sys.modules["pydantic"].PydanticSchemaGenerationError:  # Pydantic has no schema for a msgspec Struct
            pass
    try:
        msgspec.convert(None, annotation)
    except msgspec.ValidationError:
        pass
    except (TypeError, NotImplementedError):
        return _inner_conversion(annotation)
    return lambda value: (
        value
        if _is_instance(value, annotation)
        else msgspec.convert(value, annotation, builtin_types=(bytes,), dec_hook=decode_model)
    )


def decode_model(kind: type, value: object) -> object:
    """`value` as the Pydantic model `kind`, for `msgspec.convert`, which does not support such models."""
    if isinstance(value, kind):
        return value
    if hasattr(kind, "__pydantic_fields__"):
        return kind.model_validate(value)  # type: ignore[attr-defined]
    raise ValueError(
        f"Expected `{kind.__name__}`, got `{type(value).__name__}`; "
        "annotate a built-in type, or make it a field of a Pydantic model"
    )


def _inner_conversion(annotation: object) -> Convert | None:
    """The conversion for types that msgspec refuses: unions of several classes, and lists and dicts of them."""
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        return functools.partial(_convert_union, [(one, _conversion(one)) for one in inner])
    if origin in (typing.Required, typing.NotRequired, typing.Annotated):
        return _conversion(inner[0])
    if isinstance(annotation, type) and (_is_class_with_fields(annotation) or typing.is_typeddict(annotation)):
        return _FieldConversion(annotation)
    each = _conversion(inner[-1]) if inner else None
    if each is None:
        return None
    if origin is dict:
        return lambda value: {name: each(one) for name, one in value.items()}
    if origin in (list, set, frozenset) or (origin is tuple and len(inner) == 2 and inner[0] is ...):
        return lambda value: origin(each(one) for one in value)
    return None


class _FieldConversion:
    """Builds a dataclass, Struct, NamedTuple or TypedDict field by field, if msgspec refuses the type of a field."""

    def __init__(self, kind: Any) -> None:
        self._kind = kind
        self._converters: dict[str, Convert | None] | None = None

    def __call__(self, value: object) -> object:
        if _is_instance(value, self._kind):
            return value
        if self._converters is None:  # at the first call: a class may have fields of its own type
            self._converters = {name: _conversion(hint) for name, hint in hints_of(self._kind).items()}
        stored_names = getattr(self._kind, "__struct_encode_fields__", None) or tuple(self._converters)
        names = getattr(self._kind, "__struct_fields__", stored_names)
        if isinstance(value, list | tuple):
            value = dict(zip(stored_names, value, strict=False))
        if not isinstance(value, dict):
            raise ValueError(f"Expected `{self._kind.__name__}`, got `{type(value).__name__}`")
        made = {
            name: self._convert(name, value[stored])
            for name, stored in zip(names, stored_names, strict=True)
            if stored in value
        }
        missing: set[str] = getattr(self._kind, "__required_keys__", set()) - set(made)
        if missing:
            raise ValueError(f"Object missing required field `{min(missing)}`")
        if not dataclasses.is_dataclass(self._kind):
            return self._kind(**made)
        late = {field.name for field in dataclasses.fields(self._kind) if not field.init}
        make: Any = self._kind
        found = make(**{name: part for name, part in made.items() if name not in late})
        for name in late & set(made):
            object.__setattr__(found, name, made[name])
        return found

    def _convert(self, name: str, value: object) -> object:
        convert = (self._converters or {})[name]
        try:
            return value if convert is None else convert(value)
        except CONVERSION_ERRORS as error:
            raise ValueError(f"{name}: {error}") from error


def _convert_union(members: list[tuple[object, Convert | None]], value: object) -> object:
    """The value as the first fitting class of a union; a class with exactly its fields comes first."""
    names = set(value) if isinstance(value, dict) else None
    problems = []
    for member, convert in sorted(members, key=lambda one: _fields(one[0]) != names):
        try:
            return value if convert is None else convert(value)
        except CONVERSION_ERRORS as error:
            problems.append(f"{getattr(member, '__name__', member)}: {error}")
    raise ValueError("it fits none of the types: " + "; ".join(problems))


def _fields(member: object) -> set[str] | None:
    if isinstance(member, type) and dataclasses.is_dataclass(member):
        return {field.name for field in dataclasses.fields(member)}
    found = getattr(member, "__struct_fields__", None) or getattr(member, "__pydantic_fields__", None)
    return set(found) if found else None


def _is_instance(value: object, annotation: object) -> bool:
    if not isinstance(annotation, type) or isinstance(value, bool) or typing.is_typeddict(annotation):
        return False
    return isinstance(value, annotation)


def _has_structure(annotation: object, leaves: tuple[type, ...], depth: int, outer: tuple[object, ...] = ()) -> bool:
    """Whether a part of the annotation is not a built-in type. `outer`: the TypedDicts around it."""
    if depth > 20 or annotation in outer:
        return False
    if typing.is_typeddict(annotation):
        hints = hints_of(annotation).values()
        return any(_has_structure(hint, leaves, depth + 1, (*outer, annotation)) for hint in hints)
    if isinstance(annotation, type) and not typing.get_origin(annotation):
        return annotation in leaves or _is_class_with_fields(annotation) or issubclass(annotation, enum.Enum)
    return any(_has_structure(inner, leaves, depth + 1, outer) for inner in typing.get_args(annotation))


def _is_class_with_fields(annotation: type) -> bool:
    return (
        dataclasses.is_dataclass(annotation)
        or issubclass(annotation, msgspec.Struct)
        or hasattr(annotation, "__pydantic_fields__")
        or (issubclass(annotation, tuple) and hasattr(annotation, "_fields"))
    )


def _is_known(annotation: object, depth: int) -> bool:
    """Whether every part of the annotation is a type that can be converted and checked."""
    if depth > 20:
        return False
    if annotation is None or annotation is Any or annotation is ...:
        return True
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Literal:
        return True
    if origin is typing.Annotated:
        return _is_known(inner[0], depth + 1)
    if origin in (typing.Union, types.UnionType) or origin in _CONTAINERS:
        return all(_is_known(one, depth + 1) for one in inner)
    if not isinstance(annotation, type):
        return False
    return (
        annotation in (*_PLAIN, *_MOMENTS, *_CONTAINERS)
        or _is_class_with_fields(annotation)
        or issubclass(annotation, enum.Enum)
        or typing.is_typeddict(annotation)
    )


def _has_pydantic(annotation: object, depth: int) -> bool:
    if hasattr(annotation, "__pydantic_fields__"):
        return True
    return depth < 20 and any(_has_pydantic(inner, depth + 1) for inner in typing.get_args(annotation))
