"""Verbs to await, for the systems whose own verbs are async: Brainwires and MUR.

The `aio` of a directory has its verbs with the same arguments; each runs on a thread of the event loop's executor. If
the waiting task is cancelled, a verb that has begun is still carried out: load what is there before repeating it.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
Blocking = TypeVar("Blocking")


class AsyncVerbs(Generic[Blocking]):
    """The verbs of an object, to await."""

    def __init__(self, blocking: Blocking) -> None:
        self._blocking = blocking


def awaiting(
    verb: Callable[Concatenate[Blocking, P], R],
) -> Callable[Concatenate[AsyncVerbs[Blocking], P], Coroutine[Any, Any, R]]:
    """The method that carries out `verb` on a thread."""

    async def call(self: AsyncVerbs[Blocking], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return await asyncio.to_thread(verb, self._blocking, *args, **kwargs)

    functools.update_wrapper(call, verb)
    return call
