"""`parse_text`: what a person typed into a terminal or an HTML form, as the value of a field."""

from __future__ import annotations

import json
import math
import re
from typing import Any, Final

from holdfast.engine.forms import dates
from holdfast.engine.forms.checker import check_value
from holdfast.engine.forms.fields import Field, kind_of, opened
from holdfast.engine.forms.plain import plain_or_refuse
from holdfast.engine.forms.problems import Problem, refusal, shown
from holdfast.engine.forms.schemas import Choice, copied
from holdfast.errors import InvalidInput

_YES: Final = frozenset(("y", "yes", "true", "t", "1", "on"))
_NO: Final = frozenset(("n", "no", "false", "f", "0", "off"))
_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,1000}([.]0{1,20})?")
_NUMBER: Final = re.compile(r"[+-]?([0-9]{1,400}([.][0-9]{0,400})?|[.][0-9]{1,400})([eE][+-]?[0-9]{1,4})?")


def parse_text(field: Field, text: str) -> Any:
    """The value that `text` means for a field, as plain data, checked.

    yes/no: y, yes, true, t, 1, on and their opposites. Dates: ISO. A choice: its value or its label. Lists and several
    choices: separated by commas, or by line breaks if there are any, or a JSON list. Objects: JSON. Anything: JSON, or
    else the text itself. Empty text is None if the field may be None, else its default, an empty list or empty text.

    Raises InvalidInput with a sentence about what was expected.
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
        raise refusal(field.label, problems)
    return clean


def _empty(field: Field, text: str) -> Any:
    if field.nullable and field.kind != "any":
        return None
    if field.kind == "text" and not _problems(field, _text(text)):
        return _text(text)
    if field.has_default:
        return copied(field.default)
    if field.kind in ("list", "choices") and not _problems(field, []):
        return []
    if field.kind == "any" and not field.required:
        return None
    raise InvalidInput(f"{field.label}: it must not be empty")


def _problems(field: Field, value: Any) -> list[Problem]:
    return check_value(field.json_schema(), value, "it")[1]


def _text(text: str) -> str:
    """Browsers send line breaks as two characters; a form means one."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _expected(field: Field, what: str, text: str) -> InvalidInput:
    return InvalidInput(f"{field.label}: expected {what}, not {shown(text)}")


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
            if dates.read_date(text) is None:
                raise _expected(field, "a date such as 2026-03-31", text)
            return text
        case "datetime":
            if dates.read_datetime(text) is None:
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
        if not _WHOLE.fullmatch(text):
            raise _expected(field, "a whole number such as 12", text)
        return int(text.partition(".")[0])
    number = float(text) if _NUMBER.fullmatch(text) else math.inf
    if not math.isfinite(number):
        raise _expected(field, "a number such as 12.5", text)
    return number


def _matching(choices: tuple[Choice, ...], text: str) -> Choice | None:
    """The choice somebody means: by its value first, then by its label, and only then without regard to case."""
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
    return copied(match.value)


def _choices(field: Field, text: str) -> list[Any]:
    if text.startswith("["):
        value = _json(field, text)
        return value if isinstance(value, list) else [value]
    whole = _matching(field.choices, text)
    if whole is not None:  # A choice may have a comma in it.
        return [copied(whole.value)]
    return [_choice(field, piece) for piece in _pieces(text)]


def _pieces(text: str) -> list[str]:
    pieces = _text(text).split("\n") if "\n" in _text(text) else text.split(",")
    return [piece.strip() for piece in pieces if piece.strip()]


def _list(field: Field, text: str) -> list[Any]:
    if text.startswith("["):
        value = _json(field, text)
        return value if isinstance(value, list) else [value]
    root = field.json_schema()
    items = opened(opened(root, root)[0].get("items", {}), root)[0]
    kind = kind_of(items, root)
    if kind in ("integer", "number"):
        return [_number(field, kind, piece) for piece in _pieces(text)]
    if kind in ("text", "any", "date", "datetime"):
        return list(_pieces(text))
    raise _expected(field, 'a JSON list such as ["one", "two"]', text)


def _json(field: Field, text: str) -> Any:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise _expected(field, "JSON", text) from None
    return plain_or_refuse(value, field.label)


def _any(field: Field, text: str) -> Any:
    """JSON if it is JSON that fits, else the text as it was typed."""
    try:
        value = _json(field, text)
    except InvalidInput:
        value = _text(text)
    problems = _problems(field, value)
    if problems and not _problems(field, _text(text)):
        return _text(text)
    if problems:
        raise refusal(field.label, problems)
    return value
