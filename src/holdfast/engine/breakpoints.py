"""Breakpoints: planned stops at which a run is paused until somebody resumes it."""

from __future__ import annotations

from holdfast.engine.commands import Plan
from holdfast.engine.execution import Execution
from holdfast.engine.scope import Scope
from holdfast.errors import InvalidInput


def breakpoint_here(exe: Execution, scope: Scope, message: str) -> Plan[None]:
    """Pause the run, the first time it comes here. Whoever resumes it lets it pass.

    The entry and the pause are one commit, so a run that has the entry was paused and has been resumed since.
    """
    if not scope.main:
        raise InvalidInput("a breakpoint belongs to the run's own line of work, not into a branch of gather")
    with scope.call("breakpoint", None, ("breakpoint",)) as (call, entries):
        yield from exe.attend(scope, call, keyed=False)  # also when it is passed: perhaps it was cancelled here
        if entries:
            return
        yield from exe.rest(scope, [scope.entry("breakpoint", call, keyed=False, message=message)])
