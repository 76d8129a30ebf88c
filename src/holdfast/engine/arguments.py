"""Typed input: a workflow's annotations name the types of its arguments, at the start and at every resume.

What is stored is built-in values, as the codec makes them. At the start a value that does not fit its annotation is
refused; whenever the function is called, stored values become dataclasses, models, enums and moments again.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from holdfast.engine.results import CONVERSION_ERRORS, Convert, checker_of, converter_of, hints_of
from holdfast.errors import InvalidInput, Unstorable

Typed = tuple[tuple[Any, ...], dict[str, Any]]


class Arguments:
    """What a function takes: a workflow's after its run (`skip`), an undo's from the first on."""

    def __init__(self, fn: Callable[..., Any], what: str, skip: int = 1) -> None:
        self._what = what
        self._skip = skip
        self._fn = fn
        try:
            self._signature: inspect.Signature | None = inspect.signature(fn)
        except (TypeError, ValueError):  # a builtin may have no signature to look at
            self._signature = None
        self._converters: dict[str, tuple[Convert | None, Convert | None]] | None = None
        """For each parameter that has them, what checks a value and what makes a stored one typed."""

    def check_call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Refuse arguments that the function does not take."""
        if self._signature is None:
            return
        try:
            self._signature.bind(None, *args, **kwargs)
        except TypeError as error:
            raise InvalidInput(f"{self._what} cannot be started so: {error}") from None

    def checked(self, args: tuple[Any, ...], kwargs: dict[str, Any], settle: Callable[[Any], Any]) -> Typed:
        """The arguments of a new run, converted to what is annotated. Raises InvalidInput if one does not fit."""

        def check(name: str, value: Any) -> Any:
            convert = self._known().get(name, (None, None))[0]
            if convert is None:
                return value
            try:
                settled = settle(value)
            except Unstorable:  # refused where the path of the part can be named
                return value
            return self._convert(convert, name, settled)

        return self._each(args, kwargs, check)

    def differing(self, one: Typed, other: Typed, settle: Callable[[Any], Any]) -> list[tuple[str, Any, Any]] | None:
        """The parameters whose values differ, with both, however they were given; None if a call does not bind."""
        first, second = self._bound(one, settle), self._bound(other, settle)
        if first is None or second is None:
            return None
        return [(name, value, second[name]) for name, value in first.items() if value != second[name]]

    def _bound(self, given: Typed, settle: Callable[[Any], Any]) -> dict[str, Any] | None:
        """The value of every parameter after the run, defaults included, as it would be stored."""
        if self._signature is None:
            return None
        try:
            bound = self._signature.bind(None, *given[0], **given[1])
            bound.apply_defaults()
            return {name: settle(value) for name, value in list(bound.arguments.items())[1:]}
        except (TypeError, Unstorable):
            return None

    def typed(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Typed:
        """Stored arguments as the function is called with them."""

        def convert(name: str, value: Any) -> Any:
            convert = self._known().get(name, (None, None))[1]
            return value if convert is None else self._convert(convert, name, value)

        return self._each(args, kwargs, convert)

    def _convert(self, convert: Convert, name: str, value: Any) -> Any:
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

    def _known(self) -> dict[str, tuple[Convert | None, Convert | None]]:
        if self._converters is None:  # when it is first called: an annotation may name what is defined further down
            self._converters = {
                name: (checker_of(annotation), converter_of(annotation, moments=True))
                for name, annotation in hints_of(self._fn).items()
                if name != "return"
            }
        return self._converters

    def _each(self, args: Sequence[Any], kwargs: Mapping[str, Any], convert: Callable[[str, Any], Any]) -> Typed:
        if self._signature is None or not self._known():
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
