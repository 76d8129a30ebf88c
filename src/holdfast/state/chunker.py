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

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, Protocol
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


class Node(NamedTuple):
    """A finished leaf, page or index node; it never changes."""

    items: int
    """The number of its items."""
    size: int
    """The encoded size of its items."""
    link: Link | None
    """None: a leaf that is not linked yet, because its page may be finished first."""
    weight: int = 0
    """Of a leaf: what it weighs in its page."""
    raw: tuple[Segment, ...] = ()
    """Of a leaf: its segments."""
    closes: int = 0
    """How many index levels end with it."""
    children: tuple[Node, ...] = ()
    parts: tuple[Any, ...] = ()
    """Of a leaf or page: what the encoder keeps of its divided items."""
    divided: bool = False
    """It, or a node below it, has such parts."""
    foreign: bool = False
    """It has items whose changes are not tracked, so each save encodes them again."""


class Pages(NamedTuple):
    """The items of a list or dict: index nodes and pages on their levels, and the leaves of the unfinished page."""

    levels: tuple[tuple[Node, ...], ...]
    leaves: tuple[Node, ...]
    paged: int
    """The number of items in finished pages."""

    def tops(self) -> list[tuple[int, Node]]:
        """Pages and nodes that are not inside a finished node, with their levels, in the order of their items."""
        return [(level, node) for level in range(len(self.levels) - 1, -1, -1) for node in self.levels[level]]


class Hunk(NamedTuple):
    """A change: the items `old` to `old_end` of the earlier encoding are now the items `new` to `new_end`."""

    old: int
    old_end: int
    new: int
    new_end: int


class Cursor:
    """Walks the finished pages of an earlier encoding from left to right."""

    def __init__(self, pages: Pages) -> None:
        self.pages = pages
        self.at = 0
        self._stack = pages.tops()[::-1]

    def take(self, end: int, accepts: Callable[[int], bool]) -> tuple[int, Node] | None:
        """The largest node that begins here, ends at `end` or before, and whose level is accepted."""
        while self._stack:
            level, node = self._stack.pop()
            if self.at + node.items <= end and (not level or accepts(level)):
                self.at += node.items
                return level, node
            if not level:
                self._stack.append((level, node))
                return None
            self._descend(level, node)
        return None

    def skip_to(self, place: int) -> None:
        """Move to the first page that begins at `place` or after it."""
        while self._stack and self.at < place:
            level, node = self._stack.pop()
            if level and self.at + node.items > place:
                self._descend(level, node)
            else:
                self.at += node.items

    def skip_all(self) -> None:
        """Move behind the last page."""
        self._stack, self.at = [], self.pages.paged

    @property
    def is_at_end(self) -> bool:
        """All pages are behind."""
        return not self._stack

    def copy(self) -> Cursor:
        """A cursor at the same place."""
        other = Cursor.__new__(Cursor)
        other.pages, other.at, other._stack = self.pages, self.at, list(self._stack)
        return other

    def _descend(self, level: int, node: Node) -> None:
        self._stack += [(level - 1, child) for child in reversed(node.children)]


class Pager:
    """Collects items into leaves and pages, and links to pages into index nodes."""

    def __init__(self, sink: ChunkSink, *, pairs: bool, whole: bool) -> None:
        self._sink = sink
        self._pairs = pairs
        self._whole = whole
        self._levels: list[list[Node]] = [[]]
        self._leaves: list[Node] = []
        self._page_weight = 0
        self._raw: list[Segment] = []
        self._weight = self._size = self._count = 0
        self._parts: tuple[Any, ...] = ()
        self._foreign = False
        self.paged = 0
        """The number of items in finished pages."""
        self.end = 0
        """The number of items."""

    def take_over(self, cursor: Cursor, end: int) -> None:
        """Take over the pages and leaves from the cursor to `end`, and begin a new leaf."""
        pages = cursor.pages
        if cursor.at == 0 and self.end == 0 and end >= pages.paged:
            self._levels = [list(level) for level in pages.levels]
            self.paged = self.end = pages.paged
            cursor.skip_all()
        while (found := cursor.take(end, self._accepts)) is not None:
            self._add_node(*found)
        if cursor.is_at_end:
            place = cursor.at
            for leaf in pages.leaves:
                place += leaf.items
                if place > end:
                    break
                self._leaves.append(leaf)
                self._page_weight += leaf.weight
                self.end += leaf.items

    def _accepts(self, level: int) -> bool:
        return not any(self._levels[:level])

    def _add_node(self, level: int, node: Node) -> None:
        """Add a finished page or node; the nodes that end with it are finished."""
        self.paged += node.items
        self.end += node.items
        levels, closes = self._levels, node.closes
        while True:
            while level >= len(levels):
                levels.append([])
            nodes = levels[level]
            nodes.append(node)
            if len(nodes) < FANOUT_MAX and (level >= closes or len(nodes) < FANOUT_MIN):
                return
            links = [each.link for each in nodes if each.link is not None]
            node = Node(
                count := sum([each.items for each in nodes]),
                sum([each.size for each in nodes]),
                self._sink.link(write(links), count, node=True, pairs=self._pairs),
                closes=closes,
                children=tuple(nodes),
                divided=any(each.divided for each in nodes),
                foreign=any(each.foreign for each in nodes),
            )
            levels[level] = []
            level += 1

    def add(self, segments: Sequence[Segment], weight: int, size: int, part: object = None) -> bool:
        """Add an item of this weight in its page and encoded size. True if it finished a page."""
        self._raw.extend(segments)
        self._weight += weight
        self._size += size
        self._count += 1
        self.end += 1
        if part is not None:
            self._parts += (part,)
        boundary = boundary_hash(segments)
        if self._weight < LEAF_MAX and (self._weight < LEAF_MIN or boundary * LEAF >= weight << 32):
            return False
        raw, parts = tuple(self._raw), self._parts
        leaf = Node(self._count, self._size, None, self._weight, raw, 0, (), parts, bool(parts), self._foreign)
        self._leaves.append(leaf)
        self._page_weight += self._weight
        self._raw, self._parts, self._foreign = [], (), False
        self._weight = self._size = self._count = 0
        if ends_page(self._page_weight, boundary, weight):
            self._finish_page(boundary, weight)
            return True
        return False

    def mark_foreign(self) -> None:
        """The changes of the item that is added next are not tracked."""
        self._foreign = True

    def pages(self) -> Pages:
        """The finished nodes, pages and leaves."""
        return Pages(tuple(map(tuple, self._levels)), tuple(self._leaves), self.paged)

    @property
    def size(self) -> int:
        """The encoded size of all items."""
        return self._size + sum([node.size for level in (*self._levels, self._leaves) for node in level])

    @property
    def rest(self) -> tuple[Any, ...]:
        """The parts of the divided items in the unfinished leaf."""
        return self._parts

    @property
    def has_foreign(self) -> bool:
        """Whether changes of some items are not tracked."""
        return self._foreign or any(node.foreign for level in (*self._levels, self._leaves) for node in level)

    def segments(self) -> list[Segment]:
        """The rope of all items: index, pages, leaves, and the items of the unfinished leaf."""
        index: list[Segment] = [node.link for level in reversed(self._levels) for node in level if node.link]
        return [*index, *self._linked_leaves(), *self._raw]

    def _linked_leaves(self) -> list[Segment]:
        """The leaves of the unfinished page, as they are stored."""
        rope: list[Segment] = []
        for i, leaf in enumerate(self._leaves):
            if leaf.weight <= _EMBED_MAX:
                rope.extend(leaf.raw)
                continue
            link = leaf.link
            if link is None:
                link = self._link(leaf.raw, leaf.items)
                self._leaves[i] = leaf._replace(link=link)
            rope.append(link)
        return rope

    def _finish_page(self, boundary: int, weight: int) -> None:
        leaves = self._leaves
        content = [segment for leaf in leaves for segment in leaf.raw] if self._whole else self._linked_leaves()
        count = sum([leaf.items for leaf in leaves])
        parts = tuple([part for leaf in leaves for part in leaf.parts])
        page = Node(
            count,
            sum([leaf.size for leaf in leaves]),
            self._link(content, count),
            closes=closed_levels(boundary, weight),
            parts=parts,
            divided=bool(parts),
            foreign=any(leaf.foreign for leaf in leaves),
        )
        self._leaves, self._page_weight = [], 0
        self.end -= count
        self._add_node(0, page)

    def _link(self, segments: Sequence[Segment], count: int) -> Link:
        literal = [s for s in segments if isinstance(s, bytes)]
        if len(literal) == len(segments):
            return self._sink.link(b"\x01" + b"".join(literal), count, node=False, pairs=self._pairs)
        return self._sink.link(write(segments), count, node=True, pairs=self._pairs)


Add = Callable[[int, Cursor | None, int], bool]


def rebuild(pager: Pager, old: Pages | None, hunks: Sequence[Hunk], count: int, add: Add) -> None:
    """Page `count` items: take over what `old` has outside the hunks, and call `add` for the place of each other one.

    `add` also gets a cursor at the old page where its page begins, if there is one, and what was inserted before it.
    A page depends only on its own items. So where a new page ends at a place outside the hunks at which an old page
    ended, the old pages after it are pages of the new encoding as well.
    """
    if old is None:
        for at in range(count):
            add(at, None, 0)
        return
    cursor, passed, shift = Cursor(old), 0, 0
    while True:
        pager.take_over(cursor, hunks[passed].old if passed < len(hunks) else count - shift)
        for at in range(pager.end, count):
            if not add(at, cursor, shift):
                continue
            while passed < len(hunks) and hunks[passed].new_end <= at + 1:
                shift = hunks[passed].new_end - hunks[passed].old_end
                passed += 1
            if passed == len(hunks) or hunks[passed].new > at:
                cursor.skip_to(at + 1 - shift)
                if cursor.at == at + 1 - shift:
                    break
        else:
            return


def ends_page(page_weight: int, boundary: int, weight: int) -> bool:
    """Whether a page of this weight ends with a leaf whose last item has this boundary hash and weight."""
    return page_weight >= PAGE_MAX or (page_weight >= PAGE_MIN and boundary * PAGE < weight << 32)


def closed_levels(boundary: int, weight: int) -> int:
    """How many index levels end with a page whose last item has this boundary hash and weight."""
    closes, share = 0, boundary * PAGE * FANOUT
    while share < weight << 32 and closes < 8:
        closes, share = closes + 1, share * FANOUT
    return closes


def boundary_hash(segments: Sequence[Segment]) -> int:
    """A hash of the item's own content, evenly distributed over 32 bits."""
    boundary = 0
    for segment in segments:
        boundary = crc32(segment if isinstance(segment, bytes) else segment.hash, boundary)
    return boundary
