"""Plans, and the drivers that execute them: the blocking one here, the one for tasks in `async_driver`.

A plan is a generator that decides and never acts. It yields a `Commit`, a function without arguments that reads, or a
command for which its driver has a handler. The driver sends back the result or throws the error. The engine's plans
yield commands of the engine; `runtime.interpreter` translates these first.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Mapping
from types import GeneratorType
from typing import Any, TypeVar

from holdfast.errors import BlockingCall
from holdfast.model.commit import Commit, Outcome

R = TypeVar("R")

Plan = Generator[object, Any, R]
Handler = Callable[[Any], R]
"""Executes the commands of one type."""


class BlockingDriver:
    """Executes plans. `handlers` execute the commands of one type each; any other step that is not a commit reads."""

    def __init__(
        self, commit: Callable[[Commit], Outcome], handlers: Mapping[type, Handler[object]] | None = None
    ) -> None:
        self._commit = commit
        self._handlers = handlers or {}

    def run(self, plan: Plan[R]) -> R:
        """Execute the plan and return its result.

        An error that does not come from the plan is thrown into it, also Ctrl-C between two steps: only the plan can
        release what it holds.
        """
        handlers = self._handlers
        result: object = None
        thrown: BaseException | None = None
        try:
            while True:
                try:
                    while True:
                        if thrown is None:
                            step = plan.send(result)
                            result = None  # a large result is not held here while the plan commits it
                        else:
                            error, thrown = thrown, None
                            step = plan.throw(error)
                        kind = type(step)
                        if kind is Commit:
                            result = self._commit(step)  # type: ignore[arg-type]
                        elif kind in handlers:
                            result = handlers[kind](step)
                        else:
                            result = step()  # type: ignore[operator]
                except BaseException as raised:
                    if isinstance(plan, GeneratorType) and plan.gi_frame is None:  # the plan has ended
                        if isinstance(raised, StopIteration):
                            value: R = raised.value
                            return value
                        raise
                    thrown = raised
        finally:
            plan.close()


def forbid_in_loop(name: str) -> None:
    """Raise BlockingCall if an event loop is running on this thread.

    While another thread imports asyncio, the module is listed before it has its functions. No loop can be running then.
    """
    running_loop = getattr(sys.modules.get("asyncio"), "_get_running_loop", None)
    if running_loop is not None and running_loop() is not None:
        raise BlockingCall(f"{name}() would block the running event loop; use `await ….aio.{name}(…)`")
