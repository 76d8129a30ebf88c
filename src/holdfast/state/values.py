"""Encodes values as MessagePack bytes, and decodes them.

A type that MessagePack lacks is stored as an extension, listed below, so every value is decoded with its own type.
Nothing stored names a class, and reading never imports or calls one.

    code  type         payload
    1     tuple        the array, encoded
    2     set          the array of its items, sorted by their encoding
    3     frozenset    likewise
    4     datetime     one byte fold, then ISO 8601; "[Area/City]" follows when the zone is a ZoneInfo
    5     date         ISO 8601
    6     time         one byte fold, then ISO 8601
    7     timedelta    microseconds, as an integer like code 10
    8     UUID         16 bytes
    9     Decimal      its text
    10    int          outside 64 bits: two's complement, big end first, shortest

Dataclasses, enums, msgspec structs, Pydantic models and subclasses of the built-in types are written as the built-in
value they stand for. The encoder is C; Python walks a value only to find a NaN, or the path of a part that was refused.
"""

from __future__ import annotations

import datetime as dt
import decimal
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import msgspec
import ormsgpack

from holdfast.errors import DamagedData, Unstorable, UnsupportedFormat
from holdfast.limits import DEPTH_MAX, INT_BYTES_MAX, NESTING_MAX
from holdfast.state.headers import array_header
from holdfast.state.objects import lower_object

_OPTIONS: Final = (
    ormsgpack.OPT_PASSTHROUGH_TUPLE
    | ormsgpack.OPT_PASSTHROUGH_SUBCLASS
    | ormsgpack.OPT_PASSTHROUGH_DATACLASS
    | ormsgpack.OPT_PASSTHROUGH_DATETIME
    | ormsgpack.OPT_PASSTHROUGH_BIG_INT
    | ormsgpack.OPT_PASSTHROUGH_ENUM
    | ormsgpack.OPT_PASSTHROUGH_UUID
)
NATIVE: Final = _OPTIONS ^ ormsgpack.OPT_PASSTHROUGH_SUBCLASS
"""For containers whose parts are of built-in types and tracked: C reads these like dicts and lists."""

TUPLE, SET, FROZENSET, DATETIME, DATE, TIME, TIMEDELTA, UUID, DECIMAL, INT = range(1, 11)
_STUB: Final = 127

_STANDINS_MAX: Final = 10
"""The longest chain of conversions of one value, for example an enum of models."""
_FLOAT: Final = 0xCB
_NAN, _NEGATIVE_NAN = b"\xcb\x7f", b"\xcb\xff"
"""The first bytes of NaN and the infinities. Other data may match too; the slow check decides."""

_packb = ormsgpack.packb


def pack(value: object, depth: int = 0, options: int = _OPTIONS) -> bytes:
    """Encode `value`, which is `depth` containers deep in the state. Raises Unstorable with the path within it."""
    data = pack_unchecked(value, depth, options)
    if _FLOAT in data and ((0x7F in data and _NAN in data) or (0xFF in data and _NEGATIVE_NAN in data)):
        check_storable(value, depth)
    return data


def pack_unchecked(value: object, depth: int = 0, options: int = _OPTIONS) -> bytes:
    """Like `pack`, without the checks for NaN and depth: only for comparison with bytes that were checked."""
    try:
        return _packb(value, _to_ext, options)
    except Exception as error:
        return _pack_slowly(value, depth, error)


def pack_sorted(value: object) -> bytes:
    """Like `pack`, with the keys of dicts sorted: equal values give equal bytes whatever their order."""
    check_storable(value)
    return pack(_rebuild(value, sort=True))


def canonical_bytes(value: object) -> bytes:
    """The result of `pack_sorted`, faster where possible; only for comparison, so depth is not checked.

    Raises Unstorable.
    """
    try:
        data: bytes = _packb(value, _to_container, _OPTIONS | ormsgpack.OPT_SORT_KEYS)
    except Exception:  # a type that C alone cannot encode, or a value that cannot be stored
        return pack_sorted(value)
    if _FLOAT in data and ((0x7F in data and _NAN in data) or (0xFF in data and _NEGATIVE_NAN in data)):
        check_storable(value)
    return data


def _to_container(value: object) -> object:
    """The dict or list that a container stands for. Raises KeyError for any other value."""
    return _CONTAINERS[type(value)](value)


def add_container(kind: type, base: type) -> None:
    """Encode instances of `kind`, a subclass of dict or list, as the dict or list they are."""
    _CONTAINERS[kind] = _LOWER[kind] = base


def unpack(data: bytes, place: str, stub: Callable[[bytes], object] | None = None) -> Any:
    """Decode the result of `pack`. `place` names the data in errors. `stub` makes the values of stubs."""
    hook = (
        _from_ext
        if stub is None
        else lambda code, payload: stub(payload) if code == _STUB else _from_ext(code, payload)
    )
    try:
        return ormsgpack.unpackb(data, ext_hook=hook)
    except Exception as error:
        cause, _trouble.cause = _trouble.cause or error, None
        if isinstance(cause, UnsupportedFormat):
            raise UnsupportedFormat(place, cause.reason) from error
        raise DamagedData(place, f"its encoding cannot be read ({cause})") from error


def stub_bytes(name: bytes) -> bytes:
    """The encoding of a stub, named by 20 bytes. Never stored."""
    return b"\xc7\x14" + bytes([_STUB]) + name


def check_storable(value: object, depth: int = 0, root: str = "state") -> None:
    """Walk `value`, named `root`, in Python; raise Unstorable with the path of a part that cannot be stored."""
    for path, part, level in _walk(value, depth, root):
        problem = _problem(part, level)
        if problem:
            raise Unstorable(f"the value at {path} cannot be stored: {problem}", path)


def _pack_slowly(value: object, depth: int, error: Exception) -> bytes:
    """After C refused: report the reason, or store keys that are subclasses of str as plain text."""
    check_storable(value, depth)
    try:
        return _packb(_rebuild(value, sort=False), _to_ext, _OPTIONS)
    except Exception:
        raise Unstorable(f"the value cannot be stored: {error}", "state") from error


def _rebuild(value: object, *, sort: bool) -> object:
    """`value` with plain text for keys, sorted if `sort`."""
    value = plain_value(value)
    if isinstance(value, dict):
        items = [
            (str.__str__(key) if isinstance(key, str) else key, _rebuild(part, sort=sort))
            for key, part in value.items()
        ]
        return dict(sorted(items)) if sort else dict(items)
    if isinstance(value, (list, tuple)):
        return type(value)([_rebuild(part, sort=sort) for part in value])
    return value


def _walk(value: object, depth: int, root: str) -> Iterator[tuple[str, object, int]]:
    """Every part of `value` with its path and depth, parents first; at most one level past the limit."""
    stack: list[tuple[str, object, int]] = [(root, value, depth)]
    while stack:
        path, part, level = stack.pop()
        part = plain_value(part)
        if isinstance(part, msgspec.Struct):  # it was refused for one of its fields
            part = {name: getattr(part, name, None) for name in part.__struct_fields__}
        yield path, part, level
        if level > DEPTH_MAX:
            continue
        if isinstance(part, dict):
            stack.extend((f"{path}[{key!r}]", item, level + 1) for key, item in reversed(part.items()))
        elif isinstance(part, (list, tuple)):
            stack.extend((f"{path}[{i}]", part[i], level + 1) for i in range(len(part) - 1, -1, -1))
        elif isinstance(part, (set, frozenset)):
            stack.extend((f"{path}{{{item!r}}}", item, level + 1) for item in part)


def plain_value(value: object) -> object:
    """The built-in value that a model, enum or subclass stands for; its parts are not converted."""
    try:
        for _ in range(_STANDINS_MAX):
            if type(value) in _BUILTIN:
                break
            value = _lower_object(value)
    except Unstorable:
        pass
    return value


def _problem(value: object, depth: int) -> str | None:
    if isinstance(value, (dict, list, tuple, set, frozenset)):
        if depth >= DEPTH_MAX:
            return f"it is nested more than {DEPTH_MAX} containers deep"
        if isinstance(value, dict):
            wrong = next((key for key in value if not isinstance(key, str)), None)
            if wrong is not None or None in value:
                return f"the key {wrong!r} is {type(wrong).__name__}, and only text can be a key; use str(key)"
            surrogate = next((key for key in value if not _is_utf8(key)), None)
            if surrogate is not None:
                return f"the key {surrogate!r} has a lone surrogate"
        if isinstance(value, (set, frozenset)):
            return next((_NO_ITEM for item in value if isinstance(plain_value(item), (dict, list))), None)
        return None
    if isinstance(value, float):
        return None if value - value == 0 else f"{value} is not a finite number"
    if isinstance(value, str):
        return None if _is_utf8(value) else "the text has a lone surrogate, which is not valid Unicode"
    if type(value) in _LOWER or type(value) not in _BUILTIN:
        try:
            _to_ext(value)
        except Unstorable as error:
            return str(error)
    return None


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


# --- what the C encoder hands back to Python -------------------------------------------------------------------------


def _to_ext(value: object) -> object:
    """Called for every value MessagePack has no type for; returns one it has."""
    lower = _LOWER.get(type(value))
    return lower(value) if lower else _lower_object(value)


class _Nesting(threading.local):
    """The number of tuples and sets around the one being encoded: each resets the encoder's own depth."""

    depth = 0

    def __enter__(self) -> None:
        self.depth += 1
        if self.depth > NESTING_MAX:
            self.depth -= 1
            raise Unstorable(f"more than {NESTING_MAX} tuples or sets are nested")

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.depth -= 1


_nesting = _Nesting()


def _lower_tuple(value: tuple[object, ...]) -> ormsgpack.Ext:
    with _nesting:
        return ormsgpack.Ext(TUPLE, _packb(list(value), _to_ext, _OPTIONS))


_NO_ITEM: Final = "a set has an item that is stored as a dict or list, which a set cannot contain; use a list"


def _lower_set(code: int, value: Iterable[object]) -> ormsgpack.Ext:
    with _nesting:
        items = sorted([_packb(item, _to_ext, _OPTIONS) for item in value])
    if any(item[0] & 0xF0 in (0x80, 0x90) or 0xDC <= item[0] <= 0xDF for item in items):  # a map or an array
        raise Unstorable(_NO_ITEM)
    return ormsgpack.Ext(code, array_header(len(items)) + b"".join(items))


def _lower_int(value: int) -> ormsgpack.Ext:
    return ormsgpack.Ext(INT, _int_bytes(value))


def _int_bytes(value: int) -> bytes:
    size = (value.bit_length() + 8) // 8
    if size > INT_BYTES_MAX:
        raise Unstorable(f"an integer of {size} bytes is larger than {INT_BYTES_MAX}")
    return value.to_bytes(size, "big", signed=True)


def _lower_datetime(value: dt.datetime) -> ormsgpack.Ext:
    zone = value.tzinfo
    text = value.isoformat()
    if zone is not None and type(zone) is not dt.timezone and not _is_fixed_offset(zone):
        text += f"[{_zone_name(zone)}]"
    return ormsgpack.Ext(DATETIME, bytes([value.fold]) + text.encode())


def _is_fixed_offset(zone: dt.tzinfo) -> bool:
    """Whether it is Pydantic's own zone, which is only an offset."""
    return type(zone).__module__.partition(".")[0] in ("pydantic_core", "_pydantic_core")


def _zone_name(zone: dt.tzinfo) -> str:
    from zoneinfo import ZoneInfo  # imported only when a zone is used

    name = zone.key if isinstance(zone, ZoneInfo) else None
    if name is None:
        kind = type(zone).__name__
        raise Unstorable(
            f"a datetime with a {kind} that has no name is not supported; use zoneinfo or datetime.timezone"
        )
    return name


def _lower_time(value: dt.time) -> ormsgpack.Ext:
    if value.tzinfo is not None and type(value.tzinfo) is not dt.timezone:
        raise Unstorable(f"a time with a {type(value.tzinfo).__name__} is not supported; use datetime.timezone")
    return ormsgpack.Ext(TIME, bytes([value.fold]) + value.isoformat().encode())


def _lower_timedelta(value: dt.timedelta) -> ormsgpack.Ext:
    return ormsgpack.Ext(TIMEDELTA, _int_bytes(value // dt.timedelta(microseconds=1)))


def _lower_decimal(value: decimal.Decimal) -> ormsgpack.Ext:
    if not value.is_finite():
        raise Unstorable(f"Decimal({str(value)!r}) is not a finite number")
    return ormsgpack.Ext(DECIMAL, str(value).encode())


_LOWER: Final[dict[type, Callable[[Any], object]]] = {
    tuple: _lower_tuple,
    set: lambda value: _lower_set(SET, value),
    frozenset: lambda value: _lower_set(FROZENSET, value),
    dt.datetime: _lower_datetime,
    dt.date: lambda value: ormsgpack.Ext(DATE, value.isoformat().encode()),
    dt.time: _lower_time,
    dt.timedelta: _lower_timedelta,
    uuid.UUID: lambda value: ormsgpack.Ext(UUID, value.bytes),
    decimal.Decimal: _lower_decimal,
    int: _lower_int,
}

_CONTAINERS: Final[dict[type, Callable[[Any], object]]] = {}
_BUILTIN: Final = frozenset({*_LOWER, type(None), bool, float, str, bytes, bytearray, memoryview, list, dict})
_STRUCT_PARTS: Final[tuple[type, ...]] = (bytes, bytearray, *_LOWER)
"""Types that need no conversion in the fields of a struct."""


def _lower_object(value: object) -> object:
    return lower_object(value, _STRUCT_PARTS, pack)


# --- and back --------------------------------------------------------------------------------------------------------


class _Trouble(threading.local):
    """The error in an extension: the decoder does not pass it on."""

    cause: Exception | None = None


_trouble = _Trouble()


def _from_ext(code: int, payload: bytes) -> object:
    try:
        lift = _LIFT.get(code)
        if lift is None:
            raise UnsupportedFormat("a value", f"it has the unknown type {code}")
        return lift(payload)
    except Exception as error:
        _trouble.cause = _trouble.cause or error
        raise


def _list(payload: bytes) -> list[object]:
    items = ormsgpack.unpackb(payload, ext_hook=_from_ext)
    if type(items) is not list:
        raise ValueError("an array was expected")
    return items


def _lift_datetime(payload: bytes) -> dt.datetime:
    text, _, zone = payload[1:].decode().partition("[")
    value = dt.datetime.fromisoformat(text)
    if zone:
        from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

        try:
            value = value.replace(tzinfo=ZoneInfo(zone.removesuffix("]")))
        except ZoneInfoNotFoundError as error:
            raise ValueError(f"this machine does not know the time zone {zone!r}; install tzdata") from error
    return value.replace(fold=payload[0])


_LIFT: Final[dict[int, Callable[[bytes], object]]] = {
    TUPLE: lambda payload: tuple(_list(payload)),
    SET: lambda payload: set(_list(payload)),
    FROZENSET: lambda payload: frozenset(_list(payload)),
    DATETIME: _lift_datetime,
    DATE: lambda payload: dt.date.fromisoformat(payload.decode()),
    TIME: lambda payload: dt.time.fromisoformat(payload[1:].decode()).replace(fold=payload[0]),
    TIMEDELTA: lambda payload: dt.timedelta(microseconds=int.from_bytes(payload, "big", signed=True)),
    UUID: lambda payload: uuid.UUID(bytes=payload),
    DECIMAL: lambda payload: decimal.Decimal(payload.decode()),
    INT: lambda payload: int.from_bytes(payload, "big", signed=True),
}
