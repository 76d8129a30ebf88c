"""The journal file of one run: what was read of it, and how it is written."""

from __future__ import annotations

import contextlib
import os

import msgspec
from blake3 import blake3

from holdfast.errors import DamagedData
from holdfast.model.rows import RunRow
from holdfast.store.directory.changes import Renderer, read_change, write_change
from holdfast.store.directory.disk import Disk, Unclear
from holdfast.store.directory.files import Identity
from holdfast.store.directory.lines import read_lines, write_line
from holdfast.store.directory.names import JOURNAL, NEWEST, stem
from holdfast.store.folding import Change, FoldedRun


class RunFile:
    """A run's file and the run it makes. All of it is a memory of the file and can be read again."""

    def __init__(self, disk: Disk, family: int, family_path: str, name: str) -> None:
        self._disk = disk
        self.family = family
        self.stem = name
        self.path = os.path.join(family_path, name + JOURNAL)
        self.newest_path = os.path.join(family_path, name + NEWEST)
        self.folded: FoldedRun | None = None
        self.damage: DamagedData | None = None
        self._identity: Identity | None = None
        self._size = 0
        self._lines = 0
        self._hash = blake3()
        """Of all whole lines: tells whether a file that grew is still the same before them."""

    @property
    def place(self) -> str:
        """How it is named in messages."""
        return self._disk.relative(self.path)

    def checked(self) -> FoldedRun:
        """The run; raises DamagedData if its file is damaged."""
        if self.damage is not None:
            raise self.damage
        assert self.folded is not None
        return self.folded

    def shown_row(self) -> RunRow | None:
        """The run's row. That of a damaged file is as far as it could be read, and does not fit its seal."""
        if self.folded is None:
            return None
        row = self.folded.row
        return row if self.damage is None else msgspec.structs.replace(row, seal=row.seal ^ 1)

    # --- reading -----------------------------------------------------------------------------------------------------

    def forget(self) -> None:
        """Read the file again before it is used."""
        self._identity = None

    def refresh(self) -> str | None:
        """Read the file if it is not the one that was read. Cuts off a torn tail, and says so."""
        identity = self._disk.files.identity(self.path)
        if identity is None:
            raise FileNotFoundError(self.path)
        if identity == self._identity:
            return None
        data = self._disk.files.read(self.path)
        try:
            self._read(data)
        except BaseException:  # an interrupt, or a stack that is too deep: nothing of it may stay half done
            self.folded, self.damage, self._size, self._lines, self._hash = None, None, 0, 0, blake3()
            self.forget()
            raise
        torn = len(data) - self._size
        if self.damage is None and torn:
            self._disk.cut(self.path, self._size)
            identity = self._disk.files.identity(self.path)
        self._identity = identity
        if self.damage is not None or not torn:
            return None
        return f"{self.place} line {self._lines + 1}: {torn} bytes of an unfinished write were cut off"

    def _read(self, data: bytes) -> None:
        view = memoryview(data)
        is_same = blake3(view[: self._size]).digest() == self._hash.digest()
        if self.folded is None or self.damage is not None or not is_same:
            self.folded, self.damage, self._size, self._lines, self._hash = None, None, 0, 0, blake3()
        start = self._size
        found = read_lines(data, self.place, self._lines + 1, start)
        self.damage = found.damage
        try:
            for content in found.objects:
                self._fold(content)
        except DamagedData as damage:
            self.damage = damage
        if self.folded is None and self.damage is None:
            self.damage = DamagedData(f"{self.place} line 1", "it has no whole line")
        self._size += found.size
        self._hash.update(view[start : self._size])

    def _fold(self, content: dict[str, object]) -> None:
        place = f"{self.place} line {self._lines + 1}"
        change = read_change(content, self.folded.row if self.folded else None, place)
        if self.folded is None:
            row = change.run
            if stem(row.run_id) != self.stem or row.family != self.family:
                raise DamagedData(place, f"it holds run {row.run_id!r} of family {row.family}, which belongs elsewhere")
            self.folded = FoldedRun(change)
        else:
            self.folded.apply(change)
        self._lines += 1

    # --- writing -----------------------------------------------------------------------------------------------------

    def create(self, change: Change, renderer: Renderer | None) -> None:
        """The file with its first line. An OSError leaves nothing; Unclear says that it is not known."""
        files, line = self._disk.files, write_line(1, write_change(change, None, renderer))
        self._disk.put(self.path, line)
        directory = os.path.dirname(self.path)
        try:
            files.sync_directory(directory)
        except OSError as error:
            self._take_back(directory, error)
            raise
        self.folded, self._lines, self._size = FoldedRun(change), 1, len(line)
        self._hash = blake3(line)
        self._remember()

    def _take_back(self, directory: str, error: OSError) -> None:
        try:
            self._disk.files.unlink(self.path)
            self._disk.files.sync_directory(directory)
        except OSError as again:
            raise Unclear(
                f"{self.path}: the disk failed while writing ({error}) and again when that was to be taken back "
                f"({again}); whether it was saved is not known"
            ) from error

    def append(self, change: Change, renderer: Renderer | None) -> None:
        """One more line. An OSError leaves nothing of it; Unclear says that it is not known."""
        folded = self.checked()
        line = write_line(self._lines + 1, write_change(change, folded.row, renderer))
        try:
            self._disk.append(self.path, self._size, line)
        except BaseException:
            self.forget()
            raise
        self._lines += 1
        self._size += len(line)
        folded.apply(change)
        self._hash.update(line)
        self._remember()

    def rewrite(self, renderer: Renderer | None) -> None:
        """The file anew, with only what still holds. An OSError before the directory is synced has changed nothing."""
        row, lines = None, []
        for number, change in enumerate(self.checked().kept(), start=1):
            lines.append(write_line(number, write_change(change, row, renderer)))
            row = change.run
        self._put(b"".join(lines))

    def settle(self) -> None:
        """The file anew, as it is, because it is not known whether all that can be read of it is on the disk."""
        self.forget()
        self.refresh()
        if self.damage is None:
            self._put(self._disk.files.read(self.path)[: self._size])

    def _put(self, data: bytes) -> None:
        self.forget()
        self._disk.put(self.path, data)
        self._lines, self._size, self._hash = data.count(b"\n"), len(data), blake3(data)
        self._remember()

    def _remember(self) -> None:
        with contextlib.suppress(OSError):  # then it is read again
            self._identity = self._disk.files.identity(self.path)
