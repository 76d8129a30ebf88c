"""JSON that comes back as it was: big integers, unknown fields, the order of keys, numbers no float can hold.

Reading is strict UTF-8 and takes no NaN. A number with a point or exponent is a float, unless the float would stand for
another number than the one written: then it is a Decimal. Writing is what the originals write: two spaces, no newline
at the end, nothing escaped that need not be; a journal's lines are compact. What the originals could not read again is
refused before it is written: NaN, numbers beyond 1e308, lone surrogates, and more than 127 containers in one another.
"""

from __future__ import annotations

import decimal
import json
import math
from collections.abc import Iterator
from typing import Any, Final

from holdfast.errors import DamagedFile, Unstorable

NESTING_MAX: Final = 127
"""The reader of all five systems refuses the 128th container."""

_LARGEST: Final = 10**308
"""Their reader takes an integer beyond 64 bits for a float; one with as many digits as a float can have fails there."""

_INDENT: Final = "  "
_text: Final = json.encoder.encode_basestring


def read_json(data: bytes, place: str) -> Any:
    """The value in a file. Raises DamagedFile naming `place`."""
    try:
        text = data.decode("utf-8")
        value = json.loads(text, parse_float=_number, parse_constant=_refused)
        if "\\u" in text:
            json.dumps(value, ensure_ascii=False, default=str).encode("utf-8")  # half of a surrogate pair fails here
    except RecursionError:
        raise DamagedFile(place, "it is nested too deep to be read") from None
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
        raise ValueError(f"the number {text[:40]} is out of all bounds") from None
    return value if math.isfinite(value) and decimal.Decimal(repr(value)) == exact else exact


def _refused(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")


def write_json(value: object, *, compact: bool = False) -> bytes:
    """The value as the originals write it. Raises Unstorable with the path of what they could not read again."""
    pieces = _pieces(value, "", 0, compact=compact)
    try:
        return "".join(pieces).encode("utf-8")
    except UnicodeEncodeError as error:
        raise Unstorable(f"the text {error.object[error.start - 8 : error.end]!r} has a lone surrogate") from None


def _pieces(value: object, path: str, depth: int, *, compact: bool) -> Iterator[str]:
    if value is None:
        yield "null"
    elif isinstance(value, bool):
        yield "true" if value else "false"
    elif isinstance(value, str):
        yield _text(value)
    elif isinstance(value, (int, float, decimal.Decimal)):
        yield _spelled(value, path)
    elif isinstance(value, (dict, list, tuple)):
        if depth >= NESTING_MAX:
            raise Unstorable(f"the value at {path[:80] or '/'} lies more than {NESTING_MAX} containers deep", path)
        yield from _container(value, path, depth, compact=compact)
    else:
        raise Unstorable(f"the value at {path or '/'} is {type(value).__name__}, for which JSON has no form", path)


def _container(
    value: dict[Any, Any] | list[Any] | tuple[Any, ...], path: str, depth: int, *, compact: bool
) -> Iterator[str]:
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    if not value:
        yield opening + closing
        return
    inner, outer = ("", "") if compact else ("\n" + _INDENT * (depth + 1), "\n" + _INDENT * depth)
    before = opening + inner
    for key, part in value.items() if isinstance(value, dict) else enumerate(value):
        yield before
        before = "," + inner
        if isinstance(value, dict):
            if not isinstance(key, str):
                raise Unstorable(f"the key {key!r} at {path or '/'} is not text", path)
            yield _text(key) + (":" if compact else ": ")
        yield from _pieces(part, f"{path}/{key}", depth + 1, compact=compact)
    yield outer + closing


def _spelled(value: float | decimal.Decimal, path: str) -> str:
    if not isinstance(value, float) and value == value and abs(value) > _LARGEST:
        raise Unstorable(f"the number at {path or '/'} is beyond 1e308, where the original can read none", path)
    if isinstance(value, int):
        return int.__repr__(value)
    if not math.isfinite(value) if isinstance(value, float) else not value.is_finite():
        raise Unstorable(f"the number at {path or '/'} is {value}, for which JSON has no form", path)
    return float.__repr__(value) if isinstance(value, float) else str(value)
