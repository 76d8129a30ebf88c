"""Owner locks: files that prove whether the owner of a run is alive. Used by stores on a local disk.

Every owner that announces itself has a file in a directory beside the data. The file is named by 16 bytes of BLAKE3
over the owner's name, in hex. It holds that name, for people, and in a second line, as JSON, the workflows that a
worker executes. The owner's process holds an flock on the file as long as it lives. If the lock can be taken, the
process has died; if there is no file, nothing is known. The directory is removed with its last file: by the owner that
leaves last, at the end of the process if the store was not closed, or, if an owner was killed, by the next process that
opens and closes the store.

The lock belongs to the open file, which a forked child shares: the child closes its copy and does not unlock it, as
that would release the parent's lock, too. Every such file is opened under one lock of this process, so that no fork
carries an open file into a child that does not know of it.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import re
import threading
import time
import weakref
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final

from blake3 import blake3

from holdfast.errors import Conflict, HoldfastError, StorageFailed, StoreClosed
from holdfast.files.lock import try_lock_file
from holdfast.files.os_files import Files, SystemFiles
from holdfast.fork_safety import quiesce_before_fork, reset_after_fork
from holdfast.model.rows import RunRow
from holdfast.store.capabilities import Liveness, Presence
from holdfast.store.port import RunQuery, StorePort

_ANNOUNCE_S: Final = 2.0
"""How long another process that only tests the lock may delay an announcement."""
_FORK_WAIT_S: Final = 10.0
_PAUSE_S: Final = 0.005
_CLAIMS_BATCH: Final = 1000
_NAME: Final = re.compile(r"[0-9a-f]{32}")
"""The names of owners' files. Anything else in the directory is not removed."""


class _HeldLocks:
    """The owner locks that this process holds, for all its stores."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.handles: dict[str, tuple[int, int]] = {}
        """By path: the handle, and how many stores use it."""
        self._is_locked = False
        quiesce_before_fork(self)

    def before_fork(self) -> None:
        self._is_locked = self.lock.acquire(timeout=_FORK_WAIT_S)

    def after_fork_in_parent(self) -> None:
        if self._is_locked:
            self.lock.release()

    def after_fork(self) -> None:
        """Close the parent's handles, without unlocking them."""
        self.lock = threading.RLock()
        handles, self.handles = self.handles, {}
        for handle, _ in handles.values():
            with contextlib.suppress(OSError):
                SystemFiles().close(handle)


_held_locks = _HeldLocks()
_instances: weakref.WeakSet[OwnerLocks] = weakref.WeakSet()


@atexit.register
def _leave_all() -> None:
    """Remove the files of owners whose process ends without closing its stores."""
    for owners in list(_instances):
        with contextlib.suppress(HoldfastError, OSError):  # the next process removes what is left
            owners.leave()


class OwnerLocks:
    """The owners that share one store; `directory` is made when the first of them announces itself."""

    def __init__(
        self, directory: str, holding: Callable[[], Collection[str]] | None = None, *, files: Files | None = None
    ) -> None:
        """`holding` reads from the store which owners hold runs; it may raise HoldfastError."""
        self._directory = directory
        self._holding = holding
        self._files = files or SystemFiles()
        self._announced: set[str] = set()
        reset_after_fork(self)
        _instances.add(self)

    def after_fork(self) -> None:
        """Forget what the parent announced: the child did not."""
        self._announced = set()

    def announce(self, owner: str) -> None:
        """Take the owner's lock. Raises Conflict if another living process holds it."""
        path, until = self._path(owner), time.monotonic() + _ANNOUNCE_S
        while True:
            with _held_locks.lock, self._translate_os_errors():
                if path in self._announced:
                    return
                handle, stores = _held_locks.handles.get(path) or (self._lock_file(path, owner), 0)
                if handle is not None:
                    _held_locks.handles[path] = (handle, stores + 1)
                    self._announced.add(path)
                    return
            if time.monotonic() > until:
                raise Conflict(f"owner {owner!r} is announced by another living process; use another name")
            time.sleep(_PAUSE_S)

    def owner_is_dead(self, owner: str) -> bool:
        """Whether the owner's file exists and no process holds its lock."""
        return self._is_unlocked(self._path(owner))

    def _is_unlocked(self, path: str) -> bool:
        with _held_locks.lock, contextlib.suppress(OSError):  # nothing is known of what cannot be opened
            if path not in _held_locks.handles:
                handle = try_lock_file(self._files, path, shared=True)
                if handle is not None:
                    self._files.close(handle)
                    return True
        return False

    def is_alive(self, owner: str) -> bool:
        """Whether the owner's file exists and a process holds its lock."""
        path = self._path(owner)
        with _held_locks.lock:
            return path in _held_locks.handles or (self._exists(path) and not self._is_unlocked(path))

    def _exists(self, path: str) -> bool:
        try:
            return self._files.identity(path) is not None
        except OSError:
            return False

    def write_workflows(self, owner: str, workflows: Sequence[str]) -> None:
        """Write into the owner's file which workflows it executes; the owner must be announced here."""
        path = self._path(owner)
        with _held_locks.lock, self._translate_os_errors():
            if path not in self._announced:
                raise StoreClosed(f"{self._directory}: owner {owner!r} is not announced there; the store was closed")
            handle, _ = _held_locks.handles[path]
            text = _first_line(owner) + (json.dumps(list(workflows)).encode() + b"\n" if workflows else b"")
            self._files.write_note(handle, text)
            self._files.truncate(handle, len(text))

    def workflows(self) -> dict[str, tuple[str, ...]]:
        """Return which workflows each living owner executes, of those that execute any."""
        found: dict[str, tuple[str, ...]] = {}
        for path in sorted(self._paths()):
            with contextlib.suppress(OSError, ValueError):  # removed, or just being written
                owner, text, *_ = [*self._files.read(path).decode().split("\n"), ""]
                if text and self._path(owner) == path and self.is_alive(owner):
                    found[owner] = tuple(json.loads(text))
        return found

    def _paths(self) -> set[str]:
        """Return the owners' files."""
        try:
            names = self._files.listdir(self._directory)
        except OSError:
            return set()
        return {os.path.join(self._directory, name) for name in names if _NAME.fullmatch(name)}

    def remove_dead_owners(self, holding: Collection[str] = ()) -> None:
        """Remove the files of dead owners that hold no runs; then the directory, if it is empty.

        Which owners hold runs is read again after the dead ones were found: a dead owner claims nothing more, but one
        may have claimed a run and died since `holding` was read. Its file is the proof that the run may be taken over.
        """
        dead = {path for path in self._paths() if self._is_unlocked(path)} - {self._path(owner) for owner in holding}
        if dead and self._holding is not None:
            dead -= {self._path(owner) for owner in self._holding()}
        with _held_locks.lock:
            for path in dead - _held_locks.handles.keys():
                with contextlib.suppress(OSError):  # the next process removes it
                    self._remove_file(path)
            with contextlib.suppress(OSError):  # it is not empty, or missing
                self._files.rmdir(self._directory)

    def _remove_file(self, path: str) -> None:
        handle = try_lock_file(self._files, path)
        if handle is not None:
            try:
                self._files.unlink(path)
            finally:
                self._files.close(handle)

    def close(self) -> None:
        """Release the locks that were taken for this store, and remove their files.

        The locks of owners that still hold runs are kept until the process ends: then others know that it has.
        """
        try:
            held = {self._path(owner) for owner in self._holding()} if self._announced and self._holding else set()
        except HoldfastError:
            held = self._announced.copy()
        with _held_locks.lock:
            announced, self._announced = self._announced, set()
            for path in announced - held:
                self._release(path)
        with contextlib.suppress(HoldfastError):  # the next process removes what is left
            self.remove_dead_owners()

    def leave(self) -> None:
        """Close at the end of the process, but leave the files of owners that hold runs: they prove that it ended."""
        if not self._announced and not self._exists(self._directory):
            return
        held = {self._path(owner) for owner in self._holding()} if self._holding is not None else self._announced
        with _held_locks.lock:
            for path in self._announced - held:
                self._announced.remove(path)
                self._release(path)
        self.remove_dead_owners()

    def _release(self, path: str) -> None:
        """Release one lock and remove its file, unless another store of this process uses it."""
        handle, stores = _held_locks.handles.pop(path)
        if stores > 1:
            _held_locks.handles[path] = (handle, stores - 1)
            return
        with contextlib.suppress(OSError):
            if self._files.is_at(handle, path):
                self._files.unlink(path)  # while the lock is held, so that no process takes it for a dead owner's
        self._files.close(handle)

    def _lock_file(self, path: str, owner: str) -> int | None:
        """Return a handle that holds the lock of the owner's file; None if another process holds it."""
        while True:
            try:
                handle = try_lock_file(self._files, path, create=True)
                break
            except FileNotFoundError:  # the directory is not made yet, or the last owner has just removed it
                self._files.mkdir(self._directory)
                if os.path.islink(self._directory) and not os.path.isdir(self._directory):
                    raise  # a link that leads nowhere
        if handle is not None:
            try:
                self._files.truncate(handle, 0)
                self._files.write_note(handle, _first_line(owner))
            except BaseException:
                self._files.close(handle)
                raise
        return handle

    def _path(self, owner: str) -> str:
        return os.path.join(self._directory, blake3(owner.encode(errors="surrogatepass")).hexdigest(16))

    @contextlib.contextmanager
    def _translate_os_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StorageFailed(f"{self._directory}: the owner's file cannot be written ({error})") from error


def all_claims(port: StorePort) -> list[RunRow]:
    """All runs that have an owner, newest first."""
    claims: list[RunRow] = []
    query = RunQuery(claimed="any", limit=_CLAIMS_BATCH)
    while rows := port.runs(query):
        claims += rows
        query = query._replace(before=rows[-1].run)
    return claims


def claims_of_dead(port: StorePort, liveness: Liveness) -> list[RunRow]:
    """All runs claimed by owners that are known to be dead. The traces of other dead owners are removed."""
    claims = all_claims(port)
    owners = {row.owner for row in claims}
    dead = liveness.dead_owners(owners)
    liveness.remove_dead_owners(owners)
    return [row for row in claims if row.owner in dead]


class LockLiveness(StorePort):
    """Liveness and WorkerRegistry of local stores, by the system's locks on files."""

    _owners: OwnerLocks

    @abstractmethod
    def _require_open(self) -> None:
        """Raise StoreClosed if the store was closed."""

    def announce(self, owner: str) -> None:
        self._require_open()
        self._owners.announce(owner)

    def owner_is_dead(self, owner: str) -> bool:
        return self._owners.owner_is_dead(owner)

    def dead_owners(self, owners: Collection[str]) -> set[str]:
        return {owner for owner in sorted(owners) if self.owner_is_dead(owner)}

    def claims_of_dead(self) -> list[RunRow]:
        return claims_of_dead(self, self)

    def remove_dead_owners(self, holding: Collection[str]) -> None:
        self._owners.remove_dead_owners(holding)

    def presence(self, owner: str) -> Presence:  # noqa: ARG002
        """SURE: no other process can take the lock of a living one."""
        return Presence.SURE

    def confirm(self, owner: str) -> Presence:
        return self.presence(owner)

    def register_worker(self, owner: str, workflows: Sequence[str], lease_us: int) -> None:  # noqa: ARG002
        self._owners.write_workflows(owner, workflows)

    def workers(self) -> dict[str, tuple[str, ...]]:
        return self._owners.workflows()


def _first_line(owner: str) -> bytes:
    return owner.encode(errors="replace") + b"\n"
