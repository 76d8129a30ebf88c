"""The fields of what a user gave, whatever it was: a dict of types, a dataclass, a msgspec Struct, a TypedDict."""

from __future__ import annotations

import dataclasses
import enum
import types
import typing
from typing import Any, Final

import msgspec

from holdfast.engine.forms.declared import METADATA, FieldSpec, declare
from holdfast.engine.forms.schemas import Schema
from holdfast.errors import InvalidInput

_PRESENCE: Final = {"Required": True, "NotRequired": False, "ReadOnly": None}


@dataclasses.dataclass(frozen=True, slots=True)
class Member:
    """One field as its owner declares it. An Ellipsis as the default means there is none.

    `required` None leaves it to the type: in a dict of types, a field that may be None need not be answered.
    """

    name: str
    annotation: Any
    default: Any = ...
    required: bool | None = None


def is_json_schema(spec: Any) -> bool:
    """Whether a dict is a JSON Schema rather than a dict of types."""
    if not isinstance(spec, dict):
        return False
    is_object = spec.get("type") == "object" and isinstance(spec.get("properties"), dict)
    return is_object or isinstance(spec.get("$schema"), str)


def is_pydantic(spec: Any) -> bool:
    """Whether a class is a Pydantic model. Pydantic itself need not be installed to ask."""
    return isinstance(spec, type) and hasattr(spec, "__pydantic_fields__") and hasattr(spec, "model_json_schema")


def is_struct(spec: Any) -> bool:
    """Whether a class is a msgspec Struct."""
    return isinstance(spec, type) and issubclass(spec, msgspec.Struct)


def is_dataclass(spec: Any) -> bool:
    """Whether this is a dataclass, not an instance of one."""
    return isinstance(spec, type) and dataclasses.is_dataclass(spec)


def has_members(spec: Any) -> bool:
    """Whether `members_of` can list the fields of a spec."""
    if isinstance(spec, dict):
        return not is_json_schema(spec)
    return is_struct(spec) or is_dataclass(spec) or typing.is_typeddict(spec)


def members_of(spec: Any, where: str) -> list[Member]:
    """The fields in the order they were declared; raises InvalidInput if their types cannot be found out."""
    if isinstance(spec, dict):
        return [Member(name, annotation) for name, annotation in spec.items()]
    try:
        hints = typing.get_type_hints(spec, include_extras=True)
    except (NameError, TypeError, AttributeError) as error:
        raise InvalidInput(
            f"{where}: the annotations of {spec.__name__} cannot be read ({error}); "
            "use types that are defined at the top of its module"
        ) from error
    if is_struct(spec):
        return [_of_struct(info, hints, where) for info in msgspec.structs.fields(spec)]
    if is_dataclass(spec):
        return [_of_dataclass(info, hints, where) for info in dataclasses.fields(spec) if info.init]
    return [_of_typed_dict(name, hint, spec) for name, hint in hints.items()]


def stripped(annotation: Any) -> tuple[Any, tuple[Any, ...]]:
    """An annotation without its wrappers, and what `Annotated` says about it, innermost first."""
    notes: tuple[Any, ...] = ()
    while True:
        origin = typing.get_origin(annotation)
        if origin is typing.Annotated:
            notes = (*annotation.__metadata__, *notes)
            annotation = annotation.__origin__
        elif getattr(origin, "_name", None) in _PRESENCE:
            annotation = typing.get_args(annotation)[0]
        elif isinstance(annotation, typing.NewType):
            annotation = annotation.__supertype__
        elif type(annotation).__name__ == "TypeAliasType":  # `type X = …`, from Python 3.12 on.
            annotation = annotation.__value__
        else:
            return annotation, notes


def arms_of(annotation: Any) -> tuple[Any, ...] | None:
    """The types of a union, else None."""
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return typing.get_args(annotation)
    return None


def is_optional(annotation: Any) -> bool:
    """Whether a type says that the value may be None. `Any` does not say so."""
    base, _ = stripped(annotation)
    if isinstance(base, FieldSpec):
        return base.type is not ... and is_optional(base.type)
    if typing.get_origin(base) is typing.Literal:
        return None in typing.get_args(base)
    return base is type(None) or any(is_optional(arm) for arm in arms_of(base) or ())


def enum_members(annotation: Any) -> list[enum.Enum] | None:
    """The members of an Enum class, else None."""
    return list(annotation) if isinstance(annotation, type) and issubclass(annotation, enum.Enum) else None


def _made(factory: Any, where: str) -> Any:
    """A factory's value is fixed when the form is made, so that every reader of the form sees the same."""
    try:
        return factory()
    except Exception as error:
        raise InvalidInput(f"{where}: its default_factory failed: {type(error).__name__}: {error}") from error


def _of_struct(info: msgspec.structs.FieldInfo, hints: Schema, where: str) -> Member:
    default = info.default if info.default is not msgspec.NODEFAULT else ...
    if info.default_factory is not msgspec.NODEFAULT:
        default = _made(info.default_factory, f"{where}, field {info.name!r}")
    return Member(info.name, hints[info.name], default, default is ...)


def _of_dataclass(info: dataclasses.Field[Any], hints: Schema, where: str) -> Member:
    default = info.default if info.default is not dataclasses.MISSING else ...
    if info.default_factory is not dataclasses.MISSING:
        default = _made(info.default_factory, f"{where}, field {info.name!r}")
    annotation = hints[info.name]
    declared = {name: info.metadata[name] for name in METADATA if name in info.metadata}
    if declared:
        annotation = declare(f"{where}, field {info.name!r}", **declared).of(annotation)
    return Member(info.name, annotation, default, default is ...)


def _of_typed_dict(name: str, hint: Any, spec: Any) -> Member:
    required = name in spec.__required_keys__
    outer = hint
    while typing.get_origin(outer) is not None:
        # With postponed annotations `__required_keys__` has not seen these words.
        word = getattr(typing.get_origin(outer), "_name", None)
        presence = _PRESENCE.get(word) if isinstance(word, str) else None
        if presence is not None:
            required = presence
        if word not in _PRESENCE and typing.get_origin(outer) is not typing.Annotated:
            break
        outer = outer.__origin__ if typing.get_origin(outer) is typing.Annotated else typing.get_args(outer)[0]
    return Member(name, hint, ..., required)
