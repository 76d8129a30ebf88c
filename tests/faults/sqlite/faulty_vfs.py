"""A disk that fails when told to, or that is full: the n-th call of a kind returns an error, once or from then on."""

from __future__ import annotations

import contextlib
import errno
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple
from unittest import mock

import apsw

from tests.faults.sqlite.recorder import checkpoints_after
from tests.faults.sqlite.vfs_recorder import GO_ON, SHORT, SKIP, Handle, Watcher, watched


class Kind(NamedTuple):
    """A kind of failure: which call, and the code it returns."""

    call: str
    code: int


KINDS: Final[dict[str, Kind]] = {
    "sync fails": Kind("sync", apsw.SQLITE_IOERR_FSYNC),
    "write fails": Kind("write", apsw.SQLITE_IOERR_WRITE),
    "disk full": Kind("write", apsw.SQLITE_FULL),
    "read fails": Kind("read", apsw.SQLITE_IOERR_READ),
    "truncate fails": Kind("truncate", apsw.SQLITE_IOERR_TRUNCATE),
    "open fails": Kind("open", apsw.SQLITE_CANTOPEN),
    "delete fails": Kind("delete", apsw.SQLITE_IOERR_DELETE),
    "size fails": Kind("size", apsw.SQLITE_IOERR_FSTAT),
    "read is short": Kind("read", SHORT),
    "lock fails": Kind("lock", apsw.SQLITE_IOERR_LOCK),
    "directory sync fails": Kind("directory", errno.EIO),
}


class Faults(Watcher):
    """What is to fail, and what happened."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.hits = 0
        self.reused = 0
        """Calls that relied on a handle after a verb had failed because of its sync."""
        self.quota_bytes: int | None = None
        """No file may grow when all together have so many bytes."""
        self.sizes: dict[str, int] = {}
        self._kind: Kind | None = None
        self._at = 0
        self._sticky = False
        self._sync_failed: set[Handle] = set()
        self._distrusted: set[Handle] = set()

    def fail(self, kind: Kind, at: int, *, sticky: bool) -> None:
        """From now on the `at`-th call of this kind fails, and if sticky all after it."""
        self.calls.clear()
        self.hits = 0
        self._kind, self._at, self._sticky = kind, at, sticky

    def heal(self) -> None:
        """Nothing fails any more."""
        self._kind = None

    def verb_ended(self, *, failed: bool) -> None:
        """If a verb failed, the handles whose sync failed in it are not to be used again.

        If it succeeded, the sync was one whose failure SQLite bears: in a checkpoint, which it will do again in full.
        """
        if failed:
            self._distrusted |= self._sync_failed
        self._sync_failed.clear()

    def used_bytes(self) -> int:
        return sum(self.sizes.values())

    def meet(self, call: str) -> int:
        """A call is about to be made: the error it returns, or `GO_ON`."""
        self.calls[call] += 1
        kind = self._kind
        if kind is None or kind.call != call:
            return GO_ON
        count = self.calls[call]
        if count < self._at or (count > self._at and not self._sticky):
            return GO_ON
        self.hits += 1
        return kind.code

    def open(self, name: str) -> int:
        return self.meet("open")

    def read(self, handle: Handle) -> int:
        return self.meet("read")

    def write(self, handle: Handle, data: bytes, offset: int) -> int:
        self._relied_on(handle)
        return self.meet("write") or self._grow(handle.name, offset + len(data))

    def _grow(self, name: str, end: int) -> int:
        size = self.sizes.get(name, 0)
        if end > size:
            if self.quota_bytes is not None and self.used_bytes() - size + end > self.quota_bytes:
                self.hits += 1
                return apsw.SQLITE_FULL
            self.sizes[name] = end
        return GO_ON

    def truncate(self, handle: Handle, size: int) -> int:
        failed = self.meet("truncate")
        if not failed:
            self.sizes[handle.name] = size
        return failed

    def sync(self, handle: Handle) -> int:
        self._relied_on(handle)
        failed = self.meet("sync")
        if failed:
            self._sync_failed.add(handle)
        return failed or SKIP

    def _relied_on(self, handle: Handle) -> None:
        self.reused += handle in self._distrusted

    def size(self, handle: Handle) -> int:
        return self.meet("size")

    def lock(self, handle: Handle) -> int:
        return self.meet("lock")

    def delete(self, name: str, *, sync_directory: bool) -> int:
        failed = self.meet("delete")
        if not failed:
            self.sizes.pop(name, None)
        return failed

    def sync_directory(self, handle: int) -> None:
        """Stands in for the sync of a directory, by Holdfast itself."""
        failed = self.meet("directory")
        if failed:
            raise OSError(failed, "injected")


@contextlib.contextmanager
def faulty(directory: Path, faults: Faults, checkpoint_pages: int) -> Iterator[None]:
    """While it lasts, stores in the directory meet these faults."""
    directories = mock.patch("os.fsync", faults.sync_directory)  # SQLite's own syncs do not go through Python
    with watched(directory, faults), checkpoints_after(checkpoint_pages), directories:
        yield
