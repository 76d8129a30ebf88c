"""The opened directory with its lock and recovery, and its reads.

A damaged file is reported for its own run and does not hide other runs.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Final

from holdfast.clock import Clock
from holdfast.errors import DamagedData, StorageFailed, StoreClosed, UnsupportedFormat
from holdfast.files.durable import DiskReserve, DurableDirectory
from holdfast.files.lock import EVERYTHING, DirectoryLock
from holdfast.files.os_files import Files, SystemFiles, translate_os_errors
from holdfast.fork_safety import reset_after_fork
from holdfast.model.rows import RunRow
from holdfast.store.capabilities import About
from holdfast.store.directory import paths
from holdfast.store.directory.change_codec import Renderer
from holdfast.store.directory.index import DirectoryIndex, Family
from holdfast.store.directory.paths import COUNTER, FAMILIES, LOCK, MARK, OWNERS, UNFINISHED, chunk_sizes, read_chunks
from holdfast.store.folded_reads import FoldedReads, selected
from holdfast.store.folded_run import FoldedRun
from holdfast.store.liveness import LockLiveness, OwnerLocks, all_claims
from holdfast.store.packs import PackedChunks, Packs
from holdfast.store.port import RunQuery, Select, Selected

FORMAT: Final = "holdfast directory"
VERSION: Final = 2
_OURS: Final = frozenset({LOCK, UNFINISHED, FAMILIES, COUNTER, MARK, OWNERS, paths.CATALOG})


def version_at(path: str) -> int:
    """The version of a directory's layout, 0 if there is none yet. Creates nothing."""
    mark = os.path.join(path, MARK)
    if not os.path.exists(mark):
        return 0
    try:
        with open(mark, "rb") as file:
            version = json.loads(file.read())["version"]
    except (OSError, ValueError, RecursionError, TypeError, KeyError) as error:
        raise DamagedData(mark, f"its version cannot be read ({error})") from error
    if type(version) is not int:
        raise DamagedData(mark, f"its version is {version!r}, which is not a number")
    return version


class DirectoryBase(LockLiveness):
    """The directory, its lock, and its index in memory."""

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
        self._reserve = DiskReserve(os.path.join(self.path, LOCK), reserve_bytes) if reserve_bytes else None
        self._disk = DurableDirectory(self._files, self.path, unfinished=UNFINISHED)
        self._index = DirectoryIndex(self._disk)
        owners = os.path.join(os.path.realpath(self.path), OWNERS)
        self._owners = OwnerLocks(owners, lambda: {row.owner for row in all_claims(self)}, files=self._files)
        self._closed = False
        with translate_os_errors(f"opening {self.path}"):
            self._make_root()
        self._lock = DirectoryLock(self._files, os.path.join(self.path, LOCK), timeout_s)
        reset_after_fork(self)
        try:
            with self._lock.hold(), translate_os_errors(f"opening {self.path}"):
                self._prepare()
            with self._exclusive():
                self._remove_leftovers()
        except BaseException:
            self._lock.close()
            raise

    @property
    def repairs(self) -> tuple[str, ...]:
        """The repairs since this store was opened: torn tails that were truncated, each with its place."""
        return tuple(self._index.repairs)

    def after_fork(self) -> None:
        """Discard the index: a thread of the parent may have been changing it during the fork."""
        self._index = DirectoryIndex(self._disk)

    def _require_open(self) -> None:
        if self._closed:
            raise StoreClosed(f"{self.url} was closed; open it again")

    def close(self) -> None:
        self._owners.close()
        self._closed = True
        self._lock.close()

    # --- opening -----------------------------------------------------------------------------------------------------

    def _make_root(self) -> None:
        if self._files.identity(self.path) is None:
            if self._files.identity(os.path.dirname(self.path)) is None:
                raise StorageFailed(f"{self.path} cannot be created; create its parent directory first")
            self._files.mkdir(self.path)
        names = set(self._files.listdir(self.path))
        if MARK in names:
            return
        if not names <= _OURS:
            raise StorageFailed(f"{self.path} has other files and is not a Holdfast directory; choose another one")
        self._files.sync_directory(os.path.dirname(self.path))

    def _prepare(self) -> None:
        """Create what is missing; the mark, which proves that everything was created, is written last."""
        mark = os.path.join(self.path, MARK)
        names = set(self._files.listdir(self.path))
        if MARK in names:
            version = self._checked_version(mark)
        elif self._files.listdir(self._index.families_path):
            raise DamagedData(self._disk.relative(mark), "it is missing, although there are runs")
        else:
            version = 0
        missing = [name for name in (FAMILIES, UNFINISHED) if name not in names]
        for name in missing:
            self._files.mkdir(os.path.join(self.path, name))
        if missing:
            self._files.sync_directory(self.path)
        self._disk.clear_unfinished()
        if version < VERSION:  # journals of version 1 are read as they are
            text = json.dumps({"format": FORMAT, "version": VERSION}, indent=1)
            self._disk.put(mark, text.encode() + b"\n")
            self._files.sync_directory(self.path)

    def _checked_version(self, mark: str) -> int:
        place = self._disk.relative(mark)
        try:
            content = json.loads(self._files.read(mark))
        except (ValueError, RecursionError) as error:
            raise DamagedData(place, f"it is not JSON ({error})") from error
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            raise StorageFailed(f"{self.path} is not a Holdfast directory; choose another one")
        version = content.get("version")
        if type(version) is not int or not 1 <= version <= VERSION:
            raise UnsupportedFormat(place, f"it has version {version}, this Holdfast supports {VERSION}")
        return version

    def _remove_leftovers(self) -> None:
        """Read everything, repair torn tails, and remove leftovers of deleted runs."""
        self._index.refresh()
        for family in list(self._index.families.values()):
            with contextlib.suppress(OSError):  # the next process that opens the store removes them
                self._index.remove_leftovers(family)

    # --- the lock ----------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _exclusive(self, consequence: str = "it cannot be read") -> Iterator[None]:
        """Hold the lock. A change that a dead or failed writer left unfinished is recovered first.

        `consequence` completes the message of a disk error.
        """
        self._require_open()
        with self._lock.hold() as note, translate_os_errors(f"{self.path}: {consequence}"):
            self._index.generation = note.generation
            self._recover()
            yield

    def _recover(self) -> None:
        """Recover a family that a writer left unfinished: write and sync what can be read of it."""
        writing = self._lock.note.writing
        if not writing:
            return
        self._index.forget()
        self._index.refresh()
        doubtful = [f for f in self._index.families.values() if writing in (f.name, EVERYTHING)]
        try:
            for family in doubtful:
                self._recover_family(family)
            self._files.sync_directory(self._index.families_path)
        except OSError as error:
            self._index.forget()
            raise StorageFailed(
                f"{self.path}: an earlier write failed or was interrupted, and the disk fails again ({error}) "
                "during its recovery; nothing else was done, check the disk"
            ) from error
        self._lock.clear_writing()

    def _recover_family(self, family: Family) -> None:
        for file in family.runs.values():
            file.rewrite_as_read()
        if family.runs:
            self._files.mkdir(family.chunks)
            self._files.sync_directory(family.chunks)
            if self._files.identity(family.packs.directory) is not None:
                self._files.sync_directory(family.packs.directory)
            self._files.sync_directory(family.path)
        else:
            self._index.remove_leftovers(family)


class DirectoryReads(DirectoryBase, FoldedReads):
    """The reads of the store."""

    def _reading(self) -> AbstractContextManager[None]:
        return self._exclusive()

    def _find(self, run_id: str) -> FoldedRun | None:
        file = self._index.find(run_id)
        return file.require_intact() if file else None

    def _at(self, run: int) -> FoldedRun | None:
        file = self._index.find_number(run)
        return file.require_intact() if file else None

    def _readable_runs(self) -> list[FoldedRun]:
        return [file.require_intact() for file in self._index.runs() if file.damage is None]

    def _family_runs(self, family: int) -> list[FoldedRun]:
        found = self._index.family(family)
        return [file.require_intact() for file in found.runs.values()] if found else []

    def _listed(self, query: RunQuery) -> list[RunRow]:
        family = self._index.family(query.family) if query.family is not None else None
        files = self._index.runs() if query.family is None else family.runs.values() if family is not None else ()
        # The claim of a damaged run cannot be trusted.
        rows = [file.visible_row() for file in files if query.claimed is None or file.damage is None]
        return [row for row in rows if row is not None]

    def published(self) -> dict[str, bytes]:
        folder = os.path.join(self.path, paths.CATALOG)
        found = {}
        with self._exclusive():
            for file in self._files.listdir(folder) if self._files.identity(folder) is not None else ():
                if not file.endswith(paths.WORKFLOW):
                    continue
                path = os.path.join(folder, file)
                line, _, body = self._files.read(path).partition(b"\n")
                try:
                    name = json.loads(line)
                except (ValueError, RecursionError):
                    name = None
                if not isinstance(name, str) or paths.catalog_path(self.path, name) != path:
                    raise DamagedData(self._disk.relative(path), "it does not begin with the name of its workflow")
                found[name] = bytes(body)
        return dict(sorted(found.items()))

    def run(self, run_id: str) -> RunRow | None:
        with self._exclusive():
            file = self._index.find(run_id)
            if file is None:
                return None
            if file.folded is None:
                file.require_intact()
            return file.visible_row()

    def checkpoint(self, run_id: str, select: Select, *, attachments: bool = False) -> Selected | None:
        with self._exclusive():
            file = self._index.find(run_id)
            if file is None:
                return None
            if file.folded is None or select.before is None:
                file.require_intact()
            row = file.visible_row()
            assert file.folded is not None
            assert row is not None
            return selected(file.folded, row, select, attachments=attachments)

    def chunks(self, family: int, hashes: Sequence[bytes]) -> dict[bytes, bytes]:
        with self._exclusive():
            found = self._index.family(family)
            return read_chunks(self._disk, found.chunks, hashes) if found else {}

    def chunk_sizes(self, family: int) -> dict[bytes, int]:
        with self._exclusive():
            found = self._index.family(family)
            return chunk_sizes(self._disk, found.chunks) if found else {}

    def packed(self, family: int, hashes: Sequence[bytes], held: Collection[int] = ()) -> PackedChunks:
        with self._exclusive():
            found = self._index.family(family)
            return found.packs.find(hashes, held) if found else PackedChunks({}, {})

    def packs(self, family: int) -> Packs:
        with self._exclusive():
            found = self._index.family(family)
            return found.packs.layout() if found else Packs({}, {})

    def _chunk_totals(self) -> tuple[int, int]:
        count = size = 0
        for family in self._index.families.values():
            loose, packs = chunk_sizes(self._disk, family.chunks), family.packs.files().values()
            count += len(loose) + sum(len(pack.chunks) for pack in packs)
            size += sum(loose.values()) + sum(pack.stored for pack in packs)
        return count, size

    def _file_bytes(self, chunk_bytes: int) -> int:
        families = self._index.families.values()
        chunk_bytes += sum(pack.file_bytes - pack.stored for f in families for pack in f.packs.files().values())
        places = [self.path, *(family.path for family in families)]
        found = [self._files.identity(os.path.join(place, name)) for place in places for name in _files_in(self, place)]
        return chunk_bytes + sum(identity.size for identity in found if identity is not None)

    def describe(self) -> About:
        facts = {"format": f"{FORMAT} {VERSION}", "sync": "every commit, file and directory"}
        return About(facts, self.path)

    def check(self) -> list[str]:
        with self._exclusive():
            self._index.forget()
            self._index.refresh()
            return [f"{damage.place}: {damage.reason}" for damage in self._index.damages()]


def _files_in(store: DirectoryReads, place: str) -> Iterable[str]:
    return [name for name in store._files.listdir(place) if "." in name]
