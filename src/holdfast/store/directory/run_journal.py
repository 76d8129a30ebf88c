"""The journal file of one run, and the format of its lines.

Every line has a number and a checksum. An incomplete last line is a torn write and is truncated; anything else that
does not match is damage.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec
from blake3 import blake3

from holdfast.errors import DamagedData
from holdfast.files.durable import DurableDirectory, outcome_unknown, truncate
from holdfast.files.os_files import Identity
from holdfast.model.rows import RunRow
from holdfast.store.directory.change_codec import Line, Renderer, read_change, write_change
from holdfast.store.directory.paths import JOURNAL, NEWEST, run_stem
from holdfast.store.folded_run import Change, FoldedRun


class RunJournal:
    """A run's journal file and the run folded from it. All of it can be read again from the file."""

    def __init__(self, disk: DurableDirectory, family: int, family_path: str, name: str) -> None:
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
        """The hash of all complete lines: it detects whether a file that grew has changed before its new lines."""

    @property
    def place(self) -> str:
        """The file's name in messages."""
        return self._disk.relative(self.path)

    def require_intact(self) -> FoldedRun:
        """Return the run; raises DamagedData if its file is damaged."""
        if self.damage is not None:
            raise self.damage
        assert self.folded is not None
        return self.folded

    def visible_row(self) -> RunRow | None:
        """The run's row. Of a damaged file it is the last that could be read, with a wrong checksum."""
        if self.folded is None:
            return None
        row = self.folded.row
        return row if self.damage is None else msgspec.structs.replace(row, seal=row.seal ^ 1)

    # --- reading -----------------------------------------------------------------------------------------------------

    def forget(self) -> None:
        """Read the file again before it is used."""
        self._identity = None

    def refresh(self) -> str | None:
        """Read the file if it has changed. Truncates a torn tail and returns a report of it."""
        identity = self._disk.files.identity(self.path)
        if identity is None:
            raise FileNotFoundError(self.path)
        if identity == self._identity:
            return None
        data = self._disk.files.read(self.path)
        try:
            self._read(data)
        except BaseException:  # an interrupt or a RecursionError: discard what was read in part
            self.folded, self.damage, self._size, self._lines, self._hash = None, None, 0, 0, blake3()
            self.forget()
            raise
        torn = len(data) - self._size
        if self.damage is None and torn:
            truncate(self._disk.files, self.path, self._size)
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
            self.damage = DamagedData(f"{self.place} line 1", "it has no complete line")
        self._size += found.size
        self._hash.update(view[start : self._size])

    def _fold(self, content: Line) -> None:
        place = f"{self.place} line {self._lines + 1}"
        change = read_change(content, self.folded.row if self.folded else None, place)
        if self.folded is None:
            row = change.run
            if run_stem(row.run_id) != self.stem or row.family != self.family:
                raise DamagedData(
                    place, f"it contains run {row.run_id!r} of family {row.family}, which is not the run of this file"
                )
            self.folded = FoldedRun(change)
        else:
            self.folded.apply(change)
        self._lines += 1

    # --- writing -----------------------------------------------------------------------------------------------------

    def create(self, change: Change, renderer: Renderer | None) -> None:
        """Create the file with its first line. After an OSError there is no file; AppendOutcomeUnknown: unknown."""
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
            raise outcome_unknown(self.path, error, again) from error

    def append(self, change: Change, renderer: Renderer | None) -> None:
        """Append a line. After an OSError nothing was appended; AppendOutcomeUnknown: unknown."""
        folded = self.require_intact()
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
        """Write the file again without what was replaced or pruned. An OSError changes nothing."""
        row, lines = None, []
        for number, change in enumerate(self.require_intact().minimal_changes(), start=1):
            lines.append(write_line(number, write_change(change, row, renderer)))
            row = change.run
        self._put(b"".join(lines))

    def rewrite_as_read(self) -> None:
        """Write the file again unchanged, because what was read may not be on the disk yet."""
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


_START: Final = b'{"sum":"'
_SUM: Final = 32
_REST: Final = len(_START) + _SUM + 2
_encode_into = msgspec.json.Encoder().encode_into


class JournalLines(NamedTuple):
    """The complete lines of a file, and where they end."""

    objects: list[Line]
    size: int
    """The bytes of the complete lines; what follows them is a torn tail."""
    damage: DamagedData | None
    """Why only the lines before it can be read."""


def write_line(number: int, content: Line) -> bytearray:
    """The line with this number. It is encoded in place, since it may contain a very large value."""
    line = bytearray(_REST)
    _encode_into({"n": number, **content}, line, _REST - 1)  # its opening brace is overwritten below
    line[:_REST] = b'%b%b",' % (_START, _checksum(memoryview(line)[_REST:]))
    line += b"\n"
    return line


def _checksum(rest: bytes | memoryview) -> bytes:
    return blake3(rest).hexdigest(16).encode()


def has_valid_checksum(line: bytes | memoryview) -> bool:
    """Whether the line, without its end, matches its checksum."""
    head = bytes(line[: len(_START) + _SUM])
    return head.startswith(_START) and head[len(_START) :] == _checksum(memoryview(line)[_REST:])


def _pieces(data: bytes, start: int) -> Iterator[memoryview]:
    """The lines from `start` on, each without its end. Bytes after the last line end are not a line."""
    view = memoryview(data)
    while (end := data.find(b"\n", start)) >= 0:
        yield view[start:end]
        start = end + 1


def read_lines(data: bytes, place: str, number: int = 1, start: int = 0) -> JournalLines:
    """The lines of a file from the byte `start` on, where line `number` begins. Does not copy them."""
    objects: list[Line] = []
    size = 0
    for at, piece in enumerate(_pieces(data, start)):
        line_place = f"{place} line {number + at}"
        if not has_valid_checksum(piece):
            if any(map(has_valid_checksum, _pieces(data, start + size + len(piece) + 1))):
                return JournalLines(objects, size, DamagedData(line_place, "it does not match its checksum"))
            return JournalLines(objects, size, None)
        try:
            content = json.loads(str(piece, "utf-8"))
        except ValueError as error:
            return JournalLines(objects, size, DamagedData(line_place, f"it is not JSON ({error})"))
        if content.get("n") != number + at:
            return JournalLines(objects, size, DamagedData(line_place, f"its number is {content.get('n')}"))
        objects.append(content)
        size += len(piece) + 1
    return JournalLines(objects, size, None)
