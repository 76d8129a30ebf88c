"""Content-defined chunking: divides long lists and dicts into pages.

Items are collected into *leaves* of about half a KiB, leaves into *pages* of about 12 KiB, and links to pages into
*index nodes* of about eight links, in as many levels as needed. Leaves, pages and nodes have a minimum size; above it
the CRC of an item's own bytes decides whether the item ends them. So equal items give equal pages whatever comes before
them: an append rewrites the last leaf, an edit or deletion rewrites its page and the index nodes above.

A leaf of an unfinished page is a separate chunk, so appending one message writes one message. A finished page is
written again as one chunk, so a reader of a long conversation fetches few large chunks instead of many small ones.
(1,000 messages of 1 KiB: 70 chunks to read instead of 1,140, for 0.3 bytes more per byte.) With `whole=False` finished
pages link to their leaves instead, which takes the fewest bytes.

The result depends on the items alone, not on their history: `docs/formats.md` and a test rely on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol
from zlib import crc32

from holdfast.state.rope import Link, Segment, write

LEAF: Final = 512
LEAF_MIN: Final = 128
LEAF_MAX: Final = 2048
PAGE: Final = 6 * 1024
PAGE_MIN: Final = 6 * 1024
PAGE_MAX: Final = 64 * 1024
FANOUT: Final = 4
FANOUT_MIN: Final = 4
FANOUT_MAX: Final = 32
_EMBED_MAX: Final = 64
"""A leaf up to this size stays in its parent: a link would not be shorter."""


class ChunkSink(Protocol):
    """Collects chunks and returns links to them."""

    def link(self, plain: bytes, count: int, *, node: bool, pairs: bool) -> Link: ...


class Leaf(NamedTuple):
    """A finished leaf of the unfinished page."""

    end: int
    raw: tuple[Segment, ...]
    stored: tuple[Segment, ...]
    """Its segments in the rope; empty until needed, because its page may be finished first."""
    size: int


class Page(NamedTuple):
    """A finished page: where it ends, its link, and how many index levels end with it."""

    end: int
    link: Link
    closes: int


def item_count(pages: Sequence[Page], leaves: Sequence[Leaf]) -> int:
    """The number of items in these finished pages and leaves."""
    return leaves[-1].end if leaves else pages[-1].end if pages else 0


class Pager:
    """Collects items into leaves and pages, and pages into an index."""

    def __init__(self, sink: ChunkSink, *, pairs: bool, whole: bool) -> None:
        self._sink = sink
        self._pairs = pairs
        self._whole = whole
        self.pages: list[Page] = []
        self.leaves: list[Leaf] = []
        self.index = Index(pairs=pairs)
        self._raw: list[Segment] = []
        self._raw_weight = 0
        self._page_weight = 0

    @classmethod
    def resume(
        cls, sink: ChunkSink, index: Index, pages: Sequence[Page], leaves: Sequence[Leaf], *, whole: bool
    ) -> Pager:
        """A pager that continues where another one ended, without adding its pages again."""
        pager = cls(sink, pairs=index.pairs, whole=whole)
        pager.adopt((), leaves)
        pager.pages = list(pages)
        pager.index = index.copy()
        return pager

    def adopt(self, pages: Sequence[Page], leaves: Sequence[Leaf]) -> None:
        """Take over finished pages, and the leaves of the unfinished page after them."""
        assert not self._raw
        for page in pages:
            self.index.add(page, self._sink)
        self.pages.extend(pages)
        self.leaves = list(leaves)
        self._page_weight = sum(leaf.size for leaf in leaves)

    @property
    def end(self) -> int:
        """The number of items in finished leaves and pages."""
        return item_count(self.pages, self.leaves)

    def add(self, segments: Sequence[Segment], size: int, end: int) -> bool:
        """Add the item that makes `end` items in all; `size` is its weight. True if it finished a page."""
        self._raw.extend(segments)
        self._raw_weight += size
        boundary = _boundary_hash(segments)
        if self._raw_weight < LEAF_MAX and (self._raw_weight < LEAF_MIN or boundary * LEAF >= size << 32):
            return False
        self.leaves.append(Leaf(end, tuple(self._raw), (), self._raw_weight))
        self._page_weight += self._raw_weight
        self._raw, self._raw_weight = [], 0
        if self._page_weight >= PAGE_MAX or (self._page_weight >= PAGE_MIN and boundary * PAGE < size << 32):
            self._finish_page(end, boundary, size)
            return True
        return False

    def segments(self) -> list[Segment]:
        """The rope of all items: index, pages, leaves, and the items of the unfinished leaf."""
        return [*self.index.segments(), *self._linked_leaves(), *self._raw]

    def _linked_leaves(self) -> list[Segment]:
        """The leaves of the unfinished page, as they are stored."""
        rope: list[Segment] = []
        start = self.pages[-1].end if self.pages else 0
        for i, leaf in enumerate(self.leaves):
            stored = leaf.stored
            if not stored:
                stored = (self._link(leaf.raw, leaf.end - start),) if leaf.size > _EMBED_MAX else leaf.raw
                self.leaves[i] = leaf._replace(stored=stored)
            rope.extend(stored)
            start = leaf.end
        return rope

    def _finish_page(self, end: int, boundary: int, size: int) -> None:
        content = [segment for leaf in self.leaves for segment in leaf.raw] if self._whole else self._linked_leaves()
        start = self.pages[-1].end if self.pages else 0
        closes, share = 0, boundary * PAGE * FANOUT
        while share < size << 32 and closes < 8:
            closes, share = closes + 1, share * FANOUT
        page = Page(end, self._link(content, end - start), closes)
        self.pages.append(page)
        self.index.add(page, self._sink)
        self.leaves, self._page_weight = [], 0

    def _link(self, segments: Sequence[Segment], count: int) -> Link:
        literal = [s for s in segments if isinstance(s, bytes)]
        if len(literal) == len(segments):
            return self._sink.link(b"\x01" + b"".join(literal), count, node=False, pairs=self._pairs)
        return self._sink.link(write(segments), count, node=True, pairs=self._pairs)


class Index:
    """Links to pages, collected into nodes on several levels."""

    def __init__(self, *, pairs: bool) -> None:
        self.pairs = pairs
        self._levels: list[list[Link]] = [[]]

    def copy(self) -> Index:
        """An index that can grow without changing this one."""
        other = Index(pairs=self.pairs)
        other._levels = [list(level) for level in self._levels]
        return other

    def add(self, page: Page, sink: ChunkSink) -> None:
        """Add a page's link; nodes that end here are finished."""
        self._levels[0].append(page.link)
        for depth in range(len(self._levels)):
            level = self._levels[depth]
            if len(level) < FANOUT_MAX and (depth >= page.closes or len(level) < FANOUT_MIN):
                return
            node = sink.link(write(level), sum(link.count for link in level), node=True, pairs=self.pairs)
            self._levels[depth] = []
            if depth + 1 == len(self._levels):
                self._levels.append([])
            self._levels[depth + 1].append(node)

    def segments(self) -> list[Segment]:
        """All links that are not inside a finished node, in the order of their items."""
        return [link for level in reversed(self._levels) for link in level]


def _boundary_hash(segments: Sequence[Segment]) -> int:
    """A hash of the item's own content, evenly distributed over 32 bits."""
    boundary = 0
    for segment in segments:
        boundary = crc32(segment if isinstance(segment, bytes) else segment.hash, boundary)
    return boundary
