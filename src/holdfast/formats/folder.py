"""A directory of another system: locked, atomic and synced changes to its files.

    <path>/…                 the original's own files, with its own names
    <path>/.holdfast/lock    an flock: only one process of this library writes at a time
    <path>/.holdfast/new     a file being written; one that is found there is incomplete
    <path>/.holdfast/…       sidecars: data for which the original's layout has no field

The originals read no file in `.holdfast` and do not take the lock. A file is written to `new`, synced and renamed to
its name, and then the directory is synced, so its name always refers to a whole file. Readers need no lock. Nothing is
created before the first change, so a directory that is only read is not modified.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import logging
import os
import stat
import weakref
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Concatenate, Final, Generic, NamedTuple, ParamSpec, TypeVar

from holdfast.errors import DamagedFile, InvalidId, InvalidInput, LimitExceeded, StorageFailed
from holdfast.files import durable
from holdfast.files.lock import DirectoryLock
from holdfast.files.os_files import Files, Identity, SystemFiles, translate_os_errors
from holdfast.ids import check_id
from holdfast.limits import STATE_READ_BYTES_MAX

OWN: Final = ".holdfast"
_NEW: Final = "new"
_LOCK: Final = "lock"
_PIECE: Final = 2**20
log: Final = logging.getLogger("holdfast.formats")


class Line(NamedTuple):
    """A line of a file."""

    data: bytes | None
    """Without its newline; None if it is longer than STATE_READ_BYTES_MAX."""
    size: int
    """With its newline."""
    is_ended: bool


def check_path(path: object) -> str:
    """Return the path of a directory as text, or raise InvalidInput."""
    given = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(given, str) or not given or "\0" in given:
        raise InvalidInput(f"the path of the directory must be text, not {path!r}")
    return given


class Folder:
    """One directory. A name may have several parts; the caller has checked each of them."""

    def __init__(self, path: str | os.PathLike[str], *, timeout_s: float = 20.0, files: Files | None = None) -> None:
        self.path = os.path.abspath(check_path(path))
        self.files = files or SystemFiles()
        self._lock = DirectoryLock(self.files, self.at(OWN, _LOCK), timeout_s)
        weakref.finalize(self, self._lock.close)

    def at(self, *name: str) -> str:
        """Return the absolute path of a name."""
        return os.path.join(self.path, *name)

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """Hold the lock, which excludes changes by other processes of this library."""
        if self.identity(OWN) is None:
            self.make(OWN)
        with self._lock.hold():
            yield

    def close(self) -> None:
        """Close the lock file."""
        self._lock.close()

    # --- reading -----------------------------------------------------------------------------------------------------

    def read(self, *name: str) -> bytes | None:
        """Return a file's content; None only if there is no such file."""
        path = self.at(*name)
        with translate_os_errors(f"reading {path}"):
            try:
                size = self._regular_size(path)
                if size > STATE_READ_BYTES_MAX:
                    raise DamagedFile(path, f"it has {size} bytes, but at most {STATE_READ_BYTES_MAX} are read")
                return self.files.read(path)
            except (FileNotFoundError, NotADirectoryError):
                self._check_root()
                return None

    def lines(self, *name: str) -> Iterator[Line]:
        """Yield the lines of a file of any size; none if there is no such file."""
        path = self.at(*name)
        with translate_os_errors(f"reading {path}"):
            try:
                self._regular_size(path)
                file = self.files.open_for_read(path)
            except (FileNotFoundError, NotADirectoryError):
                self._check_root()
                return
            with file:
                while line := file.readline(STATE_READ_BYTES_MAX + 1):
                    size, kept = len(line), len(line) <= STATE_READ_BYTES_MAX
                    rest = line
                    while not rest.endswith(b"\n") and (rest := file.readline(_PIECE)):
                        size, kept = size + len(rest), False
                    is_ended = (rest or line).endswith(b"\n")
                    yield Line(line.removesuffix(b"\n") if kept else None, size, is_ended)

    def read_from(self, start: int, *name: str) -> bytes:
        """Return a file's content from a position on."""
        path = self.at(*name)
        with translate_os_errors(f"reading {path}"), self.files.open_for_read(path) as file:
            file.seek(start)
            return file.read()

    def names(self, *name: str) -> list[str]:
        """Return the names in a directory, sorted; none if it is missing. Names that are not text are left out."""
        path = self.at(*name)
        with translate_os_errors(f"listing {path}"):
            return sorted(found for found in self.files.listdir(path) if is_text(found))

    def identity(self, *name: str) -> Identity | None:
        """Return what distinguishes the file from a later one of this name; None if there is no such file."""
        path = self.at(*name)
        with translate_os_errors(f"reading the status of {path}"):
            try:
                return self.files.identity(path)
            except NotADirectoryError:
                self._check_root()
                return None

    def changed_ns(self, *name: str) -> int | None:
        """Return when the file was last renamed, linked or changed otherwise; None if there is no such file."""
        path = self.at(*name)
        with translate_os_errors(f"reading the status of {path}"):
            try:
                return self.files.stat(path).st_ctime_ns
            except (FileNotFoundError, NotADirectoryError):
                return None

    def is_directory(self, *name: str) -> bool:
        """Whether it is a directory; False also if its status cannot be read."""
        return self._is_directory(self.at(*name)) is True

    def _is_directory(self, path: str) -> bool | None:
        """Whether it is a directory; None if its status cannot be read."""
        try:
            return stat.S_ISDIR(self.files.stat(path).st_mode)
        except OSError:
            return None

    def _check_root(self) -> None:
        """Raise if the directory itself is a file. Below it, a file in place of a directory counts as missing."""
        if self._is_directory(self.path) is False:
            raise NotADirectoryError(errno.ENOTDIR, "it is not a directory", self.path)

    def _regular_size(self, path: str) -> int:
        try:
            found = self.files.stat(path)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise DamagedFile(path, "it is a symbolic link to itself") from error
            raise
        if not stat.S_ISREG(found.st_mode):
            raise DamagedFile(path, "it is not a regular file")
        return found.st_size

    # --- writing: the caller holds the lock --------------------------------------------------------------------------

    def make(self, *name: str) -> None:
        """Create a directory and its parents durably."""
        missing, path = [], self.at(*name)
        with translate_os_errors(f"creating {path}"):
            while self.files.identity(path) is None:
                missing.append(path)
                path = os.path.dirname(path)
            for path in reversed(missing):
                durable.make_directory(self.files, path)

    def put(
        self,
        data: bytes,
        *name: str,
        sync: bool = True,
        limited: bool = True,
        like: tuple[str, ...] | None = None,
        confirm: Callable[[Identity], bool] | None = None,
    ) -> bool:
        """Write a whole file under this name; return False if `confirm` refused it. Only `sync` makes it durable.

        The file keeps the permissions of the file that it replaces, or gets those of the file `like`. Raises
        LimitExceeded if `read` would refuse it; `limited=False` is for files that are read line by line, or only by
        people. `confirm` is called with the file's identity right before the rename; if it returns False, nothing
        changes.
        """
        path, beside = self.at(*name), self.at(OWN, _NEW)
        if limited:
            _check_size(path, data)
        self.make(*name[:-1])
        with translate_os_errors(f"writing {path}"):
            mode_of = self.at(*(like or name))
            is_put = durable.put_file(self.files, beside, path, data, sync=sync, mode_of=mode_of, confirm=confirm)
        if is_put and sync:
            self.sync(*name[:-1])
        return is_put

    def rename(self, old: tuple[str, ...], new: tuple[str, ...]) -> bool:
        """Rename a file, replacing one that has the new name; return False if there is no such file."""
        with translate_os_errors(f"renaming {self.at(*old)}"):
            try:
                self.files.rename(self.at(*old), self.at(*new))
            except FileNotFoundError:
                return False
        self.sync(*new[:-1])
        if old[:-1] != new[:-1]:
            self.sync(*old[:-1])
        return True

    def remove(self, *name: str, sync: bool = True) -> bool:
        """Remove a file; return False if there is none."""
        with translate_os_errors(f"removing {self.at(*name)}"):
            try:
                self.files.unlink(self.at(*name))
            except FileNotFoundError:
                return False
        if sync:
            self.sync(*name[:-1])
        return True

    def remove_tree(self, *name: str) -> None:
        """Remove a directory with its content, or the link of this name."""
        with translate_os_errors(f"removing {self.at(*name)}"):
            self.files.remove_tree(self.at(*name))

    def sync_path(self, *name: str) -> None:
        """Sync a directory and its parents: an earlier call may have changed them and failed to sync."""
        for depth in range(len(name) + 1):
            if self.is_directory(*name[:depth]):
                self.sync(*name[:depth])

    def sync(self, *name: str) -> None:
        """Make the names in a directory durable."""
        path = self.at(*name)
        try:
            self.files.sync_directory(path)
        except OSError as error:
            raise StorageFailed(
                f"{path}: the change was made, but the directory could not be synced ({error}); "
                "a power failure may undo it; repeat the call"
            ) from error

    def append(self, data: bytes, *name: str) -> None:
        """Append a line to a file, which is created if it is missing, and sync it."""
        files, path = self.files, self.at(*name)
        _check_size(path, data)
        with translate_os_errors(f"appending to {path}"):
            before = files.identity(path)
            if before is None:
                self.make(*name[:-1])
                with contextlib.suppress(FileExistsError):  # the original has created it since
                    files.close(files.create(path))
                before = files.identity(path)
            size = None if before is None else before.size
            durable.append_to(files, path, data, lambda _error, _is_written: self._undo_append(data, size, *name))
        if not size:  # an empty file is from a call that failed before it synced the directory
            self.sync(*name[:-1])

    def _undo_append(self, data: bytes, size: int | None, *name: str) -> None:
        """Remove a line whose append failed, unless the original has appended to the file since."""
        if size is not None and data.startswith(written := self.read_from(size, *name)):
            self.truncate(size, *name, expected=size + len(written))

    def sync_file(self, *name: str) -> None:
        """Sync a file's content: its writer may have died before the sync."""
        with translate_os_errors(f"syncing {self.at(*name)}"):
            durable.sync_file(self.files, self.at(*name))

    def overwrite(self, start: int, data: bytes, *name: str) -> None:
        """Overwrite bytes of a file, and sync it."""
        with translate_os_errors(f"writing {self.at(*name)}"):
            self.files.overwrite(self.at(*name), start, data)
        self.sync_file(*name)

    def truncate(self, size: int, *name: str, expected: int | None = None) -> None:
        """Truncate a file to this size, unless its size is not `expected`, because the original has appended to it."""
        with translate_os_errors(f"truncating {self.at(*name)}"):
            durable.truncate(self.files, self.at(*name), size, expected=expected)


def _check_size(path: str, data: bytes) -> None:
    if len(data) > STATE_READ_BYTES_MAX:
        raise LimitExceeded(
            f"{path} was not written: {len(data)} bytes at once exceed the limit of {STATE_READ_BYTES_MAX} for readers"
        )


NAME_BYTES_MAX: Final = 255


def check_name(what: str, value: object, ending: str) -> str:
    """Return the file name of an id that is used unchanged, or raise InvalidId."""
    text = check_id(what, value)
    if "/" in text or "\\" in text or text in (".", ".."):
        raise InvalidId(
            f"{what} {text!r} could refer to a file outside the directory: this system uses ids as file names, "
            "so an id must not contain slashes and must not be '.' or '..'"
        )
    return check_name_length(what, text, text + ending)


def check_name_length(what: str, value: str, name: str) -> str:
    """Return the name if a file can have it, or raise InvalidId."""
    size = len(os.fsencode(name))
    if size > NAME_BYTES_MAX:
        raise InvalidId(
            f"{what} {value[:40]!r}… makes a file name of {size} bytes; at most {NAME_BYTES_MAX} are allowed"
        )
    return name


def is_text(name: str) -> bool:
    """Whether a name found in a directory is valid text."""
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


P = ParamSpec("P")
R = TypeVar("R")
Blocking = TypeVar("Blocking")


class AsyncOperations(Generic[Blocking]):
    """The operations of an object as coroutines: each runs on a thread of the event loop's executor.

    If the waiting task is cancelled, an operation that has begun still completes: load the result before repeating it.
    """

    def __init__(self, blocking: Blocking) -> None:
        self._blocking = blocking


def run_in_thread(
    operation: Callable[Concatenate[Blocking, P], R],
) -> Callable[Concatenate[AsyncOperations[Blocking], P], Coroutine[Any, Any, R]]:
    """Return the method that performs `operation` on a thread."""

    async def call(self: AsyncOperations[Blocking], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return await asyncio.to_thread(operation, self._blocking, *args, **kwargs)

    functools.update_wrapper(call, operation)
    return call
