"""Lossless JSON, schemas and timestamps of the files of other systems.

JSON is read as strict UTF-8 without NaN. Big integers, unknown fields and the order of keys are kept. A number with a
point or exponent is a float, unless the float would not equal the number in the file: then it is a Decimal. JSON is
written as the originals write it: indented by two spaces, without a newline at the end, with only the necessary
escapes; lines of a journal are compact. Values that the originals could not read again are refused before they are
written: NaN, numbers beyond 1e308, lone surrogates, and more than 127 nested containers.

Values are checked before they are written and after they are read. A schema is a msgspec struct that is used only for
the check: the dict itself is kept, with all its fields.
"""

from __future__ import annotations

import datetime as dt
import decimal
import functools
import json
import math
import re
import time
from typing import Annotated, Any, Final, NoReturn, TypeGuard, get_type_hints

import msgspec

from holdfast.errors import DamagedFile, InvalidInput, Unstorable

JsonObject = dict[str, Any]
"""A JSON object of a file. Its schema is checked; fields that the schema does not name are kept."""

NESTING_MAX: Final = 127
"""The JSON parser of all five systems refuses the 128th nested container."""

_LARGEST: Final = 10**308
"""The originals parse an integer beyond 64 bits as a float, and fail if it is too large for one."""

_INDENT: Final = "  "
_text: Final = json.encoder.encode_basestring


def read_json(data: bytes, place: str) -> Any:
    """Return the value in a file. Raises DamagedFile naming `place`."""
    try:
        text = data.decode("utf-8")
        value = json.loads(text, parse_float=_number, parse_constant=_refuse_constant)
        if "\\u" in text:
            json.dumps(value, ensure_ascii=False, default=str).encode("utf-8")  # a lone surrogate fails here
    except RecursionError:
        raise DamagedFile(place, "it is nested too deeply") from None
    except UnicodeError as error:
        raise DamagedFile(place, f"it is not UTF-8 ({error})") from error
    except ValueError as error:
        raise DamagedFile(place, f"it is not JSON ({error})" if data.strip() else "it is empty") from error
    return value


def _number(text: str) -> float | decimal.Decimal:
    value = float(text)
    try:
        exact = decimal.Decimal(text)
    except decimal.InvalidOperation:
        raise ValueError(f"the number {text[:40]} is out of range") from None
    return value if math.isfinite(value) and decimal.Decimal(repr(value)) == exact else exact


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def write_json(value: object, *, compact: bool = False) -> bytes:
    """Return the value as the originals write it. Raises Unstorable with the path of a value they could not read."""
    try:
        return _json_text(value, "", 0, compact=compact).encode("utf-8")
    except UnicodeEncodeError as error:
        raise Unstorable(f"the text {error.object[error.start - 8 : error.end]!r} has a lone surrogate") from None


def _json_text(value: object, path: str, depth: int, *, compact: bool) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, (int, float, decimal.Decimal)):
        return _number_text(value, path)
    if not isinstance(value, (dict, list, tuple)):
        raise Unstorable(f"the value at {path or '/'} is a {type(value).__name__}, which JSON cannot represent", path)
    if depth >= NESTING_MAX:
        raise Unstorable(f"the value at {path[:80] or '/'} is nested deeper than {NESTING_MAX} levels", path)
    parts = []
    for key, part in value.items() if isinstance(value, dict) else enumerate(value):
        name = ""
        if isinstance(value, dict):
            if not isinstance(key, str):
                raise Unstorable(f"the key {key!r} at {path or '/'} is not text", path)
            name = _text(key) + (":" if compact else ": ")
        parts.append(name + _json_text(part, f"{path}/{key}", depth + 1, compact=compact))
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    inner, outer = ("", "") if compact or not parts else ("\n" + _INDENT * (depth + 1), "\n" + _INDENT * depth)
    return opening + inner + f",{inner}".join(parts) + outer + closing


def _number_text(value: float | decimal.Decimal, path: str) -> str:
    if not isinstance(value, float) and value == value and abs(value) > _LARGEST:
        raise Unstorable(f"the number at {path or '/'} is beyond 1e308, which the original cannot read", path)
    if not math.isfinite(value):
        raise Unstorable(f"the number at {path or '/'} is {value}, which JSON cannot represent", path)
    if isinstance(value, decimal.Decimal):
        return str(value)
    return float.__repr__(value) if isinstance(value, float) else int.__repr__(value)


Count = Annotated[int, msgspec.Meta(ge=0)]
"""An unsigned integer; the originals accept up to 64 bits."""
U32 = Annotated[int, msgspec.Meta(ge=0, le=2**32 - 1)]
"""An unsigned integer of 32 bits."""
Id = Annotated[str, msgspec.Meta(min_length=1)]
"""A name that is not empty."""
_BITS: Final = 64


class Schema(msgspec.Struct):
    """Base of schemas. Fields that a schema does not list are allowed."""


def require_schema(value: object, schema: type[Schema], what: str) -> JsonObject:
    """Return a caller's value if it matches the schema; else raise InvalidInput, which names the field."""
    if not isinstance(value, dict):
        raise InvalidInput(f"{what} must be a dict, not {type(value).__name__}")
    if problem := find_problem(value, schema):
        raise InvalidInput(f"the original could not read {what}: {problem}; nothing was written")
    return value


def read_object(data: bytes, schema: type[Schema], place: str) -> JsonObject:
    """Return the object in a file if it matches the schema; else raise DamagedFile."""
    value = read_json(data, place)
    if not isinstance(value, dict):
        raise DamagedFile(place, "it does not contain a JSON object")
    if problem := find_problem(value, schema):
        raise DamagedFile(place, problem)
    return value


def has_schema(value: object, schema: type[Schema]) -> TypeGuard[JsonObject]:
    """Whether a value matches the schema."""
    return isinstance(value, dict) and not find_problem(value, schema)


def find_problem(value: JsonObject, schema: type[Schema]) -> str:
    """Return why a value does not match the schema; empty if it does."""
    try:
        found = msgspec.convert(value, schema)
    except (msgspec.ValidationError, TypeError, ValueError) as error:
        return str(error)
    large = [name for name in _numbers(schema) if getattr(found, name).bit_length() > _BITS]
    return f"`{large[0]}` needs more than {_BITS} bits" if large else ""


@functools.cache
def _numbers(schema: type[Schema]) -> tuple[str, ...]:
    """Return the fields that are integers in the original; a field of type Any may have any number."""
    return tuple(name for name, hint in get_type_hints(schema).items() if hint is int)


_HH_MM: Final = r"(?:[01]\d|2[0-3]):[0-5]\d"
_TIMESTAMP: Final = re.compile(
    rf"(\d{{4}}-\d\d-\d\d)[Tt ]({_HH_MM}):([0-5]\d|60)(?:\.(\d+))?(?:[Zz]|([+-]{_HH_MM}))", re.ASCII
)


def now_text() -> str:
    """Return the current time as text, with nanoseconds."""
    seconds, ns = divmod(time.time_ns(), 1_000_000_000)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{ns:09}Z"


def microseconds(text: object) -> int | None:
    """Return microseconds since 1970, or None if the text is not a timestamp."""
    found = _TIMESTAMP.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        return None
    date, minute, second, fraction, zone = found.groups(default="")
    try:
        moment = dt.datetime.fromisoformat(f"{date}T{minute}{zone or 'Z'}")
    except ValueError:  # there is no such day
        return None
    return (int(moment.timestamp()) + int(second)) * 1_000_000 + int(fraction[:6].ljust(6, "0"))


def check_timestamp(what: str, text: str) -> None:
    """Raise InvalidInput if the originals could not read a timestamp: they need RFC 3339 with `T` and a zone."""
    if microseconds(text) is None or text[10] != "T":
        raise InvalidInput(
            f"{what} {text[:40]!r} is not an RFC 3339 timestamp with a zone, such as 2026-08-18T09:41:07.123456Z; "
            "nothing was written"
        )
