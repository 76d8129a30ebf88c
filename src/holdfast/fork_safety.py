"""Hooks that make locks, threads, connections and caches safe across a fork.

A child process has only the thread that forked. A lock that another thread held stays locked in it forever, a pool has
no threads, and a connection belongs to the parent. Objects with such resources register here and are reset in the
child. Objects that must not be in use during the fork are also quiesced before it, and resumed in the parent.

Python locks a module while a thread imports it, and does not unlock it in a child. So late imports happen under
`loading`, for which a fork waits.
"""

from __future__ import annotations

import os
import sys
import threading
import weakref

TYPE_CHECKING = False  # as in typing, which `import holdfast` must not load
if TYPE_CHECKING:
    from typing import Final, Protocol

    class Forked(Protocol):
        """An object that is reset in a child process."""

        def after_fork(self) -> None: ...

    class Quiesced(Forked, Protocol):
        """An object that must not be in use while the process is forked."""

        def before_fork(self) -> None: ...

        def after_fork_in_parent(self) -> None: ...


_IMPORT_WAIT_S: Final = 10.0

loading = threading.RLock()
"""Held during late imports."""


_watched: weakref.WeakSet[Forked] = weakref.WeakSet()
_quiesced: weakref.WeakSet[Quiesced] = weakref.WeakSet()
_paused: list[Quiesced] = []
_waited = False


def reset_after_fork(thing: Forked) -> None:
    """Call `thing.after_fork` in every child process, as long as `thing` exists."""
    _watched.add(thing)


def quiesce_before_fork(thing: Quiesced) -> None:
    """Quiesce `thing` before every fork; then it is resumed in the parent and reset in the child."""
    _quiesced.add(thing)


def _before() -> None:
    global _waited
    with _LoggingUnlocked():
        _waited = loading.acquire(timeout=_IMPORT_WAIT_S)
    for thing in list(_quiesced):
        thing.before_fork()
        _paused.append(thing)


class _LoggingUnlocked:
    """Lets other threads make loggers: Python locks them for a fork, perhaps before this module's turn.

    An import that makes a logger would else wait for the fork that waits for it.
    """

    def __enter__(self) -> None:
        self._lock = getattr(sys.modules.get("logging"), "_lock", None)
        try:
            if self._lock is not None:
                self._lock.release()
        except RuntimeError:  # this thread does not hold it
            self._lock = None

    def __exit__(self, *_: object) -> None:
        if self._lock is not None:
            self._lock.acquire()


def _in_parent() -> None:
    if _waited:
        loading.release()
    while _paused:
        _paused.pop().after_fork_in_parent()


def _in_child() -> None:
    global loading
    loading = threading.RLock()
    while _paused:
        _paused.pop().after_fork()
    for thing in list(_watched):
        thing.after_fork()


os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
