"""Ropes: a state's bytes as a tree of pieces that are shared between checkpoints.

A state is one string of MessagePack bytes. It is kept as a rope: a sequence of *literals* (bytes as they are) and
*links* (the name of a chunk whose content stands here). A chunk is a leaf, which is only bytes, or a node, which is a
rope again. Joining everything gives the string back, and it is decoded at once. Where the string is cut is decided in
`paging.py`; any cut can be read.

    root    := 0x01 bytes                          the whole string, for small states
             | 0x02 rope
    chunk   := 0x01 bytes                          leaf
             | 0x02 rope                           node
    rope    := { segment }
    segment := varint(2 * n) n bytes               literal
             | varint(8 * count + 4 * pairs + 2 * node + 1) hash
    hash    := 16 bytes, BLAKE3 of the chunk as written above, cut

`count` says how many values (with `pairs`: how many keys with their values) of the surrounding list or dict the link
stands for; 0 means a part of one value. A varint has seven bits to a byte, low ones first, the high bit set on all
but the last byte. A chunk's hash is over its plain bytes, so it stays the same when its body is compressed otherwise
or encrypted anew; a node's bytes hold its children's hashes, so a root vouches for everything below it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
from blake3 import blake3

from holdfast.errors import DamagedData, UnsupportedFormat

WHOLE: Final = 0x01
ROPE: Final = 0x02
HASH_BYTES: Final = 16


class Link(msgspec.Struct, frozen=True, gc=False):
    """Stands for a chunk's content."""

    hash: bytes
    count: int
    node: bool
    pairs: bool
    written: bytes
    """The link as it stands in a rope."""


Segment = bytes | Link


def chunk_hash(plain: bytes) -> bytes:
    """The name of a chunk."""
    return blake3(plain).digest(HASH_BYTES)


def link(name: bytes, count: int, *, node: bool, pairs: bool) -> Link:
    """A link to the chunk of this name."""
    return Link(name, count, node, pairs, _varint(count << 3 | pairs << 2 | node << 1 | 1) + name)


def weight(segments: Sequence[Segment]) -> int:
    """About how many bytes the segments take when written."""
    return sum(len(s) + 1 if isinstance(s, bytes) else HASH_BYTES + 2 for s in segments)


def write(segments: Sequence[Segment]) -> bytes:
    """The rope, written down; neighbouring literals become one."""
    out = [b"\x02"]
    literal: list[bytes] = []
    for segment in segments:
        if isinstance(segment, bytes):
            literal.append(segment)
        else:
            if literal:
                _write_literal(out, literal)
                literal = []
            out.append(segment.written)
    if literal:
        _write_literal(out, literal)
    return b"".join(out)


def read(data: bytes, place: str) -> list[Segment]:
    """The segments of a root or chunk. Raises DamagedData naming `place`."""
    if not data:
        raise DamagedData(place, "it is empty")
    if data[0] == WHOLE:
        return [data[1:]]
    if data[0] != ROPE:
        raise UnsupportedFormat(place, f"it starts with the unknown mark {data[0]}")
    return _read_rope(data, place)


def links(data: bytes, place: str) -> list[Link]:
    """Only the links of a root or chunk."""
    return [] if data[:1] == b"\x01" else [s for s in read(data, place) if type(s) is Link]


def _read_rope(data: bytes, place: str) -> list[Segment]:
    segments: list[Segment] = []
    at, end = 1, len(data)
    while at < end:
        start, tag, shift = at, data[at], 7
        at += 1
        if tag & 0x80:
            tag &= 0x7F
            while True:
                if at >= end or shift > 42:
                    raise DamagedData(place, "a length in it is cut off or too long")
                byte = data[at]
                at += 1
                tag |= (byte & 0x7F) << shift
                shift += 7
                if byte < 0x80:
                    break
        size = HASH_BYTES if tag & 1 else tag >> 1
        piece = data[at : at + size]
        at += size
        if len(piece) != size:
            raise DamagedData(place, "it is cut off")
        segments.append(Link(piece, tag >> 3, tag & 2 != 0, tag & 4 != 0, data[start:at]) if tag & 1 else piece)
    return segments


def _write_literal(out: list[bytes], literal: list[bytes]) -> None:
    out.append(_varint(sum(map(len, literal)) << 1))
    out.extend(literal)


def _varint(value: int) -> bytes:
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
