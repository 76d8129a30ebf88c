"""Concurrent branches (`map`, `gather`) and the durable loop.

Each branch and each turn of a loop has its own scope, so its calls have a stable identity. The end of each turn is a
checkpoint, and finished turns are never replayed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from holdfast.drivers import Plan
from holdfast.engine.commands import Branch, BranchError, EntryData, ReadState, RunParallel, Snapshot
from holdfast.engine.execution import Execution
from holdfast.engine.record import KEPT
from holdfast.engine.resume_point import LoopProgress
from holdfast.engine.scope import Scope
from holdfast.engine.steps import StepSpec, step
from holdfast.errors import (
    Cancelled,
    Diverged,
    Halted,
    Interrupt,
    InvalidInput,
    LeaseLost,
    MissingAwait,
    RunError,
    Suspended,
)
from holdfast.limits import BRANCHES_MAX

_MOST_SEVERE_FIRST: Final = (LeaseLost, Halted, Cancelled, Suspended)


class ParallelSpec(NamedTuple):
    """How branches run: at most `limit` at a time, under a key, with their errors raised or returned."""

    limit: int | None
    key: str | None = None
    return_exceptions: bool = False


def gather(
    exe: Execution, scope: Scope, branches: Sequence[Callable[..., object]], spec: ParallelSpec
) -> Plan[list[Any]]:
    """Run the branches concurrently and return their results in order."""
    for branch in branches:
        if not callable(branch):
            raise InvalidInput(f"gather takes functions of one argument, the branch's own run; {branch!r} is not one")
    return (yield from _fan_out(exe, scope, "gather", branches, lambda inner, fn: Branch(inner, fn=fn), spec))


def map_items(
    exe: Execution, scope: Scope, call: StepSpec, items: Iterable[object], spec: ParallelSpec
) -> Plan[list[Any]]:
    """Call a function for each item as a step, concurrently, and return the results in order."""
    try:
        things = list(items)
    except TypeError:
        raise InvalidInput(f"map takes a function and the items to call it with; {items!r} is not iterable") from None

    def to_branch(inner: Scope, item: Any) -> Branch:
        each = msgspec.structs.replace(call, args=(item, *call.args), key=None)
        return Branch(inner, plan=step(exe, inner, each))

    return (yield from _fan_out(exe, scope, "map", things, to_branch, spec))


def _fan_out(
    exe: Execution,
    scope: Scope,
    name: str,
    items: Sequence[object],
    to_branch: Callable[[Scope, Any], Branch],
    spec: ParallelSpec,
) -> Plan[list[Any]]:
    """Run a branch for each item. Records only their number: the entries of each branch are in its own scope."""
    count, keyed = len(items), spec.key is not None
    if spec.limit is not None and (type(spec.limit) is not int or spec.limit < 1):
        raise InvalidInput(f"limit must be 1 or more, not {spec.limit!r}")
    if count > BRANCHES_MAX:
        advice = f"at most {BRANCHES_MAX} are allowed, use run.loop or child runs"
        raise InvalidInput(f"{name} of {count} branches; {advice}")
    with scope.call(name, spec.key, (name,)) as (call, entries):
        if not entries:
            yield from exe.check_interrupts(scope, call, keyed)
            yield from exe.write(scope, [scope.entry(name, call, keyed, count=count)])
        elif entries[0]["count"] != count:
            found = scope.diverged(entries[0], call, (name,))
            found.args = (f"{found.args[0]} ({entries[0]['count']} branches then, {count} now)",)
            raise found
        work = [to_branch(scope.inner(f"{call}[{index}]", main=False), item) for index, item in enumerate(items)]
        return (yield from _run_branches(exe, scope, work, spec))


def _run_branches(exe: Execution, scope: Scope, work: list[Branch], spec: ParallelSpec) -> Plan[list[Any]]:
    if not work:
        return []
    results: list[object] = yield RunParallel(work, spec.limit or min(len(work), exe.branches))
    for branch in work:  # their pending entries join the next commit of this scope
        scope.pending += branch.scope.pending
        scope.take += branch.scope.take
    raised = [result.error for result in results if isinstance(result, BranchError)]
    raised += [branch.scope.stopped for branch in work if branch.scope.stopped is not None]  # even if swallowed
    for error in raised:  # the process or the task is shutting down
        if not isinstance(error, (Exception, Interrupt)):
            raise error
    for kind in _MOST_SEVERE_FIRST:
        for error in raised:
            if isinstance(error, kind):
                if kind is Cancelled:
                    scope.cleanup = True
                if kind is Suspended:
                    scope.stopped = error
                raise error
    for error in raised:  # an error in the workflow's code is not an outcome of a branch
        if not spec.return_exceptions or isinstance(error, (Diverged, MissingAwait)):
            raise error
    return [result.error if isinstance(result, BranchError) else result for result in results]


class Loop:
    """A loop in progress. `turn` is the next turn, counted from 1; `scope` is the scope of that turn."""

    __slots__ = ("at", "call", "outer", "scope", "turn")

    def __init__(self, call: str, outer: Scope, at: int, finished: int = 0) -> None:
        self.call = call
        self.outer = self.scope = outer
        self.at = at
        self.turn = finished
        self.next_turn()

    def next_turn(self) -> None:
        cleanup = self.scope.cleanup
        self.turn += 1
        self.scope = self.outer.inner(f"{self.call}[{self.turn}]", main=True)
        self.scope.cleanup = cleanup


def begin(exe: Execution, scope: Scope, key: str | None) -> Plan[Loop]:
    """Enter a loop at its first turn, or after its last finished turn, with the state of that turn."""
    if not scope.main:
        raise InvalidInput(
            "run.loop() belongs in the main flow of a run, not in a branch of gather; "
            "give the branch a child run with its own loop"
        )
    with scope.call("loop", key, ("loop",)) as (call, entries):
        if entries:
            at: int = entries[0]["position"]
        else:
            yield from exe.check_interrupts(scope, call, key is not None)
            written = yield from exe.write(scope, [scope.entry("loop", call, key is not None)])
            at = written.position
    mark = exe.resume_point.progress_of(scope.full_name(call))
    if mark is None:
        return Loop(call, scope, at)
    state, version = yield ReadState(mark.checkpoint)
    restore(exe, state, version)
    if exe.record.edits is not None:
        exe.record.edits.after_turn()
    return Loop(call, scope, at, mark.turn)


def restore(exe: Execution, state: dict[str, object], version: int) -> None:
    """Replace the state of the run by `state`, which that version of the workflow saved."""
    if version != exe.version and exe.upgrade is not None:
        try:
            state = exe.upgrade(state, version)
        except Exception as error:
            stopped = error if isinstance(error, RunError) else RunError(f"the upgrade of the state raised {error!r}")
            exe.record.diverged = stopped
            exe.interrupt_pending = True
            raise stopped from error
    exe.codec.replace_content(exe.state, state)


def end_turn(exe: Execution, loop: Loop) -> Plan[None]:
    """Write the checkpoint of a finished turn; earlier entries of the loop are no longer needed."""
    scope = loop.scope
    if scope.stopped is not None:
        raise scope.stopped
    if exe.stopped is not None:
        raise exe.stopped
    if any(entry["kind"] in KEPT for entry in scope.pending):  # these are kept by their positions, which must be known
        yield from exe.write(scope, [])
    mark = LoopProgress(loop.outer.full_name(loop.call), loop.turn, "", loop.at)
    entry: EntryData = {"kind": "turn", "loop": mark.call, "turn": loop.turn}
    if exe.unsatisfied:
        entry["unsatisfied"], exe.unsatisfied = exe.unsatisfied, ""
    metadata = exe.resume_point.metadata_at(exe.position, exe.version, mark)
    snapshot = Snapshot(exe.state, metadata, next_node=exe.next_node)
    written = yield from exe.write(scope, [entry], snapshot=snapshot)
    exe.resume_point.finish_turn(LoopProgress(mark.call, mark.turn, written.checkpoint_id, mark.at), written.position)
    loop.next_turn()
