"""Converts enums, dataclasses, structs, models and subclasses to built-in values.

Equal models have equal bytes: the choice between the two dumps depends on the model alone, and sets are sorted.
Pydantic is never imported; its models bring their own methods.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable
from typing import Any, Final

import msgspec

from holdfast.errors import Unstorable

Check = Callable[[object], object]
"""Raises Unstorable for a value that cannot be stored."""

_SUBCLASSED: Final[tuple[Any, ...]] = (int, float, bytes, list, dict, tuple, set, frozenset)


def lower_object(value: object, builtin_types: tuple[type, ...], check: Check) -> object:
    """The value that `value` is stored as; its parts may need the same conversion."""
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, msgspec.Struct):
        return _lower_struct(value, builtin_types, check)
    if hasattr(type(value), "__dataclass_fields__"):
        from dataclasses import fields  # the module that defines a dataclass has loaded it already

        return {field.name: getattr(value, field.name) for field in fields(value)}  # type: ignore[arg-type]
    if hasattr(type(value), "__pydantic_fields__"):
        return _lower_model(value, check)
    if isinstance(value, str):
        return str.__str__(value)
    for base in _SUBCLASSED:
        if isinstance(value, base):
            return base(value)
    kind = type(value)
    if hasattr(kind, "refuse_storage"):  # a call that was not awaited raises a clearer error
        value.refuse_storage()  # type: ignore[attr-defined]
    hint = "turn it into built-in types such as str, a dataclass, a msgspec struct or a Pydantic model"
    hint = "store str(error) instead" if isinstance(value, BaseException) else hint
    hint = "write `await` before the call that made it" if hasattr(kind, "__await__") else hint
    raise Unstorable(f"{kind.__module__}.{kind.__qualname__} is not a type that can be stored; {hint}")


def _lower_struct(struct: msgspec.Struct, builtin_types: tuple[type, ...], check: Check) -> object:
    lower = functools.partial(lower_object, builtin_types=builtin_types, check=check)
    try:
        return msgspec.to_builtins(struct, builtin_types=builtin_types, enc_hook=lower)
    except (TypeError, ValueError) as error:
        raise Unstorable(f"{type(struct).__qualname__} cannot be turned into built-in types: {error}") from error


def _lower_model(model: Any, check: Check) -> object:
    """The dump of a Pydantic model: in Python mode, or in JSON mode if only that fits and gives an equal model.

    If neither dump fits, the one in Python mode is returned: encoding it names the part that was refused.
    """
    try:
        dumped = model.model_dump()
    except Exception as error:  # serializers are the user's code
        found = _lower_as_json(model, check)
        if found is None:
            kind = type(model).__qualname__
            raise Unstorable(f"the Pydantic model {kind} cannot be dumped: {type(error).__name__}: {error}") from error
        return found[0]
    try:
        check(dumped)
    except Unstorable:
        found = _lower_as_json(model, check)
        return found[0] if found else dumped
    return dumped


def _lower_as_json(model: Any, check: Check) -> tuple[object] | None:
    try:
        dumped = _sort_sets(model, model.model_dump(mode="json"))
        check(dumped)
        return (dumped,) if type(model).model_validate(dumped) == model else None
    except Exception:  # serializers and validators are the user's code; the caller reports the first problem
        return None


def _sort_sets(value: Any, dumped: object) -> object:
    """`dumped` with the sets of `value` as sorted lists: the order of a set differs between processes."""
    if getattr(type(value), "__pydantic_root_model__", False):
        value = value.root
    if isinstance(dumped, dict):
        if isinstance(value, dict):
            pairs = zip(value.values(), dumped.items(), strict=True)
            return {name: _sort_sets(part, item) for part, (name, item) in pairs}
        fields = getattr(type(value), "__pydantic_fields__", {})
        names = {field.serialization_alias or name: name for name, field in fields.items()}
        return {
            name: _sort_sets(getattr(value, str(names.get(name, name)), None), part) for name, part in dumped.items()
        }
    if isinstance(dumped, list) and isinstance(value, (list, tuple, set, frozenset)):
        items = [_sort_sets(part, item) for part, item in zip(value, dumped, strict=True)]
        if isinstance(value, (set, frozenset)):
            items.sort(key=lambda item: msgspec.json.encode(item, order="sorted"))
        return items
    return dumped
