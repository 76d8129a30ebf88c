"""Files of lines, each one JSON object: read to the last whole line, whatever a crash left behind it.

A writer that died, or lost power, leaves bytes at the end that are no line. They were never acknowledged: readers pass
them over, and the next who appends cuts them off. A last line that only lacks its end counts: the original writes the
two separately. A broken line with a whole one behind it is damage, and is reported.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from blake3 import blake3

from holdfast.errors import DamagedFile
from holdfast.formats.folder import OWN, Folder, log
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


def read_lines(data: bytes, shape: type[Shape], place: str, first: int = 1) -> Lines:
    """The lines of a file, or of its end that begins with line `first`."""
    values: list[dict[str, Any]] = []
    broken: list[DamagedFile] = []
    found = Lines(values, 0, True, [])
    start = 0
    for number, piece in enumerate(data.split(b"\n"), start=first):
        end = start + len(piece)
        is_ended = end < len(data)
        if piece.strip():
            try:
                values.append(read_checked(piece, shape, f"{place} line {number}"))
            except DamagedFile as damage:
                broken.append(damage)
                if not (is_ended and _is_json(piece)):
                    start = end + 1
                    continue
            found = Lines(values, min(end + 1, len(data)), is_ended, list(broken))
        elif is_ended and not broken:
            found = found._replace(size=end + 1, is_ended=True)
        start = end + 1
    return found


def _is_json(piece: bytes) -> bool:
    """Whether a line was written whole, whatever it is."""
    try:
        read_json(piece, "")
    except DamagedFile:
        return False
    return True


class LineFile:
    """One file of lines. It is read again before a line is appended only if it is not as this object left it."""

    def __init__(self, folder: Folder, name: tuple[str, ...], shape: type[Shape], torn_name: str) -> None:
        self._folder = folder
        self._name = name
        self._shape = shape
        self._torn_name = torn_name
        self._left: Identity | None = None

    def read(self) -> Lines:
        """What it holds."""
        return self._lines(self._folder.read(*self._name) or b"")

    @property
    def is_as_left(self) -> bool:
        """Whether nobody has changed it since this object appended to it."""
        return self._left is not None and self._left == self._folder.identity(*self._name)

    def append(self, value: dict[str, Any]) -> None:
        """Add a line, durably. Whoever does holds the folder's lock. A torn end is cut off first, and kept beside."""
        data, is_ended = write_json(value, compact=True), True
        if not self.is_as_left:
            content = self._folder.read(*self._name) or b""
            lines = self._lines(content)
            is_ended = lines.is_ended
            if lines.size < len(content):
                self._cut_off(content[lines.size :], lines.size)
        self._left = None
        self._folder.append(line_of(data, is_ended=is_ended), *self._name)
        self._left = self._folder.identity(*self._name)

    def _lines(self, content: bytes) -> Lines:
        return read_lines(content, self._shape, self._folder.at(*self._name))

    def _cut_off(self, torn: bytes, size: int) -> None:
        kept = (OWN, _TORN, f"{self._torn_name}-{size}-{blake3(torn).hexdigest(4)}")
        self._folder.put(torn, *kept)
        self._folder.cut(size, *self._name)
        log.warning(
            "%s ended in %d bytes that are no line; they are kept in %s",
            self._folder.at(*self._name), len(torn), self._folder.at(*kept),
        )  # fmt: skip


def line_of(data: bytes, *, is_ended: bool = True) -> bytes:
    """A line as it is appended to lines of which the last has its end, or has not."""
    return (b"" if is_ended else b"\n") + data + b"\n"
