"""Files of lines, each one JSON object: read to the last whole line, whatever a crash left behind it.

A writer that died, or lost power, leaves bytes at the end that are no line. They were never acknowledged: readers pass
them over, and the next who appends cuts them off. A last line that only lacks its end counts: the original writes the
two separately. A broken line with a whole one behind it is damage, and is reported.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from blake3 import blake3

from holdfast.errors import DamagedFile
from holdfast.formats.folder import OWN, Folder, Line, log
from holdfast.formats.lossless import read_json, write_json
from holdfast.formats.shapes import Shape, read_checked
from holdfast.store.directory.files import Identity

_TORN: Final = "torn"


class Lines(NamedTuple):
    """What a file of lines holds."""

    values: list[dict[str, Any]]
    size: int
    """So many bytes are whole lines; what is behind them is a torn tail."""
    is_ended: bool
    """Whether the last line has its end."""
    problems: list[DamagedFile]
    """Broken lines in the middle."""


def read_lines(lines: Iterable[Line], shape: type[Shape], place: str) -> Lines:
    """What the lines of a file hold."""
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
            try:
                values.append(read_checked(data, shape, f"{place} line {number}"))
            except DamagedFile as damage:
                broken.append(damage)
                if not (is_ended and _is_json(data)):
                    continue
            found = Lines(values, end, is_ended, list(broken))
        elif is_ended and not broken:
            found = found._replace(size=end, is_ended=True)
    return found


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


class LineFile:
    """One file of lines. It is read again before a line is appended only if it is not as this object left it.

    To one that `is_shared` another program appends as well: a line, and then its end, without any lock. A line of ours
    begins with an end of line, so that it never continues one that has not got its end yet; empty lines mean nothing.
    """

    def __init__(
        self, folder: Folder, name: tuple[str, ...], shape: type[Shape], torn_name: str, *, is_shared: bool = False
    ) -> None:
        self._folder = folder
        self._name = name
        self._shape = shape
        self._torn_name = torn_name
        self._is_shared = is_shared
        self.left: Seen | None = None
        """The file as this object left it, if no other program appended to it at the same time."""

    def read(self) -> Lines:
        """What it holds."""
        return read_lines(self._folder.lines(*self._name), self._shape, self._folder.at(*self._name))

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
        """Add a line, durably. Whoever does holds the folder's lock. A torn end is cut off first, and kept beside.

        With `seen`: False, and nothing was written, if the file is no longer so.
        """
        data, at, self.left = write_json(value, compact=True), seen or self.left, None
        if at is None or not self.is_unchanged(at):
            if seen is not None:
                return False
            at = self.read_unchanged()[1]
        if at.identity is not None and at.size < at.identity.size:
            self._cut_off(self._folder.end_of(at.size, *self._name), at.size)
        line = line_of(data, is_ended=at.is_ended and not self._is_shared)
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

    def _cut_off(self, torn: bytes, size: int) -> None:
        kept = (OWN, _TORN, f"{self._torn_name}-{size}-{blake3(torn).hexdigest(4)}")
        self._folder.put(torn, *kept, limited=False)
        self._folder.cut(size, *self._name)
        log.warning(
            "%s ended in %d bytes that are no line; they are kept in %s",
            self._folder.at(*self._name), len(torn), self._folder.at(*kept),
        )  # fmt: skip


def line_of(data: bytes, *, is_ended: bool = True) -> bytes:
    """A line as it is appended to lines of which the last has its end, or has not."""
    return (b"" if is_ended else b"\n") + data + b"\n"
