"""`field(...)`: a type with a label, a help text, choices, bounds or a default."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from holdfast.engine.forms.annotations import Builder
from holdfast.engine.forms.declared import FieldSpec, declare
from holdfast.errors import InvalidInput


def field(
    type: Any = ...,  # noqa: A002 - the word users look for
    *,
    label: str | None = None,
    help: str | None = None,  # noqa: A002 - the word users look for
    choices: Iterable[Any] | Mapping[Any, str] | None = None,
    required: bool | None = None,
    default: Any = ...,
    multiline: bool = False,
    minimum: int | float | None = None,
    maximum: int | float | None = None,
    min_length: int | None = None,
    max_length: int | None = None,
) -> Any:
    """Declare a field, as a value in a dict of types or inside `Annotated`.

    Without a type it is text, or the type it annotates. `choices` are values, or a dict of values and their labels;
    for a list they are what its items may be. A field with a default need not be answered; with `required=False` and
    no default, the answer has None. Lengths count characters of text and items of a list.

    Raises InvalidInput if these do not fit together; without a type, as far as that can be known.
    """
    where = f"field {label!r}" if isinstance(label, str) else "field(…)"
    if required is not None and not isinstance(required, bool):
        raise InvalidInput(f"{where}: required must be True or False")
    spec = declare(
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
    typed = spec.of(type.type if isinstance(type, FieldSpec) else type)
    Builder().schema(typed, where)
    return typed
