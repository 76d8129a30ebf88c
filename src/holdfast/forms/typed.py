"""Converts checked answers to instances of the user's types.

Types are checked again, because the code may have changed since the form was stored. Bounds are not: an answer that was
valid when it was given stays valid.
"""

from __future__ import annotations

import datetime as dt
import typing
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import msgspec

from holdfast.errors import InvalidInput
from holdfast.forms.build import DICTS, LISTS, declared_in, form_of
from holdfast.forms.form import ANSWER
from holdfast.forms.json_schema import (
    Json,
    describe_value,
    field_path,
    is_same,
    item_path,
    plain_or_refuse,
    read_date,
    read_datetime,
)
from holdfast.forms.spec import (
    FieldSpec,
    Member,
    enum_members,
    has_members,
    is_json_schema,
    is_optional,
    is_pydantic,
    members_of,
    strip_annotation,
    union_types,
)

T = TypeVar("T")
_PLAIN: Final = (bool, int, float, str)


def typed(answer: object, spec: object) -> Any:
    """The value of a checked answer as an instance of `spec`: of a dataclass, Struct or Pydantic model, an Enum member,
    a date; plain dicts for dicts of types, TypedDicts and JSON Schemas.

    A denied answer has None for choices and dates without a default; these stay None. Raises InvalidInput if the
    answer does not fit, which means that it was checked against another spec.
    """
    form = form_of(spec)
    value = plain_or_refuse(answer, "the answer")
    if form.single and form.fields[0].kind not in ("object", "any"):
        value = value[ANSWER] if isinstance(value, dict) and list(value) == [ANSWER] else value
    return _convert(value, spec, "")


def _convert(value: Json, annotation: object, path: str) -> object:
    if type(value) is annotation and annotation in _PLAIN:
        return value
    declared = declared_in(annotation)
    if declared is not None and value is None and (declared.required is False or declared.default is None):
        return None
    if isinstance(annotation, FieldSpec):
        return _convert(value, str if annotation.type is ... else annotation.type, path)
    base, _ = strip_annotation(annotation)
    if base is None or base is Any or base is object or is_json_schema(base):
        return value
    if isinstance(base, dict):
        return _members(value, base, path)
    arms = union_types(base)
    if arms is not None:
        return _union_value(value, arms, path)
    origin, arguments = typing.get_origin(base) or base, typing.get_args(base)
    members = enum_members(base) if origin is not typing.Literal else list(arguments)
    if members is not None:
        return _enum_member(value, members, path)
    if origin in LISTS:
        return _list(value, origin, arguments, path)
    if origin in DICTS:
        inner = arguments[1] if arguments else Any
        return {name: _convert(item, inner, field_path(path, name)) for name, item in _fit(value, dict, path).items()}
    if is_pydantic(base):
        return _construct(lambda: base.model_validate_json(msgspec.json.encode(value)), base, path)
    if has_members(base):
        found = _members(value, base, path)
        return found if typing.is_typeddict(base) else _construct(lambda: base(**found), base, path)
    return _scalar(value, base, path)


def _fit(value: object, wanted: type[T], path: str) -> T:
    if type(value) is not wanted:
        raise _misfit(value, f"must be {wanted.__name__}", path)
    return value


def _misfit(value: object, reason: str, path: str) -> InvalidInput:
    return InvalidInput(
        f"{path or ANSWER} {reason}, not {describe_value(value)}; the form may have changed since it was asked"
    )


def _scalar(value: Json, wanted: type, path: str) -> object:
    if wanted is float and type(value) is int:
        return float(value)
    if wanted is int and type(value) is float and value.is_integer():
        return int(value)
    if wanted not in (dt.date, dt.datetime):
        return _fit(value, wanted, path)
    if value is None:
        return None
    read = read_date if wanted is dt.date else read_datetime
    found = read(value) if isinstance(value, str) else None
    if found is None:
        raise _misfit(value, f"must be a {wanted.__name__}", path)
    return found


def _enum_member(value: Json, members: Sequence[object], path: str) -> object:
    for member in members:
        if is_same(plain_or_refuse(member, "a choice"), value):
            return member
    if value is None:
        return None
    raise _misfit(value, "must be one of its choices", path)


def _union_value(value: Json, arms: tuple[object, ...], path: str) -> object:
    """The value as the first type of a union that fits. A whole number becomes a float only if no other type fits."""
    if value is None and type(None) in arms:
        return None
    first = sorted(arms, key=lambda arm: arm is float) if type(value) is int else arms
    problems: list[str] = []
    for arm in first:
        try:
            return _convert(value, arm, path)
        except InvalidInput as error:
            problems.append(str(error))
    raise InvalidInput(problems[0] if len(problems) == 1 else f"{path or ANSWER} fits none of: " + "; ".join(problems))


def _list(value: Json, origin: object, arguments: tuple[object, ...], path: str) -> object:
    items = _fit(value, list, path)
    if origin is tuple and arguments and arguments[-1] is not ...:
        if len(items) != len(arguments):
            raise _misfit(value, f"must have {len(arguments)} items", path)
        inners = arguments
    else:
        inners = (arguments[0] if arguments else Any,) * len(items)
    made = [
        _convert(item, inner, item_path(path, index))
        for index, (item, inner) in enumerate(zip(items, inners, strict=True))
    ]
    build = next((kind for kind in (tuple, set, frozenset) if kind is origin), list)
    return _construct(lambda: build(made), build, path)


def _members(value: Json, spec: object, path: str) -> dict[str, object]:
    given = dict(_fit(value, dict, path))
    found: dict[str, object] = {}
    for member in members_of(spec, path or "the form"):
        here = field_path(path, member.name)
        if member.name in given:
            found[member.name] = _convert(given.pop(member.name), member.annotation, here)
        else:
            _fill_default(found, member, here)
    if given:
        names = ", ".join(given)
        raise InvalidInput(
            f"{path or ANSWER} has {names}, which the form does not; it may have changed since it was asked"
        )
    return found


def _fill_default(found: dict[str, object], member: Member, path: str) -> None:
    """Fill in a field that the answer leaves out: the declared default, or that of the class."""
    declared = declared_in(member.annotation)
    if declared is not None and declared.default is not ...:
        found[member.name] = _convert(declared.default, member.annotation, path)
    elif member.default is not ... or member.required is False:
        return
    elif (declared is not None and declared.required is False) or (
        member.required is None and is_optional(member.annotation)
    ):
        found[member.name] = None
    else:
        raise InvalidInput(f"{path} is missing; the form may have changed since it was asked")


def _construct(make: Callable[[], object], cls: object, path: str) -> object:
    try:
        return make()
    except Exception as error:  # The user's own checks run here and may raise anything.
        name = getattr(cls, "__name__", str(cls))
        raise InvalidInput(f"{path or ANSWER} cannot become {name}: {error}") from error
