"""Side by side: `map` over items and `gather` of branches, each in a scope of its own, so with stable identity."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import msgspec

from holdfast.engine.commands import Branch, EntryData, Plan, Raised, Together
from holdfast.engine.execution import Execution
from holdfast.engine.scope import InCall, Scope
from holdfast.engine.steps import Spec, step
from holdfast.errors import Cancelled, Diverged, Halted, Interrupt, InvalidInput, LeaseLost, MissingAwait, Suspended
from holdfast.limits import BRANCHES_MAX

_GRAVEST: Final = (LeaseLost, Halted, Cancelled, Suspended)


def gather(
    exe: Execution, scope: Scope, branches: Sequence[Callable[[Any], Any]], limit: int | None, key: str | None, *,
    return_exceptions: bool = False,
) -> Plan[list[Any]]:  # fmt: skip
    """Do the branches side by side and give their results in order."""
    for branch in branches:
        if not callable(branch):
            raise InvalidInput(f"gather takes functions of one argument, the branch's own run; {branch!r} is none")
    with _call(scope, "gather", key, len(branches), limit) as (call, entries):
        yield from _begun(exe, scope, "gather", call, key, entries, len(branches))
        work = [Branch(scope.inner(f"{call}[{index}]", main=False), fn=branch) for index, branch in enumerate(branches)]
        return (yield from _together(exe, scope, work, limit, return_exceptions))


def map_items(
    exe: Execution, scope: Scope, spec: Spec, items: Iterable[Any], limit: int | None, key: str | None, *,
    return_exceptions: bool = False,
) -> Plan[list[Any]]:  # fmt: skip
    """Call a function for each item, each as a step, side by side, and give the results in order."""
    try:
        things = list(items)
    except TypeError:
        raise InvalidInput(
            f"map takes a function and the items it is called with; {items!r} is no list of items"
        ) from None
    with _call(scope, "map", key, len(things), limit) as (call, entries):
        yield from _begun(exe, scope, "map", call, key, entries, len(things))
        work = []
        for index, item in enumerate(things):
            inner = scope.inner(f"{call}[{index}]", main=False)
            each = msgspec.structs.replace(spec, args=(item, *spec.args), key=None)
            work.append(Branch(inner, plan=step(exe, inner, each)))
        return (yield from _together(exe, scope, work, limit, return_exceptions))


def _call(scope: Scope, name: str, key: str | None, count: int, limit: int | None) -> InCall:
    if limit is not None and (type(limit) is not int or limit < 1):
        raise InvalidInput(f"limit must be 1 or more, not {limit!r}")
    if count > BRANCHES_MAX:
        raise InvalidInput(
            f"{name} of {count} branches; at most {BRANCHES_MAX} are allowed, use run.loop or child runs"
        )
    return scope.call(name, key, (name,))


def _begun(
    exe: Execution, scope: Scope, name: str, call: str, key: str | None, entries: list[EntryData], count: int
) -> Plan[None]:
    """Record that so many branches begin; what each does is recorded in its own scope."""
    if entries and entries[0]["count"] != count:
        found = scope.diverged(entries[0], call, (name,))
        found.args = (f"{found.args[0]} ({entries[0]['count']} branches then, {count} now)",)
        raise found
    if not entries:
        yield from exe.attend(scope, call, key is not None)
        yield from exe.write(scope, [scope.entry(name, call, key is not None, count=count)])


def _together(
    exe: Execution, scope: Scope, work: list[Branch], limit: int | None, return_exceptions: bool
) -> Plan[list[Any]]:
    if not work:
        return []
    results: list[Any] = yield Together(work, limit or min(len(work), exe.branches))
    for branch in work:  # what they have not written yet travels with the next commit of this scope
        scope.pending += branch.scope.pending
        scope.take += branch.scope.take
    raised = [result.error for result in results if isinstance(result, Raised)]
    raised += [branch.scope.stopped for branch in work if branch.scope.stopped is not None]  # even if it was swallowed
    for error in raised:  # the process or the task is being ended
        if not isinstance(error, (Exception, Interrupt)):
            raise error
    for kind in _GRAVEST:
        for error in raised:
            if isinstance(error, kind):
                if kind is Cancelled:
                    scope.cleanup = True
                if kind is Suspended:
                    scope.stopped = error
                raise error
    for error in raised:  # a mistake in the code is not an outcome of a branch
        if not return_exceptions or isinstance(error, (Diverged, MissingAwait)):
            raise error
    return [result.error if isinstance(result, Raised) else result for result in results]
