"""The JSON Schema of definitions, and readable differences between data and that schema.

Editors use the schema for completion and checks. `find_problems` reports every difference with its path and with the
values that are allowed there; msgspec itself reports only the first one.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Final

import msgspec
from msgspec import inspect as info

from holdfast.errors.store import close_matches, did_you_mean
from holdfast.graphs.definition import BadPart, Graph, JsonObject
from holdfast.graphs.structure import Place

_STAGES: Final = ("Call", "Effect", "Ask", "LoopUntil", "ForEach", "SubWorkflow", "Wait", "Sleep", "Set", "End")


def json_schema() -> JsonObject:
    """Return the schema, draft 2020-12."""
    (_,), parts = msgspec.json.schema_components([Graph], ref_template="#/$defs/{name}")
    parts = copy.deepcopy(parts)
    parts["End"]["properties"].pop("breakpoint")
    for name in _STAGES:
        body = copy.deepcopy(parts[name])
        for field in ("id", "breakpoint"):
            body["properties"].pop(field, None)
        parts[f"{name}Body"] = body
        parts[name]["required"] = ["id", *parts[name]["required"]]
    for name in ("LoopUntil", "ForEach"):
        for variant in (name, f"{name}Body"):
            parts[variant]["properties"]["body"] = _one_of([f"{stage}Body" for stage in _STAGES if stage != "End"])
    parts["Graph"]["properties"]["stages"]["items"] = _one_of(list(_STAGES))
    for part in parts.values():
        part["description"] = _before_example(part.get("description", ""))
    dialect = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    schema = {**dialect, **parts["Graph"], "title": "Holdfast declared workflow", "$defs": parts}
    return msgspec.json.decode(msgspec.json.encode(schema), type=JsonObject)


def _one_of(names: list[str]) -> JsonObject:
    return {"anyOf": [{"$ref": f"#/$defs/{name}"} for name in names]}


def _before_example(text: str) -> str:
    """Return the text of a docstring before its example."""
    return " ".join(text.partition("Example:")[0].split())


_PLACE: Final = re.compile(r" - at `\$([^`]*)`")
_STEP: Final = re.compile(r"\.([^.\[]+)|\[(\d+)\]")
_PROBLEMS_MAX: Final = 50
_SHOWN_MAX: Final = 40
_KINDS: Final[tuple[tuple[type, type | tuple[type, ...], str], ...]] = (
    (info.StrType, str, "text"),
    (info.BoolType, bool, "true or false"),
    (info.IntType, int, "a whole number"),
    (info.FloatType, (int, float), "a number"),
    (info.DictType, Mapping, "an object"),
    (info.VarTupleType, (list, tuple), "a list"),
    (info.NoneType, type(None), "null"),
)


def find_problems(data: object, error: msgspec.ValidationError) -> list[tuple[Place, str]]:
    """Return why data is not a definition: differences from its schema, or the part that contradicts itself.

    Each has its path, and the values that are allowed there. `error` is the first problem, as msgspec reports it.
    """
    found = list(_problems(_graph(), data, ()))[:_PROBLEMS_MAX]
    if found:
        return found
    match = _PLACE.search(str(error))
    steps = _STEP.findall(match[1]) if match is not None else []
    path = tuple(int(number) if number else key for key, number in steps)
    reason = error.__cause__ if isinstance(error.__cause__, BadPart) else "it does not match the schema of a definition"
    return [(path, str(reason))]


@cache
def _graph() -> info.Type:
    return info.type_info(Graph)


def path_text(path: Place) -> str:
    """Return a path as text: `stages[0].with`."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).lstrip(".")


def _problems(kind: info.Type, value: object, path: Place) -> Iterator[tuple[Place, str]]:
    if isinstance(kind, info.UnionType):
        yield from _of_union(kind, value, path)
    elif isinstance(kind, info.StructType):
        yield from _of_part(kind, value, path)
    elif isinstance(kind, info.LiteralType):
        if value not in kind.values if isinstance(value, str) else True:
            yield path, f"{_shown(value)} is not allowed; use one of {_listed(kind.values, value)}"
    elif not _fits(kind, value):
        yield path, f"{_shown(value)} is not allowed; use {_named(kind)}"
    elif isinstance(kind, info.VarTupleType) and isinstance(value, (list, tuple)):
        for number, part in enumerate(value):
            yield from _problems(kind.item_type, part, (*path, number))
    elif isinstance(kind, info.DictType) and isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                yield path, f"the key {_shown(key)} is not text"


def _of_union(kind: info.UnionType, value: object, path: Place) -> Iterator[tuple[Place, str]]:
    tagged = {str(one.tag): one for one in kind.types if isinstance(one, info.StructType) and one.tag_field}
    if tagged and isinstance(value, Mapping):
        tag = value.get("type")
        if not isinstance(tag, str) or tag not in tagged:
            problem = f"there is no stage of type {_shown(tag)}" if "type" in value else "a stage needs a `type`"
            yield (*path, "type") if "type" in value else path, f"{problem}; use one of {_listed(tuple(tagged), tag)}"
        else:
            yield from _of_part(tagged[tag], value, path)
        return
    fitting = [one for one in kind.types if _fits(one, value)]
    if fitting:
        yield from _problems(fitting[0], value, path)
    else:
        allowed = ["a stage, as an object"] if tagged else []
        allowed += [_named(one) for one in kind.types if not getattr(one, "tag_field", None)]
        yield path, f"{_shown(value)} is not allowed; use {' or '.join(allowed)}"


def _of_part(kind: info.StructType, value: object, path: Place) -> Iterator[tuple[Place, str]]:
    name = str(kind.tag) if kind.tag_field else kind.cls.__name__.lower()
    if not isinstance(value, Mapping):
        yield path, f"{_shown(value)} is not allowed; use an object"
        return
    fields = {field.encode_name: field for field in kind.fields}
    for key in value:
        if key not in fields and key != kind.tag_field:
            known = tuple(fields) if kind.tag_field is None else (kind.tag_field, *fields)
            yield (*path, key), f"{_shown(key)} is not a field of `{name}`; use one of {_listed(known, key)}"
    for key, field in fields.items():
        if key in value:
            yield from _problems(field.type, value[key], (*path, key))
        elif field.required:
            yield path, f"`{name}` needs the field `{key}`"


def _fits(kind: info.Type, value: object) -> bool:
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


def _shown(value: object) -> str:
    text = repr(value) if isinstance(value, (str, int, float, bool, type(None))) else type(value).__name__
    text = {"dict": "an object", "list": "a list", "None": "null", "True": "true", "False": "false"}.get(text, text)
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}…"


def _listed(allowed: Iterable[object], given: object) -> str:
    """Return the allowed names, and the one that was probably meant."""
    names = [str(one) for one in allowed]
    meant = did_you_mean(close_matches(given, names)[:1]) if isinstance(given, str) else ""
    return ", ".join(names) + (meant and f" ({meant})")
