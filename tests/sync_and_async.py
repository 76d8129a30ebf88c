"""One text of a workflow, two kinds of workflow: `async def` as it is written, and `def` by way of an adapter.

The adapter gives a blocking `Run` the face of an `AsyncRun`: what it returns is there at once, so the coroutine comes
to its end without an event loop ever being asked. What is raised, and where, is what a `def` workflow sees.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, TypeVar, cast

from holdfast import AsyncRun, Run

R = TypeVar("R")
Flow = Callable[..., Coroutine[Any, Any, Any]]


def as_def(flow: Flow) -> Callable[..., Any]:
    """The workflow as a `def` workflow."""

    def called(run: Run, *args: Any, **kwargs: Any) -> Any:
        return finished(flow(worn(run), *args, **kwargs))

    called.__name__ = flow.__name__
    return called


def worn(run: Run) -> AsyncRun:
    """A blocking run with the face of an awaiting one."""
    return cast(AsyncRun, _Worn(run))


def finished(work: Coroutine[Any, Any, R]) -> R:
    """What a coroutine returns that waits for nothing."""
    try:
        work.send(None)
    except StopIteration as done:
        value: R = done.value
        return value
    work.close()
    raise AssertionError("a def workflow cannot wait for a loop")


class _Worn:
    def __init__(self, run: Run) -> None:
        self._run = run

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._run, name)
        if name in ("state", "run_id", "attempt"):
            return found

        async def call(*args: Any, **kwargs: Any) -> Any:
            return found(*args, **kwargs)

        return call

    async def gather(self, *branches: Flow, **options: Any) -> list[Any]:
        return self._run.gather(*[as_def(branch) for branch in branches], **options)

    def loop(self, **options: Any) -> AsyncIterator[int]:
        return _Turns(self._run, options)


class _Turns(AsyncIterator[int]):
    def __init__(self, run: Run, options: dict[str, Any]) -> None:
        self._run = run
        self._options = options
        self._turns: Any = None

    async def __anext__(self) -> int:
        if self._turns is None:
            self._turns = self._run.loop(**self._options)
        return next(self._turns)  # type: ignore[no-any-return]
