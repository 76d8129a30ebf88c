"""Paging: where the bytes of a long list or dict are cut, so that a change rewrites only what it touches.

Items are gathered into *leaves* of about half a KiB, leaves into *pages* of about 12 KiB, and links to pages into
*index nodes* of about eight links (both have a least size, behind which chance decides), in as many levels as needed.
Borders follow the content: an item ends its leaf, its page or its index node if the CRC of its own bytes says so, so
the same items give the same pages whatever comes before them. An append touches the last leaf, an edit or deletion its
page and the index nodes above.

A leaf of an unfinished page is a chunk of its own, so that appending one message writes one message. When a page is
finished its content is written once more as one chunk: a reader of a long conversation then fetches few large chunks
instead of many small ones. (1,000 messages of 1 KiB: 70 chunks to read instead of 1,140, for 0.3 bytes more per byte.)
Whoever counts every byte has finished pages link to their leaves instead (`whole=False`).

The result depends on the items alone, not on how they came to be there: `docs/formats.md` relies on it, and a test.
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
"""A leaf this small stays in its parent: a link would not be shorter."""


class Weaver(Protocol):
    """Keeps chunks and gives links to them."""

    def link(self, plain: bytes, count: int, *, node: bool, pairs: bool) -> Link: ...


class Leaf(NamedTuple):
    """A finished leaf of the unfinished page."""

    end: int
    raw: tuple[Segment, ...]
    stored: tuple[Segment, ...]
    """What stands for it in the rope; empty until somebody asks, for its page may be finished before."""
    size: int


class Page(NamedTuple):
    """A finished page: where it ends, its link, and how many index levels end with it."""

    end: int
    link: Link
    closes: int


def ended(pages: Sequence[Page], leaves: Sequence[Leaf]) -> int:
    """How many items lie in these finished pages and leaves."""
    return leaves[-1].end if leaves else pages[-1].end if pages else 0


class Pager:
    """Gathers items into leaves and pages, and pages into an index."""

    def __init__(
        self,
        weaver: Weaver,
        *,
        pairs: bool,
        pages: Sequence[Page] = (),
        leaves: Sequence[Leaf] = (),
        whole: bool = True,
    ) -> None:
        self._weaver = weaver
        self._pairs = pairs
        self._whole = whole
        self.pages: list[Page] = []
        self.leaves: list[Leaf] = []
        self._index = Index(pairs=pairs)
        self._raw: list[Segment] = []
        self._raw_weight = 0
        self._page_weight = 0
        self._end = 0
        self.adopt(pages, leaves)

    @classmethod
    def resumed(
        cls, weaver: Weaver, index: Index, pages: Sequence[Page], leaves: Sequence[Leaf], *, whole: bool
    ) -> Pager:
        """A pager that goes on where another one ended, without going through its pages again."""
        pager = cls(weaver, pairs=index.pairs, leaves=leaves, whole=whole)
        pager.pages = list(pages)
        pager._index = index.copy()
        pager._end = ended(pages, leaves)
        return pager

    def adopt(self, pages: Sequence[Page], leaves: Sequence[Leaf]) -> None:
        """Take finished pages, and then the leaves of an unfinished one, as they are."""
        assert not self._raw
        for page in pages:
            self._index.add(page, self._weaver)
        self.pages.extend(pages)
        self.leaves = list(leaves)
        self._page_weight = sum(leaf.size for leaf in leaves)
        self._end = ended(self.pages, leaves)

    @property
    def index(self) -> Index:
        return self._index

    @property
    def end(self) -> int:
        """How many items lie in finished leaves and pages."""
        return self._end

    def add(self, segments: Sequence[Segment], size: int, end: int) -> bool:
        """Add the item that makes `end` items in all; `size` is its weight. True if it finished a page."""
        self._raw.extend(segments)
        self._raw_weight += size
        sign = _sign(segments)
        if self._raw_weight < LEAF_MAX and (self._raw_weight < LEAF_MIN or sign * LEAF >= size << 32):
            return False
        self._page_weight += self._raw_weight
        self._end = end
        if self._page_weight >= PAGE_MAX or (self._page_weight >= PAGE_MIN and sign * PAGE < size << 32):
            self._finish_page(end, sign, size)
            return True
        self._finish_leaf(end)
        return False

    def segments(self) -> list[Segment]:
        """The rope of all items added: index, pages, leaves, and the items of the unfinished leaf."""
        return [*self._index.segments(), *self._linked_leaves(), *self._raw]

    def _linked_leaves(self) -> list[Segment]:
        """The leaves of the unfinished page, as they are stored."""
        rope: list[Segment] = []
        start = self.pages[-1].end if self.pages else 0
        for i, leaf in enumerate(self.leaves):
            stored = leaf.stored
            if not stored:
                stored = (self._woven(leaf.raw, leaf.end - start),) if leaf.size > _EMBED_MAX else leaf.raw
                self.leaves[i] = leaf._replace(stored=stored)
            rope.extend(stored)
            start = leaf.end
        return rope

    def _finish_leaf(self, end: int) -> None:
        raw = tuple(self._raw)
        self.leaves.append(Leaf(end, raw, (), self._raw_weight))
        self._raw, self._raw_weight = [], 0

    def _finish_page(self, end: int, sign: int, size: int) -> None:
        if self._whole:
            content = [segment for leaf in self.leaves for segment in leaf.raw]
            content.extend(self._raw)
        else:
            self._finish_leaf(end)
            content = self._linked_leaves()
        start = self.pages[-1].end if self.pages else 0
        closes, share = 0, sign * PAGE * FANOUT
        while share < size << 32 and closes < 8:
            closes, share = closes + 1, share * FANOUT
        page = Page(end, self._woven(content, end - start), closes)
        self.pages.append(page)
        self._index.add(page, self._weaver)
        self.leaves = []
        self._raw, self._raw_weight, self._page_weight = [], 0, 0

    def _woven(self, segments: Sequence[Segment], count: int) -> Link:
        literal = [s for s in segments if isinstance(s, bytes)]
        if len(literal) == len(segments):
            return self._weaver.link(b"\x01" + b"".join(literal), count, node=False, pairs=self._pairs)
        return self._weaver.link(write(segments), count, node=True, pairs=self._pairs)


class Index:
    """Links to pages, gathered into nodes, level upon level."""

    def __init__(self, *, pairs: bool) -> None:
        self.pairs = pairs
        self._levels: list[list[Link]] = [[]]

    def copy(self) -> Index:
        """An index that can grow without changing this one."""
        other = Index(pairs=self.pairs)
        other._levels = [list(level) for level in self._levels]
        return other

    def add(self, page: Page, weaver: Weaver) -> None:
        """Add a page's link; nodes that end here are finished."""
        self._levels[0].append(page.link)
        for depth in range(len(self._levels)):
            level = self._levels[depth]
            if len(level) < FANOUT_MAX and (depth >= page.closes or len(level) < FANOUT_MIN):
                return
            node = weaver.link(write(level), sum(link.count for link in level), node=True, pairs=self.pairs)
            self._levels[depth] = []
            if depth + 1 == len(self._levels):
                self._levels.append([])
            self._levels[depth + 1].append(node)

    def segments(self) -> list[Segment]:
        """All links that are not inside a finished node, first pages first."""
        return [link for level in reversed(self._levels) for link in level]


def _sign(segments: Sequence[Segment]) -> int:
    """A number from the item's own content, evenly spread over 32 bits."""
    sign = 0
    for segment in segments:
        sign = crc32(segment if isinstance(segment, bytes) else segment.hash, sign)
    return sign
