"""Interrupts: what stops a workflow from outside. A user's `except Exception` must not eat them."""

from __future__ import annotations

__all__ = ["Cancelled", "Halted", "Interrupt", "LeaseLost", "Suspended"]


class Interrupt(BaseException):
    """Base of what stops a workflow from outside. Let it pass: code in `finally` blocks runs as always."""


class Suspended(Interrupt):
    """The run waits, was paused, or gives way to a worker's end. Later it goes on from here, perhaps elsewhere."""


class Cancelled(Interrupt):
    """The run was cancelled. Raised once in each line of work; then `finally` blocks have some time for their steps."""


class LeaseLost(Interrupt):
    """Another owner has the run. Nothing this process does to it is recorded any more."""


class Halted(Interrupt):
    """The store failed in the middle of a run. `__cause__` says how; the run can be resumed."""
