"""Records every call by which the real SQLite store changes files, in one total order, with marks in between.

The shared-memory index (-shm) is not recorded: it is never durable. A file's name is only durable once its directory
was synced, which happens

* at the first sync of a journal or WAL through a handle that was opened to create it if need be (SQLite's rule),
* at a deletion with `sync_directory`,
* where Holdfast does it itself, which `recording` intercepts.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import apsw

from holdfast.store.sqlite import sqlite_connection as connections
from tests.faults.core.calls import CREATE, MARK, SYNC, SYNC_DIRECTORY, SYNC_FAILED, TRUNCATE, UNLINK, WRITE, Call
from tests.faults.sqlite.vfs_recorder import GO_ON, SKIP, Handle, Watcher, watched


class Recorder(Watcher):
    """What was recorded so far, and how the disk is to behave."""

    def __init__(self, *, sync_works: bool = True, failing_sync: int | None = None, failure_shown: bool = True) -> None:
        self.calls: list[Call] = []
        self.failing_sync = failing_sync
        self._sync_works = sync_works
        self._failure_shown = failure_shown
        self.sync_count = 0
        self._inodes: dict[str, int] = {}
        self._last_inode = 0
        self._new: set[Handle] = set()
        """Handles through which the next sync also syncs the directory."""

    def mark(self, number: int) -> None:
        """From here on the workload's stage with this number holds."""
        self.calls.append(Call(MARK, offset=number))

    def opened(self, handle: Handle) -> None:
        if handle.name not in self._inodes:
            self._last_inode += 1
            self._inodes[handle.name] = self._last_inode
            self.calls.append(Call(CREATE, self._last_inode, handle.name))
        if handle.creates and not handle.is_database:
            self._new.add(handle)

    def write(self, handle: Handle, data: bytes, offset: int) -> int:
        self.calls.append(Call(WRITE, self._inodes[handle.name], offset=offset, data=data))
        return GO_ON

    def truncate(self, handle: Handle, size: int) -> int:
        self.calls.append(Call(TRUNCATE, self._inodes[handle.name], offset=size))
        return GO_ON

    def delete(self, name: str, *, sync_directory: bool) -> int:
        self.calls.append(Call(UNLINK, self._inodes.pop(name), name))
        if sync_directory:
            self.directory_synced()
        return GO_ON

    def sync(self, handle: Handle) -> int:
        """The sync itself is never carried out: what a cut leaves is worked out from the recording."""
        self.sync_count += 1
        inode = self._inodes[handle.name]
        if self.sync_count == self.failing_sync:
            self.calls.append(Call(SYNC_FAILED, inode))
            return apsw.SQLITE_IOERR_FSYNC if self._failure_shown else SKIP
        if self._sync_works:
            self.calls.append(Call(SYNC, inode))
            if handle in self._new:
                self._new.discard(handle)
                self.directory_synced()
        return SKIP

    def directory_synced(self) -> None:
        if self._sync_works:
            self.calls.append(Call(SYNC_DIRECTORY, path="."))


@contextlib.contextmanager
def recording(directory: Path, recorder: Recorder, checkpoint_pages: int) -> Iterator[None]:
    """While it lasts, stores in the directory are recorded, and all connections checkpoint often."""

    def sync_directory(path: str) -> None:
        recorder.directory_synced()

    directories = mock.patch.object(connections, "sync_directory", sync_directory)
    with watched(directory, recorder), checkpoints_after(checkpoint_pages), directories:
        yield


@contextlib.contextmanager
def checkpoints_after(pages: int) -> Iterator[None]:
    """While it lasts, new connections copy the WAL into the database file when it has so many pages."""

    def often(connection: apsw.Connection) -> None:
        connection.wal_autocheckpoint(pages)

    apsw.connection_hooks.append(often)
    try:
        yield
    finally:
        apsw.connection_hooks.remove(often)
