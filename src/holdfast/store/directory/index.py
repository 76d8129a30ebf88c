"""The index of all families and runs of a directory. Changed files are read again."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator

from holdfast.errors import DamagedData
from holdfast.files.durable import DurableDirectory
from holdfast.store.directory import paths
from holdfast.store.directory.pack_files import PackFiles
from holdfast.store.directory.run_journal import RunJournal

_log = logging.getLogger("holdfast.directory")


class Family:
    """A directory with the runs that share chunks."""

    def __init__(self, disk: DurableDirectory, families_path: str, number: int, name: str) -> None:
        self.number = number
        self.name = name
        self.path = os.path.join(families_path, name)
        self.chunks = os.path.join(self.path, paths.CHUNKS)
        self.packs = PackFiles(disk, os.path.join(self.path, paths.PACKS))
        self.runs: dict[str, RunJournal] = {}
        """By the stem of their files."""


class DirectoryIndex:
    """The families and runs of a directory, in memory. Callers hold the lock."""

    def __init__(self, disk: DurableDirectory) -> None:
        self._disk = disk
        self.families_path = os.path.join(disk.root, paths.FAMILIES)
        self.repairs: list[str] = []
        self.generation = 0
        """The generation of the directory, set after the lock was taken."""
        self.forget()

    def forget(self) -> None:
        """Read everything again."""
        self.families: dict[int, Family] = {}
        self._runs: dict[str, RunJournal] = {}
        self._numbers: dict[int, RunJournal] = {}
        self._read: int | None = None
        """The generation of the directory that was read; None if nothing was read yet."""

    def begin_generation(self, generation: int) -> None:
        """Set the generation that this store is about to write."""
        if self._read == self.generation:
            self._read = generation
        self.generation = generation

    # --- finding -----------------------------------------------------------------------------------------------------

    def find(self, run_id: str) -> RunJournal | None:
        """The file of a run, as it is now."""
        name = paths.run_stem(run_id)
        file = self._find_current(lambda: self._runs.get(name))
        if file is not None and file.folded is not None and file.folded.row.run_id != run_id:
            raise DamagedData(file.place, f"it contains run {file.folded.row.run_id!r}, not {run_id!r}")
        return file

    def find_number(self, run: int) -> RunJournal | None:
        """The file of the run with this number, as it is now."""
        return self._find_current(lambda: self._numbers.get(run))

    def _find_current(self, get: Callable[[], RunJournal | None]) -> RunJournal | None:
        file = get()
        if self._read != self.generation if file is None else not self._exists(file):
            self.refresh()
            file = get()
        return file

    def family(self, number: int) -> Family | None:
        """A family with all its runs, as they are now."""
        if self._read != self.generation:
            self.refresh()
        found = self.families.get(number)
        if found is not None and not all(self._exists(file) for file in found.runs.values()):
            self.refresh()
            found = self.families.get(number)
        return found

    def runs(self) -> list[RunJournal]:
        """All runs of which at least the beginning can be read, by number."""
        if self._read != self.generation:
            self.refresh()
        return [file for _, file in sorted(self._numbers.items())]

    def damages(self) -> list[DamagedData]:
        """The damage of all files that cannot be read."""
        lost = [family for family in self.families.values() if not family.runs]
        return (
            [file.damage for file in self._files() if file.damage is not None]
            + [DamagedData(self._disk.relative(family.path), "it has no journal of a run") for family in lost]
            + [damage for family in self.families.values() for damage in family.packs.damages()]
        )

    def last_run(self) -> int:
        """The largest number of a run or family."""
        return max((*self._numbers, *self.families), default=0)

    def _files(self) -> Iterator[RunJournal]:
        return (file for family in self.families.values() for file in family.runs.values())

    # --- reading -----------------------------------------------------------------------------------------------------

    def _exists(self, file: RunJournal) -> bool:
        """Read the file again if it has changed; False if it was removed."""
        try:
            repaired = file.refresh()
        except FileNotFoundError:
            return False
        if repaired is not None:
            self.repairs.append(repaired)
            _log.warning("%s", repaired)
        return True

    def refresh(self) -> None:
        """Check all files, and read those that have changed."""
        known = {file.path: file for file in self._files()}
        self.forget()
        for name in sorted(self._disk.files.listdir(self.families_path)):
            number = paths.family_number(name)
            if number is not None:
                self._read_family(Family(self._disk, self.families_path, number, name), known)
        self._read = self.generation

    def _read_family(self, family: Family, known: dict[str, RunJournal]) -> None:
        twin = self.families.get(family.number)
        for name in sorted(self._disk.files.listdir(family.path)):
            stem = paths.journal_stem(name)
            if stem is None:
                continue
            path = os.path.join(family.path, name)
            file = known.get(path) or RunJournal(self._disk, family.number, family.path, stem)
            if self._exists(file):
                family.runs[stem] = file
                self._register(file, f"the family {family.number} is also in {twin.name}" if twin is not None else "")
        if twin is None:
            self.families[family.number] = family
        else:
            twin.runs.update((f"{family.name}/{stem}", file) for stem, file in family.runs.items())

    def _register(self, file: RunJournal, problem: str = "") -> None:
        """Index the file by id and number, which must be unique. A file with a `problem` is damaged."""
        namesake = self._runs.get(file.stem)
        if namesake is None or namesake.folded is None:
            self._runs[file.stem] = file
        elif file.folded is not None:
            problem = f"the run is also in {namesake.place}"
        if file.folded is not None:
            other = self._numbers.setdefault(file.folded.row.run, file)
            if other is not file and file.damage is None and not problem:
                problem = f"the run's number is also used in {other.place}"
        if problem:
            file.damage = DamagedData(file.place, problem)
            file.forget()

    # --- changing ----------------------------------------------------------------------------------------------------

    def new_family(self, number: int, run_id: str) -> Family:
        """A family that is about to be created."""
        return Family(self._disk, self.families_path, number, paths.family_name(number, run_id))

    def add(self, family: Family, file: RunJournal) -> None:
        """Add a run that was created."""
        self.families.setdefault(family.number, family).runs[file.stem] = file
        self._register(file)

    def remove(self, family: Family, file: RunJournal) -> None:
        """Remove a run that was deleted."""
        family.runs.pop(file.stem, None)
        self._runs.pop(file.stem, None)
        if file.folded is not None:
            self._numbers.pop(file.folded.row.run, None)

    def remove_leftovers(self, family: Family) -> None:
        """Remove what does not belong to a run: previews, and an unfinished family. Raises OSError."""
        files = self._disk.files
        names = files.listdir(family.path)
        for name in names:
            if name.endswith(paths.NEWEST) and name.removesuffix(paths.NEWEST) not in family.runs:
                files.unlink(os.path.join(family.path, name))
        if not family.runs:
            chunks = files.listdir(family.chunks)
            if paths.PASSING not in names and (chunks or set(names) - {paths.CHUNKS}):
                return  # it was not left by a writer that died
            for name in chunks:
                if paths.chunk_hash(name) is not None:
                    files.unlink(os.path.join(family.chunks, name))
            if paths.PACKS in names:
                family.packs.clear()
            if paths.CHUNKS in names:
                files.rmdir(family.chunks)
                files.sync_directory(family.path)
        if paths.PASSING in names:
            files.unlink(os.path.join(family.path, paths.PASSING))
        if not family.runs:
            files.rmdir(family.path)
            files.sync_directory(self.families_path)
            self.families.pop(family.number, None)
