"""Every file system call that Holdfast makes, behind one small protocol.

`SystemFiles` makes the calls; tests replace it by layers that record calls, fail, or are full. Methods raise OSError;
`storage_error` turns that into an error for callers.

Durable takes two steps: `sync` makes a file's content durable, `sync_directory` the names in a directory. A handle
whose sync failed is closed and never synced again, because Linux reports a lost page only once.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple, Protocol

from holdfast.errors import HoldfastError, StorageFailed, StorageFull


class Identity(NamedTuple):
    """Distinguishes a file from another one that has its name later: inode, size and modification time."""

    inode: int
    size: int
    written_ns: int


class Files(Protocol):
    """What Holdfast needs from a file system. A handle is a number; paths are absolute."""

    def listdir(self, path: str) -> list[str]:
        """List the names in a directory; none if it is missing or not a directory."""
        ...

    def identity(self, path: str) -> Identity | None:
        """Return the identity of the file with this name; None if there is none."""
        ...

    def stat(self, path: str) -> os.stat_result:
        """Return what the system knows of a file; links are followed."""
        ...

    def read(self, path: str) -> bytes:
        """Read a whole file."""
        ...

    def open_for_read(self, path: str) -> BinaryIO:
        """Open a file that is read in pieces."""
        ...

    def mkdir(self, path: str) -> None:
        """Create a directory that only its owner may enter. An existing one is left as it is."""
        ...

    def create(self, path: str) -> int:
        """Create an empty file that only its owner may read. FileExistsError if the name is taken."""
        ...

    def copy_mode(self, handle: int, path: str) -> None:
        """Give the open file the permissions and the group of another file, if there is one."""
        ...

    def open_for_append(self, path: str) -> int:
        """Open an existing file; writes go to its end."""
        ...

    def open_lock(self, path: str, *, create: bool = True) -> int:
        """Open a lock file for reading and writing."""
        ...

    def write(self, handle: int, data: bytes | bytearray) -> None:
        """Write all of the data."""
        ...

    def overwrite(self, path: str, start: int, data: bytes) -> None:
        """Overwrite bytes of an existing file."""
        ...

    def truncate(self, handle: int, size: int) -> None:
        """Truncate the file to this size."""
        ...

    def sync(self, handle: int) -> None:
        """Make the file's content durable."""
        ...

    def close(self, handle: int) -> None:
        """Close the handle."""
        ...

    def sync_directory(self, path: str) -> None:
        """Make the names in a directory durable, through a handle of its own."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Rename a file. An existing file of the new name is replaced."""
        ...

    def link(self, old: str, new: str) -> None:
        """Give a file a second name. FileExistsError if that is taken."""
        ...

    def unlink(self, path: str) -> None:
        """Remove a file."""
        ...

    def rmdir(self, path: str) -> None:
        """Remove an empty directory."""
        ...

    def remove_tree(self, path: str) -> None:
        """Remove a directory with all that is in it, or a link; nothing if there is neither."""
        ...

    def try_lock(self, handle: int, *, shared: bool = False) -> bool:
        """Lock the open file; False if another handle has a lock that excludes this one."""
        ...

    def unlock(self, handle: int) -> None:
        """Release the lock."""
        ...

    def is_at(self, handle: int, path: str) -> bool:
        """Whether the open file is the one that has this name now."""
        ...

    def handle_identity(self, handle: int) -> Identity:
        """Return the identity of the open file."""
        ...

    def read_note(self, handle: int, size: int) -> bytes:
        """Read the first bytes of a lock file."""
        ...

    def write_note(self, handle: int, data: bytes) -> None:
        """Overwrite the first bytes of a lock file."""
        ...


def _identity(found: os.stat_result) -> Identity:
    return Identity(found.st_ino, found.st_size, found.st_mtime_ns)


class SystemFiles:
    """The calls of the operating system."""

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

    def stat(self, path: str) -> os.stat_result:
        return os.stat(path)

    def read(self, path: str) -> bytes:
        with open(path, "rb", buffering=0) as file:
            return file.readall()

    def open_for_read(self, path: str) -> BinaryIO:
        return open(path, "rb")

    def mkdir(self, path: str) -> None:
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o700)

    def create(self, path: str) -> int:
        return os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)

    def copy_mode(self, handle: int, path: str) -> None:
        try:
            found = os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return
        mode, mine = stat.S_IMODE(found.st_mode), os.fstat(handle)
        if found.st_gid != mine.st_gid:
            try:
                os.fchown(handle, -1, found.st_gid)
            except PermissionError:  # the permissions were for another group than the new file has
                mode &= ~0o070
        if mode != stat.S_IMODE(mine.st_mode):
            os.fchmod(handle, mode)

    def open_for_append(self, path: str) -> int:
        return os.open(path, os.O_WRONLY | os.O_APPEND)

    def open_lock(self, path: str, *, create: bool = True) -> int:
        return os.open(path, os.O_RDWR | (os.O_CREAT if create else 0), 0o600)

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
        full = getattr(fcntl, "F_FULLFSYNC", None)  # on macOS fsync does not flush the disk's own cache
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

    def link(self, old: str, new: str) -> None:
        os.link(old, new)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def rmdir(self, path: str) -> None:
        os.rmdir(path)

    def remove_tree(self, path: str) -> None:
        if os.path.islink(path):
            os.unlink(path)
        elif os.path.lexists(path):
            import shutil

            shutil.rmtree(path)

    def try_lock(self, handle: int, *, shared: bool = False) -> bool:
        try:
            fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def unlock(self, handle: int) -> None:
        fcntl.flock(handle, fcntl.LOCK_UN)

    def is_at(self, handle: int, path: str) -> bool:
        try:
            return os.path.samestat(os.fstat(handle), os.stat(path))
        except FileNotFoundError:
            return False

    def handle_identity(self, handle: int) -> Identity:
        return _identity(os.fstat(handle))

    def read_note(self, handle: int, size: int) -> bytes:
        return os.pread(handle, size, 0)

    def write_note(self, handle: int, data: bytes) -> None:
        if os.pwrite(handle, data, 0) != len(data):
            raise OSError(errno.EIO, "a short write to the lock file")


def storage_error(error: OSError, doing: str) -> HoldfastError:
    """Return the error to raise for an OSError; `doing` names what failed, and the file."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StorageFull(f"{doing}: the disk is full ({error.strerror}); free some space, or prune")
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return StorageFailed(f"{doing}: {error}; check the permissions of the file and its directory")
    return StorageFailed(f"{doing}: {error}")


@contextlib.contextmanager
def translate_os_errors(doing: str) -> Iterator[None]:
    """Raise every OSError of the block as a storage error; `doing` names what failed, and the file."""
    try:
        yield
    except OSError as error:
        raise storage_error(error, doing) from error


def free_bytes(path: str) -> int:
    """The free space on the disk of the file."""
    try:
        found = os.statvfs(os.path.dirname(os.path.abspath(path)))
    except OSError as error:
        raise StorageFailed(f"the free space on the disk of {path} cannot be read: {error}") from error
    return found.f_bavail * found.f_frsize
