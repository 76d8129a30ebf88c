"""What must not be carried over into a forked process: locks, threads, connections, random bytes fetched in advance.

A child has only the thread that forked. A lock another thread held stays locked in it for ever, a pool has no threads,
a connection is still the parent's. Whoever has such things says so here, and starts anew in the child.
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class Forked(Protocol):
    """Something that starts anew in a child process."""

    def after_fork(self) -> None: ...


_watched: weakref.WeakSet[Forked] = weakref.WeakSet()


def watch(thing: Forked) -> None:
    """Call `thing.after_fork` in every child process, as long as `thing` lives."""
    _watched.add(thing)


def _start_anew() -> None:
    for thing in list(_watched):
        thing.after_fork()


os.register_at_fork(after_in_child=_start_anew)
