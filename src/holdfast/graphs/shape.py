"""The shape of definitions: which fields, types and values a part may have, and where data differs from it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final

from msgspec import inspect as info

from holdfast.errors.runs import close_matches
from holdfast.graphs.definition import Graph
from holdfast.graphs.findings import Place

_SHOWN_MAX: Final = 40
_KINDS: Final[tuple[tuple[type, type[Any] | tuple[type[Any], ...], str], ...]] = (
    (info.StrType, str, "text"), (info.BoolType, bool, "true or false"), (info.IntType, int, "a whole number"),
    (info.FloatType, (int, float), "a number"), (info.DictType, Mapping, "an object"),
    (info.VarTupleType, (list, tuple), "a list"), (info.NoneType, type(None), "null"),
)  # fmt: skip


def shape_problems(data: Any) -> Iterator[tuple[Place, str]]:
    """What keeps data from being a definition: where, and what is allowed there."""
    yield from _problems(_graph(), data, ())


@cache
def _graph() -> info.Type:
    return info.type_info(Graph)


def path_text(path: Place) -> str:
    """A path as it is written: `stages[0].with`."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).lstrip(".")


def _problems(kind: info.Type, value: Any, path: Place) -> Iterator[tuple[Place, str]]:
    if isinstance(kind, info.UnionType):
        yield from _of_union(kind, value, path)
    elif isinstance(kind, info.StructType):
        yield from _of_part(kind, value, path)
    elif isinstance(kind, info.LiteralType):
        if value not in kind.values if isinstance(value, str) else True:
            yield path, f"{_shown(value)} is not allowed; use one of {_listed(kind.values, value)}"
    elif not _fits(kind, value):
        yield path, f"{_shown(value)} is not allowed; it is {_named(kind)}"
    elif isinstance(kind, info.VarTupleType):
        for number, part in enumerate(value):
            yield from _problems(kind.item_type, part, (*path, number))
    elif isinstance(kind, info.DictType):
        for key in value:
            if not isinstance(key, str):
                yield path, f"the key {_shown(key)} is not text"


def _of_union(kind: info.UnionType, value: Any, path: Place) -> Iterator[tuple[Place, str]]:
    tagged = {str(one.tag): one for one in kind.types if isinstance(one, info.StructType) and one.tag_field}
    if tagged and isinstance(value, Mapping):
        tag = value.get("type")
        if not isinstance(tag, str) or tag not in tagged:
            said = f"there is no stage of type {_shown(tag)}" if "type" in value else "a stage needs a `type`"
            yield (*path, "type") if "type" in value else path, f"{said}; use one of {_listed(tuple(tagged), tag)}"
        else:
            yield from _of_part(tagged[tag], value, path)
        return
    fitting = [one for one in kind.types if _fits(one, value)]
    if fitting:
        yield from _problems(fitting[0], value, path)
    else:
        allowed = ["a stage, as an object"] if tagged else []
        allowed += [_named(one) for one in kind.types if not getattr(one, "tag_field", None)]
        yield path, f"{_shown(value)} is not allowed; it is {' or '.join(allowed)}"


def _of_part(kind: info.StructType, value: Any, path: Place) -> Iterator[tuple[Place, str]]:
    name = str(kind.tag) if kind.tag_field else kind.cls.__name__.lower()
    if not isinstance(value, Mapping):
        yield path, f"{_shown(value)} is not allowed; it is an object"
        return
    fields = {field.encode_name: field for field in kind.fields}
    for key in value:
        if key not in fields and key != kind.tag_field:
            known = tuple(fields) if kind.tag_field is None else (kind.tag_field, *fields)
            yield (*path, key), f"{_shown(key)} is not a field of `{name}`; it has {_listed(known, key)}"
    for key, field in fields.items():
        if key in value:
            yield from _problems(field.type, value[key], (*path, key))
        elif field.required:
            yield path, f"`{name}` needs the field `{key}`"


def _fits(kind: info.Type, value: Any) -> bool:
    if isinstance(kind, info.AnyType):
        return True
    if isinstance(kind, info.StructType):
        return isinstance(value, Mapping)
    python = next((python for ours, python, _ in _KINDS if isinstance(kind, ours)), object)
    return isinstance(value, python) and (isinstance(kind, info.BoolType) or not isinstance(value, bool))


def _named(kind: info.Type) -> str:
    if isinstance(kind, info.StructType):
        return f"an object with {', '.join(field.encode_name for field in kind.fields)}"
    return next((name for ours, _, name in _KINDS if isinstance(kind, ours)), "any value")


def _shown(value: Any) -> str:
    text = repr(value) if isinstance(value, (str, int, float, bool, type(None))) else type(value).__name__
    text = {"dict": "an object", "list": "a list", "None": "null", "True": "true", "False": "false"}.get(text, text)
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}…"


def _listed(allowed: tuple[Any, ...], given: Any) -> str:
    """What is allowed; first what was probably meant."""
    names = [str(one) for one in allowed]
    close = close_matches(given, names) if isinstance(given, str) else []
    return ", ".join(names) + (f" (perhaps {close[0]!r} is meant)" if close else "")
