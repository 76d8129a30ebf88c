"""Known defects, put back for a while: the harness must find each of them within its budget."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple
from unittest import mock

import msgspec

from holdfast.engine import children, completion, effects, journal_cut
from holdfast.engine.commands import Send, Write, Written
from holdfast.engine.failures import NOT_DONE
from holdfast.operations import checkpoint_needs, fork, run_tree
from holdfast.runtime import children as descendants
from holdfast.runtime import interpreter, rollback, run_base, run_history
from holdfast.runtime.interpreter import Interpreter
from tests.faults.engine.mutants import engine_mutated


class Mutant(NamedTuple):
    """A defect: how it is put back, and by which problems it shows."""

    make: Callable[[], Any]
    kinds: tuple[str, ...]
    often: tuple[str, ...] = ()
    """Features that lead to it."""
    without: tuple[str, ...] = ()
    """Features that lead elsewhere."""
    case: str = ""
    """A case of the corpus that shows it, where random ones seldom do."""


@contextlib.contextmanager
def _children_not_undone() -> Iterator[None]:
    """A rollback over a finished child leaves what the child did."""
    with (
        mock.patch.object(rollback, "descendants", return_value=[]),
        mock.patch.object(interpreter, "attached_lines", return_value=[]),
    ):
        yield


def _children_repeated_by_forks() -> Any:
    """The child of a fork performs again what the child of its source performed."""
    return mock.patch.object(descendants.FamilyChildren, "find", return_value=None)


def _second_end_unnoticed() -> Any:
    """A child that is rolled back and ends again wakes its parent under the key of its first end."""

    def wake_parent(exe: Any, parent: dict[str, Any]) -> Send:
        name = children.wake_name(parent["call"])
        return Send(parent["run"], "event", name, f"ended/{exe.run_id}/{exe.incarnation.hex()}")

    return mock.patch.object(completion, "wake_parent", wake_parent)


def _detached_started_again() -> Any:
    """Nothing records that a detached child was started, so each replay starts it again."""
    write = Interpreter._write

    def written(holder: Interpreter, command: Write) -> Any:
        command.entries = [entry for entry in command.entries if entry["kind"] != "child_started"]
        if command.is_plain and not command.entries:
            return Written(holder.exe.position, 0, "running")
        return (yield from write(holder, command))

    return mock.patch.object(Interpreter, "_write", written)


def _events_lost() -> Any:
    """A rollback past wait_for does not put the event back into the inbox."""
    cut_at = journal_cut.cut_at

    def cut(*arguments: Any, **options: Any) -> Any:
        found = cut_at(*arguments, **options)
        found.events.clear()
        return found

    return mock.patch.object(rollback, "cut_at", cut)


@contextlib.contextmanager
def _rollbacks_pruned() -> Iterator[None]:
    """Prune removes the entries that say what rollbacks took back, and a place that needs pruned entries is taken."""
    with (
        mock.patch.object(checkpoint_needs, "_LASTING", frozenset()),
        mock.patch.object(run_history.RunHistory, "_check_reachable", return_value=None),
    ):
        yield


def _rollback_not_pinned() -> Any:
    """Prune removes what an open rollback goes back to."""
    return mock.patch.object(rollback, "_pin", return_value=())


def _rollback_forked() -> Any:
    """A fork of a run whose rollback is open carries the rollback out, too."""
    return mock.patch.object(run_history.RunHistory, "_check_open_rollback", return_value=None)


def _waits_not_copied() -> Any:
    """A copy has neither the gates nor the timers nor the inbox of its source."""
    recreate = fork.recreate

    def without(*arguments: Any, **options: Any) -> Any:
        return msgspec.structs.replace(recreate(*arguments, **options), timers=(), restore=None)

    return mock.patch.object(fork, "recreate", without)


@contextlib.contextmanager
def _children_shared_by_copies() -> Iterator[None]:
    """A copy takes the children of its source for its own."""
    read_tree = run_tree.read_tree

    def alone(*arguments: Any) -> Any:
        return read_tree(*arguments)._replace(children=[])

    def unchanged(_: Any, tree: Any, new_id: str) -> Any:
        return [(new_id, tree.rows)]

    with mock.patch.object(fork, "read_tree", alone), mock.patch.object(fork, "rename", unchanged):
        yield


def _timeouts_taken_for_failures() -> Any:
    """An effect that was performed and then raised TimeoutError counts as not done."""
    return mock.patch.object(effects, "judge", return_value=NOT_DONE)


def _missing_await_ignored() -> Any:
    """A call that is not awaited passes silently."""
    return mock.patch.object(run_base.UnawaitedCall, "__del__", lambda call: call._exe.unawaited.pop(id(call), None))


def _of_engine(name: str) -> Callable[[], Any]:
    return lambda: engine_mutated(name)


_FEW: Final = ("parallel", "peer", "forgotten", "cancel", "force")
_NO_BRANCH: Final = (*_FEW, "fork", "copy", "move")
_PLAIN: Final = (*_NO_BRANCH, "child", "wait", "gather")

MUTANTS: Final = {
    "children_not_undone": Mutant(_children_not_undone, ("twice",), ("child", "rollback"), _NO_BRANCH),
    "children_repeated_by_forks": Mutant(
        _children_repeated_by_forks, ("twice",), ("child", "fork"), (*_FEW, "copy", "move", "rollback")
    ),
    "second_end_unnoticed": Mutant(
        _second_end_unnoticed, ("stuck",), ("child", "ask", "pause", "answer", "rollback"), _NO_BRANCH,
        "a child that ends twice",
    ),
    "detached_started_again": Mutant(_detached_started_again, ("replay", "diverged", "twice"), ("detached", "child")),
    "events_lost": Mutant(_events_lost, ("event", "stuck"), ("wait", "send", "rollback"), (*_NO_BRANCH, "child")),
    "rollbacks_pruned": Mutant(_rollbacks_pruned, ("damaged", "replay", "prune"), ("rollback", "prune"), _PLAIN),
    "rollback_not_pinned": Mutant(
        _rollback_not_pinned, ("damaged", "replay"), ("rollback", "prune", "crash", "note", "checkpoint"), _PLAIN
    ),
    "rollback_forked": Mutant(
        _rollback_forked, ("undone", "damaged", "stuck", "ledger", "verify"), ("rollback", "fork", "fault", "crash"),
        (*_FEW, "copy", "move", "child"), "a fork while a rollback is open",
    ),
    "waits_not_copied": Mutant(_waits_not_copied, ("stuck",), ("ask", "copy", "move"), _FEW),
    "children_shared_by_copies": Mutant(
        _children_shared_by_copies, ("independence", "replay", "failed", "stuck", "twice"), ("child", "ask", "copy"),
        (*_FEW, "fork"),
    ),
    "timeouts_taken_for_failures": Mutant(
        _timeouts_taken_for_failures, ("repeated", "result", "ledger"), ("fault", "timeout")
    ),
    "missing_await_ignored": Mutant(_missing_await_ignored, ("result",), ("forgotten",), _NO_BRANCH),
    "effect_without_intent": Mutant(_of_engine("effect_without_intent"), ("unannounced",)),
    "doubt_ignored": Mutant(_of_engine("doubt_ignored"), ("repeated",), ("crash",)),
    "undo_not_recorded": Mutant(_of_engine("undo_not_recorded"), ("undone", "ledger", "hang"), ("rollback",)),
    "parents_not_woken": Mutant(_of_engine("parents_not_woken"), ("stuck",), ("child", "ask")),
}  # fmt: skip


@contextlib.contextmanager
def mutated(name: str | None) -> Iterator[None]:
    """Put a defect back for a while; None changes nothing."""
    if name is None:
        yield
        return
    with MUTANTS[name].make():
        yield
