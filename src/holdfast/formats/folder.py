"""A directory of another system, and how files are put there: whole, synced, one writer at a time.

    <path>/…                 the original's own files, with its own names
    <path>/.holdfast/lock    an flock: among our processes whoever changes something is alone
    <path>/.holdfast/new     a file being written; whatever is found there was never finished
    <path>/.holdfast/…       sidecars: what the original's layout has no place for

The originals look at no file in `.holdfast`, and do not know the lock. A file is written to `new`, synced, renamed into
its place, and then the directory is synced: under its name there is always a whole file. Readers need no lock. Nothing
is made before the first change, so a directory that is only read stays untouched.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import stat
import weakref
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from holdfast.errors import DamagedFile, InvalidInput, LimitExceeded, StorageFailed
from holdfast.formats.names import is_text
from holdfast.limits import STATE_READ_BYTES_MAX
from holdfast.store.directory.files import Files, Identity, SystemFiles, put_whole, translating
from holdfast.store.directory.lock import DirectoryLock

OWN: Final = ".holdfast"
_NEW: Final = "new"
_LOCK: Final = "lock"
_PIECE: Final = 2**20

log: Final = logging.getLogger("holdfast.formats")


class Line(NamedTuple):
    """A line of a file."""

    data: bytes | None
    """Without its end; None if it is longer than a whole file may be elsewhere."""
    size: int
    """With its end."""
    is_ended: bool


def check_path(path: object) -> str:
    """The path of a directory as text, or InvalidInput."""
    given = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(given, str) or not given or "\0" in given:
        raise InvalidInput(f"the directory's path must be text, not {path!r}")
    return given


class Folder:
    """The directory. Names may have several parts, each of them checked by whoever made it."""

    def __init__(self, path: str | os.PathLike[str], *, timeout_s: float = 20.0, files: Files | None = None) -> None:
        self.path = os.path.abspath(check_path(path))
        self._files = files or SystemFiles()
        self._lock = DirectoryLock(self._files, self.at(OWN, _LOCK), timeout_s)
        weakref.finalize(self, self._lock.close)

    def at(self, *name: str) -> str:
        """The whole path of a name."""
        return os.path.join(self.path, *name)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """While it lasts nobody else of ours changes anything here."""
        if self.identity(OWN) is None:
            self.make(OWN)
        with self._lock.held():
            yield

    def close(self) -> None:
        """Give the lock's file back."""
        self._lock.close()

    # --- reading -----------------------------------------------------------------------------------------------------

    def read(self, *name: str) -> bytes | None:
        """A file's content; None only if there is no such file."""
        path = self.at(*name)
        with translating(f"reading {path}"):
            try:
                size = _size(path)
                if size > STATE_READ_BYTES_MAX:
                    raise DamagedFile(path, f"it has {size} bytes, at most {STATE_READ_BYTES_MAX} are read")
                return self._files.read(path)
            except (FileNotFoundError, NotADirectoryError):
                self._check_root()
                return None

    def lines(self, *name: str) -> Iterator[Line]:
        """The lines of a file, one after the other; none if there is no such file. It may be of any size."""
        path = self.at(*name)
        with translating(f"reading {path}"):
            try:
                _size(path)
                file = open(path, "rb")  # noqa: SIM115 - it is closed below
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

    def end_of(self, start: int, *name: str) -> bytes:
        """What a file holds from a position on."""
        path = self.at(*name)
        with translating(f"reading {path}"), open(path, "rb") as file:
            file.seek(start)
            return file.read()

    def names(self, *name: str) -> list[str]:
        """The names in a directory, sorted; none if it is not there. Names that are no text are left out."""
        path = self.at(*name)
        with translating(f"listing {path}"):
            return sorted(found for found in self._files.listdir(path) if is_text(found))

    def identity(self, *name: str) -> Identity | None:
        """What tells the file from another one that has the name later; None if it is not there."""
        path = self.at(*name)
        with translating(f"looking at {path}"):
            try:
                return self._files.identity(path)
            except NotADirectoryError:
                self._check_root()
                return None

    def changed_ns(self, *name: str) -> int | None:
        """When the file was last renamed, linked or changed otherwise; None if it is not there."""
        path = self.at(*name)
        with translating(f"looking at {path}"):
            try:
                return os.stat(path).st_ctime_ns
            except (FileNotFoundError, NotADirectoryError):
                return None

    def is_directory(self, *name: str) -> bool:
        """Whether it is a directory, as far as that can be seen."""
        return os.path.isdir(self.at(*name))

    def _check_root(self) -> None:
        """A file where a directory should be has nothing in it; but the directory itself must not be one."""
        if os.path.exists(self.path) and not os.path.isdir(self.path):
            raise NotADirectoryError(errno.ENOTDIR, "it is not a directory", self.path)

    # --- changing: whoever does holds the lock -----------------------------------------------------------------------

    def make(self, *name: str) -> None:
        """A directory and all above it, durably."""
        missing, path = [], self.at(*name)
        with translating(f"making {path}"):
            while self._files.identity(path) is None:
                missing.append(path)
                path = os.path.dirname(path)
            for path in reversed(missing):
                self._files.mkdir(path)
                try:
                    self._files.sync_directory(os.path.dirname(path))
                except OSError:  # the next who needs it makes it, and syncs it, again
                    with contextlib.suppress(OSError):
                        self._files.rmdir(path)
                    raise

    def put(
        self,
        data: bytes,
        *name: str,
        sync: bool = True,
        limited: bool = True,
        like: tuple[str, ...] | None = None,
        confirm: Callable[[Identity], bool] | None = None,
    ) -> bool:
        """A whole file under this name, in place of what has it. `sync` is only left out for signs of the living.

        It keeps the permissions of the file whose place it takes, or has those of the file `like`.

        LimitExceeded if `read` would refuse it; not `limited` are files that are only read line by line, or by people.

        `confirm` is called right before the file gets its name, with its identity; if it returns False, nothing is
        changed, and the result is False.
        """
        path, beside = self.at(*name), self.at(OWN, _NEW)
        if limited:
            _check_size(path, data)
        self.make(*name[:-1])
        with translating(f"writing {path}"):
            mode_of = self.at(*(like or name))
            is_put = put_whole(self._files, beside, path, data, sync=sync, mode_of=mode_of, confirm=confirm)
        if is_put and sync:
            self.sync(*name[:-1])
        return is_put

    def rename(self, old: tuple[str, ...], new: tuple[str, ...]) -> bool:
        """Give a file another name, in place of what has it; False if there is no such file."""
        with translating(f"renaming {self.at(*old)}"):
            try:
                self._files.rename(self.at(*old), self.at(*new))
            except FileNotFoundError:
                return False
        self.sync(*new[:-1])
        if old[:-1] != new[:-1]:
            self.sync(*old[:-1])
        return True

    def remove(self, *name: str, sync: bool = True) -> bool:
        """Remove a file; False if there is none."""
        with translating(f"removing {self.at(*name)}"):
            try:
                self._files.unlink(self.at(*name))
            except FileNotFoundError:
                return False
        if sync:
            self.sync(*name[:-1])
        return True

    def settle(self, *name: str) -> None:
        """Make durable what is so already: an earlier call may have made it so and failed to sync. Nothing is made."""
        for depth in range(len(name) + 1):
            if self.is_directory(*name[:depth]):
                self.sync(*name[:depth])

    def sync(self, *name: str) -> None:
        """Make the names in a directory durable."""
        path = self.at(*name)
        try:
            self._files.sync_directory(path)
        except OSError as error:
            raise StorageFailed(
                f"{path}: the change was made, but the disk failed when it was to be made durable ({error}); "
                "a power cut may still undo it, so repeat the call"
            ) from error

    def append(self, data: bytes, *name: str) -> None:
        """Add a line to a file, which is made if it is not there, and sync it."""
        files, path = self._files, self.at(*name)
        _check_size(path, data)
        with translating(f"appending to {path}"):
            before = files.identity(path)
            if before is None:
                self.make(*name[:-1])
                with contextlib.suppress(FileExistsError):  # the original has made it meanwhile
                    files.close(files.create(path))
                before = files.identity(path)
            is_new = before is None or before.size == 0  # an empty one is of a call that failed
            handle = files.open_for_append(path)
            try:
                try:
                    files.write(handle, data)
                    files.sync(handle)
                finally:
                    files.close(handle)
            except OSError:
                if before is not None and data.startswith(written := self.end_of(before.size, *name)):
                    # nobody may take for saved what failed; a line of the original stays
                    self.cut(before.size, *name, expected=before.size + len(written))
                raise
        if is_new:
            self.sync(*name[:-1])

    def sync_file(self, *name: str) -> None:
        """Make what a file holds durable: who wrote it may have died before that."""
        with translating(f"syncing {self.at(*name)}"):
            handle = self._files.open_for_append(self.at(*name))
            try:
                self._files.sync(handle)
            finally:
                self._files.close(handle)

    def overwrite(self, start: int, data: bytes, *name: str) -> None:
        """Put bytes in the place of others in a file, and sync it."""
        with translating(f"writing {self.at(*name)}"):
            self._files.overwrite(self.at(*name), start, data)
        self.sync_file(*name)

    def cut(self, size: int, *name: str, expected: int | None = None) -> None:
        """Cut a file off; not if it has another size than `expected`, because the original has appended to it."""
        with translating(f"cutting off {self.at(*name)}"):
            handle = self._files.open_for_append(self.at(*name))
            try:
                if expected is not None and self._files.handle_identity(handle).size != expected:
                    return
                self._files.truncate(handle, size)
                self._files.sync(handle)
            finally:
                self._files.close(handle)


def _size(path: str) -> int:
    try:
        found = os.stat(path)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise DamagedFile(path, "it is a link that leads to itself") from error
        raise
    if not stat.S_ISREG(found.st_mode):
        raise DamagedFile(path, "it is not a regular file")
    return found.st_size


def _check_size(path: str, data: bytes) -> None:
    if len(data) > STATE_READ_BYTES_MAX:
        raise LimitExceeded(
            f"{path} was not written: it would get {len(data)} bytes at once, at most {STATE_READ_BYTES_MAX} are read"
        )
