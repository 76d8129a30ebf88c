"""Signs of life: who announced itself and still lives, told by the system's locks.

Every owner has a file in a directory beside the data, named by 16 bytes of BLAKE3 over the owner's text, in hex; in it
stands that text, for people, and in a second line, as JSON, the workflows that a worker executes. Whoever announces
itself holds an flock on the file as long as its process lives. If the lock can be taken, the process has died; if there
is no file, nothing is known. The directory is removed with its last file: by the owner that leaves last, at the end of
the process if the store was not closed, or, of an owner that was killed, by the next process that opens and closes.

The lock belongs to the open file, which a forked child shares: the child closes its copy, and does not unlock, because
that would end the parent's sign as well. Everything that opens such a file is done behind one lock, so that no fork
comes in between and carries a file into a child that knows nothing of it.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import json
import os
import re
import threading
import time
import weakref
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final

from blake3 import blake3

from holdfast.errors import Conflict, HoldfastError, StorageFailed, StoreClosed
from holdfast.forking import watch, watch_restless

_PATIENCE_S: Final = 2.0
"""How long somebody who only looks may be in the way of an announcement."""
_REST_S: Final = 10.0
_PAUSE_S: Final = 0.005
_NAME: Final = re.compile(r"[0-9a-f]{32}")
"""The names of owners' files. Anything else in the directory is not removed."""


class _Signs:
    """The signs this process gives, for all its stores: handles and how many stores want them, by path."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.given: dict[str, tuple[int, int]] = {}
        self._locked = False
        watch_restless(self)

    def before_fork(self) -> None:
        self._locked = self.lock.acquire(timeout=_REST_S)

    def after_fork_in_parent(self) -> None:
        if self._locked:
            self.lock.release()

    def after_fork(self) -> None:
        """The signs are the parent's: let go of them, without ending them."""
        self.lock = threading.RLock()
        given, self.given = self.given, {}
        for handle, _ in given.values():
            with contextlib.suppress(OSError):
                os.close(handle)


_signs = _Signs()
_instances: weakref.WeakSet[Owners] = weakref.WeakSet()


@atexit.register
def _leave_all() -> None:
    """Processes that end without closing their stores leave no files behind, either."""
    for owners in list(_instances):
        with contextlib.suppress(HoldfastError, OSError):  # the next process removes what is left
            owners.leave()


class Owners:
    """The owners that share one store; `directory` is made when the first of them announces itself."""

    def __init__(self, directory: str, holding: Callable[[], Collection[str]] | None = None) -> None:
        """`holding` reads from the store which owners hold runs; it may raise HoldfastError."""
        self._directory = directory
        self._holding = holding
        self._announced: set[str] = set()
        watch(self)
        _instances.add(self)

    def after_fork(self) -> None:
        """What the parent announced, the child did not."""
        self._announced = set()

    def announce(self, owner: str) -> None:
        """Give the sign. Raises Conflict if another living process gives it already."""
        path, until = self._path(owner), time.monotonic() + _PATIENCE_S
        while True:
            with _signs.lock, self._translated():
                if path in self._announced:
                    return
                handle, stores = _signs.given.get(path) or (self._taken(path, owner), 0)
                if handle is not None:
                    _signs.given[path] = (handle, stores + 1)
                    self._announced.add(path)
                    return
            if time.monotonic() > until:
                raise Conflict(f"another living process announced itself as {owner!r}; each needs a name of its own")
            time.sleep(_PAUSE_S)

    def is_gone(self, owner: str) -> bool:
        """Whether the file is there and nobody holds its lock."""
        return self._is_free(self._path(owner))

    def _is_free(self, path: str) -> bool:
        with _signs.lock, contextlib.suppress(OSError):  # what cannot be looked at is not known
            while path not in _signs.given:
                handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
                try:
                    if not _lock(handle, fcntl.LOCK_SH):
                        return False
                    if _is_at(handle, path):
                        return True
                finally:
                    os.close(handle)
        return False

    def lives(self, owner: str) -> bool:
        """Whether the sign is given now: the file is there, and its lock is not free."""
        path = self._path(owner)
        with _signs.lock:
            return path in _signs.given or (os.path.exists(path) and not self.is_gone(owner))

    def write_workflows(self, owner: str, workflows: Sequence[str]) -> None:
        """Write into the owner's file what it executes; it must have announced itself here."""
        path = self._path(owner)
        with _signs.lock, self._translated():
            if path not in self._announced:
                raise StoreClosed(f"{self._directory}: owner {owner!r} is not announced there; the store was closed")
            handle, _ = _signs.given[path]
            text = _first_line(owner) + (json.dumps(list(workflows)).encode() + b"\n" if workflows else b"")
            os.pwrite(handle, text, 0)
            os.ftruncate(handle, len(text))

    def workflows(self) -> dict[str, tuple[str, ...]]:
        """What each living owner executes, if it executes anything."""
        found: dict[str, tuple[str, ...]] = {}
        try:
            names = sorted(os.listdir(self._directory))
        except OSError:
            return found
        for path in (os.path.join(self._directory, name) for name in names):
            with contextlib.suppress(OSError, ValueError):  # removed, or just being written
                with open(path, encoding="utf-8") as file:
                    owner, text = file.readline().rstrip("\n"), file.readline()
                if text and self._path(owner) == path and self.lives(owner):
                    found[owner] = tuple(json.loads(text))
        return found

    def bury(self, holding: Collection[str] = ()) -> None:
        """Remove the files of all owners that died, except of those that hold runs; then the directory, if it is empty.

        Which owners hold runs is read again after the dead ones were found: a dead owner claims nothing more, but one
        may have claimed a run and died since `holding` was read. Its file is the proof that the run may be taken over.
        """
        dead = self._dead() - {self._path(owner) for owner in holding}
        if dead and self._holding is not None:
            dead -= {self._path(owner) for owner in self._holding()}
        with _signs.lock:
            for path in dead - _signs.given.keys():
                with contextlib.suppress(OSError):  # the next process removes it
                    self._bury(path)
            with contextlib.suppress(OSError):  # it has files of others, or is not there
                os.rmdir(self._directory)

    def _dead(self) -> set[str]:
        """The files whose owners died."""
        try:
            names = os.listdir(self._directory)
        except OSError:
            return set()
        paths = {os.path.join(self._directory, name) for name in names if _NAME.fullmatch(name)}
        return {path for path in paths if self._is_free(path)}

    def _bury(self, path: str) -> None:
        handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            if _lock(handle, fcntl.LOCK_EX) and _is_at(handle, path):
                os.unlink(path)
        finally:
            os.close(handle)

    def close(self) -> None:
        """End the signs that were given for this store, and leave nothing behind."""
        with _signs.lock:
            announced, self._announced = self._announced, set()
            for path in announced:
                self._end(path)
        with contextlib.suppress(HoldfastError):  # the next process removes what is left
            self.bury()

    def leave(self) -> None:
        """Close at the end of the process, but leave the files of owners that hold runs: they prove that it ended."""
        if not self._announced and not os.path.isdir(self._directory):
            return
        held = {self._path(owner) for owner in self._holding()} if self._holding is not None else self._announced
        with _signs.lock:
            for path in self._announced - held:
                self._announced.remove(path)
                self._end(path)
        self.bury()

    def _end(self, path: str) -> None:
        """End one sign, unless another store of this process gives it, too."""
        handle, stores = _signs.given.pop(path)
        if stores > 1:
            _signs.given[path] = (handle, stores - 1)
            return
        with contextlib.suppress(OSError):
            if _is_at(handle, path):
                os.unlink(path)  # while the lock is held: no process may take it for the file of a dead one
        os.close(handle)

    def _taken(self, path: str, owner: str) -> int | None:
        """A handle that holds the lock of the file at `path`; None if somebody else holds it."""
        while True:
            try:
                handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            except FileNotFoundError:  # it is the first, or the last has just removed the directory
                try:
                    os.mkdir(self._directory, 0o700)
                except FileExistsError:
                    if os.path.islink(self._directory) and not os.path.isdir(self._directory):
                        raise  # a link that leads nowhere
                continue
            try:
                if not _lock(handle, fcntl.LOCK_EX):
                    os.close(handle)
                    return None
                if _is_at(handle, path):
                    os.ftruncate(handle, 0)
                    os.pwrite(handle, _first_line(owner), 0)
                    return handle
            except BaseException:
                os.close(handle)
                raise
            os.close(handle)  # it was removed before its lock was taken: whoever looks finds another, or none

    def _path(self, owner: str) -> str:
        return os.path.join(self._directory, blake3(owner.encode(errors="surrogatepass")).hexdigest(16))

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StorageFailed(f"{self._directory}: a sign of life cannot be given there ({error})") from error


def _first_line(owner: str) -> bytes:
    return owner.encode(errors="replace") + b"\n"


def _lock(handle: int, kind: int) -> bool:
    """Take the lock of an open file; False if somebody has it."""
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_at(handle: int, path: str) -> bool:
    """Whether the open file is the one that has this name."""
    try:
        there = os.stat(path)
    except FileNotFoundError:
        return False
    return os.path.samestat(os.fstat(handle), there)
