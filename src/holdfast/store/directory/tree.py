"""All families and runs of a directory, remembered, and read again where the files have changed."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator

from holdfast.errors import DamagedData
from holdfast.store.directory.disk import Disk
from holdfast.store.directory.names import (
    CHUNKS,
    NEWEST,
    PASSING,
    chunk_hash,
    family_name,
    family_number,
    journal_stem,
    stem,
)
from holdfast.store.directory.runfile import RunFile

_log = logging.getLogger("holdfast.directory")


class Family:
    """A directory with the runs that share chunks."""

    def __init__(self, disk: Disk, number: int, name: str) -> None:
        self.number = number
        self.name = name
        self.path = os.path.join(disk.families, name)
        self.chunks = os.path.join(self.path, CHUNKS)
        self.runs: dict[str, RunFile] = {}
        """By the beginning of the name of their files."""


class Tree:
    """What is in the directory. Used by whoever has the lock."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self.repairs: list[str] = []
        self._now = 0
        self.forget()

    def forget(self) -> None:
        """Read everything again."""
        self.families: dict[int, Family] = {}
        self._runs: dict[str, RunFile] = {}
        self._numbers: dict[int, RunFile] = {}
        self._read: int | None = None
        """All of the tree is as it was in this generation of the directory; None if nothing was read yet."""

    def entered(self, generation: int) -> None:
        """The lock was taken, and the directory is in this generation."""
        self._now = generation

    def changing(self, generation: int) -> None:
        """Whoever has the lock is about to make this generation of the one before."""
        if self._read == self._now:
            self._read = generation
        self._now = generation

    # --- finding -----------------------------------------------------------------------------------------------------

    def find(self, run_id: str) -> RunFile | None:
        """The file of a run, as it is now."""
        name = stem(run_id)
        file = self._runs.get(name)
        if (file is None and self._read != self._now) or (file is not None and not self._is_there(file)):
            self.refresh()
            file = self._runs.get(name)
        if file is not None and file.folded is not None and file.folded.row.run_id != run_id:
            raise DamagedData(file.place, f"it holds run {file.folded.row.run_id!r}, not {run_id!r}")
        return file

    def at(self, run: int) -> RunFile | None:
        """The file of the run with this number, as it is now."""
        file = self._numbers.get(run)
        if (file is None and self._read != self._now) or (file is not None and not self._is_there(file)):
            self.refresh()
            file = self._numbers.get(run)
        return file

    def family(self, number: int) -> Family | None:
        """A family with all its runs, as they are now."""
        if self._read != self._now:
            self.refresh()
        found = self.families.get(number)
        if found is not None and not all(self._is_there(file) for file in found.runs.values()):
            self.refresh()
            found = self.families.get(number)
        return found

    def runs(self) -> list[RunFile]:
        """All runs of which at least the beginning can be read, by number."""
        if self._read != self._now:
            self.refresh()
        return [file for _, file in sorted(self._numbers.items())]

    def damages(self) -> list[DamagedData]:
        """What cannot be read."""
        lost = [family for family in self.families.values() if not family.runs]
        return [file.damage for file in self._files() if file.damage is not None] + [
            DamagedData(self._disk.relative(family.path), "it has no run's journal") for family in lost
        ]

    def last_run(self) -> int:
        """The largest number of a run or family there is."""
        return max((*self._numbers, *self.families), default=0)

    def _files(self) -> Iterator[RunFile]:
        return (file for family in self.families.values() for file in family.runs.values())

    # --- reading -----------------------------------------------------------------------------------------------------

    def _is_there(self, file: RunFile) -> bool:
        """Read the file again if it has changed; False if it is gone."""
        try:
            self._refresh_file(file)
        except FileNotFoundError:
            return False
        return True

    def _refresh_file(self, file: RunFile) -> None:
        repaired = file.refresh()
        if repaired is not None:
            self.repairs.append(repaired)
            _log.warning("%s", repaired)

    def refresh(self) -> None:
        """Look at all files, and read those that have changed."""
        known = {file.path: file for file in self._files()}
        self.forget()
        for name in sorted(self._disk.files.listdir(self._disk.families)):
            number = family_number(name)
            if number is not None:
                self._read_family(Family(self._disk, number, name), known)
        self._read = self._now

    def _read_family(self, family: Family, known: dict[str, RunFile]) -> None:
        twin = self.families.get(family.number)
        for name in sorted(self._disk.files.listdir(family.path)):
            start = journal_stem(name)
            if start is None:
                continue
            file = known.get(os.path.join(family.path, name)) or RunFile(self._disk, family.number, family.path, start)
            if not self._is_there(file):
                continue
            family.runs[start] = file
            if twin is not None:
                file.damage = DamagedData(file.place, f"the family {family.number} is also in {twin.name}")
                file.forget()
            self._note(file)
        if twin is None:
            self.families[family.number] = family
        else:
            twin.runs.update((f"{family.name}/{start}", file) for start, file in family.runs.items())

    def _note(self, file: RunFile) -> None:
        """Find it by id and number; no two may have the same."""
        other = self._runs.get(file.stem)
        if other is None or other.folded is None:
            self._runs[file.stem] = file
        if file.folded is None:
            return
        if other is not None and other.folded is not None:
            file.damage = DamagedData(file.place, f"the run is also in {other.place}")
            file.forget()
        other = self._numbers.setdefault(file.folded.row.run, file)
        if other is not file and file.damage is None:
            file.damage = DamagedData(file.place, f"the run's number is also used in {other.place}")
            file.forget()

    # --- changing ----------------------------------------------------------------------------------------------------

    def new_family(self, number: int, run_id: str) -> Family:
        """A family that is about to be made."""
        return Family(self._disk, number, family_name(number, run_id))

    def add(self, family: Family, file: RunFile) -> None:
        """A run that was just made."""
        self.families.setdefault(family.number, family).runs[file.stem] = file
        self._note(file)

    def remove(self, family: Family, file: RunFile) -> None:
        """A run that was just deleted."""
        family.runs.pop(file.stem, None)
        self._runs.pop(file.stem, None)
        if file.folded is not None:
            self._numbers.pop(file.folded.row.run, None)

    def remove_leftovers(self, family: Family) -> None:
        """Remove what belongs to no run: files for people, and a family that was not finished. Raises OSError."""
        files = self._disk.files
        names = files.listdir(family.path)
        for name in names:
            if name.endswith(NEWEST) and name.removesuffix(NEWEST) not in family.runs:
                files.unlink(os.path.join(family.path, name))
        passing = os.path.join(family.path, PASSING)
        if family.runs:
            if PASSING in names:
                files.unlink(passing)
            return
        chunks = files.listdir(family.chunks)
        if PASSING not in names and (chunks or set(names) - {CHUNKS}):
            return  # whatever it is, it was not left by a writer that died
        for name in chunks:
            if chunk_hash(name) is not None:
                files.unlink(os.path.join(family.chunks, name))
        if CHUNKS in names:
            files.rmdir(family.chunks)
            files.sync_directory(family.path)
        if PASSING in names:
            files.unlink(passing)
        files.rmdir(family.path)
        files.sync_directory(self._disk.families)
        self.families.pop(family.number, None)
