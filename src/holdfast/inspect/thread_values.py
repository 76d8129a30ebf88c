"""Values of LangGraph threads as plain data for people, without LangGraph and without importing a class.

A value is stored as MessagePack bytes, whole or in pieces, in which objects are extensions with a module, a name and
arguments. Objects are shown as `{"$type": name, field: value, …}` and common types of Python's library as
`holdfast.state.readable` shows them. What cannot be read is shown as `{"$unreadable": what it is}`, also what lies
deeper than Holdfast stores. Bytes that were tampered with raise nothing and run nothing.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from typing import Any, Final

import ormsgpack

from holdfast.limits import DEPTH_MAX
from holdfast.state.readable import shown

PIECES_DEPTH_MAX: Final = 64
"""How deep pieces and extensions may lie in one another."""
_POSITIONAL, _NUMPY, _SNAPSHOT = 1, 6, 7
"""Codes of LangGraph's extensions; those below 6 hold a module, a name and arguments."""
_OWN: Final = ("langchain_core.", "langgraph.")
"""Modules whose types are shown by their bare name."""
_MESSAGES: Final = "langchain_core.messages"


def readable_value(value: Any) -> Any:
    """A stored value as plain data."""
    try:
        return _plain(_piece(value, 0), 0)
    except RecursionError:
        return _unreadable("too deeply nested")


def _piece(value: Any, depth: int) -> Any:
    if depth > PIECES_DEPTH_MAX:
        return _unreadable("too deeply nested")
    if isinstance(value, bytes):
        return _unpacked(value, depth)
    if isinstance(value, list):
        return [_piece(part, depth + 1) for part in value]
    if not isinstance(value, dict):
        return value
    if isinstance(value.get("m"), dict):
        return {str(key): _piece(part, depth + 1) for key, part in value["m"].items()}
    if type(value.get("x")) is int:
        return _extension(value["x"], _piece(value.get("d"), depth + 1))
    return _other_format(value.get("t"), value.get("d"))


def _other_format(kind: Any, body: Any) -> Any:
    """A value that a serializer wrote in another format than MessagePack."""
    size = len(body) if isinstance(body, bytes) else 0
    if kind == "json" and isinstance(body, bytes):
        try:
            return json.loads(body)
        except (ValueError, RecursionError):
            return _unreadable(f"damaged JSON of {size} bytes")
    return body if kind in ("bytes", "bytearray") else _unreadable(f"{kind} of {size} bytes")


def _unpacked(body: bytes, depth: int) -> Any:
    def hook(code: int, data: bytes) -> Any:
        return _extension(code, _unpacked(bytes(data), depth + 1))

    if depth > PIECES_DEPTH_MAX:
        return _unreadable("too deeply nested")
    try:
        return ormsgpack.unpackb(body, ext_hook=hook, option=ormsgpack.OPT_NON_STR_KEYS)
    except ValueError:
        return _unreadable(f"damaged MessagePack of {len(body)} bytes")


def _plain(value: Any, depth: int) -> Any:
    """Data that JSON can express, except for bytes: text is Unicode, keys are text, floats finite, depth is bounded."""
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, float):
        return shown(value)
    if not isinstance(value, (dict, list, tuple)):
        return value
    if depth >= DEPTH_MAX:
        return _unreadable("too deeply nested")
    if isinstance(value, dict):
        return {_text(str(key)): _plain(part, depth + 1) for key, part in value.items()}
    return [_plain(part, depth + 1) for part in value]


def _text(value: str) -> str:
    """Text in which half of a surrogate pair, which JSON can name and no encoding has, is written as its escape."""
    return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode()


def _unreadable(what: str) -> dict[str, str]:
    return {"$unreadable": what}


# --- objects ---------------------------------------------------------------------------------------------------------


def _extension(code: int, inside: Any) -> Any:
    if code == _SNAPSHOT:
        return inside
    if not isinstance(inside, list) or len(inside) < 3 or not 0 <= code <= _NUMPY:
        return _unreadable(f"an extension of code {code}")
    module, name, given = inside[:3]
    if code == _NUMPY:
        return {"$ndarray": {"dtype": module, "shape": name}}
    if not isinstance(module, str) or not isinstance(name, str):
        return _unreadable(f"an extension of code {code}")
    known = _KNOWN.get(f"{module}.{name}")
    if known is not None:
        try:
            return {f"${name.lower()}": known(given)}
        except (TypeError, ValueError, OverflowError):
            return _unreadable(f"{module}.{name}")
    return _object(module, name, given, is_call=code == _POSITIONAL)


def _object(module: str, name: str, given: Any, *, is_call: bool) -> Any:
    type_name = name if module.startswith(_OWN) else f"{module}.{name}"
    if isinstance(given, dict):
        return {"$type": type_name, **(_told(given) if module.startswith(_MESSAGES) else given)}
    if module == "pydantic.types" and name.startswith("Secret"):
        return {"$type": type_name}
    if module == "langgraph.types" and name == "Send" and isinstance(given, list) and len(given) > 1:
        return {"$type": type_name, "node": given[0], "arg": given[1]}
    if module.startswith("pathlib") and isinstance(given, list):
        return {"$path": "/".join(map(str, given)).replace("//", "/", 1)}
    return {"$type": type_name, "args" if is_call else "value": given}


def _told(message: dict[str, Any]) -> dict[str, Any]:
    """The fields of a message that say something: its type is named already, and most others are empty."""
    empty: tuple[Any, ...] = (None, False, "", [], {})
    return {key: part for key, part in message.items() if key == "content" or (key != "type" and part not in empty)}


def _timedelta(given: Any) -> str:
    days, seconds, microseconds = given
    return str(dt.timedelta(days, seconds, microseconds))


def _same(given: Any) -> Any:
    return given


def _date(given: Any) -> str:
    return dt.date(*given).isoformat()


def _uuid(given: Any) -> str:
    return "-".join((given[:8], given[8:12], given[12:16], given[16:20], given[20:]))


_KNOWN: Final[dict[str, Callable[[Any], Any]]] = {
    "builtins.set": _same, "builtins.frozenset": _same, "collections.deque": _same, "decimal.Decimal": _same,
    "datetime.datetime": _same, "datetime.date": _date, "datetime.timedelta": _timedelta, "uuid.UUID": _uuid,
}  # fmt: skip
"""Types that are shown in one word, and how their arguments are."""
