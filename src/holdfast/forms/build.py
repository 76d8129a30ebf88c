"""Builds a form from an answer type; every accepted type becomes a JSON Schema."""

from __future__ import annotations

import collections.abc as abc
import datetime as dt
import decimal
import enum
import typing
from collections.abc import Iterable, Mapping
from typing import Any, Final

from holdfast.errors import InvalidInput
from holdfast.forms.fields import choice_schema, field_of, kind_of, label_of, resolve_schema
from holdfast.forms.form import ANSWER, Form
from holdfast.forms.json_schema import (
    Choice,
    Schema,
    choice_label,
    is_same,
    map_schemas,
    plain_or_refuse,
    reference_to,
    rename_references,
    short_text,
    to_nullable,
)
from holdfast.forms.spec import (
    COUNTS,
    FieldSpec,
    Member,
    PydanticModel,
    apply_spec,
    enum_members,
    has_members,
    is_json_schema,
    is_optional,
    is_pydantic,
    make_spec,
    members_of,
    strip_annotation,
    union_types,
    with_default,
)
from holdfast.forms.validate import validate_schema
from holdfast.ids import check_id
from holdfast.limits import FIELDS_MAX, FORM_NESTING_MAX

ACCEPTED: Final = (
    "accepted are bool, int, float, str, date, datetime, list, dict, tuple, set, Literal, Enum classes, Any, "
    "X | None and other unions, field(...), dicts of these, dataclasses, msgspec Structs, TypedDicts, Pydantic models, "
    "JSON Schemas, and None for a free answer"
)
_SIMPLE: Final[dict[object, Schema]] = {
    None: {},
    Any: {},
    object: {},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    str: {"type": "string"},
    type(None): {"type": "null"},
    dt.date: {"type": "string", "format": "date"},
    dt.datetime: {"type": "string", "format": "date-time"},
}
LISTS: Final = (list, tuple, set, frozenset, abc.Sequence, abc.Set)
DICTS: Final = (dict, abc.Mapping, abc.MutableMapping)
_NOTES: Final = {"ge": "minimum", "le": "maximum", "gt": "exclusiveMinimum", "lt": "exclusiveMaximum"}


class Builder:
    """Builds one schema. Recursive classes and the parts of Pydantic models become entries of `defs`."""

    def __init__(self) -> None:
        self.defs: Schema = {}
        self._open: list[object] = []
        self._names: dict[int, str] = {}

    @property
    def root(self) -> Schema:
        """The schema that references point into."""
        return {"$defs": self.defs}

    def schema(self, annotation: object, where: str) -> Schema:
        """The schema of a type; raises InvalidInput naming `where` if a form does not support it."""
        if len(self._open) > FORM_NESTING_MAX:
            raise InvalidInput(f"{where} is nested deeper than {FORM_NESTING_MAX} levels, which a form cannot show")
        if isinstance(annotation, FieldSpec):
            base = self.schema(str if annotation.type is ... else annotation.type, where)
            return apply_spec(base, annotation, self.root, where)
        base, notes = strip_annotation(annotation)
        if not notes:
            return self._bare(base, where)
        result = self.schema(base, where)
        for note in notes:
            result = self._apply_note(result, note, where)
        return result

    def _bare(self, annotation: Any, where: str) -> Schema:
        if isinstance(annotation, dict):
            return self._import(annotation, where) if is_json_schema(annotation) else self._object(annotation, where)
        try:
            simple = _SIMPLE.get(annotation)
        except TypeError:  # Not hashable, so not a type.
            raise self._unknown(annotation, where) from None
        if simple is not None:
            return dict(simple)
        arms = union_types(annotation)
        if arms is not None:
            return self._union(arms, where)
        origin, arguments = typing.get_origin(annotation) or annotation, typing.get_args(annotation)
        if origin is typing.Literal:
            return _literal(arguments, where)
        members = enum_members(annotation)
        if members is not None:
            return _enum(annotation.__name__, members, where)
        if origin in LISTS:
            return self._list(origin, arguments, where)
        if origin in DICTS:
            return self._dict(arguments, where)
        if is_pydantic(annotation):
            return self._import(pydantic_schema(annotation, where), where)
        if has_members(annotation):
            return self._class(annotation, where)
        raise self._unknown(annotation, where)

    def _unknown(self, annotation: object, where: str) -> InvalidInput:
        hint = '; add "$schema" if the dict is meant as a JSON Schema' if isinstance(annotation, str) else ""
        hint = "; for an exact amount use int, counting cents, or str" if annotation is decimal.Decimal else hint
        return InvalidInput(f"{where} cannot be made from {short_text(annotation)}: {ACCEPTED}{hint}")

    def _union(self, arms: tuple[object, ...], where: str) -> Schema:
        rest = [arm for arm in arms if arm is not type(None)]
        parts = [self._nested(arm, where) for arm in rest]
        whole = parts[0] if len(parts) == 1 else {"anyOf": parts}
        return to_nullable(whole) if len(rest) < len(arms) else whole

    def _list(self, origin: object, arguments: tuple[object, ...], where: str) -> Schema:
        schema: Schema = {"type": "array"}
        if origin in (set, frozenset, abc.Set):
            schema["uniqueItems"] = True
        if origin is tuple and arguments and arguments[-1] is not ...:
            parts = [self._nested(argument, where) for argument in arguments]
            return {**schema, "prefixItems": parts, "minItems": len(parts), "maxItems": len(parts)}
        items = self._nested(arguments[0], where) if arguments else {}
        return {**schema, "items": items} if items else schema

    def _dict(self, arguments: tuple[object, ...], where: str) -> Schema:
        if not arguments:
            return {"type": "object"}
        key, value = arguments
        if strip_annotation(key)[0] not in (str, Any):
            raise InvalidInput(f"{where}: the keys of a dict must be str, not {short_text(key)}")
        rest = self._nested(value, where)
        return {"type": "object", "additionalProperties": rest} if rest else {"type": "object"}

    def _nested(self, annotation: object, where: str) -> Schema:
        self._open.append(None)
        try:
            return self.schema(annotation, where)
        finally:
            self._open.pop()

    def _class(self, spec: type, where: str) -> Schema:
        """The schema of a class with fields; a class inside itself becomes a reference."""
        if any(spec is other for other in self._open):
            name = self._names.setdefault(id(spec), self._free_name(spec.__name__))
            self.defs.setdefault(name, {})
            return reference_to(name)
        schema = self._object(spec, where)
        if id(spec) in self._names:
            self.defs[self._names[id(spec)]] = schema
        return schema

    def _object(self, spec: object, where: str) -> Schema:
        self._open.append(spec)
        try:
            members = members_of(spec, where)
            if not members:
                raise InvalidInput(f"{where} has no fields; give None for a free answer")
            if len(members) > FIELDS_MAX:
                raise InvalidInput(f"{where} has {len(members)} fields, at most {FIELDS_MAX} are allowed")
            parts = {check_id("the name of a field", each.name): self._member(each, where) for each in members}
        finally:
            self._open.pop()
        required = [each.name for each in members if _is_required(each) and "default" not in parts[each.name]]
        closed: Schema = {"type": "object", "properties": parts, "additionalProperties": False}
        return {**closed, "required": required} if required else closed

    def _member(self, member: Member, where: str) -> Schema:
        here = f"{where}, field {member.name!r}" if len(self._open) > 1 else f"field {member.name!r}"
        schema = self.schema(member.annotation, here)
        declared = declared_in(member.annotation)
        if "default" in schema or (declared is not None and declared.required):
            return schema
        if member.default is not ...:
            default = plain_or_refuse(member.default, f"the default of {here}")
            return with_default(schema, default, self.root, here)
        if member.required is None and is_optional(member.annotation):
            return {**schema, "default": None}
        return schema

    def _apply_note(self, schema: Schema, note: object, where: str) -> Schema:
        """Add the metadata of an `Annotated`: a `field(...)`, msgspec's Meta, or one of annotated-types."""
        if isinstance(note, FieldSpec):
            return apply_spec(schema, note, self.root, where)
        result = dict(schema)
        is_list = kind_of(resolve_schema(schema, self.root)[0], self.root) in ("list", "choices")
        found = {keyword: getattr(note, name, None) for name, keyword in _NOTES.items()}
        found |= {words[is_list]: getattr(note, name, None) for name, words in COUNTS.items()}
        found |= {word: getattr(note, word, None) for word in ("pattern", "title", "description")}
        for keyword, value in found.items():
            wanted = (str,) if keyword in ("pattern", "title", "description") else (int, float)
            if isinstance(value, wanted) and not isinstance(value, bool):
                result[keyword] = value
        validate_schema({**result, "$defs": self.defs}, where)
        return result

    def _import(self, schema: Schema, where: str) -> Schema:
        """A complete schema as a part of this one: its `$defs` move into `defs`, under free names."""
        valid = validate_schema(schema, where)
        valid.pop("$schema", None)
        theirs: Schema = valid.pop("$defs", {})
        names: dict[str, str] = {}
        for name, part in theirs.items():
            names[name] = name if self.defs.get(name) == part else self._free_name(name)
            self.defs.setdefault(names[name], part)
        for name, part in theirs.items():
            self.defs[names[name]] = rename_references(part, names)
        result: Schema = rename_references(valid, names)
        return result

    def _free_name(self, name: str) -> str:
        number, free = 2, name
        while free in self.defs:
            free, number = f"{name}{number}", number + 1
        return free


def pydantic_schema(model: type[PydanticModel], where: str) -> Schema:
    """The schema of a Pydantic model.

    Unless the model allows extra fields, the form refuses unknown ones: the model would silently drop a misspelt field.
    """
    try:
        schema = model.model_json_schema()
    except Exception as error:
        raise InvalidInput(f"{where}: {model.__name__} has no JSON Schema: {error}") from error

    def close(part: Schema) -> Schema:
        return {"additionalProperties": False, **part} if "properties" in part else part

    closed: Schema = map_schemas(validate_schema(schema, where), close)
    return closed


def declared_in(annotation: object) -> FieldSpec | None:
    """The `field(...)` in an annotation, if there is one."""
    if isinstance(annotation, FieldSpec):
        return annotation
    return next((note for note in strip_annotation(annotation)[1] if isinstance(note, FieldSpec)), None)


def _is_required(member: Member) -> bool:
    declared = declared_in(member.annotation)
    if declared is not None and declared.required is not None:
        return declared.required
    return member.required is not False


def _literal(values: tuple[object, ...], where: str) -> Schema:
    plain_values = [plain_or_refuse(value, f"a Literal of {where}") for value in values]
    kept = [value for value in plain_values if value is not None]
    if not kept:
        return {"type": "null"}
    schema: Schema = {"enum": kept}
    return to_nullable(schema) if len(kept) < len(plain_values) else schema


def _enum(name: str, members: list[enum.Enum], where: str) -> Schema:
    choices: list[Choice] = []
    for member in members:
        value = plain_or_refuse(member, f"{where}: the member {member.name} of {name}")
        if any(is_same(value, other.value) for other in choices):
            raise InvalidInput(f"{where}: two members of {name} have the value {short_text(value)} in an answer")
        label = choice_label(value) if isinstance(value, str) else label_of(member.name.lower())
        choices.append(Choice(value, label))
    if not choices:
        raise InvalidInput(f"{where}: {name} has no members to choose from")
    return choice_schema(tuple(choices))


def form_of(spec: object) -> Form:
    """The form for a dict of types, a class with fields, a JSON Schema, one type, or None for a free answer.

    Raises InvalidInput that names the problem and the accepted types.
    """
    key = tuple(spec.items()) if type(spec) is dict and all(type(one) is type for one in spec.values()) else None
    if key is None:
        return _build_form(spec)
    found = _known.get(key)
    if found is None:
        if len(_known) >= _KNOWN_MAX:
            _known.clear()
        found = _known[key] = _build_form(spec)
    return found


_KNOWN_MAX: Final = 256
_known: dict[tuple[tuple[object, type], ...], Form] = {}
"""A cache for dicts of plain types: a run builds the form of a gate at every pause and every resume."""


def _build_form(spec: object) -> Form:
    builder = Builder()
    schema = builder.schema(spec, "the form")
    whole: Schema = {**schema, "$defs": builder.defs} if builder.defs else schema
    whole = validate_schema(whole, "the form")
    is_given = is_pydantic(spec) or is_json_schema(spec)
    given = whole if is_given else None
    shape = resolve_schema(schema, whole)[0] if is_given or has_members(spec) else {}
    if not isinstance(shape.get("properties"), dict):
        # The title of a Pydantic model is the name of a class, not of a field.
        shown = {word: value for word, value in whole.items() if word != "title" or not is_pydantic(spec)}
        return Form((field_of(ANSWER, shown, whole, required=True),), given, single=True)
    required = shape.get("required", ())
    fields = tuple(
        field_of(check_id("the name of a field", name), part, whole, required=name in required)
        for name, part in shape["properties"].items()
        if part is not False
    )
    return Form(fields, given)


def field(
    type: object = ...,  # noqa: A002 - the common word for it
    *,
    label: str | None = None,
    help: str | None = None,  # noqa: A002 - the common word for it
    choices: Iterable[object] | Mapping[Any, str] | None = None,
    required: bool | None = None,
    default: object = ...,
    multiline: bool = False,
    minimum: int | float | None = None,
    maximum: int | float | None = None,
    min_length: int | None = None,
    max_length: int | None = None,
) -> Any:
    """Declare a field, as a value in a dict of types or inside `Annotated`.

    Without a type it is text, or the type it annotates. `choices` are values, or a dict of values and their labels;
    for a list they limit its items. A field with a default need not be answered; with `required=False` and
    no default, the answer has None. Lengths count characters of text and items of a list.

    Raises InvalidInput if these contradict each other; without a type, the check is incomplete.
    """
    where = f"field {label!r}" if isinstance(label, str) else "field(…)"
    if required is not None and not isinstance(required, bool):
        raise InvalidInput(f"{where}: required must be True or False")
    spec = make_spec(
        where,
        label=label,
        help=help,
        choices=choices,
        required=required,
        default=default,
        multiline=multiline,
        minimum=minimum,
        maximum=maximum,
        min_length=min_length,
        max_length=max_length,
    )
    if type is ...:
        return spec
    typed = spec.with_type(type.type if isinstance(type, FieldSpec) else type)
    Builder().schema(typed, where)
    return typed
