"""Forms: the fields of an answer, its check, and the parsing of text.

A form is plain data, so any process can check an answer against a stored form.

Stored form, version 1 (`as_data`), plain JSON:

    v        1
    single   true if the answer is one bare value
    fields   list of fields; attributes that have their default are left out (see Field)
    schema   the JSON Schema the form was given as, or null

An answer is checked against `schema`, or, without one, against the schema that the fields describe.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, Final

import msgspec

from holdfast.errors import InvalidInput
from holdfast.forms.fields import KINDS, Field, kind_of, resolve_schema
from holdfast.forms.json_schema import (
    DIALECT,
    Choice,
    Json,
    Problem,
    Schema,
    copy_plain,
    describe_value,
    plain_or_refuse,
    read_date,
    read_datetime,
    short_text,
    to_error,
    to_plain,
)
from holdfast.forms.validate import check_value, validate_schema
from holdfast.limits import FIELDS_MAX

VERSION: Final = 1
ANSWER: Final = "answer"
"""The name of the only field of a single form, and of the whole answer in problems."""

_KNOWN_MAX: Final = 256
_known: dict[bytes, Form] = {}
"""A cache of forms by their data: a gate is shown and answered more than once."""

_EMPTY: Final[dict[str, Json]] = {"text": "", "integer": 0, "number": 0.0, "list": [], "choices": [], "object": {}}


class Checked(msgspec.Struct, frozen=True):
    """An answer after its check. Without problems, `value` is complete and exact: plain data, defaults filled in."""

    value: Any
    problems: list[Problem]

    @property
    def ok(self) -> bool:
        """Whether there was no problem."""
        return not self.problems


class Form(msgspec.Struct, frozen=True):
    """The fields of an answer. A `single` form has one, named "answer", and its answer is that bare value."""

    fields: tuple[Field, ...]
    schema: Schema | None = None
    single: bool = False

    def as_data(self) -> dict[str, Any]:
        """The form as plain data that survives JSON; `from_data` reads it."""
        return {
            "v": VERSION,
            "single": self.single,
            "fields": [msgspec.to_builtins(field) for field in self.fields],
            "schema": copy_plain(self.schema),
        }

    @classmethod
    def from_data(cls, data: object) -> Form:
        """The form that `as_data` described; raises InvalidInput for other data, and for a newer version."""
        try:
            key = msgspec.msgpack.encode(data)
        except (TypeError, ValueError, OverflowError):  # not the data of a form; _read reports why
            return cls._read(data)
        found = _known.get(key)
        if found is None:
            if len(_known) >= _KNOWN_MAX:
                _known.clear()
            found = _known[key] = cls._read(data)
        return found

    @classmethod
    def _read(cls, data: object) -> Form:
        version = data.get("v") if isinstance(data, dict) else None
        if not isinstance(data, dict) or not isinstance(version, int) or isinstance(version, bool) or version < 1:
            raise InvalidInput("this is not the data of a form: it has no version")
        if version > VERSION:
            raise InvalidInput(
                f"this form has version {version}, written by a newer Holdfast; this one reads up to version {VERSION}"
            )
        try:
            fields = msgspec.convert(data.get("fields"), tuple[Field, ...])
            single = msgspec.convert(data.get("single", False), bool)
        except msgspec.ValidationError as error:
            raise InvalidInput(f"this is not the data of a form: {error}") from error
        schema = data.get("schema")
        names = {field.name for field in fields}
        is_valid = len(names) == len(fields) <= FIELDS_MAX and (not single or len(fields) == 1)
        if not is_valid or any(field.kind not in KINDS for field in fields):
            raise InvalidInput("this is not the data of a form: its fields are not those of a form")
        for field in fields:
            validate_schema(field.json_schema(), f"the stored field {field.name!r}")
        return cls(fields, None if schema is None else validate_schema(schema, "the stored schema"), single)

    def fits_answers_of(self, other: Form) -> bool:
        """Whether this form has the fields and choices of `other`; labels, limits and defaults may differ.

        A single field of any kind fits the answers of every form.
        """
        if self.single and self.fields[0].kind == "any":
            return True
        kinds, theirs = ({field.name: field.kind for field in form.fields} for form in (self, other))
        choices = {field.name: [choice.value for choice in field.choices] for field in self.fields}
        has_all = all(choice.value in choices.get(field.name, ()) for field in other.fields for choice in field.choices)
        return self.single == other.single and kinds == theirs and has_all

    def json_schema(self) -> Schema:
        """A JSON Schema of the answer, draft 2020-12; of the bare value if the form is single."""
        if self.schema is not None:
            return {"$schema": DIALECT, **copy_plain(self.schema)}
        parts = {field.name: field.json_schema() for field in self.fields}
        if self.single:
            return {"$schema": DIALECT, **parts[self.fields[0].name]}
        defs: Schema = {}
        for part in parts.values():
            defs |= part.pop("$defs", {})
        schema: Schema = {"$schema": DIALECT, "type": "object", "properties": parts, "additionalProperties": False}
        required = [field.name for field in self.fields if field.required]
        return schema | ({"required": required} if required else {}) | ({"$defs": defs} if defs else {})

    def check(self, answer: object) -> Checked:
        """Check an answer and list all its problems. Never raises, and never changes `answer`.

        A single form takes the bare value, or a dict whose only key is "answer"; such a dict is always unwrapped.
        """
        if self.single and type(answer) is dict and list(answer) == [ANSWER]:
            answer = answer[ANSWER]
        return self.check_bare(answer)

    def check_bare(self, answer: object) -> Checked:
        """Like `check`, for an answer that is known not to be wrapped."""
        path = ANSWER if self.single else ""
        unfit: list[Problem] = []
        value = to_plain(answer, unfit, path)
        unfit = [Problem(problem.field or ANSWER, problem.reason) for problem in unfit]
        if not self.single and not isinstance(value, dict):
            names = ", ".join(field.name for field in self.fields)
            wanted = f"must be an object with the fields {names}" if names else "must be an object"
            return Checked(value, unfit or [Problem(ANSWER, f"{wanted}, not {describe_value(value)}")])
        clean, problems = check_value(self.json_schema(), value, path)
        # `to_plain` replaced a value that has no plain form by None; a second problem for that None is left out.
        known = {problem.field for problem in unfit}
        return Checked(clean, unfit + [problem for problem in problems if problem.field not in known])

    def denial(self) -> dict[str, Json]:
        """The answer that means "no": yes/no fields are False, others their default or else empty.

        Raises InvalidInput if no field can be answered with yes or no. The empty values need not pass `check`.
        """
        if not any(field.kind == "yes_no" for field in self.fields):
            names = ", ".join(repr(field.name) for field in self.fields) or "none"
            raise InvalidInput(
                f"the form cannot be denied, because none of its fields ({names}) is a yes/no question; declare what "
                "expiry means with expired=… or expired='fail'"
            )
        return {field.name: _deny(field) for field in self.fields}


def _deny(field: Field) -> Any:
    if field.kind == "yes_no":
        return False
    if field.has_default:
        return copy_plain(field.default)
    return None if field.nullable else copy_plain(_EMPTY.get(field.kind))


# --- text from a terminal or an HTML form ---

_YES: Final = frozenset(("y", "yes", "true", "t", "1", "on"))
_NO: Final = frozenset(("n", "no", "false", "f", "0", "off"))
_WHOLE: Final = r"[+-]?[0-9]{1,1000}([.]0{1,20})?"
_NUMBER: Final = r"[+-]?([0-9]{1,400}([.][0-9]{0,400})?|[.][0-9]{1,400})([eE][+-]?[0-9]{1,4})?"


def parse_text(field: Field, text: str) -> Json:
    """The value that `text` means for a field, as plain data, checked.

    yes/no: y, yes, true, t, 1, on and their opposites. Dates: ISO. A choice: its value or its label. Lists and several
    choices: separated by commas, or by line breaks if there are any, or a JSON list. Objects: JSON. Other fields: JSON,
    or else the text itself. Empty text is None if the field may be None, else its default, an empty list or empty text.

    Raises InvalidInput that names what was expected.
    """
    if not isinstance(text, str):
        raise InvalidInput(f"{field.label}: expected text to read, not {type(text).__name__}")
    if not text.strip():
        return _empty(field, text)
    if field.kind == "any":
        return _any(field, text)
    value = _text(text) if field.kind == "text" else _value(field, text.strip())
    clean, problems = check_value(field.json_schema(), value, "it")
    if problems:
        raise to_error(field.label, problems)
    return clean


def _empty(field: Field, text: str) -> Json:
    if field.nullable and field.kind != "any":
        return None
    if field.kind == "text" and not _problems(field, _text(text)):
        return _text(text)
    if field.has_default:
        default: Json = copy_plain(field.default)
        return default
    if field.kind in ("list", "choices") and not _problems(field, []):
        return []
    if field.kind == "any" and not field.required:
        return None
    raise InvalidInput(f"{field.label}: it must not be empty")


def _problems(field: Field, value: Json) -> list[Problem]:
    return check_value(field.json_schema(), value, "it")[1]


def _text(text: str) -> str:
    """Text with line breaks of one character; browsers send two."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _expected(field: Field, what: str, text: str) -> InvalidInput:
    return InvalidInput(f"{field.label}: expected {what}, not {short_text(text)}")


def _value(field: Field, text: str) -> Any:
    match field.kind:
        case "yes_no":
            if text.casefold() in _YES:
                return True
            if text.casefold() in _NO:
                return False
            raise _expected(field, "yes or no", text)
        case "integer" | "number":
            return _number(field, field.kind, text)
        case "date":
            if read_date(text) is None:
                raise _expected(field, "a date such as 2026-03-31", text)
            return text
        case "datetime":
            if read_datetime(text) is None:
                raise _expected(field, "a time such as 2026-03-31T10:15", text)
            return text
        case "choice":
            return _choice(field, text)
        case "choices":
            return _choices(field, text)
        case "list":
            return _list(field, text)
        case _:
            value = _json(field, text)
            if not isinstance(value, dict):
                raise _expected(field, 'a JSON object such as {"name": "value"}', text)
            return value


def _number(field: Field, kind: str, text: str) -> int | float:
    if kind == "integer":
        if not re.fullmatch(_WHOLE, text):
            raise _expected(field, "a whole number such as 12", text)
        return int(text.partition(".")[0])
    number = float(text) if re.fullmatch(_NUMBER, text) else math.inf
    if not math.isfinite(number):
        raise _expected(field, "a number such as 12.5", text)
    return number


def _matching(choices: tuple[Choice, ...], text: str) -> Choice | None:
    """The choice that `text` names: by its value, else by its label, else by either without regard to case."""
    texts = [
        (choice.value if isinstance(choice.value, str) else json.dumps(choice.value, ensure_ascii=False), choice)
        for choice in choices
    ]
    texts += [(choice.label, choice) for choice in choices]
    for exact in (True, False):
        for written, choice in texts:
            if written == text or (not exact and written.casefold() == text.casefold()):
                return choice
    return None


def _choice(field: Field, text: str) -> Any:
    match = _matching(field.choices, text)
    if match is None:
        raise _expected(field, f"one of {', '.join(choice.label for choice in field.choices)}", text)
    return copy_plain(match.value)


def _choices(field: Field, text: str) -> list[Json]:
    if text.startswith("["):
        return _json_list(field, text)
    whole = _matching(field.choices, text)
    if whole is not None:  # A choice may have a comma in it.
        return [copy_plain(whole.value)]
    return [_choice(field, piece) for piece in _pieces(text)]


def _pieces(text: str) -> list[str]:
    pieces = _text(text).split("\n") if "\n" in _text(text) else text.split(",")
    return [piece.strip() for piece in pieces if piece.strip()]


def _list(field: Field, text: str) -> list[Json]:
    if text.startswith("["):
        return _json_list(field, text)
    root = field.json_schema()
    items = resolve_schema(resolve_schema(root, root)[0].get("items", {}), root)[0]
    kind = kind_of(items, root)
    if kind in ("integer", "number"):
        return [_number(field, kind, piece) for piece in _pieces(text)]
    if kind in ("text", "any", "date", "datetime"):
        return list(_pieces(text))
    raise _expected(field, 'a JSON list such as ["one", "two"]', text)


def _json(field: Field, text: str) -> Json:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise _expected(field, "JSON", text) from None
    return plain_or_refuse(value, field.label)


def _json_list(field: Field, text: str) -> list[Json]:
    value = _json(field, text)
    return value if isinstance(value, list) else [value]


def _any(field: Field, text: str) -> Json:
    """JSON if it is JSON that fits, else the text as it was typed."""
    try:
        value = _json(field, text)
    except InvalidInput:
        value = _text(text)
    problems = _problems(field, value)
    if problems and not _problems(field, _text(text)):
        return _text(text)
    if problems:
        raise to_error(field.label, problems)
    return value
