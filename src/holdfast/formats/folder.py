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
import logging
import os
import stat
import weakref
from collections.abc import Iterator
from typing import Final

from holdfast.errors import DamagedFile, InvalidInput, StorageFailed
from holdfast.formats.names import is_text
from holdfast.limits import STATE_READ_BYTES_MAX
from holdfast.store.directory.files import Files, Identity, SystemFiles, translating
from holdfast.store.directory.lock import DirectoryLock

OWN: Final = ".holdfast"
_NEW: Final = "new"
_LOCK: Final = "lock"

log: Final = logging.getLogger("holdfast.formats")


class Folder:
    """The directory. Names may have several parts, each of them checked by whoever made it."""

    def __init__(self, path: str | os.PathLike[str], *, timeout_s: float = 20.0, files: Files | None = None) -> None:
        given = os.fspath(path)
        if not isinstance(given, str) or not given:
            raise InvalidInput(f"the directory's path must be text, not {path!r}")
        self.path = os.path.abspath(given)
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
                found = os.stat(path)
                if not stat.S_ISREG(found.st_mode):
                    raise DamagedFile(path, "it is not a regular file")
                if found.st_size > STATE_READ_BYTES_MAX:
                    raise DamagedFile(path, f"it has {found.st_size} bytes, at most {STATE_READ_BYTES_MAX} are read")
                return self._files.read(path)
            except FileNotFoundError:
                return None

    def names(self, *name: str) -> list[str]:
        """The names in a directory, sorted; none if it is not there. Names that are no text are left out."""
        path = self.at(*name)
        with translating(f"listing {path}"):
            return sorted(found for found in self._files.listdir(path) if is_text(found))

    def identity(self, *name: str) -> Identity | None:
        """What tells the file from another one that has the name later; None if it is not there."""
        path = self.at(*name)
        with translating(f"looking at {path}"):
            return self._files.identity(path)

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
                self._files.sync_directory(os.path.dirname(path))

    def put(self, data: bytes, *name: str, sync: bool = True) -> None:
        """A whole file under this name, in place of what has it. `sync` is only left out for signs of the living."""
        files, path, beside = self._files, self.at(*name), self.at(OWN, _NEW)
        self.make(*name[:-1])
        with translating(f"writing {path}"):
            try:
                handle = files.create(beside)
            except FileExistsError:  # of a writer that died
                files.unlink(beside)
                handle = files.create(beside)
            try:
                try:
                    files.write(handle, data)
                    if sync:
                        files.sync(handle)
                finally:
                    files.close(handle)
                files.rename(beside, path)
            except OSError:
                with contextlib.suppress(OSError):
                    files.unlink(beside)
                raise
        if sync:
            self.sync(*name[:-1])

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
        """Add to a file, which is made if it is not there, and sync it."""
        files, path = self._files, self.at(*name)
        with translating(f"appending to {path}"):
            is_new = files.identity(path) is None
            if is_new:
                self.make(*name[:-1])
                files.close(files.create(path))
            before = files.identity(path)
            handle = files.open_for_append(path)
            try:
                try:
                    files.write(handle, data)
                    files.sync(handle)
                finally:
                    files.close(handle)
            except OSError:
                if before is not None:  # nobody may take for saved what failed
                    self.cut(before.size, *name)
                raise
        if is_new:
            self.sync(*name[:-1])

    def cut(self, size: int, *name: str) -> None:
        """Cut a file off."""
        with translating(f"cutting off {self.at(*name)}"):
            handle = self._files.open_for_append(self.at(*name))
            try:
                self._files.truncate(handle, size)
                self._files.sync(handle)
            finally:
                self._files.close(handle)
