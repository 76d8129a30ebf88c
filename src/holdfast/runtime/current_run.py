"""The run that the calling code belongs to, kept in a context variable."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.runtime.async_run import AsyncRun
    from holdfast.runtime.run import Run

_current: contextvars.ContextVar[Run | AsyncRun | None] = contextvars.ContextVar("holdfast_run", default=None)


def current_run() -> Run | AsyncRun | None:
    """The run the calling code belongs to: in a workflow, a branch, a step or an effect. None anywhere else.

    A library between the workflow and a step finds the run by it, without passing it on.

    Example:
        run = holdfast.current_run()
        order = run.run_id if run is not None else "no run"
    """
    return _current.get()


@contextlib.contextmanager
def as_current(run: Run | AsyncRun) -> Iterator[None]:
    """Make `run` the one that `current_run` gives."""
    token = _current.set(run)
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):  # a task that ends with its loop is closed in another context
            _current.reset(token)
