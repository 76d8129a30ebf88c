"""The floor of the directory store: every call by which it touches a disk, behind one small protocol.

`SystemFiles` makes the calls; tests put in layers that record, fail or are full. Nothing else in this package opens a
file. Methods raise OSError; `translated` says what that means to a caller.

Durable takes two steps: `sync` makes a file's content durable, `sync_directory` the names in a directory. A handle
whose sync failed is closed and never synced again, because Linux reports a lost page only once.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

from holdfast.errors import HoldfastError, StorageFailed, StorageFull


class Identity(NamedTuple):
    """Tells whether a file is still the one that was read: which file it is, how long, and when it was written."""

    inode: int
    size: int
    written_ns: int


class Files(Protocol):
    """What the store asks of a file system. A handle is a number; paths are absolute."""

    def listdir(self, path: str) -> list[str]:
        """The names in a directory; none if it is not there, or is none."""
        ...

    def identity(self, path: str) -> Identity | None:
        """What tells the file from others; None if it is not there."""
        ...

    def read(self, path: str) -> bytes:
        """A file's content."""
        ...

    def mkdir(self, path: str) -> None:
        """Make a directory for its owner alone; one that is there is left as it is."""
        ...

    def create(self, path: str) -> int:
        """Open a new file for its owner alone, empty."""
        ...

    def keep_mode(self, handle: int, path: str) -> None:
        """Give the open file the permissions and the group of another one, if that is there."""
        ...

    def open_for_append(self, path: str) -> int:
        """Open a file that is there; writes go to its end."""
        ...

    def open_lock(self, path: str) -> int:
        """Open the lock file, and create it if it is not there."""
        ...

    def write(self, handle: int, data: bytes | bytearray) -> None:
        """Write all of it."""
        ...

    def overwrite(self, path: str, start: int, data: bytes) -> None:
        """Put bytes in the place of others in a file that is there."""
        ...

    def truncate(self, handle: int, size: int) -> None:
        """Cut the file off."""
        ...

    def sync(self, handle: int) -> None:
        """Make the file's content durable."""
        ...

    def close(self, handle: int) -> None:
        """Give the handle back."""
        ...

    def sync_directory(self, path: str) -> None:
        """Make the names in a directory durable, through a handle of its own."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Give a file another name, in place of what has that name."""
        ...

    def unlink(self, path: str) -> None:
        """Remove a file."""
        ...

    def rmdir(self, path: str) -> None:
        """Remove an empty directory."""
        ...

    def try_lock(self, handle: int) -> bool:
        """Take the lock for this handle alone; False if somebody else has it."""
        ...

    def unlock(self, handle: int) -> None:
        """Give up the lock."""
        ...

    def handle_identity(self, handle: int) -> Identity:
        """What tells the open file from others."""
        ...

    def read_note(self, handle: int, size: int) -> bytes:
        """The first bytes of the lock file."""
        ...

    def write_note(self, handle: int, data: bytes) -> None:
        """Replace the first bytes of the lock file."""
        ...


def _identity(found: os.stat_result) -> Identity:
    return Identity(found.st_ino, found.st_size, found.st_mtime_ns)


class SystemFiles:
    """The calls themselves."""

    def listdir(self, path: str) -> list[str]:
        try:
            return os.listdir(path)
        except (FileNotFoundError, NotADirectoryError):
            return []

    def identity(self, path: str) -> Identity | None:
        try:
            return _identity(os.stat(path))
        except FileNotFoundError:
            return None

    def read(self, path: str) -> bytes:
        with open(path, "rb", buffering=0) as file:
            return file.readall()

    def mkdir(self, path: str) -> None:
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o700)

    def create(self, path: str) -> int:
        return os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)

    def keep_mode(self, handle: int, path: str) -> None:
        try:
            found = os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return
        mode, mine = stat.S_IMODE(found.st_mode), os.fstat(handle)
        if found.st_gid != mine.st_gid:
            try:
                os.fchown(handle, -1, found.st_gid)
            except PermissionError:  # then the group's permissions are for another group, which is not given them
                mode &= ~0o070
        if mode != stat.S_IMODE(mine.st_mode):
            os.fchmod(handle, mode)

    def open_for_append(self, path: str) -> int:
        return os.open(path, os.O_WRONLY | os.O_APPEND)

    def open_lock(self, path: str) -> int:
        return os.open(path, os.O_RDWR | os.O_CREAT, 0o600)

    def write(self, handle: int, data: bytes | bytearray) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(handle, rest) :]

    def overwrite(self, path: str, start: int, data: bytes) -> None:
        with open(path, "r+b", buffering=0) as file:
            file.seek(start)
            SystemFiles.write(self, file.fileno(), data)

    def truncate(self, handle: int, size: int) -> None:
        os.ftruncate(handle, size)

    def sync(self, handle: int) -> None:
        full = getattr(fcntl, "F_FULLFSYNC", None)  # what fsync promises elsewhere, macOS does only when asked so
        if full is None:
            os.fsync(handle)
        else:
            fcntl.fcntl(handle, full)

    def close(self, handle: int) -> None:
        os.close(handle)

    def sync_directory(self, path: str) -> None:
        handle = os.open(path, os.O_RDONLY)
        try:
            self.sync(handle)
        finally:
            os.close(handle)

    def rename(self, old: str, new: str) -> None:
        os.rename(old, new)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def rmdir(self, path: str) -> None:
        os.rmdir(path)

    def try_lock(self, handle: int) -> bool:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def unlock(self, handle: int) -> None:
        fcntl.flock(handle, fcntl.LOCK_UN)

    def handle_identity(self, handle: int) -> Identity:
        return _identity(os.fstat(handle))

    def read_note(self, handle: int, size: int) -> bytes:
        return os.pread(handle, size, 0)

    def write_note(self, handle: int, data: bytes) -> None:
        if os.pwrite(handle, data, 0) != len(data):
            raise OSError(errno.EIO, "a short write to the lock file")


def translated(error: OSError, doing: str) -> HoldfastError:
    """What an error of the system means here; `doing` says what it failed in, and for which file."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StorageFull(f"{doing}: the disk is full ({error.strerror}); free some space, or prune")
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return StorageFailed(f"{doing}: {error}; check the permissions of the file and its directory")
    return StorageFailed(f"{doing}: {error}")


@contextlib.contextmanager
def translating(doing: str) -> Iterator[None]:
    """While it lasts, errors of the system become Holdfast's."""
    try:
        yield
    except OSError as error:
        raise translated(error, doing) from error


def put_whole(
    files: Files,
    beside: str,
    path: str,
    data: bytes | bytearray,
    *,
    sync: bool = True,
    mode_of: str | None = None,
    confirm: Callable[[Identity], bool] | None = None,
) -> bool:
    """A whole file under this name, in place of what has it, by way of one `beside`. If it fails, nothing has changed.

    With `mode_of` it gets the permissions of that file, if that is there. `confirm` is called right before the rename,
    with the identity of the new file; if it returns False, nothing is renamed, and the result is False. The directory
    is not synced.
    """
    try:
        handle = files.create(beside)
    except FileExistsError:  # of a writer that died
        files.unlink(beside)
        handle = files.create(beside)
    try:
        try:
            files.write(handle, data)
            if mode_of is not None:
                files.keep_mode(handle, mode_of)
            if sync:
                files.sync(handle)
        finally:
            files.close(handle)
        if confirm is not None:
            written = files.identity(beside)
            if written is None or not confirm(written):
                files.unlink(beside)
                return False
        files.rename(beside, path)
    except (OSError, HoldfastError):
        with contextlib.suppress(OSError):
            files.unlink(beside)
        raise
    return True
