"""Views as data that JSON can express: times in ISO 8601, users' values as `holdfast.state.readable` shows them."""

from __future__ import annotations

import datetime as dt
import functools
from typing import Any

import msgspec

from holdfast.engine.forms import Form
from holdfast.state.readable import shown


def as_data(value: Any) -> Any:
    """A view, or a list or dict of views, as JSON can express it.

    Fields that are declared as `Any`, or a dict of it, are users' values; all others are ours.

    Example:
        json.dumps(as_data(timeline(store, "order-17")))
    """
    if isinstance(value, Form):
        return _form(value)
    if isinstance(value, msgspec.Struct):
        users = _users(type(value))
        return {
            name: (_user_value if name in users else as_data)(getattr(value, name)) for name in value.__struct_fields__
        }
    if isinstance(value, dt.datetime):
        return value.isoformat()
    if isinstance(value, (list, tuple)):
        return [as_data(part) for part in value]
    if isinstance(value, dict):
        return {str(key): as_data(part) for key, part in value.items()}
    return shown(value)


def _form(form: Form) -> dict[str, Any]:
    """A form. Its lists are lists; what can be chosen, defaults and schemas are users' values."""
    data = form.as_data()
    fields = [
        {
            name: [_choice(choice) for choice in part] if name == "choices" else shown(part)
            for name, part in each.items()
        }
        for each in data["fields"]
    ]
    return {**data, "fields": fields, "schema": shown(data["schema"])}


def _choice(choice: dict[str, Any]) -> dict[str, Any]:
    return {**choice, "value": shown(choice["value"])}


def _user_value(value: Any) -> Any:
    return as_data(value) if isinstance(value, Form) else shown(value)


@functools.cache
def _users(kind: type[msgspec.Struct]) -> frozenset[str]:
    """The fields that hold users' values."""
    found = msgspec.structs.fields(kind)
    return frozenset(field.name for field in found if field.type is Any or field.type == dict[str, Any])
