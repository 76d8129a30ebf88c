"""Packs as a store keeps them: many chunks of one family in one compressed body, which the store does not decompress.

pack := body of the chunks, one after another
"""

from __future__ import annotations

from typing import NamedTuple


class Place(NamedTuple):
    """Where a chunk is in the plain bytes of a pack."""

    pack: int
    start: int
    size: int


class PackSize(NamedTuple):
    """The size of a pack."""

    size: int
    """Of its plain bytes."""
    stored: int
    """Of its body."""


class Packs(NamedTuple):
    """The packs of a family, and which chunks are in them."""

    chunks: dict[bytes, Place]
    packs: dict[int, PackSize]


class PackedChunks(NamedTuple):
    """Chunks that are in packs, and the bodies of these packs."""

    chunks: dict[bytes, Place]
    bodies: dict[int, bytes]


class NewPack(NamedTuple):
    """A pack to store: the chunks of one family, with their sizes, in the order of their plain bytes in the body."""

    chunks: tuple[tuple[bytes, int], ...]
    body: bytes

    def places(self, number: int) -> dict[bytes, Place]:
        """The places of its chunks if it has this number."""
        found, start = {}, 0
        for name, size in self.chunks:
            found[name] = Place(number, start, size)
            start += size
        return found

    @property
    def size(self) -> int:
        """The size of its plain bytes."""
        return sum(size for _, size in self.chunks)
