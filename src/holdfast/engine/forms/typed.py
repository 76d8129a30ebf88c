"""`typed`: a checked answer as what the user's spec promises.

Types are looked at again, because the code may have changed since the form was stored; bounds are not, because an
answer that was good when it was given stays good.
"""

from __future__ import annotations

import datetime as dt
import typing
from typing import Any

import msgspec

from holdfast.engine.forms import dates
from holdfast.engine.forms.annotations import DICTS, LISTS, declared_in
from holdfast.engine.forms.declared import FieldSpec
from holdfast.engine.forms.form import ANSWER
from holdfast.engine.forms.making import form_of
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
from holdfast.engine.forms.problems import at, described, inside
from holdfast.errors import InvalidInput


def typed(answer: Any, spec: Any) -> Any:
    """The value of a checked answer as an instance of `spec`: of a dataclass, Struct or Pydantic model, an Enum member,
    a date; plain dicts for dicts of types, TypedDicts and JSON Schemas.

    A denied answer has None for choices and dates it knows nothing better for; these stay None. Raises InvalidInput if
    the answer does not fit, which means that the spec is not the one it was checked against.
    """
    form = form_of(spec)
    value = plain_or_refuse(answer, "the answer")
    is_wrapped = form.single and isinstance(value, dict) and list(value) == [ANSWER]
    if is_wrapped and form.fields[0].kind not in ("object", "any"):
        value = value[ANSWER]
    return _typed(value, spec, "")


def _typed(value: Any, annotation: Any, path: str) -> Any:
    declared = declared_in(annotation)
    if declared is not None and value is None and (declared.required is False or declared.default is None):
        return None
    if isinstance(annotation, FieldSpec):
        return _typed(value, str if annotation.type is ... else annotation.type, path)
    base, _ = stripped(annotation)
    if base is None or base is Any or base is object or is_json_schema(base):
        return value
    if isinstance(base, dict):
        return _members(value, base, path)
    arms = arms_of(base)
    if arms is not None:
        return _arm(value, arms, path)
    origin, arguments = typing.get_origin(base) or base, typing.get_args(base)
    members = enum_members(base) if origin is not typing.Literal else list(arguments)
    if members is not None:
        return _chosen(value, members, path)
    if origin in LISTS:
        return _list(value, origin, arguments, path)
    if origin in DICTS:
        inner = arguments[1] if arguments else Any
        return {name: _typed(item, inner, inside(path, name)) for name, item in _fit(value, dict, path).items()}
    if is_pydantic(base):
        return _made(lambda: base.model_validate_json(msgspec.json.encode(value)), base, path)
    if has_members(base):
        found = _members(value, base, path)
        return found if typing.is_typeddict(base) else _made(lambda: base(**found), base, path)
    return _scalar(value, base, path)


def _fit(value: Any, wanted: type, path: str) -> Any:
    if type(value) is not wanted:
        raise _misfit(value, f"must be {wanted.__name__}", path)
    return value


def _misfit(value: Any, reason: str, path: str) -> InvalidInput:
    return InvalidInput(
        f"{path or ANSWER} {reason}, not {described(value)}; the form may have changed since it was asked"
    )


def _scalar(value: Any, wanted: Any, path: str) -> Any:
    if wanted is float and type(value) is int:
        return float(value)
    if wanted is int and type(value) is float and value.is_integer():
        return int(value)
    if wanted not in (dt.date, dt.datetime):
        return _fit(value, wanted, path)
    if value is None:
        return None
    read = dates.read_date if wanted is dt.date else dates.read_datetime
    found = read(value) if isinstance(value, str) else None
    if found is None:
        raise _misfit(value, f"must be a {wanted.__name__}", path)
    return found


def _chosen(value: Any, members: list[Any], path: str) -> Any:
    for member in members:
        if same(plain_or_refuse(member, "a choice"), value):
            return member
    if value is None:
        return None
    raise _misfit(value, "must be one of its choices", path)


def _arm(value: Any, arms: tuple[Any, ...], path: str) -> Any:
    """The first type of a union that takes the value. A whole number stays one if it may."""
    if value is None and type(None) in arms:
        return None
    first = sorted(arms, key=lambda arm: arm is float) if type(value) is int else arms
    problems: list[str] = []
    for arm in first:
        try:
            return _typed(value, arm, path)
        except InvalidInput as error:
            problems.append(str(error))
    raise InvalidInput(problems[0] if len(problems) == 1 else f"{path or ANSWER} fits none of: " + "; ".join(problems))


def _list(value: Any, origin: Any, arguments: tuple[Any, ...], path: str) -> Any:
    items = _fit(value, list, path)
    if origin is tuple and arguments and arguments[-1] is not ...:
        if len(items) != len(arguments):
            raise _misfit(value, f"must have {len(arguments)} items", path)
        inners = list(arguments)
    else:
        inners = [arguments[0] if arguments else Any] * len(items)
    made = [_typed(item, inner, at(path, index)) for index, (item, inner) in enumerate(zip(items, inners, strict=True))]
    build = {tuple: tuple, set: set, frozenset: frozenset}.get(origin, list)
    return _made(lambda: build(made), build, path)


def _members(value: Any, spec: Any, path: str) -> dict[str, Any]:
    given = dict(_fit(value, dict, path))
    found: dict[str, Any] = {}
    for member in members_of(spec, path or "the form"):
        here = inside(path, member.name)
        if member.name in given:
            found[member.name] = _typed(given.pop(member.name), member.annotation, here)
        else:
            _fill(found, member, here)
    if given:
        names = ", ".join(given)
        raise InvalidInput(
            f"{path or ANSWER} has {names}, which the form does not; it may have changed since it was asked"
        )
    return found


def _fill(found: dict[str, Any], member: Member, path: str) -> None:
    """What an answer leaves out: the declared default, or what the class itself puts there."""
    declared = declared_in(member.annotation)
    if declared is not None and declared.default is not ...:
        found[member.name] = _typed(declared.default, member.annotation, path)
    elif member.default is not ... or member.required is False:
        return
    elif (declared is not None and declared.required is False) or (
        member.required is None and is_optional(member.annotation)
    ):
        found[member.name] = None
    else:
        raise InvalidInput(f"{path} is missing; the form may have changed since it was asked")


def _made(make: Any, cls: Any, path: str) -> Any:
    try:
        return make()
    except Exception as error:  # The user's own checks run here, and may raise anything.
        name = getattr(cls, "__name__", str(cls))
        raise InvalidInput(f"{path or ANSWER} cannot become {name}: {error}") from error
