"""Files of JSON lines, which may be shared with another program.

A writer that died leaves a torn end: bytes at the end that are not a line. They were never acknowledged, so readers
skip them and the next append removes them. A last line without its newline counts, because the original writes the two
separately. A broken line before a whole one is damage, and is reported.

The end of a shared file may also be a write of the other program in progress, of which a reader sees only a part. It is
removed only after a wait, and after a write by this library. The kernel serializes writes to a file, so the other write
is complete by then and proves to be a line. Bytes that are still torn are overwritten with blanks; a shared file is
never truncated, so no line behind them can be lost.
"""

from __future__ import annotations

import io
import itertools
import re
import time
from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec
from blake3 import blake3

from holdfast.errors import DamagedFile
from holdfast.files.os_files import Identity
from holdfast.formats.folder import OWN, Folder, Line, log
from holdfast.formats.schema import JsonObject, Schema, read_json, read_object, write_json

_GRACE_S: Final = 1.0
"""How old a torn end must be, in case a file system shows the parts of a write at different times."""


class Lines(NamedTuple):
    """The content of a file of lines."""

    values: list[JsonObject]
    size: int
    """The size of the whole lines; the bytes behind them are a torn end."""
    is_ended: bool
    """Whether the last line has its newline."""
    problems: list[DamagedFile]
    """Broken lines before whole ones."""


def read_lines(lines: Iterable[Line], schema: type[Schema], place: str, start: bytes = b"") -> Lines:
    """Return the values of a file. `start` is how every value begins; with it, values that share a line are found."""
    values: list[JsonObject] = []
    broken: list[DamagedFile] = []
    found, end = Lines(values, 0, True, []), 0
    for number, (data, size, is_ended) in enumerate(lines, start=1):
        at, end = end, end + size
        if data is None:
            broken.append(DamagedFile(f"{place} line {number}", f"it has {size} bytes, which is too long"))
            if is_ended:
                found = Lines(values, end, True, list(broken))
        elif data.strip():
            for piece in _pieces(data, start):
                at += len(piece)
                is_last = at == end - is_ended
                try:
                    values.append(read_object(piece, schema, f"{place} line {number}"))
                except DamagedFile as damage:
                    broken.append(damage)
                    if not (is_ended and _is_json(piece)):
                        continue
                found = Lines(values, end if is_last else at, is_last and is_ended, list(broken))
        elif found.size == at:
            found = found._replace(size=end, is_ended=is_ended)
    return found


def _pieces(line: bytes, start: bytes) -> list[bytes]:
    """Return the values of a line that several writers have written without a newline between them."""
    if not start or _is_json(line):
        return [line]
    places = [0, *(found.start() for found in re.finditer(re.escape(start), line) if found.start()), len(line)]
    return [line[one:other] for one, other in itertools.pairwise(places)]


def _torn_size(data: bytes, start: bytes) -> int:
    """Return the number of bytes before the first whole value."""
    pieces = (piece for line in io.BytesIO(data) for piece in _pieces(line, start))
    return sum(len(piece) for piece in itertools.takewhile(lambda piece: not _is_json(piece), pieces))


def _is_json(piece: bytes) -> bool:
    """Whether a line is whole, whatever its content."""
    try:
        read_json(piece, "")
    except DamagedFile:
        return False
    return True


class Snapshot(NamedTuple):
    """A file as it was read, or left by an append: its identity, and the size of its whole lines."""

    identity: Identity | None
    size: int
    is_ended: bool

    @property
    def torn_bytes(self) -> int:
        """The length of the torn end."""
        return 0 if self.identity is None else self.identity.size - self.size


class LineFile(msgspec.Struct, eq=False):
    """One file of lines. Before an append it is read again only if it has changed since this object's last write.

    With `foreign_start` the file is shared: another program appends lines that begin so, and then their newlines,
    without any lock. In a shared file a line of this library begins with a newline, so that it never continues a line
    that has no newline yet; empty lines are ignored.
    """

    folder: Folder
    name: tuple[str, ...]
    schema: type[Schema]
    torn_name: str
    foreign_start: bytes = b""
    left: Snapshot | None = None
    """The file as this object left it, if no other program appended to it at the same time."""

    def read(self) -> Lines:
        """Return the content of the file."""
        return read_lines(self.folder.lines(*self.name), self.schema, self.folder.at(*self.name), self.foreign_start)

    def read_unchanged(self) -> tuple[Lines, Snapshot]:
        """Return the content of the file, read while no other program changed it."""
        while True:
            before = self.folder.identity(*self.name)
            lines = self.read()
            if before == self.folder.identity(*self.name):
                return lines, Snapshot(before, lines.size, lines.is_ended)

    def is_unchanged(self, seen: Snapshot) -> bool:
        """Whether the file has not changed since the snapshot."""
        return seen.identity == self.folder.identity(*self.name)

    def append(self, value: JsonObject, seen: Snapshot | None = None) -> bool:
        """Append a line durably. The caller holds the folder's lock. A torn end is removed first, and saved elsewhere.

        With `seen`: return False, and append nothing, if the file has changed since, or a torn end had to be removed.
        """
        data, known, self.left = write_json(value, compact=True), seen or self.left, None
        at = known if known is not None and self.is_unchanged(known) else None
        while at is None or at.torn_bytes > 0:
            if at is not None:
                self._remove_torn(at)
            if seen is not None:
                return False
            at = self.read_unchanged()[1]
        line = (b"" if at.is_ended and not self.foreign_start else b"\n") + data + b"\n"
        self.folder.append(line, *self.name)
        identity, size = self.folder.identity(*self.name), at.size + len(line)
        if identity is not None and identity.size == size:
            self.left = Snapshot(identity, size, is_ended=True)
        return True

    def sync(self) -> None:
        """Sync the file: the writer may have failed or died before its sync."""
        if self.folder.identity(*self.name) is not None:
            self.folder.sync_file(*self.name)
        self.folder.sync_path(*self.name[:-1])

    def remove_torn_end(self) -> bool:
        """Remove a torn end, and save it elsewhere. Return whether there was one. The caller holds the lock."""
        if self.left is not None and self.is_unchanged(self.left):
            return False
        at = self.read_unchanged()[1]
        return at.torn_bytes > 0 and self._remove_torn(at)

    def _remove_torn(self, at: Snapshot) -> bool:
        """Remove the torn end of the snapshot; return False if it proves to be a line, or has changed since."""
        if not self.foreign_start:
            self._save_torn(self.folder.read_from(at.size, *self.name), at.size)
            self.folder.truncate(at.size, *self.name)
            return True
        written_ns = 0 if at.identity is None else at.identity.written_ns
        time.sleep(max(0.0, _GRACE_S - max(0.0, time.time() - written_ns / 1e9)))
        if not self.is_unchanged(at):
            return False
        self.folder.append(b"\n", *self.name)  # completes behind every write in progress
        end = self.folder.read_from(at.size, *self.name)
        size = end.find(b"\n", at.torn_bytes - 1) + 1
        torn = end[: _torn_size(end[:size], self.foreign_start)]
        if not torn:
            return False
        self._save_torn(torn if len(torn) <= at.torn_bytes else torn.removesuffix(b"\n"), at.size)
        blank = (b" " * 1023 + b"\n") * (len(torn) // 1024 + 1)  # no line exceeds the limit of readers
        self.folder.overwrite(at.size, blank[-len(torn) :], *self.name)
        return True

    def _save_torn(self, torn: bytes, size: int) -> None:
        kept = (OWN, "torn", f"{self.torn_name}-{size}-{blake3(torn).hexdigest(4)}")
        self.folder.put(torn, *kept, limited=False)
        place, moved = self.folder.at(*self.name), self.folder.at(*kept)
        log.warning("%s ended in %d bytes that are not a line; they were moved to %s", place, len(torn), moved)
