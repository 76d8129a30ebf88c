"""What reading and writing share: the directory as it is prepared, and everything behind its lock."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Collection, Iterator, Sequence
from typing import Final

from holdfast.clock import Clock
from holdfast.errors import DamagedData, StorageFailed, StoreClosed, UnsupportedFormat
from holdfast.forking import watch
from holdfast.store.directory.changes import Renderer
from holdfast.store.directory.disk import Disk
from holdfast.store.directory.files import Files, SystemFiles, translating
from holdfast.store.directory.lock import EVERYTHING, DirectoryLock
from holdfast.store.directory.names import COUNTER, FAMILIES, LOCK, MARK, OWNERS, UNFINISHED
from holdfast.store.directory.tree import Family, Tree
from holdfast.store.owners import Owners
from holdfast.store.port import StorePort
from holdfast.store.room import Room

FORMAT: Final = "holdfast directory"
VERSION: Final = 1
_OURS: Final = frozenset({LOCK, UNFINISHED, FAMILIES, COUNTER, MARK, OWNERS})


def version_at(path: str) -> int:
    """The version of a directory's layout, 0 if there is none yet. Makes nothing."""
    mark = os.path.join(path, MARK)
    if not os.path.exists(mark):
        return 0
    try:
        with open(mark, "rb") as file:
            version = json.loads(file.read())["version"]
    except (OSError, ValueError, RecursionError, TypeError, KeyError) as error:
        raise DamagedData(mark, f"it does not say which version it has ({error})") from error
    if type(version) is not int:
        raise DamagedData(mark, f"its version is {version!r}, which is no number")
    return version


class DirectoryBase(StorePort):
    """The directory, its lock, and what is remembered of it."""

    def __init__(
        self,
        path: str,
        clock: Clock,
        *,
        timeout_s: float = 20.0,
        reserve_bytes: int,
        renderer: Renderer | None = None,
        files: Files | None = None,
    ) -> None:
        self.url = f"dir:{path}"
        self.path = os.path.abspath(path)
        self._clock = clock
        self._renderer = renderer
        self._files: Files = files or SystemFiles()
        self._room = Room(os.path.join(self.path, LOCK), reserve_bytes) if reserve_bytes else None
        self._disk = Disk(self._files, self.path)
        self._tree = Tree(self._disk)
        owners = os.path.join(os.path.realpath(self.path), OWNERS)
        self._owners = Owners(owners, lambda: {row.owner for row in self.all_held()})
        self._closed = False
        with translating(f"opening {self.path}"):
            self._make_root()
        self._lock = DirectoryLock(self._files, os.path.join(self.path, LOCK), timeout_s)
        watch(self)
        try:
            with self._lock.held(), translating(f"opening {self.path}"):
                self._prepare()
            with self._inside():
                self._tidy()
        except BaseException:
            self._lock.close()
            raise

    @property
    def repairs(self) -> tuple[str, ...]:
        """What this store has repaired since it was opened: torn tails that were cut off, each with its place."""
        return tuple(self._tree.repairs)

    def after_fork(self) -> None:
        """Another thread of the parent may have been in the middle of changing what is remembered."""
        self._tree = Tree(self._disk)

    def announce(self, owner: str) -> None:
        if self._closed:
            raise StoreClosed(f"{self.url} was closed")
        self._owners.announce(owner)

    def is_gone(self, owner: str) -> bool:
        return self._owners.is_gone(owner)

    def register_worker(self, owner: str, workflows: Sequence[str], lease_us: int) -> None:  # noqa: ARG002
        self._owners.write_workflows(owner, workflows)

    def workers(self) -> dict[str, tuple[str, ...]]:
        return self._owners.workflows()

    def bury(self, holding: Collection[str]) -> None:
        self._owners.bury(holding)

    def close(self) -> None:
        self._owners.close()
        self._closed = True
        self._lock.close()

    # --- opening -----------------------------------------------------------------------------------------------------

    def _make_root(self) -> None:
        if self._files.identity(self.path) is None:
            if self._files.identity(os.path.dirname(self.path)) is None:
                raise StorageFailed(f"{self.path} cannot be made: make the directory around it first")
            self._files.mkdir(self.path)
        names = set(self._files.listdir(self.path))
        if MARK in names:
            return
        if not names <= _OURS:
            raise StorageFailed(f"{self.path} has other files and is no directory of Holdfast's; choose another one")
        self._files.sync_directory(os.path.dirname(self.path))

    def _prepare(self) -> None:
        """Make what is missing; the mark, which says that all is made, comes last."""
        mark = os.path.join(self.path, MARK)
        names = set(self._files.listdir(self.path))
        if MARK in names:
            self._check_mark(mark)
        elif self._files.listdir(self._disk.families):
            raise DamagedData(self._disk.relative(mark), "it is missing, though there are runs")
        missing = [name for name in (FAMILIES, UNFINISHED) if name not in names]
        for name in missing:
            self._files.mkdir(os.path.join(self.path, name))
        if missing:
            self._files.sync_directory(self.path)
        self._disk.clear_unfinished()
        if MARK not in names:
            text = json.dumps({"format": FORMAT, "version": VERSION}, indent=1)
            self._disk.put(mark, text.encode() + b"\n")
            self._files.sync_directory(self.path)

    def _check_mark(self, mark: str) -> None:
        place = self._disk.relative(mark)
        try:
            content = json.loads(self._files.read(mark))
        except (ValueError, RecursionError) as error:
            raise DamagedData(place, f"it is no JSON ({error})") from error
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            raise StorageFailed(f"{self.path} is no directory of Holdfast's; choose another one")
        if content.get("version") != VERSION:
            raise UnsupportedFormat(place, f"it has version {content.get('version')}, this is version {VERSION}")

    def _tidy(self) -> None:
        """Read everything, repair torn tails, and remove what deleted runs have left."""
        self._tree.refresh()
        for family in list(self._tree.families.values()):
            with contextlib.suppress(OSError):  # the next one to open may do it
                self._tree.remove_leftovers(family)

    # --- the lock ----------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _inside(self, trouble: str = "it cannot be read") -> Iterator[None]:
        """Alone in the directory. Whatever a dead or failed writer left is settled before anything else.

        `trouble` says what follows if the disk fails.
        """
        if self._closed:
            raise StoreClosed(f"{self.url} was closed")
        with self._lock.held() as note, translating(f"{self.path}: {trouble}"):
            self._tree.entered(note.generation)
            self._settle()
            yield

    def _settle(self) -> None:
        """Make sure of a family that a writer left in the middle: what can be read of it is written anew and synced."""
        writing = self._lock.note.writing
        if not writing:
            return
        self._tree.forget()
        self._tree.refresh()
        doubtful = [f for f in self._tree.families.values() if writing in (f.name, EVERYTHING)]
        try:
            for family in doubtful:
                self._settle_family(family)
            self._files.sync_directory(self._disk.families)
        except OSError as error:
            self._tree.forget()
            raise StorageFailed(
                f"{self.path}: an earlier write failed or was interrupted, and the disk fails again ({error}) "
                "while that is being settled; nothing else was done"
            ) from error
        self._lock.clear()

    def _settle_family(self, family: Family) -> None:
        for file in family.runs.values():
            file.settle()
        if family.runs:
            self._files.mkdir(family.chunks)
            self._files.sync_directory(family.chunks)
            self._files.sync_directory(family.path)
        else:
            self._tree.remove_leftovers(family)
