"""JSON Schemas and plain data: references, choices, problems, copies and dates.

Every answer, default and schema passes `to_plain` first. The result is a copy that shares no container with the given
value, so a later change of one does not change the other.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import json
import math
import re
import reprlib
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import Any, Final, TypeAlias

import msgspec

from holdfast.errors import InvalidInput
from holdfast.limits import ANSWER_NESTING_MAX, INTEGER_BITS_MAX, PROBLEMS_MAX

_SHORT: Final = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxlong = _SHORT.maxother = 60

_WORDS: Final = {list: "a list", dict: "an object", type(None): "null"}


class Problem(msgspec.Struct, frozen=True):
    """One problem of an answer. `field` is a path such as `note`, `lines[2].price` or, for the whole, `answer`."""

    field: str
    reason: str

    def __str__(self) -> str:
        return f"{self.field} {self.reason}"


def field_path(path: str, name: str) -> str:
    """The path of a field in an object."""
    return f"{path}.{name}" if path else name


def item_path(path: str, index: int) -> str:
    """The path of an item in a list."""
    return f"{path}[{index}]"


def short_text(value: object) -> str:
    """A short text for a value of any size, for use in messages."""
    try:
        return _SHORT.repr(value)
    except Exception:  # A number of very many digits, or an object whose __repr__ fails.
        return f"a {type(value).__name__}"


def describe_value(value: object) -> str:
    """A description of a plain value in words, or the value itself if that is short."""
    return f"the text {short_text(value)}" if isinstance(value, str) else _WORDS.get(type(value)) or short_text(value)


def to_error(what: str, problems: Iterable[Problem]) -> InvalidInput:
    """All problems as one error."""
    return InvalidInput(f"{what}: " + "; ".join(str(problem) for problem in problems))


Schema: TypeAlias = dict[str, Any]
Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
"""Plain data, as `to_plain` returns it."""

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
REFERENCE: Final = "#/$defs/"

ONE_PART: Final = ("items", "additionalProperties")
PART_LISTS: Final = ("anyOf", "oneOf", "allOf", "prefixItems")
PART_DICTS: Final = ("properties", "$defs")

ANNOTATIONS: Final = frozenset(
    ("title", "description", "default", "x-multiline", "examples", "deprecated", "$comment", "$schema", "$id", "$defs")
)
"""Keywords that do not restrict which values are accepted."""


class Choice(msgspec.Struct, frozen=True):
    """A value that an answer may choose, and its label."""

    value: Any
    label: str


def choice_label(value: Json) -> str:
    """The label of a choice that was given none."""
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


def list_choices(choices: Iterable[Choice]) -> str:
    """Choices in a sentence, as they are written in an answer."""
    return ", ".join(json.dumps(choice.value, ensure_ascii=False) for choice in choices)


def types_in(schema: Schema) -> tuple[str, ...]:
    """The names under `type`; empty if the schema accepts any type."""
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
    """The target of the `$ref` of a schema; raises InvalidInput if there is none."""
    name, defs = name_in(schema), root.get("$defs")
    if name is None or not isinstance(defs, dict) or name not in defs:
        raise InvalidInput(
            f"the form refers to {schema.get('$ref')!r}, which does not exist; "
            f"only parts of the same schema under {REFERENCE} can be used"
        )
    target: Schema | bool = defs[name]
    return target


def copy_plain(value: object) -> Any:
    """A copy of plain data."""
    if isinstance(value, dict):
        return {name: copy_plain(item) for name, item in value.items()}
    return [copy_plain(item) for item in value] if isinstance(value, list) else value


def parts_of(schema: Schema) -> Iterator[object]:
    """The schemas directly inside a schema, which need not be valid."""
    yield from (schema[keyword] for keyword in ONE_PART if keyword in schema)
    for keyword in PART_LISTS:
        if isinstance(schema.get(keyword), list):
            yield from schema[keyword]
    for keyword in PART_DICTS:
        if isinstance(schema.get(keyword), dict):
            yield from schema[keyword].values()


def map_schemas(schema: object, change: Callable[[Schema], Schema]) -> Any:
    """A copy of a schema with `change` applied to every part, innermost parts first."""
    if not isinstance(schema, dict):
        return copy_plain(schema)
    copy = copy_plain(
        {name: value for name, value in schema.items() if name not in (*ONE_PART, *PART_LISTS, *PART_DICTS)}
    )
    for name, value in schema.items():
        if name in ONE_PART:
            copy[name] = map_schemas(value, change)
        elif name in PART_LISTS:
            copy[name] = [map_schemas(part, change) for part in value]
        elif name in PART_DICTS:
            copy[name] = {key: map_schemas(part, change) for key, part in value.items()}
    return change(copy)


def rename_references(schema: object, names: Mapping[str, str]) -> Any:
    """A copy of a schema whose references to parts under `$defs` use their new names."""

    def rename(part: Schema) -> Schema:
        name = name_in(part)
        return {**part, **reference_to(names[name])} if name is not None and name in names else part

    return map_schemas(schema, rename)


def with_defs(schema: Schema, defs: Schema) -> Schema:
    """The schema with those of `defs` that it refers to, so that it is complete by itself."""
    needed: Schema = {}
    waiting: list[object] = [schema]
    while waiting:
        part = waiting.pop()
        if not isinstance(part, dict):
            continue
        name = name_in(part)
        if name is not None and name in defs and name not in needed:
            needed[name] = copy_plain(defs[name])
            waiting.append(needed[name])
        waiting.extend(parts_of(part))
    return {**schema, "$defs": needed} if needed else schema


def to_nullable(schema: Schema) -> Schema:
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


# --- plain data ---

_SURROGATE: Final = "[\ud800-\udfff]"
"""Patterns are compiled when they are first used: most commands read no answer."""


def to_plain(value: object, problems: list[Problem], path: str = "", levels: int = ANSWER_NESTING_MAX) -> Json:
    """`value` as plain data.

    Enum members become their values, dates ISO text, tuples and sets lists, instances of dataclasses, Structs and
    Pydantic models dicts. A value that has no plain form becomes None and adds to `problems`. Never raises.
    """
    if value is None or value is True or value is False:
        return value
    if isinstance(value, enum.Enum):
        if levels <= 0:
            return _bad(problems, path, "is nested too deeply")
        return to_plain(value.value, problems, path, levels - 1)
    if isinstance(value, str):
        return _text(value, problems, path)
    if isinstance(value, int | float):
        return _number(value, problems, path)
    if isinstance(value, dt.date):  # A datetime is a date, too.
        return value.isoformat()
    if levels <= 0:
        return _bad(problems, path, "is nested too deeply")
    try:
        opened = _as_container(value)
    except Exception as error:  # The value's own code may raise anything; it is a problem of the answer.
        return _bad(problems, path, f"cannot be read: {type(error).__name__}: {error}")
    if isinstance(opened, Mapping):
        return _dict(opened, problems, path, levels - 1)
    if isinstance(opened, list):
        return [to_plain(item, problems, item_path(path, index), levels - 1) for index, item in enumerate(opened)]
    return _bad(problems, path, f"is of the type {type(value).__name__}, which an answer cannot hold")


def plain_or_refuse(value: object, what: str, levels: int = ANSWER_NESTING_MAX) -> Json:
    """`value` as plain data; raises InvalidInput naming `what` if it has no plain form."""
    problems: list[Problem] = []
    copy = to_plain(value, problems, "", levels)
    if problems:
        raise to_error(what, [Problem(problem.field or "it", problem.reason) for problem in problems])
    return copy


def key_of(value: Json) -> Hashable:
    """A key that is equal exactly for values that JSON calls equal: 1 and 1.0 are equal, 1 and true are not."""
    if isinstance(value, bool):
        return ("bool", value)
    if isinstance(value, list):
        return ("list", tuple(key_of(item) for item in value))
    if isinstance(value, dict):
        return ("dict", frozenset((name, key_of(item)) for name, item in value.items()))
    return value


def is_same(left: Json, right: Json) -> bool:
    """Whether JSON calls two plain values equal."""
    return key_of(left) == key_of(right)


def _bad(problems: list[Problem], path: str, reason: str) -> str | None:
    if len(problems) < PROBLEMS_MAX:
        problems.append(Problem(path, reason))
    return None


def _text(value: str, problems: list[Problem], path: str) -> str | None:
    text = str.__str__(value)
    if not text.isascii() and re.search(_SURROGATE, text):
        return _bad(problems, path, "has a lone surrogate, which no store can keep")
    return text


def _number(value: int | float, problems: list[Problem], path: str) -> Json:
    if isinstance(value, float):
        number = float.__float__(value)
        if math.isfinite(number):
            return number
        return _bad(problems, path, f"is {number}, which is not a finite number")
    whole = int.__int__(value)
    if whole.bit_length() > INTEGER_BITS_MAX:
        return _bad(problems, path, f"is a whole number of more than {INTEGER_BITS_MAX} bits")
    return whole


def _as_container(value: object) -> Mapping[Any, object] | list[object] | None:
    """A container as a dict or a list, else None."""
    if isinstance(value, list | tuple):
        return list(value)
    if isinstance(value, set | frozenset):
        return sorted(value, key=short_text)  # The order of a set differs between processes.
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, type):
        return None
    if isinstance(value, msgspec.Struct):
        return msgspec.structs.asdict(value)
    if hasattr(type(value), "__pydantic_fields__") and hasattr(value, "model_dump"):
        dumped = value.model_dump(mode="json", by_alias=True)
        return dumped if isinstance(dumped, dict | list) else None
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value) if field.init}
    return None


def _dict(items: Mapping[Any, object], problems: list[Problem], path: str, levels: int) -> dict[str, Json]:
    copy: dict[str, Json] = {}
    for key, value in items.items():
        name = key.value if isinstance(key, enum.Enum) else key
        if not isinstance(name, str):
            _bad(problems, path, f"has the key {short_text(key)}, which is not text")
            continue
        text = _text(name, problems, path)
        if text is not None:
            copy[text] = to_plain(value, problems, field_path(path, text), levels)
    return copy


_DATE: Final = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_DATETIME: Final = (
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(:[0-9]{2}([.][0-9]{1,9})?)?(Z|[+-][0-9]{2}:[0-9]{2})?"
)


def read_date(text: str) -> dt.date | None:
    """The date of `2026-03-31`, else None."""
    try:
        return dt.date.fromisoformat(text) if re.fullmatch(_DATE, text) else None
    except ValueError:
        return None


def read_datetime(text: str) -> dt.datetime | None:
    """The time of `2026-03-31T10:15`, with or without seconds and zone, else None."""
    upper = text.upper()
    try:
        return dt.datetime.fromisoformat(upper) if re.fullmatch(_DATETIME, upper) else None
    except ValueError:
        return None
