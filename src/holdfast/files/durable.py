"""Durable file operations, and the reserve of free disk space.

A new file is written under another name, synced, and renamed, so a name always refers to a complete file; the caller
then syncs the directory. A failed append is undone, or reported as unknown. Saves are refused while there is still
enough free space for prune to work.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from typing import Final

from holdfast.errors import StorageFailed, StorageFull
from holdfast.files.os_files import Files, Identity, free_bytes
from holdfast.model.commit import Commit, commit_bytes


class AppendOutcomeUnknown(StorageFailed):
    """The disk failed in a write, and again when the write was undone."""


def outcome_unknown(path: str, error: OSError, again: OSError) -> AppendOutcomeUnknown:
    """Return the error for a write that failed and could not be undone."""
    return AppendOutcomeUnknown(
        f"{path}: the disk failed in a write ({error}), and again when the write was undone ({again}); "
        "it is unknown whether it was saved"
    )


def put_file(
    files: Files,
    beside: str,
    path: str,
    data: bytes | bytearray,
    *,
    sync: bool = True,
    replace: bool = True,
    mode_of: str | None = None,
    confirm: Callable[[Identity], bool] | None = None,
) -> bool:
    """Put a whole file at `path` by way of a file `beside` it. If it fails, nothing has changed.

    Without `replace`, an existing file is a FileExistsError. With `mode_of` the file gets the permissions of that file,
    if there is one. `confirm` is called right before the rename, with the identity of the new file; if it returns
    False, nothing is renamed, and the result is False. The directory is not synced.
    """
    try:
        handle = files.create(beside)
    except FileExistsError:  # left by a writer that died
        files.unlink(beside)
        handle = files.create(beside)
    try:
        try:
            files.write(handle, data)
            if mode_of is not None:
                files.copy_mode(handle, mode_of)
            if sync:
                files.sync(handle)
        finally:
            files.close(handle)
        if confirm is not None:
            written = files.identity(beside)
            if written is None or not confirm(written):
                files.unlink(beside)
                return False
        if replace:
            files.rename(beside, path)
        else:
            files.link(beside, path)
            with contextlib.suppress(OSError):  # the file is in place; its other name is a leftover
                files.unlink(beside)
    except BaseException:
        with contextlib.suppress(OSError):
            files.unlink(beside)
        raise
    return True


def append_to(files: Files, path: str, data: bytes | bytearray, take_back: Callable[[OSError, bool], None]) -> None:
    """Append to a file and sync it. After an OSError `take_back` is called, and the error is raised.

    Its arguments are the error, and whether all of the data was written, so that it was the sync that failed.
    """
    handle = files.open_for_append(path)
    is_written = False
    try:
        try:
            files.write(handle, data)
            is_written = True
            files.sync(handle)
        finally:
            with contextlib.suppress(OSError):  # only the write and the sync decide whether the data is saved
                files.close(handle)
    except OSError as error:
        take_back(error, is_written)
        raise


def truncate(files: Files, path: str, size: int, *, expected: int | None = None) -> None:
    """Truncate a file to this size and sync it, unless its size is no longer `expected`."""
    handle = files.open_for_append(path)
    try:
        if expected is None or files.handle_identity(handle).size == expected:
            files.truncate(handle, size)
            files.sync(handle)
    finally:
        files.close(handle)


def sync_file(files: Files, path: str) -> None:
    """Make a file's content durable: its writer may have died before it did that."""
    handle = files.open_for_append(path)
    try:
        files.sync(handle)
    finally:
        files.close(handle)


def make_directory(files: Files, path: str) -> None:
    """Create a directory whose name is durable. The directory around it must exist."""
    files.mkdir(path)
    try:
        files.sync_directory(os.path.dirname(path))
    except OSError:  # the next caller makes and syncs it again
        with contextlib.suppress(OSError):
            files.rmdir(path)
        raise


class DurableDirectory:
    """A directory that is written by this library alone, with a place for unfinished files."""

    def __init__(self, files: Files, root: str, *, unfinished: str) -> None:
        self.files = files
        self.root = root
        self._unfinished = os.path.join(root, unfinished)

    def put(self, path: str, data: bytes | bytearray) -> None:
        """Put a whole file at `path`. If it fails, nothing has changed. The directory is not synced."""
        put_file(self.files, os.path.join(self._unfinished, "new"), path, data)

    def append(self, path: str, size: int, data: bytes | bytearray) -> None:
        """Append to a file of `size` bytes. OSError: nothing was appended; AppendOutcomeUnknown: unknown."""
        append_to(self.files, path, data, lambda error, is_written: self._take_back(path, size, error, is_written))

    def _take_back(self, path: str, size: int, error: OSError, is_written: bool) -> None:
        try:
            if is_written:
                # The sync failed, so what can be read of the file may never reach the disk. Write a new file.
                self.put(path, self.files.read(path)[:size])
                self.files.sync_directory(os.path.dirname(path))
            else:
                truncate(self.files, path, size)
        except OSError as again:
            raise outcome_unknown(path, error, again) from error

    def clear_unfinished(self) -> None:
        """Remove the unfinished files of writers that died."""
        for name in self.files.listdir(self._unfinished):
            with contextlib.suppress(OSError):  # a leftover does no harm
                self.files.unlink(os.path.join(self._unfinished, name))

    def touch(self, path: str) -> None:
        """Create an empty file, if there is none of this name."""
        with contextlib.suppress(FileExistsError):
            self.files.close(self.files.create(path))

    def relative(self, path: str) -> str:
        """Return a path as messages name it."""
        return os.path.relpath(path, os.path.dirname(self.root))


_COMMIT_BYTES: Final = 8192
"""The approximate size of a small commit on disk, to estimate when to check again."""


class DiskReserve:
    """Keeps a reserve of free space. Checks the disk again when a sixteenth of the reserve may have been used."""

    def __init__(self, path: str, reserve_bytes: int) -> None:
        self._path = path
        self._reserve_bytes = reserve_bytes
        self._unchecked_bytes = reserve_bytes

    def check(self, commits: Sequence[Commit], reusable_bytes: Callable[[], int] = lambda: 0) -> None:
        """Raise StorageFull if the commits add something and there is not enough space.

        `reusable_bytes` returns what the store can reuse before it needs more of the disk.
        """
        added = sum(map(commit_bytes, commits))
        self._unchecked_bytes += added + _COMMIT_BYTES * len(commits)
        if self._unchecked_bytes <= self._reserve_bytes // 16:
            return
        free = free_bytes(self._path)
        large = added if added > self._reserve_bytes // 16 else 0
        needed = self._reserve_bytes + large
        if free >= needed or free + reusable_bytes() >= needed:
            self._unchecked_bytes = 0
        elif large or any(c.checkpoints or c.entries or c.attachments or c.effects or c.create for c in commits):
            adding = f"{large} bytes are to be added, " if large else ""
            raise StorageFull(
                f"{self._path}: {adding}{free} bytes are free and {self._reserve_bytes} are kept in reserve for prune; "
                "free some space, prune, or open the store with a smaller reserve_bytes"
            )
