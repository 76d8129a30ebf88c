"""What `field(...)` declares about a field beyond its type, and what it adds to the schema of that type."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, Final

from holdfast.engine.forms.checker import check_value
from holdfast.engine.forms.fields import choice_schema, kind_of, opened
from holdfast.engine.forms.plain import plain_or_refuse, same
from holdfast.engine.forms.problems import refusal, shown
from holdfast.engine.forms.schemas import (
    ANNOTATIONS,
    Choice,
    Schema,
    choice_label,
    choices_in,
    copied,
    listed,
    nullable,
)
from holdfast.errors import InvalidInput

METADATA: Final = ("label", "help", "choices", "multiline", "minimum", "maximum", "min_length", "max_length")
"""What the metadata of a dataclass field may declare."""

COUNTS: Final = {"min_length": ("minLength", "minItems"), "max_length": ("maxLength", "maxItems")}
"""The words for a length in a schema: of text, and of a list."""


@dataclasses.dataclass(frozen=True, slots=True)
class FieldSpec:
    """A declared field. An Ellipsis stands for what was not given: a type (text, unless annotated) or a default."""

    type: Any = ...
    label: str | None = None
    help: str | None = None
    choices: tuple[Choice, ...] | None = None
    required: bool | None = None
    default: Any = ...
    multiline: bool = False
    minimum: int | float | None = None
    maximum: int | float | None = None
    min_length: int | None = None
    max_length: int | None = None

    def of(self, annotation: Any) -> FieldSpec:
        """The same declaration for an annotated type."""
        return dataclasses.replace(self, type=annotation)


def declare(where: str, *, choices: Any = None, default: Any = ..., **rest: Any) -> FieldSpec:
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
            raise InvalidInput(f"{where}: {name} must be a number, not {shown(value)}")
        plain_or_refuse(value, f"the {name} of {where}")
    for name in ("min_length", "max_length"):
        value = getattr(spec, name)
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
            raise InvalidInput(f"{where}: {name} must be a whole number from 0, not {shown(value)}")
    if spec.minimum is not None and spec.maximum is not None and spec.minimum > spec.maximum:
        raise InvalidInput(f"{where}: minimum {spec.minimum} is above maximum {spec.maximum}")
    if spec.min_length is not None and spec.max_length is not None and spec.min_length > spec.max_length:
        raise InvalidInput(f"{where}: min_length {spec.min_length} is above max_length {spec.max_length}")
    if spec.required and spec.default is not ...:
        raise InvalidInput(f"{where} is required and has a default; with a default it need not be answered")
    return spec


def add_to(schema: Schema, spec: FieldSpec, root: Schema, where: str) -> Schema:
    """The schema of the spec's type with all that the spec declares; raises InvalidInput if they do not fit."""
    bare, _ = opened(schema, root)
    kind = kind_of(bare, root)
    result = copied(schema)
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


def with_default(schema: Schema, default: Any, root: Schema, where: str) -> Schema:
    """The schema with a default, which it must accept. A default of None makes it accept None."""
    wide = nullable(schema) if default is None else schema
    value, problems = check_value({**wide, "$defs": root.get("$defs", {})}, default, "default")
    if problems:
        raise refusal(where, problems)
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
        return {**nullable(schema), "default": None} if spec.required is False else schema
    return with_default(schema, spec.default, root, where)


def _read_choices(choices: Any, where: str) -> tuple[Choice, ...] | None:
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
            raise InvalidInput(f"{where}: the label of the choice {shown(value)} must be text")
        if value is None:
            raise InvalidInput(f"{where}: None cannot be a choice; make the field optional instead")
        if any(same(value, other.value) for other in read):
            raise InvalidInput(f"{where}: the choice {shown(value)} is given twice")
        read.append(Choice(value, label))
    if not read:
        raise InvalidInput(f"{where}: choices must not be empty")
    return tuple(read)


def _limit_to(choices: tuple[Choice, ...], schema: Schema, kind: str, root: Schema, where: str) -> Schema:
    """The schema, accepting only `choices`, each of which it must accept already."""
    if kind in ("choice", "choices"):
        raise InvalidInput(f"{where}: its type already lists the choices {listed(choices_in(schema) or ())}")
    if kind in ("yes_no", "object"):
        raise InvalidInput(
            f"{where}: choices are for text, numbers, dates and lists, and this field's kind is {kind!r}"
        )
    bare, had_null = opened(schema, root)
    part = bare.get("items", {}) if kind == "list" else bare
    exact: list[Choice] = []
    for choice in choices:
        value, problems = check_value({**part, "$defs": root.get("$defs", {})}, choice.value, "choice")
        if problems:
            raise refusal(where, problems)
        exact.append(Choice(value, choice.label))
    only = choice_schema(tuple(exact))
    said = {word: value for word, value in bare.items() if word in ANNOTATIONS}
    limited = {**said, "type": "array", "items": only} if kind == "list" else {**said, **only}
    return nullable(limited) if had_null else limited
