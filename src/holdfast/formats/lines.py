"""Files of lines, each one JSON object: read to the last whole line, whatever a crash left behind it.

A writer that died, or lost power, leaves bytes at the end that are no line. They were never acknowledged: readers pass
them over, and the next who appends cuts them off. A last line that only lacks its end counts: the original writes the
two separately. A broken line with a whole one behind it is damage, and is reported.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from holdfast.errors import DamagedFile
from holdfast.formats.lossless import read_json
from holdfast.formats.shapes import Shape, read_checked


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


def write_line(data: bytes, *, is_ended: bool) -> bytes:
    """A line as it is appended to lines of which the last has its end, or has not."""
    return (b"" if is_ended else b"\n") + data + b"\n"
