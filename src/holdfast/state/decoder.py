"""Ropes to states: fetch what the root leads to, check every byte, join, decode once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from holdfast.errors import DamagedData
from holdfast.limits import LEVELS_MAX, STATE_READ_BYTES_MAX
from holdfast.state import body, rope
from holdfast.state.rope import Link, Segment
from holdfast.state.values import unpack

_PIECE_BYTES = 32
"""What a piece counts beside its bytes, because many tiny ones are work, too. A state's pieces have 100 bytes or more
on average, and readers have twice the room of writers."""

Fetch = Callable[[list[bytes]], Mapping[bytes, bytes]]
"""Gives the stored bodies of chunks by hash; a chunk that is not there is left out."""


def decode(root: bytes, fetch: Fetch, place: str) -> tuple[Any, Iterable[bytes]]:
    """The state behind `root`, and the hashes of the chunks it is made of.

    Raises DamagedData if anything it leads to is missing or not what was stored.
    """
    if root[:1] == b"\x01":
        return unpack(root[1:], place), ()
    segments = rope.read(root, place)
    chunks = gather(segments, fetch, place)
    return unpack(joined(segments, chunks, place), place), chunks.keys()


def joined(segments: Iterable[Segment], chunks: Mapping[bytes, bytes], place: str) -> bytes:
    """The bytes of a rope all of whose chunks were gathered."""
    parts: list[bytes] = []
    room = STATE_READ_BYTES_MAX
    stack = [iter(segments)]
    while stack:
        segment = next(stack[-1], None)
        if segment is None:
            stack.pop()
            continue
        if type(segment) is bytes:
            piece = segment
        else:
            assert isinstance(segment, Link)
            plain = chunks[segment.hash]
            piece = b"" if segment.node else plain[1:]
            if segment.node:
                stack.append(iter(rope.read(plain, place)))
        room -= len(piece) + _PIECE_BYTES
        if room < 0:
            raise DamagedData(place, f"it expands to more than {STATE_READ_BYTES_MAX} bytes")
        parts.append(piece)
    return b"".join(parts)


def gather(
    segments: Iterable[Segment], fetch: Fetch, place: str, enter: Callable[[Link], bool] | None = None
) -> dict[bytes, bytes]:
    """All chunks the segments lead to, plain and checked, level by level. `enter` may leave some links unfollowed."""
    chunks: dict[bytes, bytes] = {}
    wanted = _followed(segments, enter)
    levels = 0
    while wanted:
        levels += 1
        if levels > LEVELS_MAX:
            raise DamagedData(place, f"its chunks lie more than {LEVELS_MAX} levels deep")
        found = fetch([name for name in wanted if name not in chunks])
        below: dict[bytes, bool] = {}
        for name, is_node in wanted.items():
            if name in chunks:
                continue
            plain = chunks[name] = checked(name, found.get(name), place)
            if is_node:
                below.update(_followed(rope.read(plain, place), enter))
        wanted = {name: is_node for name, is_node in below.items() if name not in chunks}
    return chunks


def checked(name: bytes, stored: bytes | None, place: str) -> bytes:
    """The plain bytes of a chunk, if they are what `name` says."""
    if stored is None:
        raise DamagedData(place, f"the chunk {name.hex()} it needs is missing")
    plain = body.plain(stored, STATE_READ_BYTES_MAX, f"chunk {name.hex()} of {place}")
    if rope.chunk_hash(plain) != name:
        raise DamagedData(place, f"the chunk {name.hex()} it needs has other content than was stored")
    return plain


def _followed(segments: Iterable[Segment], enter: Callable[[Link], bool] | None) -> dict[bytes, bool]:
    return {s.hash: s.node for s in segments if type(s) is Link and (enter is None or enter(s))}
