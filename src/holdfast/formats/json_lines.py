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

import itertools
import re
import time
from collections.abc import Iterable
from typing import Final, NamedTuple

from blake3 import blake3

from holdfast.errors import DamagedFile
from holdfast.files.os_files import Identity
from holdfast.formats.folder import OWN, Folder, Line, log
from holdfast.formats.schema import JsonObject, Schema, read_json, read_object, write_json

_TORN: Final = "torn"
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


def read_lines(lines: Iterable[Line], schema: type[Schema], place: str, start: bytes | None = None) -> Lines:
    """Return the values of a file. `start` is how every value begins; with it, values that share a line are found."""
    values: list[JsonObject] = []
    broken: list[DamagedFile] = []
    found = Lines(values, 0, True, [])
    end = 0
    for number, (data, size, is_ended) in enumerate(lines, start=1):
        end += size
        if data is None:
            broken.append(DamagedFile(f"{place} line {number}", f"it has {size} bytes, which is too long"))
            if is_ended:
                found = Lines(values, end, True, list(broken))
        elif data.strip():
            at = end - size
            for piece in _pieces(data, start):
                at += len(piece)
                is_last = at == end - size + len(data)
                try:
                    values.append(read_object(piece, schema, f"{place} line {number}"))
                except DamagedFile as damage:
                    broken.append(damage)
                    if not (is_ended and _is_json(piece)):
                        continue
                found = Lines(values, end if is_last else at, is_last and is_ended, list(broken))
        elif found.size == end - size:
            found = found._replace(size=end, is_ended=is_ended)
    return found


def _pieces(line: bytes, start: bytes | None) -> list[bytes]:
    """Return the values of a line that several writers have written without a newline between them."""
    if start is None or _is_json(line):
        return [line]
    places = [0, *(found.start() for found in re.finditer(re.escape(start), line) if found.start()), len(line)]
    return [line[one:other] for one, other in itertools.pairwise(places)]


def _torn_size(data: bytes, start: bytes | None) -> int:
    """Return the number of bytes before the first whole value."""
    size = 0
    for line in data.split(b"\n"):
        for piece in _pieces(line, start):
            if _is_json(piece):
                return size
            size += len(piece)
        size += 1
    return len(data)


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


class LineFile:
    """One file of lines. Before an append it is read again only if it has changed since this object's last write.

    With `foreign_start` the file is shared: another program appends lines that begin so, and then their newlines,
    without any lock. In a shared file a line of this library begins with a newline, so that it never continues a line
    that has no newline yet; empty lines are ignored.
    """

    def __init__(
        self,
        folder: Folder,
        name: tuple[str, ...],
        schema: type[Schema],
        torn_name: str,
        *,
        foreign_start: bytes | None = None,
    ) -> None:
        self._folder = folder
        self._name = name
        self._schema = schema
        self._torn_name = torn_name
        self._foreign_start = foreign_start
        self.left: Snapshot | None = None
        """The file as this object left it, if no other program appended to it at the same time."""

    def read(self) -> Lines:
        """Return the content of the file."""
        lines, place = self._folder.lines(*self._name), self._folder.at(*self._name)
        return read_lines(lines, self._schema, place, self._foreign_start)

    def read_unchanged(self) -> tuple[Lines, Snapshot]:
        """Return the content of the file, read while no other program changed it."""
        while True:
            before = self._folder.identity(*self._name)
            lines = self.read()
            if before == self._folder.identity(*self._name):
                return lines, Snapshot(before, lines.size, lines.is_ended)

    def is_unchanged(self, seen: Snapshot) -> bool:
        """Whether the file has not changed since the snapshot."""
        return seen.identity == self._folder.identity(*self._name)

    def append(self, value: JsonObject, seen: Snapshot | None = None) -> bool:
        """Append a line durably. The caller holds the folder's lock. A torn end is removed first, and saved elsewhere.

        With `seen`: return False, and append nothing, if the file has changed since, or a torn end had to be removed.
        """
        data, at, self.left = write_json(value, compact=True), seen or self.left, None
        if at is None or not self.is_unchanged(at):
            if seen is not None:
                return False
            at = self.read_unchanged()[1]
        while at.torn_bytes > 0:
            self._remove_torn(at)
            if seen is not None:
                return False
            at = self.read_unchanged()[1]
        line = line_of(data, is_ended=at.is_ended and self._foreign_start is None)
        self._folder.append(line, *self._name)
        identity, size = self._folder.identity(*self._name), at.size + len(line)
        if identity is not None and identity.size == size:
            self.left = Snapshot(identity, size, is_ended=True)
        return True

    def sync(self) -> None:
        """Sync the file: the writer may have failed or died before its sync."""
        if self._folder.identity(*self._name) is not None:
            self._folder.sync_file(*self._name)
        self._folder.sync_path(*self._name[:-1])

    def remove_torn_end(self) -> bool:
        """Remove a torn end, and save it elsewhere. Return whether there was one. The caller holds the lock."""
        if self.left is not None and self.is_unchanged(self.left):
            return False
        at = self.read_unchanged()[1]
        return at.torn_bytes > 0 and self._remove_torn(at)

    def _remove_torn(self, at: Snapshot) -> bool:
        """Remove the torn end of the snapshot; return False if it proves to be a line, or has changed since."""
        if self._foreign_start is None:
            self._save_torn(self._folder.read_from(at.size, *self._name), at.size)
            self._folder.truncate(at.size, *self._name)
            return True
        _wait_until_old(at)
        if not self.is_unchanged(at):
            return False
        self._folder.append(b"\n", *self._name)  # completes behind every write in progress
        end = self._folder.read_from(at.size, *self._name)
        size = end.find(b"\n", at.torn_bytes - 1) + 1
        torn = end[: _torn_size(end[:size], self._foreign_start)]
        if not torn:
            return False
        self._save_torn(torn if len(torn) <= at.torn_bytes else torn.removesuffix(b"\n"), at.size)
        blank = (b" " * 1023 + b"\n") * (len(torn) // 1024 + 1)  # no line exceeds the limit of readers
        self._folder.overwrite(at.size, blank[-len(torn) :], *self._name)
        return True

    def _save_torn(self, torn: bytes, size: int) -> None:
        kept = (OWN, _TORN, f"{self._torn_name}-{size}-{blake3(torn).hexdigest(4)}")
        self._folder.put(torn, *kept, limited=False)
        log.warning(
            "%s ended in %d bytes that are not a line; they were moved to %s",
            self._folder.at(*self._name),
            len(torn),
            self._folder.at(*kept),
        )


def _wait_until_old(at: Snapshot) -> None:
    written_ns = 0 if at.identity is None else at.identity.written_ns
    age_s = max(0.0, time.time() - written_ns / 1e9)
    if age_s < _GRACE_S:
        time.sleep(_GRACE_S - age_s)


def line_of(data: bytes, *, is_ended: bool = True) -> bytes:
    """Return a line as it is appended after a line that has its newline, or has not."""
    return (b"" if is_ended else b"\n") + data + b"\n"
