"""The strict serde, and the splitting of MessagePack values.

The bytes are exactly those of LangGraph's `JsonPlusSerializer`, so threads can be moved both ways. The strict serde
reads only the types that LangGraph lists as safe (its own, LangChain's messages, and dates, ids and similar types of
the standard library), and those the user allows. Where LangGraph warns and returns a plain dict for an object that it
does not rebuild, the strict serde raises. A value that could not be read back is not written.

The pieces of a split value join to exactly its original bytes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any, Final

import msgspec
import ormsgpack
from langgraph.checkpoint.serde import _msgpack as safe
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.types import Send

from holdfast.errors import HoldfastError, InvalidInput

__all__ = ["TypeRefused", "ValueUnreadable"]

Allowed = type | tuple[str, str]
Factory = Callable[..., Any]
# The codes of LangGraph's MessagePack extensions; all but the last two contain (module, name, argument, …).
_SINGLE, _POSITIONAL, _KEYWORDS, _METHOD, _PYDANTIC_V1, _PYDANTIC_V2, _NUMPY, SNAPSHOT = range(8)
_OPTION: Final = ormsgpack.OPT_NON_STR_KEYS


class StrictSerializer(JsonPlusSerializer):
    """LangGraph's serializer, restricted to known and allowed types.

    Example:
        StrictSerializer(allow=[Order, ("shop.models", "Customer")])
    """

    def __init__(self, allow: Iterable[Allowed | tuple[str, ...]] = ()) -> None:
        super().__init__(allowed_msgpack_modules=_check_allowed(allow))
        self._custom_unpack_ext_hook = True
        self._classes: dict[tuple[str, ...], Factory] = {}

    def with_msgpack_allowlist(self, extra_allowlist: Iterable[tuple[str, ...] | type]) -> StrictSerializer:
        """Return a serializer that allows more types."""
        extra = _check_allowed(extra_allowlist)
        names = {(one.__module__, one.__name__) if isinstance(one, type) else one for one in extra}
        if all(map(self.allows, names)):
            return self
        mine = self._allowed_msgpack_modules
        return StrictSerializer([*(mine if isinstance(mine, set) else ()), *names])

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        kind, body = data
        if kind == "msgpack":
            return self._unpack(body)
        if kind == "pickle":
            raise ValueUnreadable("a value was stored with pickle, which can run any code; it is not read")
        if kind == "json":
            try:
                return json.loads(body, object_hook=self._revive)
            except ValueError as error:
                if isinstance(error, HoldfastError):
                    raise
                raise ValueUnreadable(f"a stored value cannot be read: {error}") from error
        try:
            return super().loads_typed(data)
        except NotImplementedError as error:
            raise ValueUnreadable(f"a value is stored as {kind!r}, which this serde does not support") from error

    def _unpack(self, body: bytes) -> object:
        problems: list[Exception] = []

        def hook(code: int, data: bytes) -> object:
            try:
                return self._rebuild(code, data, hook)
            except Exception as error:  # ormsgpack drops the exception of its hook
                problems.append(error)
                raise

        try:
            return ormsgpack.unpackb(body, ext_hook=hook, option=_OPTION)
        except ValueError as error:
            first = problems[0] if problems else error
            if isinstance(first, HoldfastError):
                raise first from first.__cause__
            raise ValueUnreadable(f"a stored value cannot be read: {first}") from first

    def _rebuild(self, code: int, data: bytes, hook: Callable[[int, bytes], object]) -> object:
        inside = ormsgpack.unpackb(data, ext_hook=hook, option=_OPTION)
        if code == SNAPSHOT:
            return _DeltaSnapshot(inside)
        if code == _NUMPY:
            return _build_array(*inside)
        if not _SINGLE <= code <= _PYDANTIC_V2:
            raise ValueUnreadable(f"a stored value has the extension {code}, which this version does not support")
        name = _stored_name(code, inside)
        make = self._classes.get(name) or self._import(name)
        try:
            return _construct(make, code, inside[2])
        except Exception as error:
            raise ValueUnreadable(f"a stored {'.'.join(name)} cannot be rebuilt: {error}") from error

    def _import(self, name: tuple[str, ...]) -> Factory:
        """Import the class or method of this name, if it is allowed."""
        if not self.allows(name):
            raise TypeRefused(name[0], ".".join(name[1:]))
        try:
            found = getattr(import_module(name[0]), name[1])
            make: Factory = found if len(name) == 2 else getattr(found, name[2])
        except (ImportError, AttributeError) as error:
            raise ValueUnreadable(f"a stored value is a {'.'.join(name)}, which cannot be imported: {error}") from error
        self._classes[name] = make
        return make

    def allows(self, name: tuple[str, ...]) -> bool:
        """Return whether a type, or a method of a type, may be imported."""
        if len(name) == 3:
            return name in safe.SAFE_MSGPACK_METHODS
        mine = self._allowed_msgpack_modules
        return name in safe.SAFE_MSGPACK_TYPES or (isinstance(mine, set) and name in mine)

    def check(self, body: bytes) -> None:
        """Raise if these MessagePack bytes could not be read back.

        Types that LangGraph lists as safe can be rebuilt; values of other allowed types are rebuilt once to check it.
        """
        problems: list[Exception] = []
        unsure = False

        def hook(code: int, data: bytes) -> None:
            nonlocal unsure
            inside = ormsgpack.unpackb(data, ext_hook=hook, option=_OPTION)
            if code == SNAPSHOT:
                return
            if not _SINGLE <= code <= _PYDANTIC_V2:
                unsure = True
            elif not self.allows(name := _stored_name(code, inside)):
                problems.append(TypeRefused(name[0], ".".join(name[1:])))
            elif len(name) == 2 and name not in safe.SAFE_MSGPACK_TYPES:
                unsure = True

        ormsgpack.unpackb(body, ext_hook=hook, option=_OPTION)
        if problems:
            raise problems[0]
        if unsure:
            self._unpack(body)

    def _revive(self, value: dict[str, Any]) -> object:
        """Rebuild an object of LangGraph's older JSON format. Failure is an error; no dict is returned instead."""
        if value.get("type") != "constructor" or value.get("lc") not in (1, 2):
            return value
        named = value.get("id")
        if not isinstance(named, list) or not all(isinstance(part, str) for part in named) or len(named) < 2:
            raise ValueUnreadable(f"a stored object does not name its type: {named!r}")
        name = (".".join(named[:-1]), named[-1])
        if value["lc"] == 1:  # LangChain's own names; only those of messages are supported
            known = [safe_name for safe_name in safe.SAFE_MSGPACK_TYPES if safe_name[1] == name[1]]
            name = known[0] if known and known[0][0].startswith("langchain_core.") else name  # type: ignore[assignment]
        make = self._classes.get(name) or self._import(name)
        try:
            return make(*(value.get("args") or ()), **(value.get("kwargs") or {}))
        except Exception as error:
            raise ValueUnreadable(f"a stored {'.'.join(name)} cannot be rebuilt: {error}") from error


def _check_allowed(allow: Iterable[Allowed | tuple[str, ...]]) -> tuple[Allowed | tuple[str, ...], ...]:
    """Check a list of allowed types: classes, or module and name of a class."""
    if isinstance(allow, (str, type)):
        raise InvalidInput(f"allow is a list of types; write allow=[{getattr(allow, '__name__', repr(allow))}]")
    allowed = tuple(allow)
    for one in allowed:
        if not isinstance(one, type) and not (
            isinstance(one, tuple) and len(one) == 2 and all(isinstance(part, str) for part in one)
        ):
            raise InvalidInput(f"allow takes classes, or names as ('shop.models', 'Order'), not {one!r}")
    return allowed


def _stored_name(code: int, inside: list[Any]) -> tuple[str, ...]:
    return (inside[0], inside[1], inside[3]) if code == _METHOD else (inside[0], inside[1])


def _construct(make: Factory, code: int, argument: Any) -> object:
    if code in (_PYDANTIC_V2, _PYDANTIC_V1):
        try:
            return make(**argument)
        except Exception:  # as in LangGraph: the value was valid when it was stored
            build = getattr(make, "model_construct" if code == _PYDANTIC_V2 else "construct")
            return build(**argument)
    if code == _KEYWORDS:
        return make(**argument)
    if code in (_SINGLE, _METHOD):
        return make(argument)
    if make is Send and len(argument) == 3:
        return Send(argument[0], argument[1], timeout=argument[2])
    return make(*argument)


def _build_array(dtype: str, shape: list[int], order: str, body: bytes) -> object:
    numpy = import_module("numpy")
    return numpy.frombuffer(body, dtype=numpy.dtype(dtype)).reshape(shape, order=order)


Piece = bytes | list[Any] | dict[str, Any]
"""A MessagePack value, either its bytes or split at the items of its containers."""
CUT_MIN: Final = 512
"""Smaller containers are not split."""
EXT_CUT_MIN: Final = 8 * 1024
"""Smaller extensions are not split: a message is stored whole, a snapshot of a conversation is not."""
ITEM_MIN: Final = 64
"""An array whose items are smaller on average, such as a vector, is not split."""
DEPTH_MAX: Final = 32
_decode_array = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode
_decode_map = msgspec.msgpack.Decoder(dict[str, msgspec.Raw]).decode
_decode_ext = msgspec.msgpack.Decoder(msgspec.msgpack.Ext).decode
_encode_text = msgspec.msgpack.Encoder().encode


def cut(data: bytes) -> Piece:
    """Split one MessagePack value into pieces."""
    if len(data) <= CUT_MIN:
        return data
    try:
        piece = _cut(data, 0)
    except msgspec.MsgspecError:  # keys that are not text, or invalid MessagePack
        return data
    return piece if type(piece) is bytes or join(piece) == data else data


def join(piece: Piece) -> bytes:
    """Join the pieces of a value."""
    if isinstance(piece, bytes):
        return piece
    parts: list[bytes] = []
    _join(piece, parts)
    return b"".join(parts)


def _cut(data: bytes, depth: int) -> Piece:
    if len(data) <= CUT_MIN or depth == DEPTH_MAX:
        return data
    mark = data[0]
    if mark & 0xF0 == 0x90 or mark in (0xDC, 0xDD):
        items = _decode_array(data)
        if len(items) * ITEM_MIN > len(data):
            return data
        return [_cut(bytes(item), depth + 1) for item in items]
    if mark & 0xF0 == 0x80 or mark in (0xDE, 0xDF):
        return {"m": {key: _cut(bytes(item), depth + 1) for key, item in _decode_map(data).items()}}
    if mark in (0xC8, 0xC9) and len(data) > EXT_CUT_MIN:
        found = _decode_ext(data)
        return {"x": found.code, "d": _cut(bytes(found.data), depth + 1)}
    return data


def _join(piece: Piece, parts: list[bytes]) -> None:
    if isinstance(piece, bytes):
        parts.append(piece)
    elif isinstance(piece, list):
        parts.append(_header(len(piece), 0x90, 0xDC))
        for item in piece:
            if type(item) is bytes:
                parts.append(item)
            else:
                _join(item, parts)
    elif "m" in piece:
        parts.append(_header(len(piece["m"]), 0x80, 0xDE))
        for key, item in piece["m"].items():
            parts.append(_encode_text(key))
            _join(item, parts)
    else:
        inner: list[bytes] = []
        _join(piece["d"], inner)
        size, code = sum(map(len, inner)), (piece["x"] & 0xFF).to_bytes()
        parts.append(b"\xc8" + size.to_bytes(2) + code if size < 1 << 16 else b"\xc9" + size.to_bytes(4) + code)
        parts.extend(inner)


def _header(count: int, small: int, wide: int) -> bytes:
    if count < 16:
        return (small | count).to_bytes()
    return wide.to_bytes() + count.to_bytes(2) if count < 1 << 16 else (wide + 1).to_bytes() + count.to_bytes(4)


class TypeRefused(InvalidInput):
    """A strict saver does not allow the type of a value.

    The value is neither written nor read. Reading it would import its module. `module` and `name` identify the type.

    Example:
        HoldfastSaver("sqlite:agent.db", strict=True, allow=[Order])
    """

    def __init__(self, module: str, name: str) -> None:
        super().__init__(
            f"{module}.{name} is not a type of LangGraph or a LangChain message, and reading it back would import its "
            f"module; if you trust the data, pass allow=[{name}] or allow=[({module!r}, {name!r})] to HoldfastSaver"
        )
        self.module = module
        self.name = name


class ValueUnreadable(InvalidInput):
    """A stored value cannot be rebuilt. It remains stored."""
