"""The strict serde: LangGraph's own format, for known types only.

Bytes are exactly those of LangGraph's `JsonPlusSerializer`, so threads can be moved both ways. Different is what may be
read: only types that LangGraph itself calls safe (its own, LangChain's messages, and dates, ids and the like of
Python's library), and those the user allows. Where LangGraph warns and hands out a plain dict in place of an object it
does not rebuild, this raises; and what could not be read is not written.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any, Final

import ormsgpack
from langgraph.checkpoint.serde import _msgpack as safe
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.types import Send

from holdfast.adapters.langgraph.errors import TypeRefused, ValueUnreadable
from holdfast.errors import HoldfastError, InvalidInput

Allowed = type | tuple[str, str]

# The codes of LangGraph's MessagePack extensions; each holds (module, name, argument, …) but the last two.
_SINGLE, _POSITIONAL, _KEYWORDS, _METHOD, _PYDANTIC_V1, _PYDANTIC_V2, _NUMPY, _SNAPSHOT = range(8)
_OPTION: Final = ormsgpack.OPT_NON_STR_KEYS


class StrictSerializer(JsonPlusSerializer):
    """LangGraph's serializer, for types that are known and types that are allowed.

    Example:
        StrictSerializer(allow=[Order, ("shop.models", "Customer")])
    """

    def __init__(self, allow: Iterable[Allowed | tuple[str, ...]] = ()) -> None:
        super().__init__(allowed_msgpack_modules=_checked(allow))
        self._custom_unpack_ext_hook = True
        self._classes: dict[tuple[str, ...], Callable[..., Any]] = {}

    def with_msgpack_allowlist(self, extra_allowlist: Iterable[tuple[str, ...] | type]) -> StrictSerializer:
        """The same, with more types allowed."""
        extra = _checked(extra_allowlist)
        names = {(one.__module__, one.__name__) if isinstance(one, type) else one for one in extra}
        if all(map(self.allows, names)):
            return self
        mine = self._allowed_msgpack_modules
        return StrictSerializer([*(mine if isinstance(mine, set) else ()), *names])

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        kind, body = data
        if kind == "msgpack":
            return self._unpacked(body)
        if kind == "pickle":
            raise ValueUnreadable("a value was stored with pickle, which runs whatever the data says; it is not read")
        if kind == "json":
            try:
                return json.loads(body, object_hook=self._revived)
            except ValueError as error:
                if isinstance(error, HoldfastError):
                    raise
                raise ValueUnreadable(f"a stored value cannot be read: {error}") from error
        try:
            return super().loads_typed(data)
        except NotImplementedError as error:
            raise ValueUnreadable(f"a value is stored as {kind!r}, which this serde does not know") from error

    def _unpacked(self, body: bytes) -> Any:
        problems: list[Exception] = []

        def hook(code: int, data: bytes) -> Any:
            try:
                return self._rebuilt(code, data, hook)
            except Exception as error:  # ormsgpack forgets what its hook raised
                problems.append(error)
                raise

        try:
            return ormsgpack.unpackb(body, ext_hook=hook, option=_OPTION)
        except ValueError as error:
            first = problems[0] if problems else error
            if isinstance(first, HoldfastError):
                raise first from first.__cause__
            raise ValueUnreadable(f"a stored value cannot be read: {first}") from first

    def _rebuilt(self, code: int, data: bytes, hook: Callable[[int, bytes], Any]) -> Any:
        inside = ormsgpack.unpackb(data, ext_hook=hook, option=_OPTION)
        if code == _SNAPSHOT:
            return _DeltaSnapshot(inside)
        if code == _NUMPY:
            return _array(*inside)
        if not _SINGLE <= code <= _PYDANTIC_V2:
            raise ValueUnreadable(f"a stored value has the extension {code}, which this version does not know")
        name = _name(code, inside)
        make = self._classes.get(name) or self._imported(name)
        try:
            return _made(make, code, inside[2])
        except Exception as error:
            raise ValueUnreadable(f"a stored {'.'.join(name)} cannot be made anew: {error}") from error

    def _imported(self, name: tuple[str, ...]) -> Callable[..., Any]:
        """What makes values of this name, imported only if it may be."""
        if not self.allows(name):
            raise TypeRefused(name[0], ".".join(name[1:]))
        try:
            made: Any = import_module(name[0])
            for part in name[1:]:
                made = getattr(made, part)
        except (ImportError, AttributeError) as error:
            raise ValueUnreadable(f"a stored value is a {'.'.join(name)}, which is not there: {error}") from error
        self._classes[name] = made
        return made  # type: ignore[no-any-return]

    def allows(self, name: tuple[str, ...]) -> bool:
        """Whether this may be imported: a module's type, or of a few types a method."""
        if len(name) == 3:
            return name in safe.SAFE_MSGPACK_METHODS
        mine = self._allowed_msgpack_modules
        return name in safe.SAFE_MSGPACK_TYPES or (isinstance(mine, set) and name in mine)

    def check(self, body: bytes) -> None:
        """Raise if these MessagePack bytes could not be read back.

        Types that LangGraph calls safe are known to come back, and others are made once, to see whether they do.
        """
        problems: list[Exception] = []
        unsure = False

        def hook(code: int, data: bytes) -> None:
            nonlocal unsure
            inside = ormsgpack.unpackb(data, ext_hook=hook, option=_OPTION)
            if code == _SNAPSHOT:
                return
            if not _SINGLE <= code <= _PYDANTIC_V2:
                unsure = True
            elif not self.allows(name := _name(code, inside)):
                problems.append(TypeRefused(name[0], ".".join(name[1:])))
            elif len(name) == 2 and name not in safe.SAFE_MSGPACK_TYPES:
                unsure = True

        ormsgpack.unpackb(body, ext_hook=hook, option=_OPTION)
        if problems:
            raise problems[0]
        if unsure:
            self._unpacked(body)

    def _revived(self, value: dict[str, Any]) -> Any:
        """Values of LangGraph's older JSON format: an object that is not rebuilt is an error, not a dict."""
        if value.get("type") != "constructor" or value.get("lc") not in (1, 2):
            return value
        named = value.get("id")
        if not isinstance(named, list) or not all(isinstance(part, str) for part in named) or len(named) < 2:
            raise ValueUnreadable(f"a stored value names no type: {named!r}")
        name = (".".join(named[:-1]), named[-1])
        if value["lc"] == 1:  # LangChain's own names, of which only those of messages are known
            known = [safe_name for safe_name in safe.SAFE_MSGPACK_TYPES if safe_name[1] == name[1]]
            name = known[0] if known and known[0][0].startswith("langchain_core.") else name  # type: ignore[assignment]
        make = self._classes.get(name) or self._imported(name)
        try:
            return make(*(value.get("args") or ()), **(value.get("kwargs") or {}))
        except Exception as error:
            raise ValueUnreadable(f"a stored {'.'.join(name)} cannot be made anew: {error}") from error


def _checked(allow: Iterable[Allowed | tuple[str, ...]]) -> tuple[Allowed | tuple[str, ...], ...]:
    """What may be allowed: classes, and names of classes with their modules."""
    if isinstance(allow, (str, type)):
        raise InvalidInput(f"allow is a list of types; write allow=[{getattr(allow, '__name__', repr(allow))}]")
    allowed = tuple(allow)
    for one in allowed:
        if not isinstance(one, type) and not (
            isinstance(one, tuple) and len(one) == 2 and all(isinstance(part, str) for part in one)
        ):
            raise InvalidInput(f"allow takes classes, or names as ('shop.models', 'Order'), not {one!r}")
    return allowed


def _name(code: int, inside: list[Any]) -> tuple[str, ...]:
    return (inside[0], inside[1], inside[3]) if code == _METHOD else (inside[0], inside[1])


def _made(make: Callable[..., Any], code: int, argument: Any) -> Any:
    if code in (_PYDANTIC_V2, _PYDANTIC_V1):
        try:
            return make(**argument)
        except Exception:  # as LangGraph does: what its own model refuses today was valid once
            build = getattr(make, "model_construct" if code == _PYDANTIC_V2 else "construct")
            return build(**argument)
    if code == _KEYWORDS:
        return make(**argument)
    if code in (_SINGLE, _METHOD):
        return make(argument)
    if make is Send and len(argument) == 3:
        return Send(argument[0], argument[1], timeout=argument[2])
    return make(*argument)


def _array(dtype: str, shape: list[int], order: Any, body: bytes) -> Any:
    numpy = import_module("numpy")  # whoever stored an array has it
    return numpy.frombuffer(body, dtype=numpy.dtype(dtype)).reshape(shape, order=order)
