"""Field specs, which `field(...)` declares, and the members of an answer type."""

from __future__ import annotations

import dataclasses
import enum
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from types import EllipsisType
from typing import Any, Final, Protocol, TypeGuard

import msgspec

from holdfast.errors import InvalidInput
from holdfast.forms.fields import choice_schema, kind_of, resolve_schema
from holdfast.forms.json_schema import (
    ANNOTATIONS,
    Choice,
    Json,
    Schema,
    choice_label,
    choices_in,
    copy_plain,
    is_same,
    list_choices,
    plain_or_refuse,
    short_text,
    to_error,
    to_nullable,
)
from holdfast.forms.validate import check_value

METADATA: Final = ("label", "help", "choices", "multiline", "minimum", "maximum", "min_length", "max_length")
"""What the metadata of a dataclass field may declare."""
COUNTS: Final = {"min_length": ("minLength", "minItems"), "max_length": ("maxLength", "maxItems")}
"""The schema keywords for a length: of text, and of a list."""


@dataclasses.dataclass(frozen=True, slots=True)
class FieldSpec:
    """A declared field. An Ellipsis stands for what was not given: a type (text, unless annotated) or a default."""

    type: object = ...
    label: str | None = None
    help: str | None = None
    choices: tuple[Choice, ...] | None = None
    required: bool | None = None
    default: Json | EllipsisType = ...
    multiline: bool = False
    minimum: int | float | None = None
    maximum: int | float | None = None
    min_length: int | None = None
    max_length: int | None = None

    def with_type(self, annotation: object) -> FieldSpec:
        """The same declaration for an annotated type."""
        return dataclasses.replace(self, type=annotation)


def make_spec(where: str, *, choices: object = None, default: object = ..., **rest: Any) -> FieldSpec:
    """A FieldSpec, checked as far as this is possible without its type; raises InvalidInput naming `where`."""
    plain_default = default if default is ... else plain_or_refuse(default, f"the default of {where}")
    spec = FieldSpec(choices=_read_choices(choices, where), default=plain_default, **rest)
    for name in ("label", "help"):
        value = getattr(spec, name)
        if value is not None and not isinstance(value, str):
            raise InvalidInput(f"{where}: {name} must be text, not {type(value).__name__}")
    for name in ("minimum", "maximum"):
        value = getattr(spec, name)
        if value is not None and (not isinstance(value, int | float) or isinstance(value, bool)):
            raise InvalidInput(f"{where}: {name} must be a number, not {short_text(value)}")
        plain_or_refuse(value, f"the {name} of {where}")
    for name in ("min_length", "max_length"):
        value = getattr(spec, name)
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
            raise InvalidInput(f"{where}: {name} must be a whole number from 0, not {short_text(value)}")
    if spec.minimum is not None and spec.maximum is not None and spec.minimum > spec.maximum:
        raise InvalidInput(f"{where}: minimum {spec.minimum} is above maximum {spec.maximum}")
    if spec.min_length is not None and spec.max_length is not None and spec.min_length > spec.max_length:
        raise InvalidInput(f"{where}: min_length {spec.min_length} is above max_length {spec.max_length}")
    if spec.required and spec.default is not ...:
        raise InvalidInput(f"{where} is required and has a default; with a default it need not be answered")
    return spec


def apply_spec(schema: Schema, spec: FieldSpec, root: Schema, where: str) -> Schema:
    """The schema of the spec's type with all that the spec declares; raises InvalidInput if they do not fit."""
    bare, _ = resolve_schema(schema, root)
    kind = kind_of(bare, root)
    result: Schema = copy_plain(schema)
    if spec.choices is not None:
        result = _limit_to(spec.choices, result, kind, root, where)
        kind = "choices" if kind == "list" else "choice"
    result |= _bounds(spec, kind, where)
    if spec.multiline:
        if kind != "text":
            raise InvalidInput(f"{where}: multiline is for text, and this field's kind is {kind!r}")
        result["x-multiline"] = True
    if spec.label is not None:
        result["title"] = spec.label
    if spec.help is not None:
        result["description"] = spec.help
    return _with_default(result, spec, root, where)


def with_default(schema: Schema, default: Json, root: Schema, where: str) -> Schema:
    """The schema with a default, which it must accept. A default of None makes it accept None."""
    wide = to_nullable(schema) if default is None else schema
    value, problems = check_value({**wide, "$defs": root.get("$defs", {})}, default, "default")
    if problems:
        raise to_error(where, problems)
    return {**wide, "default": value}


def _bounds(spec: FieldSpec, kind: str, where: str) -> Schema:
    is_number, is_list = kind in ("integer", "number"), kind in ("list", "choices")
    found: Schema = {}
    for name in ("minimum", "maximum"):
        if getattr(spec, name) is not None:
            if not is_number:
                raise InvalidInput(f"{where}: {name} is for numbers, and this field's kind is {kind!r}")
            found[name] = getattr(spec, name)
    for name, words in COUNTS.items():
        if getattr(spec, name) is not None:
            if kind != "text" and not is_list:
                raise InvalidInput(f"{where}: {name} is for text and lists, and this field's kind is {kind!r}")
            found[words[is_list]] = getattr(spec, name)
    return found


def _with_default(schema: Schema, spec: FieldSpec, root: Schema, where: str) -> Schema:
    if spec.default is ...:
        # A field that may be left out has a value in every answer, so that `answer["note"]` always works.
        return {**to_nullable(schema), "default": None} if spec.required is False else schema
    return with_default(schema, spec.default, root, where)


def _read_choices(choices: object, where: str) -> tuple[Choice, ...] | None:
    """Choices as given: values, or a mapping of values to labels."""
    if choices is None:
        return None
    if isinstance(choices, str) or not isinstance(choices, Iterable):
        raise InvalidInput(f"{where}: choices must be a list of values, or a dict of values and labels")
    labels = dict(choices) if isinstance(choices, Mapping) else {}
    read: list[Choice] = []
    for given in choices:
        value = plain_or_refuse(given, f"a choice of {where}")
        label = labels.get(given, choice_label(value)) if labels else choice_label(value)
        if not isinstance(label, str):
            raise InvalidInput(f"{where}: the label of the choice {short_text(value)} must be text")
        if value is None:
            raise InvalidInput(f"{where}: None cannot be a choice; make the field optional instead")
        if any(is_same(value, other.value) for other in read):
            raise InvalidInput(f"{where}: the choice {short_text(value)} is given twice")
        read.append(Choice(value, label))
    if not read:
        raise InvalidInput(f"{where}: choices must not be empty")
    return tuple(read)


def _limit_to(choices: tuple[Choice, ...], schema: Schema, kind: str, root: Schema, where: str) -> Schema:
    """The schema, accepting only `choices`, each of which it must accept already."""
    if kind in ("choice", "choices"):
        raise InvalidInput(f"{where}: its type already lists the choices {list_choices(choices_in(schema) or ())}")
    if kind in ("yes_no", "object"):
        raise InvalidInput(
            f"{where}: choices are for text, numbers, dates and lists, and this field's kind is {kind!r}"
        )
    bare, had_null = resolve_schema(schema, root)
    part = bare.get("items", {}) if kind == "list" else bare
    exact: list[Choice] = []
    for choice in choices:
        value, problems = check_value({**part, "$defs": root.get("$defs", {})}, choice.value, "choice")
        if problems:
            raise to_error(where, problems)
        exact.append(Choice(value, choice.label))
    only = choice_schema(tuple(exact))
    annotations = {word: value for word, value in bare.items() if word in ANNOTATIONS}
    limited = {**annotations, "type": "array", "items": only} if kind == "list" else {**annotations, **only}
    return to_nullable(limited) if had_null else limited


# --- members of an answer type: a dict of types, a dataclass, a msgspec Struct or a TypedDict ---

_PRESENCE: Final = {"Required": True, "NotRequired": False, "ReadOnly": None}


@dataclasses.dataclass(frozen=True, slots=True)
class Member:
    """One declared field of an answer type. An Ellipsis as the default means there is none.

    If `required` is None, the type decides: in a dict of types, a field that may be None need not be answered.
    """

    name: str
    annotation: object
    default: object = ...
    required: bool | None = None


def is_json_schema(spec: object) -> bool:
    """Whether a dict is a JSON Schema rather than a dict of types."""
    if not isinstance(spec, dict):
        return False
    is_object = spec.get("type") == "object" and isinstance(spec.get("properties"), dict)
    return is_object or isinstance(spec.get("$schema"), str)


class PydanticModel(Protocol):
    """The part of a Pydantic model class that forms use. Pydantic need not be installed."""

    @classmethod
    def model_json_schema(cls) -> Schema: ...
    @classmethod
    def model_validate_json(cls, data: bytes) -> object: ...


def is_pydantic(spec: object) -> TypeGuard[type[PydanticModel]]:
    """Whether a class is a Pydantic model."""
    return isinstance(spec, type) and hasattr(spec, "__pydantic_fields__") and hasattr(spec, "model_json_schema")


def is_struct(spec: object) -> TypeGuard[type[msgspec.Struct]]:
    """Whether a class is a msgspec Struct."""
    return isinstance(spec, type) and issubclass(spec, msgspec.Struct)


def is_dataclass(spec: object) -> bool:
    """Whether this is a dataclass, not an instance of one."""
    return isinstance(spec, type) and dataclasses.is_dataclass(spec)


def has_members(spec: object) -> bool:
    """Whether `members_of` can list the fields of a spec."""
    if isinstance(spec, dict):
        return not is_json_schema(spec)
    return is_struct(spec) or is_dataclass(spec) or typing.is_typeddict(spec)


def members_of(spec: Any, where: str) -> list[Member]:
    """The fields in the order of their declaration; raises InvalidInput if their types cannot be resolved."""
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
        return [_struct_member(info, hints, where) for info in msgspec.structs.fields(spec)]
    if is_dataclass(spec):
        return [_dataclass_member(info, hints, where) for info in dataclasses.fields(spec) if info.init]
    return [_typed_dict_member(name, hint, spec) for name, hint in hints.items()]


def strip_annotation(annotation: Any) -> tuple[Any, tuple[object, ...]]:
    """An annotation without its wrappers, and the metadata of its `Annotated`, innermost first."""
    notes: tuple[object, ...] = ()
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


def union_types(annotation: object) -> tuple[object, ...] | None:
    """The types of a union, else None."""
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return typing.get_args(annotation)
    return None


def is_optional(annotation: object) -> bool:
    """Whether a type lists None; `Any` does not."""
    base, _ = strip_annotation(annotation)
    if isinstance(base, FieldSpec):
        return base.type is not ... and is_optional(base.type)
    if typing.get_origin(base) is typing.Literal:
        return None in typing.get_args(base)
    return base is type(None) or any(is_optional(arm) for arm in union_types(base) or ())


def enum_members(annotation: object) -> list[enum.Enum] | None:
    """The members of an Enum class, else None."""
    return list(annotation) if isinstance(annotation, type) and issubclass(annotation, enum.Enum) else None


def _default_from(factory: Callable[[], object], where: str) -> object:
    """The value of a factory, fixed when the form is built: every reader of the form sees the same default."""
    try:
        return factory()
    except Exception as error:
        raise InvalidInput(f"{where}: its default_factory failed: {type(error).__name__}: {error}") from error


def _struct_member(info: msgspec.structs.FieldInfo, hints: Mapping[str, object], where: str) -> Member:
    default = info.default if info.default is not msgspec.NODEFAULT else ...
    if info.default_factory is not msgspec.NODEFAULT:
        default = _default_from(info.default_factory, f"{where}, field {info.name!r}")
    return Member(info.name, hints[info.name], default, default is ...)


def _dataclass_member(info: dataclasses.Field[object], hints: Mapping[str, object], where: str) -> Member:
    default = info.default if info.default is not dataclasses.MISSING else ...
    if info.default_factory is not dataclasses.MISSING:
        default = _default_from(info.default_factory, f"{where}, field {info.name!r}")
    annotation = hints[info.name]
    declared = {name: info.metadata[name] for name in METADATA if name in info.metadata}
    if declared:
        annotation = make_spec(f"{where}, field {info.name!r}", **declared).with_type(annotation)
    return Member(info.name, annotation, default, default is ...)


def _typed_dict_member(name: str, hint: object, spec: Any) -> Member:
    required = name in spec.__required_keys__
    outer: Any = hint
    while typing.get_origin(outer) is not None:
        # With postponed annotations `__required_keys__` does not reflect these words.
        word = getattr(typing.get_origin(outer), "_name", None)
        presence = _PRESENCE.get(word) if isinstance(word, str) else None
        if presence is not None:
            required = presence
        if word not in _PRESENCE and typing.get_origin(outer) is not typing.Annotated:
            break
        outer = outer.__origin__ if typing.get_origin(outer) is typing.Annotated else typing.get_args(outer)[0]
    return Member(name, hint, ..., required)
