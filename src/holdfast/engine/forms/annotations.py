"""Types as JSON Schema: everything a user may give is written as one schema, and all else is made from that."""

from __future__ import annotations

import collections.abc as abc
import datetime as dt
import typing
from typing import Any, Final

from holdfast.engine.forms.bounds import FIELDS_MAX, NESTING_MAX
from holdfast.engine.forms.declared import COUNTS, FieldSpec, add_to, with_default
from holdfast.engine.forms.fields import choice_schema, kind_of, label_of, opened
from holdfast.engine.forms.members import (
    Member,
    arms_of,
    enum_members,
    has_members,
    is_json_schema,
    is_optional,
    is_pydantic,
    members_of,
    stripped,
)
from holdfast.engine.forms.plain import plain_or_refuse, same
from holdfast.engine.forms.problems import shown
from holdfast.engine.forms.schemas import Choice, Schema, changed, choice_label, nullable, reference_to, renamed
from holdfast.engine.forms.vetting import vetted
from holdfast.errors import InvalidInput
from holdfast.ids import check_id

ACCEPTED: Final = (
    "accepted are bool, int, float, str, date, datetime, list, dict, tuple, set, Literal, Enum classes, Any, "
    "X | None and other unions, field(...), dicts of these, dataclasses, msgspec Structs, TypedDicts, Pydantic models, "
    "JSON Schemas, and None for a free answer"
)

_SIMPLE: Final[dict[Any, Schema]] = {
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
    """Makes one schema. Parts that refer to themselves, and those of Pydantic models, are put under `defs`."""

    def __init__(self) -> None:
        self.defs: dict[str, Any] = {}
        self._open: list[Any] = []
        self._names: dict[int, str] = {}

    @property
    def root(self) -> Schema:
        """What references in the schema lead into."""
        return {"$defs": self.defs}

    def schema(self, annotation: Any, where: str) -> Schema:
        """The schema of a type; raises InvalidInput naming `where` if a form cannot have it."""
        if len(self._open) > NESTING_MAX:
            raise InvalidInput(f"{where} is nested deeper than {NESTING_MAX} levels, which no form can show")
        if isinstance(annotation, FieldSpec):
            base = self.schema(str if annotation.type is ... else annotation.type, where)
            return add_to(base, annotation, self.root, where)
        base, notes = stripped(annotation)
        if not notes:
            return self._bare(base, where)
        result = self.schema(base, where)
        for note in notes:
            result = self._noted(result, note, where)
        return result

    def _bare(self, annotation: Any, where: str) -> Schema:
        if isinstance(annotation, dict):
            return self._given(annotation, where) if is_json_schema(annotation) else self._object(annotation, where)
        try:
            simple = _SIMPLE.get(annotation)
        except TypeError:  # Not hashable, so not a type.
            raise self._unknown(annotation, where) from None
        if simple is not None:
            return dict(simple)
        arms = arms_of(annotation)
        if arms is not None:
            return self._union(arms, where)
        origin, arguments = typing.get_origin(annotation) or annotation, typing.get_args(annotation)
        if origin is typing.Literal:
            return _literal(arguments, where)
        members = enum_members(annotation)
        if members is not None:
            return _enum(annotation, where)
        if origin in LISTS:
            return self._list(origin, arguments, where)
        if origin in DICTS:
            return self._dict(arguments, where)
        if is_pydantic(annotation):
            return self._given(pydantic_schema(annotation, where), where)
        if has_members(annotation):
            return self._class(annotation, where)
        raise self._unknown(annotation, where)

    def _unknown(self, annotation: Any, where: str) -> InvalidInput:
        hint = '; add "$schema" if the dict is meant as a JSON Schema' if isinstance(annotation, str) else ""
        return InvalidInput(f"{where} cannot be made from {shown(annotation)}: {ACCEPTED}{hint}")

    def _union(self, arms: tuple[Any, ...], where: str) -> Schema:
        rest = [arm for arm in arms if arm is not type(None)]
        parts = [self._nested(arm, where) for arm in rest]
        whole = parts[0] if len(parts) == 1 else {"anyOf": parts}
        return nullable(whole) if len(rest) < len(arms) else whole

    def _list(self, origin: Any, arguments: tuple[Any, ...], where: str) -> Schema:
        schema: Schema = {"type": "array"}
        if origin in (set, frozenset, abc.Set):
            schema["uniqueItems"] = True
        if origin is tuple and arguments and arguments[-1] is not ...:
            parts = [self._nested(argument, where) for argument in arguments]
            return {**schema, "prefixItems": parts, "minItems": len(parts), "maxItems": len(parts)}
        items = self._nested(arguments[0], where) if arguments else {}
        return {**schema, "items": items} if items else schema

    def _dict(self, arguments: tuple[Any, ...], where: str) -> Schema:
        if not arguments:
            return {"type": "object"}
        key, value = arguments
        if stripped(key)[0] not in (str, Any):
            raise InvalidInput(f"{where}: the keys of a dict must be str, not {shown(key)}")
        rest = self._nested(value, where)
        return {"type": "object", "additionalProperties": rest} if rest else {"type": "object"}

    def _nested(self, annotation: Any, where: str) -> Schema:
        self._open.append(None)
        try:
            return self.schema(annotation, where)
        finally:
            self._open.pop()

    def _class(self, spec: Any, where: str) -> Schema:
        """The schema of a class with fields. Inside itself, the class is a reference."""
        if any(spec is other for other in self._open):
            name = self._names.setdefault(id(spec), self._free_name(spec.__name__))
            self.defs.setdefault(name, {})
            return reference_to(name)
        schema = self._object(spec, where)
        if id(spec) in self._names:
            self.defs[self._names[id(spec)]] = schema
        return schema

    def _object(self, spec: Any, where: str) -> Schema:
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

    def _noted(self, schema: Schema, note: Any, where: str) -> Schema:
        """What a note in `Annotated` adds: ours, msgspec's Meta, or one of the annotated-types package."""
        if isinstance(note, FieldSpec):
            return add_to(schema, note, self.root, where)
        result = dict(schema)
        is_list = kind_of(opened(schema, self.root)[0], self.root) in ("list", "choices")
        found = {keyword: getattr(note, name, None) for name, keyword in _NOTES.items()}
        found |= {words[is_list]: getattr(note, name, None) for name, words in COUNTS.items()}
        found |= {word: getattr(note, word, None) for word in ("pattern", "title", "description")}
        for keyword, value in found.items():
            wanted = (str,) if keyword in ("pattern", "title", "description") else (int, float)
            if isinstance(value, wanted) and not isinstance(value, bool):
                result[keyword] = value
        vetted({**result, "$defs": self.defs}, where)
        return result

    def _given(self, schema: Schema, where: str) -> Schema:
        """A schema from elsewhere as a part of this one: its `$defs` move to ours, under names that are free."""
        sound = vetted(schema, where)
        sound.pop("$schema", None)
        theirs: dict[str, Any] = sound.pop("$defs", {})
        names: dict[str, str] = {}
        for name, part in theirs.items():
            names[name] = name if self.defs.get(name) == part else self._free_name(name)
            self.defs.setdefault(names[name], part)
        for name, part in theirs.items():
            self.defs[names[name]] = renamed(part, names)
        result: Schema = renamed(sound, names)
        return result

    def _free_name(self, name: str) -> str:
        number, free = 2, name
        while free in self.defs:
            free, number = f"{name}{number}", number + 1
        return free


def pydantic_schema(model: Any, where: str) -> Schema:
    """The schema of a Pydantic model.

    Unless a model asks for extra fields, unknown ones are refused: it would drop them, and a misspelt answer with them.
    """
    try:
        schema = model.model_json_schema()
    except Exception as error:
        raise InvalidInput(f"{where}: {model.__name__} has no JSON Schema: {error}") from error

    def close(part: Schema) -> Schema:
        return {"additionalProperties": False, **part} if "properties" in part else part

    closed: Schema = changed(vetted(schema, where), close)
    return closed


def declared_in(annotation: Any) -> FieldSpec | None:
    """The `field(...)` in an annotation, if there is one."""
    if isinstance(annotation, FieldSpec):
        return annotation
    return next((note for note in stripped(annotation)[1] if isinstance(note, FieldSpec)), None)


def _is_required(member: Member) -> bool:
    declared = declared_in(member.annotation)
    if declared is not None and declared.required is not None:
        return declared.required
    return member.required is not False


def _literal(values: tuple[Any, ...], where: str) -> Schema:
    plain_values = [plain_or_refuse(value, f"a Literal of {where}") for value in values]
    kept = [value for value in plain_values if value is not None]
    if not kept:
        return {"type": "null"}
    schema: Schema = {"enum": kept}
    return nullable(schema) if len(kept) < len(plain_values) else schema


def _enum(cls: Any, where: str) -> Schema:
    choices: list[Choice] = []
    for member in cls:
        value = plain_or_refuse(member, f"{where}: the member {member.name} of {cls.__name__}")
        if any(same(value, other.value) for other in choices):
            raise InvalidInput(f"{where}: two members of {cls.__name__} have the value {shown(value)} in an answer")
        label = choice_label(value) if isinstance(value, str) else label_of(member.name.lower())
        choices.append(Choice(value, label))
    if not choices:
        raise InvalidInput(f"{where}: {cls.__name__} has no members to choose from")
    return choice_schema(tuple(choices))
