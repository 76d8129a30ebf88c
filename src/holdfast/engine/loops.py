"""The durable loop: the end of each turn is a checkpoint, and finished turns are never replayed."""

from __future__ import annotations

from typing import Any

from holdfast.engine.commands import Plan, ReadState, Snapshot
from holdfast.engine.execution import Execution
from holdfast.engine.line import LoopMark
from holdfast.engine.record import KEPT
from holdfast.engine.scope import Scope
from holdfast.errors import InvalidInput, RunError

LOOP_KINDS = ("loop",)


class Loop:
    """A loop that was entered. `turn` is the turn that is to come next, counted from 1; `scope` is that turn's."""

    __slots__ = ("at", "call", "outer", "scope", "turn")

    def __init__(self, call: str, outer: Scope, at: int, turn: int) -> None:
        self.call = call
        self.outer = outer
        self.at = at
        self.turn = turn
        self.scope = self._inner()

    def _inner(self) -> Scope:
        return self.outer.inner(f"{self.call}[{self.turn}]", main=True)

    def next_turn(self) -> None:
        cleanup = self.scope.cleanup
        self.turn += 1
        self.scope = self._inner()
        self.scope.cleanup = cleanup


def begin(exe: Execution, scope: Scope, key: str | None) -> Plan[Loop]:
    """Enter a loop: from its first turn, or behind its last finished one, with the state of that moment."""
    if not scope.main:
        raise InvalidInput(
            "run.loop() belongs to the run's own line of work, not into a branch of gather; "
            "give the branch a child run with its own loop"
        )
    with scope.call("loop", key, LOOP_KINDS) as (call, entries):
        if entries:
            at: int = entries[0]["position"]
        else:
            yield from exe.attend(scope, call, key is not None)
            written = yield from exe.write(scope, [scope.entry("loop", call, key is not None)])
            at = written.position
    mark = exe.line.found(scope.named(call))
    if mark is None:
        return Loop(call, scope, at, 1)
    state, version = yield ReadState(mark.checkpoint)
    restore(exe, state, version)
    if exe.record.edits is not None:
        exe.record.edits.turn()
    return Loop(call, scope, at, mark.turn + 1)


def restore(exe: Execution, state: dict[str, Any], version: int) -> None:
    """Make `state`, saved under that version of the workflow, the run's."""
    if version != exe.version and exe.upgrade is not None:
        try:
            state = exe.upgrade(state, version)
        except Exception as error:
            stopped = error if isinstance(error, RunError) else RunError(f"the upgrade of the state raised {error!r}")
            exe.record.diverged = stopped
            exe.alarm = True
            raise stopped from error
    exe.state.clear()
    exe.state.update(state)


def end_turn(exe: Execution, loop: Loop) -> Plan[None]:
    """The turn is over: its checkpoint, and what came before in the loop does not matter any more."""
    scope = loop.scope
    if scope.stopped is not None:
        raise scope.stopped
    if exe.stopped is not None:
        raise exe.stopped
    if any(entry["kind"] in KEPT for entry in scope.pending):  # its position must be known to be kept
        yield from exe.write(scope, [])
    mark = LoopMark(loop.outer.named(loop.call), loop.turn, "", loop.at)
    entry: dict[str, Any] = {"kind": "turn", "loop": mark.call, "turn": loop.turn}
    if exe.unsatisfied:
        entry["unsatisfied"], exe.unsatisfied = exe.unsatisfied, ""
    snapshot = Snapshot(exe.state, exe.line.resume(exe.position, exe.version, mark), next_node=exe.next_node)
    written = yield from exe.write(scope, [entry], snapshot=snapshot)
    exe.line.finished(LoopMark(mark.call, mark.turn, written.checkpoint_id, mark.at), written.position)
    loop.next_turn()
