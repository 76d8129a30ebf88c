"""Plans and the blocking driver.

A plan yields either a function without arguments, which reads, or a `Commit`. The driver carries it out and sends the
result back, or throws what went wrong.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from typing import Any, Concatenate, ParamSpec, TypeVar

from holdfast.errors import BlockingCall
from holdfast.model.commit import Commit
from holdfast.verbs.core import Place

P = ParamSpec("P")
R = TypeVar("R")

Plan = Generator[Callable[[], Any] | Commit, Any, R]


def run_plan(place: Place, plan: Plan[R]) -> R:
    """Carry out a plan on this thread."""
    commit = place.core.committer.commit
    try:
        step = next(plan)
        while True:
            try:
                result = commit(step) if type(step) is Commit else step()  # type: ignore[operator]
            except Exception as error:
                step = plan.throw(error)
            else:
                step = plan.send(result)
    except StopIteration as done:
        value: R = done.value
        return value


def forbid_in_loop(name: str) -> None:
    """Refuse to stop an event loop that runs on this thread.

    Another thread may be importing asyncio: the module is then listed before it has its functions, and no loop can be
    running yet.
    """
    running_loop = getattr(sys.modules.get("asyncio"), "_get_running_loop", None)
    if running_loop is not None and running_loop() is not None:
        raise BlockingCall(f"{name}() would block the running event loop; use `await ….aio.{name}(…)`")


def blocking(plan: Callable[Concatenate[Place, P], Plan[R]]) -> Callable[Concatenate[Any, P], R]:
    """The method that carries out `plan` and waits for it. Its object has the place as `_place`."""
    name = plan.__name__

    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        forbid_in_loop(name)
        place: Place = self._place
        return run_plan(place, plan(place, *args, **kwargs))

    return described(call, plan)


def blocking_held(plan: Callable[Concatenate[Place, str, P], Plan[R]]) -> Callable[Concatenate[Any, P], R]:
    """Like `blocking`, for a claim: the run is the claim's."""
    name = plan.__name__

    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        forbid_in_loop(name)
        place: Place = self._place
        return run_plan(place, plan(place, self.run_id, *args, **kwargs))

    return described(call, plan)


def described(call: Callable[P, R], plan: Callable[..., Any]) -> Callable[P, R]:
    """`call` with the name, signature and text of `plan`."""
    call.__name__ = plan.__name__
    call.__qualname__ = plan.__name__
    call.__doc__ = plan.__doc__
    call.__dict__["__wrapped__"] = plan
    return call
