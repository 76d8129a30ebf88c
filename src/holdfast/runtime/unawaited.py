"""A call of an `AsyncRun` between being written and being awaited.

A call without `await` must not pass silently: nothing of it is done, and code that takes it for its result would go on
as if it were. So every use of it as a value raises MissingAwait, and an execution that drops one fails.
"""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections.abc import Callable, Coroutine, Generator, Iterable
from typing import Any, Final, NoReturn, TypeVar

from holdfast.errors import MissingAwait
from holdfast.runtime.run import RunBase

R = TypeVar("R")

_ACTS: Final = frozenset({"effect", "child", "send", "transaction"})
_TEXT_MAX: Final = 60
_DEPTH_MAX: Final = 8


class UnawaitedCall(Coroutine[Any, Any, R]):
    """A call to be awaited, by `await`, a task or `asyncio.gather`. It begins, and gets its identity, only then."""

    __slots__ = ("__weakref__", "_begin_call", "_coroutine", "_error", "_exe")

    def __init__(
        self, run: RunBase, name: str, about: Any, begin: Callable[[], Coroutine[Any, Any, R]],
        values: Iterable[Any] = (),
    ) -> None:  # fmt: skip
        """`about` is what the call is named by in errors; `values` are what it was given."""
        frame = sys._getframe(2)  # the caller of the run's method
        self._error = functools.partial(_missing, name, about, frame.f_code.co_filename, frame.f_lineno)
        self._exe = exe = run._exe
        self._begin_call = begin
        self._coroutine: Coroutine[Any, Any, R] | None = None
        run._check_waiting(acts=name in _ACTS)
        given = _found(list(values), 0) if exe.unawaited else None
        exe.unawaited[id(self)] = self._error
        if given is not None:
            raise given._error(f"it was passed to run.{name}")

    # --- to be awaited -----------------------------------------------------------------------------------------------

    def _begun(self) -> Coroutine[Any, Any, R]:
        if self._coroutine is None:
            self._exe.unawaited.pop(id(self), None)
            self._coroutine = self._begin_call()
        return self._coroutine

    def __await__(self) -> Generator[Any, Any, R]:
        return self._begun().__await__()

    def send(self, value: Any) -> Any:
        return self._begun().send(value)

    def throw(self, *error: Any) -> Any:
        return self._begun().throw(*error)

    def close(self) -> None:
        """Give the call up on purpose; that is not a missing await."""
        self._begun().close()

    def __del__(self) -> None:
        missing = self._exe.unawaited.pop(id(self), None)
        if missing is not None and self._exe.missing_await is None:
            self._exe.missing_await = self._error()

    # --- not to be used as a value -----------------------------------------------------------------------------------

    def __repr__(self) -> str:
        name, _, file, line = self._error.args
        state = "not awaited yet" if self._coroutine is None else "awaited"
        return f"<run.{name} at {file}:{line}, {state}>"

    def __bool__(self) -> NoReturn:
        raise self._error("the call itself was tested, and not its result")

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        raise self._error("the call itself was compared, and not its result")

    __hash__ = object.__hash__

    def _refuse_order(self, _: object) -> NoReturn:
        raise self._error("the call itself was compared, and not its result")

    __lt__ = __le__ = __gt__ = __ge__ = _refuse_order

    def _refuse_items(self, *_: object) -> NoReturn:
        raise self._error("an item of the call itself was asked for, and not one of its result")

    __getitem__ = __iter__ = __len__ = __contains__ = _refuse_items

    def refuse_storage(self) -> None:
        """Called by the encoder of values, which knows this class only by this method."""
        if self._coroutine is None:
            raise self._error("the call itself was stored, and not its result")

    def __getattr__(self, name: str) -> Any:
        if name in ("__name__", "__qualname__"):
            return f"run.{self._error.args[0]}"
        if name.startswith(("cr_", "gi_", "__")):  # what tasks and debuggers ask of a coroutine
            return getattr(object.__getattribute__(self, "_coroutine"), name)
        raise self._error(f"the attribute {name!r} of the call itself was asked for, and not one of its result")


def _found(value: Any, depth: int) -> UnawaitedCall[Any] | None:
    """A call not awaited yet inside a value that is passed on."""
    if type(value) is UnawaitedCall:
        return value if value._coroutine is None else None
    if depth > _DEPTH_MAX:
        return None
    parts: Iterable[Any] = ()
    if isinstance(value, dict):
        parts = value.values()
    elif isinstance(value, (list, tuple, set, frozenset)):
        parts = value
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        parts = [getattr(value, field.name, None) for field in dataclasses.fields(value)]
    return next((found for part in parts if (found := _found(part, depth + 1)) is not None), None)


def _missing(name: str, about: Any, file: str, line: int, problem: str = "nothing of it was done") -> MissingAwait:
    text = repr(about) if isinstance(about, str) else getattr(about, "__name__", "…")
    text = text if len(text) <= _TEXT_MAX else f"{text[:_TEXT_MAX]}…"
    return MissingAwait(f"run.{name}({text})", f"{file}:{line}", problem)
