"""Ropes: a state's bytes as a tree of chunks that checkpoints share.

A state is one string of MessagePack bytes. It is stored as a rope: a sequence of *literals* (bytes) and *links* (the
hash of a chunk whose content belongs here). A chunk is a leaf, which is only bytes, or a node, which is a rope. The
reader fetches all chunks, verifies every byte, joins them and decodes the string once. `chunker` decides where the
string is divided; any division can be read.

    root    := 0x01 bytes                          the whole string, for small states
             | 0x02 rope
    chunk   := 0x01 bytes                          leaf
             | 0x02 rope                           node
    rope    := { segment }
    segment := varint(2 * n) n bytes               literal
             | varint(8 * count + 4 * pairs + 2 * node + 1) hash
    hash    := 16 bytes, BLAKE3 of the chunk as written above, cut

`count` is the number of values (with `pairs`: of keys with their values) of the surrounding list or dict that the link
stands for; 0 means a part of one value. A varint has seven bits to a byte, low ones first, the high bit set on all
but the last byte. A chunk's hash covers its plain bytes, so another compression or encryption does not change it. A
node contains the hashes of its children, so a root authenticates everything below it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
from blake3 import blake3

from holdfast.errors import DamagedData, UnsupportedFormat
from holdfast.limits import LEVELS_MAX, STATE_PIECES_MAX, STATE_READ_BYTES_MAX, TRACKED_STATE_READ_BYTES_MAX
from holdfast.state import compression
from holdfast.state.values import unpack

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
    """The approximate size of the segments when written."""
    return sum(len(s) + 1 if isinstance(s, bytes) else HASH_BYTES + 2 for s in segments)


def write(segments: Sequence[Segment]) -> bytes:
    """The encoded rope; adjacent literals become one."""
    out = [b"\x02"]
    literal: list[bytes] = []
    for segment in (*segments, None):  # None ends the last literal
        if isinstance(segment, bytes):
            literal.append(segment)
            continue
        if literal:
            out.append(_varint(sum(map(len, literal)) << 1))
            out.extend(literal)
            literal = []
        if segment is not None:
            out.append(segment.written)
    return b"".join(out)


def read(data: bytes, place: str) -> list[Segment]:
    """The segments of a root or chunk. Raises DamagedData naming `place`."""
    if not data:
        raise DamagedData(place, "it is empty")
    if data[0] == 0x01:
        return [data[1:]]
    if data[0] != 0x02:
        raise UnsupportedFormat(place, f"it starts with the unknown mark {data[0]}")
    segments: list[Segment] = []
    at, end = 1, len(data)
    while at < end:
        start, tag, shift = at, data[at], 7
        at += 1
        while tag >> shift:  # the high bit of its last byte is set
            if at >= end or shift > 42:
                raise DamagedData(place, "a length in it is cut off or too long")
            tag = tag - (1 << shift) | data[at] << shift
            at += 1
            shift += 7
        size = HASH_BYTES if tag & 1 else tag >> 1
        piece = data[at : at + size]
        at += size
        if len(piece) != size:
            raise DamagedData(place, "it is cut off")
        segments.append(Link(piece, tag >> 3, tag & 2 != 0, tag & 4 != 0, data[start:at]) if tag & 1 else piece)
    return segments


def links(data: bytes, place: str) -> list[Link]:
    """Only the links of a root or chunk."""
    return [] if data[:1] == b"\x01" else [s for s in read(data, place) if type(s) is Link]


def _varint(value: int) -> bytes:
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


Fetch = Callable[[list[bytes]], Mapping[bytes, bytes]]
"""Returns the stored bodies of chunks by hash, without those that are missing."""


Outline = dict[bytes, bytes | int]
"""By hash: the plain bytes of nodes, and the sizes of what leaves contain."""


def decode(
    root: bytes,
    fetch: Fetch,
    place: str,
    verified: dict[bytes, bytes] | None = None,
    outline: Outline | None = None,
) -> tuple[Any, Iterable[bytes]]:
    """The state behind `root`, and the hashes of its chunks.

    `verified` are plain chunks that were verified before, by hash; those that are fetched are added to them. An
    `outline` is filled. Raises DamagedData if a chunk is missing or has other content than its hash.
    """
    if root[:1] == b"\x01":
        return unpack(root[1:], place), ()
    segments = read(root, place)
    chunks = gather(segments, fetch, place, verified)
    data, names = join(segments, chunks, place), list(chunks)
    if outline is not None:
        outline.update((name, plain if plain[:1] == b"\x02" else len(plain) - 1) for name, plain in chunks.items())
    del chunks  # so that they do not take memory besides the values
    return unpack(data, place), names


def join(segments: Iterable[Segment], chunks: Mapping[bytes, bytes], place: str) -> bytes:
    """The bytes of a rope whose chunks are all in `chunks`."""
    parts: list[bytes | memoryview] = []
    left = TRACKED_STATE_READ_BYTES_MAX
    stack = [iter(segments)]
    while stack:
        segment = next(stack[-1], None)
        if segment is None:
            stack.pop()
            continue
        piece: bytes | memoryview
        if isinstance(segment, bytes):
            piece = segment
        elif segment.node:
            piece = b""
            stack.append(iter(read(chunks[segment.hash], place)))
        else:
            piece = memoryview(chunks[segment.hash])[1:]
        left -= len(piece)
        if left < 0 or len(parts) == STATE_PIECES_MAX:
            limit = f"{STATE_PIECES_MAX} pieces" if left >= 0 else f"{TRACKED_STATE_READ_BYTES_MAX} bytes"
            raise DamagedData(place, f"it expands to more than {limit}")
        parts.append(piece)
    return b"".join(parts)


def gather(
    segments: Iterable[Segment], fetch: Fetch, place: str, verified: dict[bytes, bytes] | None = None
) -> dict[bytes, bytes]:
    """All chunks below the segments, plain and verified, fetched level by level; `verified` as in `decode`."""
    chunks: dict[bytes, bytes] = {}
    verified = {} if verified is None else verified
    level = [segment for segment in segments if type(segment) is Link]
    levels = 0
    while wanted := {link.hash: link.node for link in level if link.hash not in chunks}:
        levels += 1
        if levels > LEVELS_MAX:
            raise DamagedData(place, f"its chunks are nested more than {LEVELS_MAX} levels deep")
        missing = [name for name in wanted if name not in verified]
        found = fetch(missing) if missing else {}
        level = []
        for name, is_node in wanted.items():
            if name not in verified:
                verified[name] = verify_chunk(name, found.get(name), place)
            plain = chunks[name] = verified[name]
            if is_node:
                level += links(plain, place)
    return chunks


def verify_chunk(name: bytes, stored: bytes | None, place: str) -> bytes:
    """The plain bytes of a chunk; raises DamagedData if their hash is not `name`."""
    if stored is None:
        raise DamagedData(place, f"the chunk {name.hex()} it needs is missing")
    plain = compression.plain(stored, STATE_READ_BYTES_MAX, f"chunk {name.hex()} of {place}")
    if chunk_hash(plain) != name:
        raise DamagedData(place, f"the chunk {name.hex()} it needs has other content than was stored")
    return plain
