"""Files of lines, each one JSON object: read to the last whole line, whatever a crash left behind it.

A writer that died, or lost power, leaves bytes at the end that are no line. They were never acknowledged: readers pass
them over, and the next who appends removes them. A last line that only lacks its end counts: the original writes the
two separately. A broken line with a whole one behind it is damage, and is reported.

Bytes at the end of a shared file may also be a write of the other program that is under way: a reader sees a large one
piece by piece. They are removed only after a wait, and after a write of ours. The system carries out one write to a
file after the other, so what was under way is then complete, and is found to be a line. What is still torn is replaced
by blanks in its place; the file is never made shorter, so that nothing behind it can be lost.
"""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from blake3 import blake3

from holdfast.errors import DamagedFile
from holdfast.formats.folder import OWN, Folder, Line, log
from holdfast.formats.lossless import read_json, write_json
from holdfast.formats.shapes import Shape, read_checked
from holdfast.store.directory.files import Identity

_TORN: Final = "torn"
_GRACE_S: Final = 1.0
"""So long a torn end is left alone, in case a file system shows the parts of a write far apart."""


class Lines(NamedTuple):
    """What a file of lines holds."""

    values: list[dict[str, Any]]
    size: int
    """So many bytes are whole lines; what is behind them is a torn tail."""
    is_ended: bool
    """Whether the last line has its end."""
    problems: list[DamagedFile]
    """Broken lines in the middle."""


def read_lines(lines: Iterable[Line], shape: type[Shape], place: str, start: bytes | None = None) -> Lines:
    """What the lines of a file hold. With `start`, how a value begins, also those that share one line."""
    values: list[dict[str, Any]] = []
    broken: list[DamagedFile] = []
    found = Lines(values, 0, True, [])
    end = 0
    for number, (data, size, is_ended) in enumerate(lines, start=1):
        end += size
        if data is None:
            broken.append(DamagedFile(f"{place} line {number}", f"it has {size} bytes, which is too long to be read"))
            if is_ended:
                found = Lines(values, end, True, list(broken))
        elif data.strip():
            at = end - size
            for piece in _pieces(data, start):
                at += len(piece)
                is_last = at == end - size + len(data)
                try:
                    values.append(read_checked(piece, shape, f"{place} line {number}"))
                except DamagedFile as damage:
                    broken.append(damage)
                    if not (is_ended and _is_json(piece)):
                        continue
                found = Lines(values, end if is_last else at, is_last and is_ended, list(broken))
        elif found.size == end - size:
            found = found._replace(size=end, is_ended=is_ended)
    return found


def _pieces(line: bytes, start: bytes | None) -> list[bytes]:
    """The values of a line that several writers have written without an end between them."""
    if start is None or _is_json(line):
        return [line]
    places = [0, *(found.start() for found in re.finditer(re.escape(start), line) if found.start()), len(line)]
    return [line[one:other] for one, other in itertools.pairwise(places)]


def _torn_size(data: bytes, start: bytes | None) -> int:
    """How many bytes stand before the first value that was written whole."""
    size = 0
    for line in data.split(b"\n"):
        for piece in _pieces(line, start):
            if _is_json(piece):
                return size
            size += len(piece)
        size += 1
    return len(data)


def _is_json(piece: bytes) -> bool:
    """Whether a line was written whole, whatever it is."""
    try:
        read_json(piece, "")
    except DamagedFile:
        return False
    return True


class Seen(NamedTuple):
    """A file as it was read, or left by an append: what tells whether it is still so, and where its lines end."""

    identity: Identity | None
    size: int
    is_ended: bool

    @property
    def torn_bytes(self) -> int:
        """The length of the torn end."""
        return 0 if self.identity is None else self.identity.size - self.size


class LineFile:
    """One file of lines. It is read again before a line is appended only if it is not as this object left it.

    To a shared file another program appends as well: a line, which begins with `foreign_start`, and then its end,
    without any lock. A line of ours begins with an end of line, so that it never continues one that has not got its end
    yet; empty lines mean nothing.
    """

    def __init__(
        self,
        folder: Folder,
        name: tuple[str, ...],
        shape: type[Shape],
        torn_name: str,
        *,
        foreign_start: bytes | None = None,
    ) -> None:
        self._folder = folder
        self._name = name
        self._shape = shape
        self._torn_name = torn_name
        self._foreign_start = foreign_start
        self.left: Seen | None = None
        """The file as this object left it, if no other program appended to it at the same time."""

    def read(self) -> Lines:
        """What it holds."""
        lines, place = self._folder.lines(*self._name), self._folder.at(*self._name)
        return read_lines(lines, self._shape, place, self._foreign_start)

    def read_unchanged(self) -> tuple[Lines, Seen]:
        """What it holds at a moment at which no other program changed it."""
        while True:
            before = self._folder.identity(*self._name)
            lines = self.read()
            if before == self._folder.identity(*self._name):
                return lines, Seen(before, lines.size, lines.is_ended)

    def is_unchanged(self, seen: Seen) -> bool:
        """Whether it is as it was seen."""
        return seen.identity == self._folder.identity(*self._name)

    def append(self, value: dict[str, Any], seen: Seen | None = None) -> bool:
        """Add a line, durably. Whoever does holds the folder's lock. A torn end is removed first, and kept beside.

        With `seen`: False, and nothing was added, if the file is no longer so, or a torn end had to be removed.
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
            self.left = Seen(identity, size, is_ended=True)
        return True

    def settle(self) -> None:
        """Make durable what stands in it: an earlier call may have failed in that, or died before."""
        if self._folder.identity(*self._name) is not None:
            self._folder.sync_file(*self._name)
        self._folder.settle(*self._name[:-1])

    def mend(self) -> bool:
        """Remove a torn end, and keep it beside; whether there was one. Whoever does holds the folder's lock."""
        at = self.read_unchanged()[1]
        return at.torn_bytes > 0 and self._remove_torn(at)

    def _remove_torn(self, at: Seen) -> bool:
        """Remove the torn end that was seen; False if it turns out to be a line, or changes meanwhile."""
        if self._foreign_start is None:
            self._keep_beside(self._folder.end_of(at.size, *self._name), at.size)
            self._folder.cut(at.size, *self._name)
            return True
        _wait_until_old(at)
        if not self.is_unchanged(at):
            return False
        self._folder.append(b"\n", *self._name)  # behind every write that was under way
        end = self._folder.end_of(at.size, *self._name)
        size = end.find(b"\n", at.torn_bytes - 1) + 1
        torn = end[: _torn_size(end[:size], self._foreign_start)]
        if not torn:
            return False
        self._keep_beside(torn if len(torn) <= at.torn_bytes else torn.removesuffix(b"\n"), at.size)
        blank = (b" " * 1023 + b"\n") * (len(torn) // 1024 + 1)  # no line is too long to be read
        self._folder.overwrite(at.size, blank[-len(torn) :], *self._name)
        return True

    def _keep_beside(self, torn: bytes, size: int) -> None:
        kept = (OWN, _TORN, f"{self._torn_name}-{size}-{blake3(torn).hexdigest(4)}")
        self._folder.put(torn, *kept, limited=False)
        log.warning(
            "%s ended in %d bytes that are no line; they are kept in %s",
            self._folder.at(*self._name), len(torn), self._folder.at(*kept),
        )  # fmt: skip


def _wait_until_old(at: Seen) -> None:
    written_ns = 0 if at.identity is None else at.identity.written_ns
    age_s = max(0.0, time.time() - written_ns / 1e9)
    if age_s < _GRACE_S:
        time.sleep(_GRACE_S - age_s)


def line_of(data: bytes, *, is_ended: bool = True) -> bytes:
    """A line as it is appended to lines of which the last has its end, or has not."""
    return (b"" if is_ended else b"\n") + data + b"\n"
