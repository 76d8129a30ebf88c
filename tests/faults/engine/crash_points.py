"""Crash points: before and after every command the engine yields, and every commit somebody else makes.

The seam is put into the process that is to die, and nowhere else: the interpreter, through which all commands go,
and the stores' commit, through which everything goes that outsiders do (create, answer, deliver).
"""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Callable, Generator, Sequence
from typing import Any

from holdfast.engine import gates, steps
from holdfast.model.commit import HOLDER, Commit
from holdfast.runtime.interpreter import Interpreter
from holdfast.store.postgres.postgres_store import PostgresStore
from holdfast.store.sqlite.sqlite_store import SqliteStore

_SHORT_US = 5_000


def die() -> None:
    """As a machine that is switched off, as far as this process goes."""
    os.kill(os.getpid(), signal.SIGKILL)


class Points:
    """Counts the points of this process and does `act` at one of them."""

    def __init__(self, at: int | None, act: Callable[[], None] = die) -> None:
        self._at = at
        self._act = act
        self._numbers = itertools.count()
        self.names: list[str] = []
        self.armed = True
        """Whether points count."""

    def come_to(self, name: str) -> None:
        """A point is reached."""
        if not self.armed:
            return
        number = next(self._numbers)
        self.names.append(name)
        if number == self._at:
            self._act()

    def install(self) -> Points:
        """Put the seam into this process, which must be one of its own."""
        self._watch_interpreter()
        self._watch_stores()
        # Waits of some milliseconds already give the run back, so that timers are used too.
        for module in (gates, steps):
            setattr(module, "SHORT_WAIT_US", _SHORT_US)  # noqa: B010 - a constant, for everybody else
        return self

    def _watch_interpreter(self) -> None:
        carried = Interpreter._execute

        def watched(interpreter: Interpreter, command: Any) -> Generator[Any, Any, Any]:
            name = type(command).__name__
            self.come_to(f"before {name}")
            try:
                return (yield from carried(interpreter, command))
            finally:
                self.come_to(f"after {name}")

        Interpreter._execute = watched  # type: ignore[method-assign,assignment]

    def _watch_stores(self) -> None:
        for store in (SqliteStore, PostgresStore):
            self._watch_store(store)

    def _watch_store(self, store: Any) -> None:
        commit = store.commit

        def watched(this: Any, commits: Sequence[Commit]) -> Any:
            if all(one.guard.kind == HOLDER for one in commits):
                return commit(this, commits)
            self.come_to("before an outsider's commit")
            outcomes = commit(this, commits)
            self.come_to("after an outsider's commit")
            return outcomes

        store.commit = watched
