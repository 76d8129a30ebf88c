"""Forms without the defaults that are masked. The answer still gets such a default if the field is left out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from holdfast.forms import Field, Form
from holdfast.forms.json_schema import Schema

IsHidden = Callable[[Any, tuple[str | int, ...]], bool]
"""Whether a value at a path contains something that is masked."""
_VALUES: Final = ("default", "examples")


def mask_form(form: Form, is_hidden: IsHidden) -> Form:
    """The form as it is shown."""
    fields = tuple(_field(field, is_hidden) for field in form.fields)
    return Form(fields, None if form.schema is None else _schema(form.schema, (), is_hidden), form.single)


def _field(field: Field, is_hidden: IsHidden) -> Field:
    schema = None if field.schema is None else _schema(field.schema, (field.name,), is_hidden)
    if field.has_default and is_hidden(field.default, (field.name,)):
        return msgspec.structs.replace(field, schema=schema, has_default=False, default=None)
    return msgspec.structs.replace(field, schema=schema)


def _schema(schema: Any, path: tuple[str | int, ...], is_hidden: IsHidden) -> Any:
    """A JSON Schema without masked defaults. Definitions can be used at any path, so they lose all of theirs."""
    if isinstance(schema, list):
        return [_schema(part, path, is_hidden) for part in schema]
    if not isinstance(schema, dict):
        return schema
    found: Schema = {}
    for key, part in schema.items():
        if key in _VALUES and is_hidden(part, path):
            continue
        if key == "properties" and isinstance(part, dict):
            found[key] = {name: _schema(one, (*path, name), is_hidden) for name, one in part.items()}
        elif key == "$defs" and isinstance(part, dict):
            found[key] = {name: _schema(one, path, lambda _value, _path: True) for name, one in part.items()}
        else:
            found[key] = part if key in (*_VALUES, "enum", "const") else _schema(part, path, is_hidden)
    return found
