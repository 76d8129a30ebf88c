"""The wire between an app and its store. It can be cut, as death cuts it, and it counts what passes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from holdfast.errors import StorageFailed
from holdfast.model.commit import Commit, Outcome
from holdfast.model.rows import EntryRow
from holdfast.store.port import Kind, StorePort

_STILL_THERE = ("close", "announce", "owner_is_dead", "presence", "url", "clock")
CAPABILITIES = (
    "announce",
    "owner_is_dead",
    "dead_owners",
    "claims_of_dead",
    "remove_dead_owners",
    "presence",
    "confirm",
    "register_worker",
    "workers",
    "listen",
    "check",
    "describe",
)


class Wire:
    """A port that passes everything on to another one, until it is cut.

    To a process that dies and to one that can reach its store no more the same happens: what was committed is there,
    what was not is lost, and nothing is written any more.
    """

    def __init__(self, port: StorePort) -> None:
        self._port = port
        self._lock = threading.Lock()
        self.dead = False
        self.commits: list[Commit] = []
        self.rows_read = 0
        """How many journal entries were read."""
        self.before: Callable[[Commit], None] | None = None
        """Called before a commit is passed on; what it raises is what the store raises."""
        self._left: int | None = None
        self._late = False
        for name in CAPABILITIES:
            if hasattr(port, name):  # isinstance does not ask __getattr__
                setattr(self, name, partial(self._call, name))

    def cut(self) -> None:
        """From now on nothing passes."""
        self.dead = True

    def cut_after(self, commits: int, *, late: bool = False) -> None:
        """Let so many commits pass and cut at the next one; `late`: that one still arrives, but its answer does not."""
        self._left, self._late = commits, late

    def commit(self, commits: Sequence[Commit]) -> list[Outcome]:
        return [self._commit(commit) for commit in commits]

    def _commit(self, commit: Commit) -> Outcome:
        if self.before is not None:
            self.before(commit)
        with self._lock:
            late = False
            if self._left is not None and not self.dead:
                self._left -= 1
                self.dead = self._left < 0
                late = self.dead and self._late
            if self.dead and not late:
                raise StorageFailed("the wire was cut")
            self.commits.append(commit)
        outcome = self._port.commit([commit])[0]
        if late:
            raise StorageFailed("the wire was cut, after the commit had arrived")
        return outcome

    def rows(self, kind: type[Kind], *about: Any, **keys: Any) -> list[Kind]:
        if self.dead:
            raise StorageFailed("the wire was cut")
        rows = self._port.rows(kind, *about, **keys)
        self.rows_read += len(rows) if kind is EntryRow else 0
        return rows

    def _call(self, name: str, *about: Any, **options: Any) -> Any:
        """A capability of the port below."""
        if self.dead and name not in _STILL_THERE:
            raise StorageFailed("the wire was cut")
        return getattr(self._port, name)(*about, **options)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._port, name)
        if self.dead and name not in _STILL_THERE:
            return _refuse
        return found


def _refuse(*_: object, **__: object) -> Any:
    raise StorageFailed("the wire was cut")
