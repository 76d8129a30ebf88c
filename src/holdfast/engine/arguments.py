"""Arguments of calls: conversion to annotated types, changed arguments, idempotency keys.

The store has built-in values only, as the codec makes them. At the start a value that does not fit its annotation is
refused; for every call, stored values are converted to dataclasses, models, enums and dates again.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from reprlib import Repr
from typing import Final, NamedTuple

from holdfast.engine.commands import EntryData, UserFunction
from holdfast.engine.execution import Codec
from holdfast.engine.results import CONVERSION_ERRORS, Convert, checker_of, converter_of, hints_of
from holdfast.errors import InvalidInput, Unstorable

Typed = tuple[tuple[object, ...], dict[str, object]]
Undos = Mapping[str, UserFunction]
"""The undo functions of this process, by name."""
RoundTrip = Callable[[object], object]
"""Converts a value to the value that a replay reads."""


class Arguments:
    """The parameters of a function; the first `skip` of them (the run of a workflow) are not arguments."""

    def __init__(self, fn: UserFunction, what: str, skip: int = 1) -> None:
        self._what = what
        self._skip = skip
        self._fn = fn
        self._signature = _signature_of(fn)

    @functools.cached_property
    def _converters(self) -> dict[str, tuple[Convert | None, Convert | None]]:
        """Checks of new values and conversions of stored ones. Lazy: an annotation may name a class defined later."""
        hints = {name: annotation for name, annotation in hints_of(self._fn).items() if name != "return"}
        return {name: (checker_of(hint), converter_of(hint, moments=True)) for name, hint in hints.items()}

    def check_call(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> None:
        """Raise InvalidInput for arguments that the function does not accept."""
        try:
            if self._signature is not None:
                self._signature.bind(None, *args, **kwargs)
        except TypeError as error:
            raise InvalidInput(f"cannot start {self._what} with these arguments: {error}") from None

    def check_new(self, args: tuple[object, ...], kwargs: Mapping[str, object], round_trip: RoundTrip) -> Typed:
        """The arguments of a new run, converted to their annotations. Raises InvalidInput if one does not fit."""

        def check(name: str, value: object) -> object:
            convert = self._converters.get(name, (None, None))[0]
            try:
                return value if convert is None else self._convert(convert, name, round_trip(value))
            except Unstorable:  # the commit reports it, with the path of the part
                return value

        return self._map_arguments(args, kwargs, check)

    def differences(self, one: Typed, other: Typed, codec: Codec) -> list[tuple[str, object, object]] | None:
        """The parameters whose values are stored differently, with both values; None if a call does not bind."""
        if self._signature is None:
            return None
        stored: list[dict[str, object]] = []  # of each call, the value of every parameter after the run
        try:
            for args, kwargs in (one, other):
                bound = self._signature.bind(None, *args, **kwargs)
                bound.apply_defaults()
                stored.append({name: codec.round_trip(value) for name, value in list(bound.arguments.items())[1:]})
        except (TypeError, Unstorable):
            return None
        first, second = stored
        pairs = [(name, value, second[name]) for name, value in first.items()]
        return [pair for pair in pairs if codec.digest((pair[1],), {}) != codec.digest((pair[2],), {})]

    def to_typed(self, args: Sequence[object], kwargs: Mapping[str, object]) -> Typed:
        """Stored arguments, converted for the call of the function."""

        def convert(name: str, value: object) -> object:
            convert = self._converters.get(name, (None, None))[1]
            return value if convert is None else self._convert(convert, name, value)

        return self._map_arguments(args, kwargs, convert)

    def _convert(self, convert: Convert, name: str, value: object) -> object:
        try:
            return convert(value)
        except CONVERSION_ERRORS as error:
            assert self._signature is not None
            hint = self._signature.parameters[name].annotation
            text = hint if isinstance(hint, str) else getattr(hint, "__name__", repr(hint))
            problem = f"argument {name!r} does not fit its annotation, {text}: {error}"
            raise InvalidInput(f"{self._what}: {problem}") from error

    def _map_arguments(
        self, args: Sequence[object], kwargs: Mapping[str, object], convert: Callable[[str, object], object]
    ) -> Typed:
        if self._signature is None or not self._converters:
            return tuple(args), dict(kwargs)
        parameters = list(self._signature.parameters.values())
        by_position = [one.name for one in parameters if one.kind in _BY_POSITION][self._skip :]
        rest = next((one.name for one in parameters if one.kind is one.VAR_POSITIONAL), "")
        more = next((one.name for one in parameters if one.kind is one.VAR_KEYWORD), "")
        by_name = {one.name for one in parameters if one.kind in _BY_NAME}
        names = [*by_position, *[rest] * len(args)]
        typed = tuple([convert(name, value) for name, value in zip(names, args, strict=False)])
        return typed, {name: convert(name if name in by_name else more, value) for name, value in kwargs.items()}


_BY_POSITION = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_BY_NAME = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_PARTS_MAX: Final = 16
"""With more arguments, the error does not name the changed one."""
_PART_CHARS: Final = 8
_brief: Final = Repr()
_brief.maxstring = _brief.maxother = 60
_brief.maxlevel = 3


class Given(NamedTuple):
    """The arguments of a call, and the function, if it is known."""

    fn: UserFunction | None
    args: Sequence[object]
    kwargs: Mapping[str, object]

    def by_name(self) -> dict[str, object]:
        """The arguments by position, counted from 0, or by name."""
        return {**{str(at): value for at, value in enumerate(self.args)}, **self.kwargs}


def parts_of(codec: Codec, given: Given) -> EntryData:
    """The entry's digests of the single arguments, by position or name, if there are several."""
    if not 1 < len(given.args) + len(given.kwargs) <= _PARTS_MAX:
        return {}
    parts = {name: _digest_part(codec, value) for name, value in given.by_name().items()}
    return {"parts": parts} if all(parts.values()) else {}


def changed_argument(codec: Codec, place: str, given: Given, entry: EntryData, recorded: object = None) -> str:
    """Which argument of the call at `place` differs from its entry. `recorded`: the call as the ledger has it."""
    new = _label_arguments(given, given.by_name())
    if isinstance(recorded, dict) and (recorded.get("args") or recorded.get("kwargs")):
        then = Given(None, recorded.get("args") or (), recorded.get("kwargs") or {})
        old = _label_arguments(given, then.by_name())
        for name in {**old, **new}:
            if name not in new:
                return f"argument {name} of {place} is no longer given, it was {_brief.repr(old[name])}"
            if name not in old:
                return f"argument {name} of {place} was not given before, it is {_brief.repr(new[name])}"
            if _digest_part(codec, old[name]) != _digest_part(codec, new[name]):
                return f"argument {name} of {place} changed from {_brief.repr(old[name])} to {_brief.repr(new[name])}"
        return f"the arguments of {place} are passed in another way"
    parts = entry.get("parts")
    parts = _label_arguments(given, parts) if isinstance(parts, dict) else dict.fromkeys(new) if len(new) == 1 else {}
    for name in {**parts, **new} if parts else ():
        if name not in new:
            return f"argument {name} of {place} is no longer given"
        if parts.get(name) != _digest_part(codec, new[name]):
            return f"argument {name} of {place} changed, it is now {_brief.repr(new[name])}"
    return f"the arguments of {place} changed"


def _digest_part(codec: Codec, value: object) -> str:
    return (codec.digest((value,), {}) or "")[:_PART_CHARS]


def _label_arguments(given: Given, arguments: Mapping[str, object]) -> dict[str, object]:
    """Arguments by the names of the function's parameters, or by their number if it has no name for them."""
    named = [] if given.fn is None else position_names(given.fn)

    def label(name: str) -> str:
        if not name.isdigit():
            return repr(name)
        return repr(named[int(name)]) if int(name) < len(named) else f"{int(name) + 1}"

    return {label(name): value for name, value in arguments.items()}


def position_names(fn: UserFunction) -> list[str]:
    """The names of the parameters that can be given by position; none if they are not known."""
    signature = _signature_of(fn)
    return [one.name for one in signature.parameters.values() if one.kind in _BY_POSITION] if signature else []


def _signature_of(fn: UserFunction) -> inspect.Signature | None:
    try:
        return inspect.signature(fn)
    except (TypeError, ValueError):  # a builtin may have no signature
        return None


def takes_token(fn: UserFunction) -> bool:
    """Whether the function has a parameter named idempotency_key."""
    signature = _signature_of(fn)
    return signature is not None and "idempotency_key" in signature.parameters


def with_token(fn: UserFunction, kwargs: dict[str, object], token: str) -> dict[str, object]:
    """The keyword arguments of a call, with the idempotency key if the function accepts one and none was given."""
    return {**kwargs, "idempotency_key": token} if takes_token(fn) and "idempotency_key" not in kwargs else kwargs
