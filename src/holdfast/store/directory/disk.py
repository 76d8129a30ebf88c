"""Durable steps, made of single calls: put a file in place, append to it, cut it off.

A new file is written beside, synced, and renamed into its place, so a name always stands for a whole file; the caller
then syncs the directory. Appending takes back what it wrote if it fails, or says that it could not.
"""

from __future__ import annotations

import contextlib
import os

from holdfast.errors import StorageFailed
from holdfast.store.directory.files import Files, put_whole
from holdfast.store.directory.names import FAMILIES, UNFINISHED


class Unclear(StorageFailed):
    """The disk failed, and again when what was written should have been taken back."""


class Disk:
    """The directory of a store."""

    def __init__(self, files: Files, root: str) -> None:
        self.files = files
        self.root = root
        self.families = os.path.join(root, FAMILIES)
        self._unfinished = os.path.join(root, UNFINISHED)

    def put(self, path: str, data: bytes | bytearray) -> None:
        """A whole file under this name, in place of what has it. If it fails, nothing has changed."""
        put_whole(self.files, os.path.join(self._unfinished, "new"), path, data)

    def append(self, path: str, size: int, data: bytes | bytearray) -> None:
        """Add to a file of `size` bytes. An OSError means that nothing was added, Unclear that it is not known."""
        files = self.files
        handle = files.open_for_append(path)
        is_written = False
        try:
            files.write(handle, data)
            is_written = True
            files.sync(handle)
        except OSError as error:
            with contextlib.suppress(OSError):
                files.close(handle)
            try:
                if is_written:
                    # The sync failed: what the system shows of the file may never reach the disk. A new file is made.
                    self.put(path, files.read(path)[:size])
                    files.sync_directory(os.path.dirname(path))
                else:
                    self.cut(path, size)
            except OSError as again:
                raise Unclear(
                    f"{path}: the disk failed while writing ({error}) and again when that was to be taken back "
                    f"({again}); whether it was saved is not known"
                ) from error
            raise
        except BaseException:
            files.close(handle)
            raise
        with contextlib.suppress(OSError):  # it is synced
            files.close(handle)

    def cut(self, path: str, size: int) -> None:
        """Cut a file off, durably."""
        handle = self.files.open_for_append(path)
        try:
            self.files.truncate(handle, size)
            self.files.sync(handle)
        finally:
            self.files.close(handle)

    def clear_unfinished(self) -> None:
        """Remove what dead writers left."""
        for name in self.files.listdir(self._unfinished):
            with contextlib.suppress(OSError):  # it is in nobody's way
                self.files.unlink(os.path.join(self._unfinished, name))

    def touch(self, path: str) -> None:
        """An empty file, if there is none of this name."""
        with contextlib.suppress(FileExistsError):
            self.files.close(self.files.create(path))

    def make_directory(self, path: str) -> None:
        """A directory whose name is durable."""
        self.files.mkdir(path)
        try:
            self.files.sync_directory(os.path.dirname(path))
        except OSError:
            with contextlib.suppress(OSError):
                self.files.rmdir(path)
            raise

    def relative(self, path: str) -> str:
        """A path as it is named in messages."""
        return os.path.relpath(path, os.path.dirname(self.root))
