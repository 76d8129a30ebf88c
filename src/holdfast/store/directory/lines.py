"""Lines: how commits lie in a journal file.

    line := '{"sum":"' SUM '",' REST LF

A line is one JSON object in UTF-8. SUM is 16 bytes of BLAKE3 over REST, in hex; REST begins with `"n":` and the line's
number, 1 for the first. A line is written only after the one before it was synced. So an interrupted write can leave
lines that are whole, and then bytes that are no line. That tail was never acknowledged and is cut off. A line that is
not whole with a whole one anywhere behind it is damage.
"""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple

from blake3 import blake3

from holdfast.errors import DamagedData

_START: Final = b'{"sum":"'
_SUM: Final = 32
_REST: Final = len(_START) + _SUM + 2


class Lines(NamedTuple):
    """What a file holds: its whole lines, and where they end."""

    objects: list[dict[str, Any]]
    size: int
    """So many bytes are whole lines; what is behind them is a torn tail."""
    damage: DamagedData | None
    """Why only the lines before it can be read."""


def write_line(number: int, content: dict[str, Any]) -> bytes:
    """The line with this number."""
    text = json.dumps({"n": number, **content}, ensure_ascii=False, separators=(",", ":"))
    rest = text[1:].encode()
    return b'%b%b",%b\n' % (_START, _sum(rest), rest)


def _sum(rest: bytes) -> bytes:
    return blake3(rest).hexdigest(16).encode()


def sum_holds(line: bytes) -> bool:
    """Whether the line, without its end, is what was written."""
    return line.startswith(_START) and line[len(_START) :][:_SUM] == _sum(line[_REST:])


def read_lines(data: bytes, place: str, number: int = 1) -> Lines:
    """The lines of a file, or of its end that begins with line `number`."""
    objects: list[dict[str, Any]] = []
    pieces = data.split(b"\n")
    pieces.pop()  # what has no line's end is no line
    size = 0
    for at, piece in enumerate(pieces):
        line_place = f"{place} line {number + at}"
        if not sum_holds(piece):
            if any(sum_holds(later) for later in pieces[at + 1 :]):
                return Lines(objects, size, DamagedData(line_place, "it is not what was written"))
            return Lines(objects, size, None)
        try:
            content = json.loads(piece.decode())
        except ValueError as error:
            return Lines(objects, size, DamagedData(line_place, f"it is no JSON ({error})"))
        if content.get("n") != number + at:
            return Lines(objects, size, DamagedData(line_place, f"it says that it is line {content.get('n')}"))
        objects.append(content)
        size += len(piece) + 1
    return Lines(objects, size, None)
