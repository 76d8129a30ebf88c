"""Fields of a form, and their conversion from and to JSON Schema.

A field whose attributes do not describe its values completely also carries their schema. So the conversion from a
schema to a field and back loses nothing.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from holdfast.forms.json_schema import (
    ANNOTATIONS,
    Choice,
    Schema,
    choice_keyword,
    choice_label,
    choices_in,
    copy_plain,
    target_of,
    to_nullable,
    types_in,
    with_defs,
)
from holdfast.forms.validate import check_value
from holdfast.limits import FORM_NESTING_MAX

KINDS: Final = ("yes_no", "integer", "number", "text", "choice", "choices", "list", "object", "date", "datetime", "any")

_TYPE_OF_KIND: Final = {
    "yes_no": "boolean",
    "integer": "integer",
    "number": "number",
    "text": "string",
    "list": "array",
    "object": "object",
    "date": "string",
    "datetime": "string",
}
_FORMAT_OF_KIND: Final = {"date": "date", "datetime": "date-time"}
_KIND_OF_TYPE: Final = {name: kind for kind, name in _TYPE_OF_KIND.items() if kind not in _FORMAT_OF_KIND}
_KIND_OF_FORMAT: Final = {name: kind for kind, name in _FORMAT_OF_KIND.items()}
_WRAPPERS: Final = ("anyOf", "oneOf", "allOf")
_NULLS: Final[tuple[Schema, ...]] = ({"type": "null"}, {"const": None}, {"enum": [None]})


class Field(msgspec.Struct, frozen=True, omit_defaults=True):
    """One field of a form.

    `kind` is one of KINDS; "choices" takes several of its choices. `required` fields must be in the answer; the others
    take `default` if `has_default`, else they are left out. `min_length` and `max_length` count characters of text and
    items of a list. `schema` is the JSON Schema of the value if the other attributes do not describe it completely; it
    contains the `$defs` it needs. Values are plain data: dates are ISO text.
    """

    name: str
    kind: str
    label: str
    help: str = ""
    choices: tuple[Choice, ...] = ()
    required: bool = True
    has_default: bool = False
    default: Any = None
    multiline: bool = False
    minimum: int | float | None = None
    maximum: int | float | None = None
    min_length: int | None = None
    max_length: int | None = None
    nullable: bool = False
    schema: Schema | None = None

    def json_schema(self) -> Schema:
        """The JSON Schema of this field's value, with label, help and default."""
        schema = _schema_from_attributes(self) if self.schema is None else copy_plain(self.schema)
        schema["title"] = self.label
        if self.help:
            schema["description"] = self.help
        if self.has_default:
            schema["default"] = copy_plain(self.default)
        if self.multiline:
            schema["x-multiline"] = True
        return schema


def label_of(name: str) -> str:
    """The label of a field that was given none."""
    words = name.replace("_", " ").strip()
    return words[:1].upper() + words[1:] if words else name


def field_of(name: str, schema: Schema | bool, root: Schema, *, required: bool) -> Field:
    """The field for a validated schema, whose references point into `root`."""
    given = schema if isinstance(schema, dict) else {}
    bare, may_be_null = resolve_schema(given, root)
    kind = kind_of(bare, root)
    listing = resolve_schema(bare.get("items", {}), root)[0] if kind == "choices" else bare
    shortest, longest = _length_keywords(kind)
    is_number, has_length = kind in ("integer", "number"), kind in ("list", "choices", "text")
    field = Field(
        name=name,
        kind=kind,
        label=given.get("title") or label_of(name),
        help=bare.get("description", ""),
        choices=(choices_in(listing) or ()) if kind in ("choice", "choices") else (),
        required=required and "default" not in given,
        has_default="default" in given,
        default=copy_plain(given.get("default")),
        multiline=kind == "text" and bare.get("x-multiline") is True,
        minimum=bare.get("minimum") if is_number else None,
        maximum=bare.get("maximum") if is_number else None,
        min_length=bare.get(shortest) if has_length else None,
        max_length=bare.get(longest) if has_length else None,
        nullable=may_be_null or (kind == "any" and not check_value({**given, "$defs": root.get("$defs", {})}, None)[1]),
    )
    whole = {keyword: value for keyword, value in given.items() if keyword not in ANNOTATIONS}
    if whole == _schema_from_attributes(field):
        return field
    return msgspec.structs.replace(field, schema=with_defs(copy_plain(whole), root.get("$defs", {})))


def resolve_schema(schema: Schema | bool, root: Schema) -> tuple[Schema, bool]:
    """A schema with its references resolved and its null removed, and whether it had one.

    The title of a part under `$defs` names a type and not a field, so it is left out.
    """
    bare = dict(schema) if isinstance(schema, dict) else {}
    had_null = False
    for _ in range(FORM_NESTING_MAX):
        if "$ref" in bare:
            inner, keyword = target_of(bare, root), "$ref"
        elif choice_keyword(bare) is not None:
            break
        else:
            keyword = next((word for word in _WRAPPERS if word in bare), "")
            parts = [part for part in bare.get(keyword, ()) if part not in _NULLS]
            if len(parts) != 1:
                break
            inner = parts[0]
            had_null = had_null or len(bare[keyword]) > 1
        bare.pop(keyword)
        described = inner if isinstance(inner, dict) else {}
        bare = {**{word: value for word, value in described.items() if word != "title"}, **bare}
    types = types_in(bare)
    if "null" in types and len(types) > 1:
        rest = [name for name in types if name != "null"]
        bare, had_null = {**bare, "type": rest[0] if len(rest) == 1 else rest}, True
    listing = choice_keyword(bare)
    if listing in ("enum", "oneOf", "anyOf"):
        kept = [part for part in bare[listing] if (part if listing == "enum" else part["const"]) is not None]
        if kept and len(kept) < len(bare[listing]):
            bare, had_null = {**bare, listing: kept}, True
    return bare, had_null


def kind_of(bare: Schema, root: Schema) -> str:
    """The kind of field for a resolved schema."""
    if choice_keyword(bare) is not None:
        return "choice" if any(choice.value is not None for choice in choices_in(bare) or ()) else "any"
    types = types_in(bare)
    if len(types) != 1:
        return "any"
    if types[0] == "string":
        return _KIND_OF_FORMAT.get(str(bare.get("format")), "text")
    if types[0] == "array":
        items, had_null = resolve_schema(bare.get("items", {}), root)
        if not had_null and "prefixItems" not in bare and choice_keyword(items) is not None:
            return "choices"
    return _KIND_OF_TYPE.get(types[0], "any")


def _length_keywords(kind: str) -> tuple[str, str]:
    return ("minItems", "maxItems") if kind in ("list", "choices") else ("minLength", "maxLength")


def choice_schema(choices: tuple[Choice, ...]) -> Schema:
    """A schema that lists choices, with labels where these differ from the values."""
    if all(choice.label == choice_label(choice.value) for choice in choices):
        return {"enum": [copy_plain(choice.value) for choice in choices]}
    return {"oneOf": [{"const": copy_plain(choice.value), "title": choice.label} for choice in choices]}


def _schema_from_attributes(field: Field) -> Schema:
    """The schema that the attributes of a field describe."""
    if field.kind == "any":
        return {}
    if field.kind == "choice":
        schema = choice_schema(field.choices)
    elif field.kind == "choices":
        schema = {"type": "array", "items": choice_schema(field.choices)}
    else:
        schema = {"type": _TYPE_OF_KIND[field.kind]}
    if field.kind in _FORMAT_OF_KIND:
        schema["format"] = _FORMAT_OF_KIND[field.kind]
    shortest, longest = _length_keywords(field.kind)
    limits = {"minimum": field.minimum, "maximum": field.maximum, shortest: field.min_length, longest: field.max_length}
    schema |= {keyword: value for keyword, value in limits.items() if value is not None}
    return to_nullable(schema) if field.nullable else schema
