"""Reading JSON Schemas: references, choices, types, and the parts of a schema."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, TypeAlias

import msgspec

from holdfast.errors import InvalidInput

Schema: TypeAlias = dict[str, Any]

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
REFERENCE: Final = "#/$defs/"

ONE_PART: Final = ("items", "additionalProperties")
PART_LISTS: Final = ("anyOf", "oneOf", "allOf", "prefixItems")
PART_DICTS: Final = ("properties", "$defs")

ANNOTATIONS: Final = frozenset(
    ("title", "description", "default", "x-multiline", "examples", "deprecated", "$comment", "$schema", "$id", "$defs")
)
"""Keywords that say nothing about which values are accepted."""


class Choice(msgspec.Struct, frozen=True):
    """One value a person may choose, and how to show it."""

    value: Any
    label: str


def choice_label(value: Any) -> str:
    """How a choice is shown unless a label is given."""
    if isinstance(value, bool):
        return "Yes" if value else "No"
    return value if isinstance(value, str) else "None" if value is None else json.dumps(value, ensure_ascii=False)


def choice_keyword(schema: Schema) -> str | None:
    """The keyword under which a schema lists its values, or None: `const`, `enum`, or constants with titles."""
    for keyword in ("const", "enum"):
        if keyword in schema:
            return keyword
    for keyword in ("oneOf", "anyOf"):
        parts = schema.get(keyword)
        if parts and all(isinstance(part, dict) and part.keys() - {"title"} == {"const"} for part in parts):
            return keyword
    return None


def choices_in(schema: Schema) -> tuple[Choice, ...] | None:
    """The values a schema lists, or None if it lists none."""
    match choice_keyword(schema):
        case None:
            return None
        case "const":
            return (Choice(schema["const"], choice_label(schema["const"])),)
        case "enum":
            return tuple(Choice(value, choice_label(value)) for value in schema["enum"])
        case keyword:
            return tuple(
                Choice(part["const"], part.get("title") or choice_label(part["const"])) for part in schema[keyword]
            )


def listed(choices: Iterable[Choice]) -> str:
    """Choices in a sentence, as they are written in an answer."""
    return ", ".join(json.dumps(choice.value, ensure_ascii=False) for choice in choices)


def types_in(schema: Schema) -> tuple[str, ...]:
    """The names under `type`, none if any type will do."""
    found = schema.get("type", ())
    return (found,) if isinstance(found, str) else tuple(found)


def name_in(schema: Schema) -> str | None:
    """The name of the part under `$defs` that a schema refers to, if it does."""
    reference = schema.get("$ref")
    if not isinstance(reference, str) or not reference.startswith(REFERENCE):
        return None
    return reference.removeprefix(REFERENCE).replace("~1", "/").replace("~0", "~")


def reference_to(name: str) -> Schema:
    """A schema that refers to a part under `$defs`."""
    return {"$ref": REFERENCE + name.replace("~", "~0").replace("/", "~1")}


def target_of(schema: Schema, root: Schema) -> Schema | bool:
    """What the `$ref` of a schema leads to; raises InvalidInput if it leads nowhere."""
    name, defs = name_in(schema), root.get("$defs")
    if name is None or not isinstance(defs, dict) or name not in defs:
        raise InvalidInput(
            f"the form refers to {schema.get('$ref')!r}, which is not there; "
            f"only parts of the same schema under {REFERENCE} can be used"
        )
    target: Schema | bool = defs[name]
    return target


def copied(value: Any) -> Any:
    """A copy of plain data."""
    if isinstance(value, dict):
        return {name: copied(item) for name, item in value.items()}
    return [copied(item) for item in value] if isinstance(value, list) else value


def parts_of(schema: Mapping[str, Any]) -> Iterator[Any]:
    """The schemas directly inside a schema. It need not be sound."""
    yield from (schema[keyword] for keyword in ONE_PART if keyword in schema)
    for keyword in PART_LISTS:
        if isinstance(schema.get(keyword), list):
            yield from schema[keyword]
    for keyword in PART_DICTS:
        if isinstance(schema.get(keyword), dict):
            yield from schema[keyword].values()


def changed(schema: Any, change: Callable[[Schema], Schema]) -> Any:
    """A copy of a schema in which every part, from the inside out, went through `change`."""
    if not isinstance(schema, dict):
        return copied(schema)
    copy = copied({name: value for name, value in schema.items() if name not in (*ONE_PART, *PART_LISTS, *PART_DICTS)})
    for name, value in schema.items():
        if name in ONE_PART:
            copy[name] = changed(value, change)
        elif name in PART_LISTS:
            copy[name] = [changed(part, change) for part in value]
        elif name in PART_DICTS:
            copy[name] = {key: changed(part, change) for key, part in value.items()}
    return change(copy)


def renamed(schema: Any, names: Mapping[str, str]) -> Any:
    """A copy of a schema whose references to parts under `$defs` use their new names."""

    def rename(part: Schema) -> Schema:
        name = name_in(part)
        return {**part, **reference_to(names[name])} if name is not None and name in names else part

    return changed(schema, rename)


def with_defs(schema: Schema, defs: Mapping[str, Any]) -> Schema:
    """The schema with those of `defs` it leads to, so that it can be used on its own."""
    needed: dict[str, Any] = {}
    waiting: list[Any] = [schema]
    while waiting:
        part = waiting.pop()
        if not isinstance(part, dict):
            continue
        name = name_in(part)
        if name is not None and name in defs and name not in needed:
            needed[name] = copied(defs[name])
            waiting.append(needed[name])
        waiting.extend(parts_of(part))
    return {**schema, "$defs": needed} if needed else schema


def nullable(schema: Schema) -> Schema:
    """The schema, accepting null as well."""
    if not schema or "null" in types_in(schema) or any(choice.value is None for choice in choices_in(schema) or ()):
        return schema
    if "enum" in schema:
        types = {"type": [*types_in(schema), "null"]} if "type" in schema else {}
        return {**schema, "enum": [*schema["enum"], None], **types}
    if "oneOf" in schema and choices_in(schema) is not None and "type" not in schema:
        return {**schema, "oneOf": [*schema["oneOf"], {"const": None}]}
    if "type" in schema and not schema.keys() & {"anyOf", "oneOf", "allOf", "$ref", "const"}:
        return {**schema, "type": [*types_in(schema), "null"]}
    outer = {name: value for name, value in schema.items() if name in ANNOTATIONS}
    inner = {name: value for name, value in schema.items() if name not in ANNOTATIONS}
    return {**outer, "anyOf": [inner, {"type": "null"}]}
