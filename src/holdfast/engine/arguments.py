"""Arguments of calls: conversion to annotated types, changed arguments, idempotency keys.

The store has built-in values only, as the codec makes them. At the start a value that does not fit its annotation is
refused; for every call, stored values are converted to dataclasses, models, enums and dates again.
"""

from __future__ import annotations

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
        try:
            self._signature: inspect.Signature | None = inspect.signature(fn)
        except (TypeError, ValueError):  # a builtin may have no signature
            self._signature = None
        self._converters: dict[str, tuple[Convert | None, Convert | None]] | None = None
        """By parameter: the function that checks a new value, and the one that converts a stored value."""

    def check_call(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> None:
        """Raise InvalidInput for arguments that the function does not accept."""
        if self._signature is None:
            return
        try:
            self._signature.bind(None, *args, **kwargs)
        except TypeError as error:
            raise InvalidInput(f"cannot start {self._what} with these arguments: {error}") from None

    def check_new(self, args: tuple[object, ...], kwargs: Mapping[str, object], round_trip: RoundTrip) -> Typed:
        """The arguments of a new run, converted to their annotations. Raises InvalidInput if one does not fit."""

        def check(name: str, value: object) -> object:
            convert = self._converters_by_name().get(name, (None, None))[0]
            if convert is None:
                return value
            try:
                stored = round_trip(value)
            except Unstorable:  # the commit reports it, with the path of the part
                return value
            return self._convert(convert, name, stored)

        return self._map_arguments(args, kwargs, check)

    def differences(self, one: Typed, other: Typed, round_trip: RoundTrip) -> list[tuple[str, object, object]] | None:
        """The parameters whose values differ, with both values; None if a call does not bind."""
        first, second = self._bind_stored(one, round_trip), self._bind_stored(other, round_trip)
        if first is None or second is None:
            return None
        return [(name, value, second[name]) for name, value in first.items() if value != second[name]]

    def _bind_stored(self, given: Typed, round_trip: RoundTrip) -> dict[str, object] | None:
        """The stored value of every parameter after the run, with defaults."""
        if self._signature is None:
            return None
        try:
            bound = self._signature.bind(None, *given[0], **given[1])
            bound.apply_defaults()
            return {name: round_trip(value) for name, value in list(bound.arguments.items())[1:]}
        except (TypeError, Unstorable):
            return None

    def to_typed(self, args: Sequence[object], kwargs: Mapping[str, object]) -> Typed:
        """Stored arguments, converted for the call of the function."""

        def convert(name: str, value: object) -> object:
            convert = self._converters_by_name().get(name, (None, None))[1]
            return value if convert is None else self._convert(convert, name, value)

        return self._map_arguments(args, kwargs, convert)

    def _convert(self, convert: Convert, name: str, value: object) -> object:
        try:
            return convert(value)
        except CONVERSION_ERRORS as error:
            raise InvalidInput(
                f"{self._what}: argument {name!r} does not fit its annotation, {self._annotation(name)}: {error}"
            ) from error

    def _annotation(self, name: str) -> str:
        assert self._signature is not None
        annotation = self._signature.parameters[name].annotation
        return annotation if isinstance(annotation, str) else getattr(annotation, "__name__", repr(annotation))

    def _converters_by_name(self) -> dict[str, tuple[Convert | None, Convert | None]]:
        if self._converters is None:  # at the first call: an annotation may name a class that is defined later
            self._converters = {
                name: (checker_of(annotation), converter_of(annotation, moments=True))
                for name, annotation in hints_of(self._fn).items()
                if name != "return"
            }
        return self._converters

    def _map_arguments(
        self, args: Sequence[object], kwargs: Mapping[str, object], convert: Callable[[str, object], object]
    ) -> Typed:
        if self._signature is None or not self._converters_by_name():
            return tuple(args), dict(kwargs)
        parameters = list(self._signature.parameters.values())
        by_position = [one.name for one in parameters if one.kind in _BY_POSITION][self._skip :]
        rest = next((one.name for one in parameters if one.kind is one.VAR_POSITIONAL), "")
        more = next((one.name for one in parameters if one.kind is one.VAR_KEYWORD), "")
        by_name = {one.name for one in parameters if one.kind in _BY_NAME}
        names = [*by_position, *[rest] * len(args)]
        return (
            tuple([convert(name, value) for name, value in zip(names, args, strict=False)]),
            {name: convert(name if name in by_name else more, value) for name, value in kwargs.items()},
        )


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
            if name not in old or name not in new or _digest_part(codec, old[name]) != _digest_part(codec, new[name]):
                return f"argument {name} of {place} {_change(name, old, new)}"
        return f"the arguments of {place} are passed in another way"
    parts = entry.get("parts")
    parts = _label_arguments(given, parts) if isinstance(parts, dict) else dict.fromkeys(new) if len(new) == 1 else {}
    for name in {**parts, **new} if parts else ():
        if name not in new:
            return f"argument {name} of {place} is no longer given"
        if parts.get(name) != _digest_part(codec, new[name]):
            return f"argument {name} of {place} changed, it is now {_brief.repr(new[name])}"
    return f"the arguments of {place} changed"


def _change(name: str, old: Mapping[str, object], new: Mapping[str, object]) -> str:
    if name not in new:
        return f"is no longer given, it was {_brief.repr(old[name])}"
    if name not in old:
        return f"was not given before, it is {_brief.repr(new[name])}"
    return f"changed from {_brief.repr(old[name])} to {_brief.repr(new[name])}"


def _digest_part(codec: Codec, value: object) -> str:
    return (codec.digest((value,), {}) or "")[:_PART_CHARS]


def _label_arguments(given: Given, arguments: Mapping[str, object]) -> dict[str, object]:
    """Arguments by the names of the function's parameters, or by their number if it has no name for them."""
    try:
        parameters = [] if given.fn is None else list(inspect.signature(given.fn).parameters.values())
    except (TypeError, ValueError):  # a builtin may have no signature
        parameters = []
    named = [one.name for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]

    def label(name: str) -> str:
        if not name.isdigit():
            return repr(name)
        return repr(named[int(name)]) if int(name) < len(named) else f"{int(name) + 1}"

    return {label(name): value for name, value in arguments.items()}


def takes_token(fn: UserFunction) -> bool:
    """Whether the function has a parameter named idempotency_key."""
    try:
        return "idempotency_key" in inspect.signature(fn).parameters
    except (TypeError, ValueError):  # a builtin may have no signature
        return False


def with_token(fn: UserFunction, kwargs: dict[str, object], token: str) -> dict[str, object]:
    """The keyword arguments of a call, with the idempotency key if the function accepts one and none was given."""
    return {**kwargs, "idempotency_key": token} if takes_token(fn) and "idempotency_key" not in kwargs else kwargs
