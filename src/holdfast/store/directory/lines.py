"""Lines: how commits lie in a journal file.

    line := '{"sum":"' SUM '",' REST LF

A line is one JSON object in UTF-8. SUM is 16 bytes of BLAKE3 over REST, in hex; REST begins with `"n":` and the line's
number, 1 for the first. A line is written only after the one before it was synced. So an interrupted write can leave
lines that are whole, and then bytes that are no line. That tail was never acknowledged and is cut off. A line that is
not whole with a whole one anywhere behind it is damage.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import msgspec
from blake3 import blake3

from holdfast.errors import DamagedData

_START: Final = b'{"sum":"'
_SUM: Final = 32
_REST: Final = len(_START) + _SUM + 2
_encode_into = msgspec.json.Encoder().encode_into


class Lines(NamedTuple):
    """What a file holds: its whole lines, and where they end."""

    objects: list[dict[str, Any]]
    size: int
    """So many bytes are whole lines; what is behind them is a torn tail."""
    damage: DamagedData | None
    """Why only the lines before it can be read."""


def write_line(number: int, content: dict[str, Any]) -> bytearray:
    """The line with this number. It is made in one piece, since a line may hold a very large value."""
    line = bytearray(_REST)
    _encode_into({"n": number, **content}, line, _REST - 1)  # its brace is overwritten: REST has none
    line[:_REST] = b'%b%b",' % (_START, _sum(memoryview(line)[_REST:]))
    line += b"\n"
    return line


def _sum(rest: bytes | memoryview) -> bytes:
    return blake3(rest).hexdigest(16).encode()


def sum_holds(line: bytes | memoryview) -> bool:
    """Whether the line, without its end, is what was written."""
    head = bytes(line[: len(_START) + _SUM])
    return head.startswith(_START) and head[len(_START) :] == _sum(memoryview(line)[_REST:])


def _pieces(data: bytes, start: int) -> Iterator[memoryview]:
    """What may be lines from `start` on, each without its end. What has no line's end is not one."""
    view = memoryview(data)
    while (end := data.find(b"\n", start)) >= 0:
        yield view[start:end]
        start = end + 1


def read_lines(data: bytes, place: str, number: int = 1, start: int = 0) -> Lines:
    """The lines of a file, or those from the byte `start` on, where line `number` begins. Copies nothing of it."""
    objects: list[dict[str, Any]] = []
    size = 0
    for at, piece in enumerate(_pieces(data, start)):
        line_place = f"{place} line {number + at}"
        if not sum_holds(piece):
            if any(map(sum_holds, _pieces(data, start + size + len(piece) + 1))):
                return Lines(objects, size, DamagedData(line_place, "it is not what was written"))
            return Lines(objects, size, None)
        try:
            content = json.loads(str(piece, "utf-8"))
        except ValueError as error:
            return Lines(objects, size, DamagedData(line_place, f"it is no JSON ({error})"))
        if content.get("n") != number + at:
            return Lines(objects, size, DamagedData(line_place, f"it says that it is line {content.get('n')}"))
        objects.append(content)
        size += len(piece) + 1
    return Lines(objects, size, None)
