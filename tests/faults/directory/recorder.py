"""Records every call by which the directory store changes files, in one total order, with marks in between.

The calls are carried out on a real directory, except for syncs: what a cut leaves is worked out from the recording.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from pathlib import Path

from holdfast.files.os_files import SystemFiles
from tests.faults.core.calls import (
    CREATE,
    MARK,
    MKDIR,
    RENAME,
    RMDIR,
    SYNC,
    SYNC_DIRECTORY,
    SYNC_FAILED,
    TRUNCATE,
    UNLINK,
    WRITE,
    Call,
)


class Recorder(SystemFiles):
    """The system's files, with a record of what was done to them."""

    def __init__(
        self,
        place: Path,
        *,
        syncs: bool = True,
        directory_syncs: bool = True,
        failing_sync: int | None = None,
        failure_shown: bool = True,
    ) -> None:
        self.calls: list[Call] = []
        self.sync_count = 0
        self._failing_sync = failing_sync
        self._failure_shown = failure_shown
        self._place = str(place)
        self._syncs = syncs
        self._directory_syncs = directory_syncs
        self._inodes: dict[str, int] = {}
        self._sizes: dict[int, int] = {}
        self._handles: dict[int, int] = {}

    def adopt(self, files: Mapping[str, bytes]) -> dict[str, int]:
        """Take in files that are there already; the inodes they get, by path."""
        for path, content in files.items():
            inode = self._inodes[path] = len(self._sizes) + 1
            self._sizes[inode] = len(content)
        return dict(self._inodes)

    def mark(self, number: int) -> None:
        """From here on the workload's stage with this number holds."""
        self.calls.append(Call(MARK, offset=number))

    def _relative(self, path: str) -> str:
        return os.path.relpath(path, self._place)

    def _opened(self, path: str, handle: int) -> int:
        name = self._relative(path)
        if name not in self._inodes:
            inode = self._inodes[name] = len(self._sizes) + 1
            self._sizes[inode] = 0
            self.calls.append(Call(CREATE, inode, name))
        self._handles[handle] = self._inodes[name]
        return handle

    def create(self, path: str) -> int:
        return self._opened(path, super().create(path))

    def open_for_append(self, path: str) -> int:
        return self._opened(path, super().open_for_append(path))

    def open_lock(self, path: str, *, create: bool = True) -> int:
        return self._opened(path, super().open_lock(path, create=create))

    def close(self, handle: int) -> None:
        self._handles.pop(handle, None)
        super().close(handle)

    def write(self, handle: int, data: bytes | bytearray) -> None:
        super().write(handle, data)
        inode = self._handles[handle]
        self.calls.append(Call(WRITE, inode, offset=self._sizes[inode], data=bytes(data)))
        self._sizes[inode] += len(data)

    def write_note(self, handle: int, data: bytes) -> None:
        super().write_note(handle, data)
        self.calls.append(Call(WRITE, self._handles[handle], offset=0, data=data))

    def truncate(self, handle: int, size: int) -> None:
        super().truncate(handle, size)
        self._sizes[self._handles[handle]] = size
        self.calls.append(Call(TRUNCATE, self._handles[handle], offset=size))

    def sync(self, handle: int) -> None:
        if self._fails():
            self.calls.append(Call(SYNC_FAILED, self._handles[handle]))
            if self._failure_shown:
                raise OSError(errno.EIO, "injected")
        elif self._syncs:
            self.calls.append(Call(SYNC, self._handles[handle]))

    def _fails(self) -> bool:
        self.sync_count += 1
        return self.sync_count == self._failing_sync

    def sync_directory(self, path: str) -> None:
        if self._fails():  # names are still pending
            if self._failure_shown:
                raise OSError(errno.EIO, "injected")
        elif self._directory_syncs:
            self.calls.append(Call(SYNC_DIRECTORY, path=self._relative(path)))

    def mkdir(self, path: str) -> None:
        if not os.path.isdir(path):
            self.calls.append(Call(MKDIR, path=self._relative(path)))
        super().mkdir(path)

    def rename(self, old: str, new: str) -> None:
        super().rename(old, new)
        before, name = self._relative(old), self._relative(new)
        inode = self._inodes[name] = self._inodes.pop(before)
        self.calls.append(Call(RENAME, inode, name, old=before))

    def unlink(self, path: str) -> None:
        super().unlink(path)
        name = self._relative(path)
        self.calls.append(Call(UNLINK, self._inodes.pop(name), name))

    def rmdir(self, path: str) -> None:
        super().rmdir(path)
        self.calls.append(Call(RMDIR, path=self._relative(path)))
