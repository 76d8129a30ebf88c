"""What must not be carried over into a forked process: locks, threads, connections, random bytes fetched in advance.

A child has only the thread that forked. A lock another thread held stays locked in it for ever, a pool has no threads,
a connection is still the parent's. Whoever has such things is watched, and starts anew in the child. Whoever has things
that must be at rest in the moment of the fork also says how to bring them to rest, and how to go on in the parent.

Python itself locks a module while a thread imports it, and does not unlock it in a child. So what is imported late is
imported under `loading`, for which a fork waits.
"""

from __future__ import annotations

import os
import threading
import weakref

TYPE_CHECKING = False  # as in typing, which everybody who imports holdfast would load for this
if TYPE_CHECKING:
    from typing import Final, Protocol

    class Forked(Protocol):
        """Something that starts anew in a child process."""

        def after_fork(self) -> None: ...

    class Restless(Forked, Protocol):
        """Something that must be at rest while the process is forked."""

        def before_fork(self) -> None: ...

        def after_fork_in_parent(self) -> None: ...


_PATIENCE_S: Final = 10.0

loading = threading.RLock()
"""Held while something is imported late."""


_watched: weakref.WeakSet[Forked] = weakref.WeakSet()
_restless: weakref.WeakSet[Restless] = weakref.WeakSet()
_resting: list[Restless] = []
_waited = False


def watch(thing: Forked) -> None:
    """Call `thing.after_fork` in every child process, as long as `thing` lives."""
    _watched.add(thing)


def watch_restless(thing: Restless) -> None:
    """Bring `thing` to rest for every fork; then it goes on in the parent and starts anew in the child."""
    _restless.add(thing)


def _before() -> None:
    global _waited
    _waited = loading.acquire(timeout=_PATIENCE_S)
    for thing in list(_restless):
        thing.before_fork()
        _resting.append(thing)


def _in_parent() -> None:
    if _waited:
        loading.release()
    while _resting:
        _resting.pop().after_fork_in_parent()


def _in_child() -> None:
    global loading
    loading = threading.RLock()
    while _resting:
        _resting.pop().after_fork()
    for thing in list(_watched):
        thing.after_fork()


os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
