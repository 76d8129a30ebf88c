"""Side by side: `map` over items and `gather` of branches, each in a scope of its own, so with stable identity."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import msgspec

from holdfast.engine.commands import Branch, Plan, Raised, Together
from holdfast.engine.execution import Execution
from holdfast.engine.scope import Scope
from holdfast.engine.steps import Spec, step
from holdfast.errors import Cancelled, Halted, InvalidInput, LeaseLost, Suspended
from holdfast.limits import BRANCHES_MAX

_GRAVEST: Final = (LeaseLost, Halted, Cancelled, Suspended)


def gather(
    exe: Execution, scope: Scope, branches: Sequence[Callable[[Any], Any]], limit: int | None, key: str | None
) -> Plan[list[Any]]:
    """Do the branches side by side and give their results in order."""
    for branch in branches:
        if not callable(branch):
            raise InvalidInput(f"gather takes functions of one argument, the branch's own run; {branch!r} is none")
    call = _opened(scope, "gather", key, len(branches), limit)
    try:
        work = [Branch(scope.inner(f"{call}[{index}]", main=False), fn=branch) for index, branch in enumerate(branches)]
        return (yield from _together(exe, scope, work, limit))
    finally:
        if key is None:
            scope.busy = ""


def map_items(
    exe: Execution, scope: Scope, spec: Spec, items: Iterable[Any], limit: int | None, key: str | None
) -> Plan[list[Any]]:
    """Call a function for each item, each as a step, side by side, and give the results in order."""
    things = list(items)
    call = _opened(scope, "map", key, len(things), limit)
    try:
        work = []
        for index, item in enumerate(things):
            inner = scope.inner(f"{call}[{index}]", main=False)
            each = msgspec.structs.replace(spec, args=(item, *spec.args), key=None)
            work.append(Branch(inner, plan=step(exe, inner, each)))
        return (yield from _together(exe, scope, work, limit))
    finally:
        if key is None:
            scope.busy = ""


def _opened(scope: Scope, name: str, key: str | None, count: int, limit: int | None) -> str:
    """The identity of the call. It has no entry of its own: what its branches do is what is recorded."""
    if limit is not None and (type(limit) is not int or limit < 1):
        raise InvalidInput(f"limit must be 1 or more, not {limit!r}")
    if count > BRANCHES_MAX:
        raise InvalidInput(
            f"{name} of {count} branches; at most {BRANCHES_MAX} are allowed, use run.loop or child runs"
        )
    return scope.opened(name, key)


def _together(exe: Execution, scope: Scope, work: list[Branch], limit: int | None) -> Plan[list[Any]]:
    if exe.stopped is not None:
        raise exe.stopped
    if not work:
        return []
    if scope.pending:  # what was drawn before the branches must stand before them
        yield from exe.write(scope, [])
    results: list[Any] = yield Together(work, limit or min(len(work), exe.branches))
    raised = [result.error for result in results if isinstance(result, Raised)]
    for kind in _GRAVEST:
        for error in raised:
            if isinstance(error, kind):
                if kind is Cancelled:
                    scope.cleanup = True
                if kind is Suspended:
                    scope.stopped = error
                raise error
    if raised:
        raise raised[0]
    return results
