"""Builds the memo of a tracked state that was loaded, so that its first save costs its change.

The chunks of a stored rope are named already. An *outline* of them is kept while the state is decoded: the nodes, and
the sizes of the leaves. Together with the decoded state it has all that a save would have remembered; only the last
item of each page is encoded, because it decides where index nodes end.

The memo must be that of a save of the same state. Ropes that are divided in another way, such as those of LangGraph's
threads, have no memo: their first save encodes everything.
"""

from __future__ import annotations

from typing import Any, Final

from holdfast.errors import HoldfastError
from holdfast.state.change_stamps import Tracking, clock
from holdfast.state.chunker import FANOUT_MAX, Cursor, Node, Pager, Pages, boundary_hash, closed_levels, ends_page
from holdfast.state.edit_log import EditLog
from holdfast.state.encoder import (
    EMBED_MAX,
    FIELDS_MAX,
    ITEM_SPLIT_MIN,
    LITERAL_MAX,
    SPLIT_MIN,
    Part,
    key_bytes,
    looks_large,
)
from holdfast.state.headers import array_header, map_header
from holdfast.state.rope import Link, Outline, Segment, chunk_hash, link, read, weight, write
from holdfast.state.tracked_encoder import (
    TrackedFields,
    TrackedItems,
    TrackedPart,
    is_foreign,
    is_foreign_itself,
    snapshot_of,
)
from holdfast.state.values import pack

_PLACE: Final = "a loaded state"


class _OtherDivisionError(Exception):
    """The rope is not what the encoder writes for this state."""


def memo_of_loaded(state: Any, root: bytes, outline: Outline) -> TrackedPart | None:
    """The memo of a tracked state that was just loaded from this root; None if it was stored in another way."""
    if root[:1] != b"\x02" or not isinstance(state, Tracking):
        return None
    with clock.lock:
        stamp = clock.now
        clock.now += 1
        try:
            return _Builder(outline, stamp).divided(state, root)
        except (_OtherDivisionError, HoldfastError, RecursionError):
            return None


class _Stream:
    """Reads a rope from left to right."""

    def __init__(self, segments: list[Segment]) -> None:
        self._segments = segments
        self.mark = (0, 0)
        """The next segment, and the bytes of it that were read."""

    def peek_link(self) -> Link | None:
        """The link that comes next, if one does."""
        segment = self._next()
        return segment if isinstance(segment, Link) else None

    def take_link(self) -> Link | None:
        """Like `peek_link`; the next one follows it."""
        found = self.peek_link()
        if found is not None:
            self.mark = (self.mark[0] + 1, 0)
        return found

    def take(self, expected: bytes) -> None:
        """Read these bytes, which must come next."""
        segment, (at, offset) = self._next(), self.mark
        if not isinstance(segment, bytes) or not segment.startswith(expected, offset):
            raise _OtherDivisionError
        offset += len(expected)
        self.mark = (at, offset) if offset < len(segment) else (at + 1, 0)

    def end(self) -> None:
        """Require that everything was read."""
        if self._next() is not None:
            raise _OtherDivisionError

    def _next(self) -> Segment | None:
        at = self.mark[0]
        return self._segments[at] if at < len(self._segments) else None


class _Builder:
    """Builds the memo of one state, while the lock is held. It is the sink of its pagers, too."""

    def __init__(self, outline: Outline, stamp: int) -> None:
        self._outline = outline
        self._stamp = stamp
        self._sizes: dict[bytes, int] = {}

    def link(self, plain: bytes, count: int, *, node: bool, pairs: bool) -> Link:
        """A link to a chunk that must be stored."""
        name = chunk_hash(plain)
        if name not in self._outline:
            raise _OtherDivisionError
        return link(name, count, node=node, pairs=pairs)

    def divided(self, value: Any, written: bytes) -> TrackedPart:
        """The memo of a dict or list whose parts are stored in this root or node."""
        stream = _Stream(read(written, _PLACE))
        part = self._container(value, stream)
        stream.end()
        if write(part.rope) != written:
            raise _OtherDivisionError
        return part

    def _content(self, of: Link) -> bytes:
        plain = self._outline.get(of.hash)
        if not isinstance(plain, bytes):
            raise _OtherDivisionError
        return plain

    def _size(self, of: Link) -> int:
        """The size of what a link stands for."""
        plain = self._outline.get(of.hash)
        if isinstance(plain, int):
            return plain
        if of.hash not in self._sizes:
            segments = read(self._content(of), _PLACE)
            self._sizes[of.hash] = sum([len(s) if isinstance(s, bytes) else self._size(s) for s in segments])
        return self._sizes[of.hash]

    def _container(self, value: Any, stream: _Stream) -> TrackedPart:
        is_dict = isinstance(value, dict)
        found = self._fields(value, stream) if is_dict and len(value) <= FIELDS_MAX else self._items(value, stream)
        return self._part(value, tuple(found.rope), found.size, found.memo, len(value))

    def _part(
        self, value: object, rope: tuple[Segment, ...], size: int, memo: Any = None, length: int = 0
    ) -> TrackedPart:
        kept = None if is_foreign_itself(value) else value
        return TrackedPart(kept, id(value), self._stamp, length, rope, weight(rope), size, memo)

    def _linked(self, value: Any, to: Link) -> TrackedPart:
        """The memo of a value that is a chunk of its own."""
        if isinstance(value, Tracking) and to.node:
            return self.divided(value, self._content(to))
        return self._part(value, (to,), self._size(to))

    def _fields(self, value: dict[str, Any], stream: _Stream) -> Part:
        header = map_header(len(value))
        stream.take(header)
        rope: list[Segment] = [header]
        size = len(header)
        parts: dict[str, TrackedPart] = {}
        for key, field in dict.items(value):
            name = key_bytes(key)
            stream.take(name)
            to = stream.take_link()
            part = parts[key] = self._embedded(field, stream) if to is None else self._linked(field, to)
            is_node = len(part.rope) > 1 and part.weight > EMBED_MAX
            if is_node and to is None:
                raise _OtherDivisionError
            rope += [name, to] if is_node and to is not None else [name, *part.rope]
            size += len(name) + part.size
        return Part(rope, size, TrackedFields(parts))  # type: ignore[arg-type]

    def _embedded(self, value: Any, stream: _Stream) -> TrackedPart:
        """The memo of a field that is in its parent."""
        if isinstance(value, Tracking) and looks_large(value, SPLIT_MIN):
            mark = stream.mark
            try:
                return self._container(value, stream)
            except _OtherDivisionError:
                stream.mark = mark  # it only looks large
        flat = pack(value)
        if isinstance(value, Tracking) and len(flat) > LITERAL_MAX:
            return self._container(value, stream)
        stream.take(flat)
        return self._part(value, (flat,), len(flat))

    def _items(self, value: Any, stream: _Stream) -> Part:
        items = _Items(self, value)
        header = (map_header if items.pairs else array_header)(len(value))
        stream.take(header)
        levels: list[list[Node]] = []
        at = 0
        while (to := stream.peek_link()) is not None and items.is_paged(to):
            found = items.finished(to, at)
            if found is None:
                break  # a leaf of the unfinished page
            level, node = found
            levels = levels or [[] for _ in range(level + 1)]
            if level >= len(levels) or any(levels[:level]):
                raise _OtherDivisionError
            levels[level].append(node)
            at += node.items
            stream.take_link()
        pager = Pager(self, pairs=items.pairs, whole=True)
        pager.take_over(Cursor(Pages(tuple(map(tuple, levels)) or ((),), (), at)), at)
        while pager.end < len(value):
            to = stream.peek_link()
            if to is None or not items.is_paged(to):
                items.add(pager, stream, pager.end)
                continue
            stream.take_link()
            inner = _Stream(read(self._content(to), _PLACE)) if to.node else None
            for place in range(pager.end, pager.end + to.count):
                items.add(pager, inner, place)
        value.log = EditLog(self._stamp)
        made = TrackedItems(len(value), pager.pages(), pager.rest, items.keys, snapshot_of(value))
        return Part([header, *pager.segments()], len(header) + pager.size, made)  # type: ignore[arg-type]

    def item(self, value: Any, name: bytes, stream: _Stream | None) -> tuple[int, tuple[Segment, ...], int, Any]:
        """An item's size, its rope, its weight in a page, and its memo if it is divided; without a stream it is not."""
        if stream is not None:
            if name:
                stream.take(name)
            if (to := stream.take_link()) is not None:
                part = self._linked(value, to)._replace(rope=(to,))
                segments = (name, to) if name else (to,)
                return len(name) + part.size, segments, weight(segments), part
        flat = pack(value)
        if stream is not None:
            stream.take(flat)
        return len(name) + len(flat), (name + flat,), len(name) + len(flat), None


class _Items:
    """The items of one list or dict, whose pages are read."""

    def __init__(self, builder: _Builder, value: Any) -> None:
        self._builder = builder
        self._value = value
        self.pairs = isinstance(value, dict)
        self.keys: list[str] | None = list(value) if self.pairs else None

    def is_paged(self, to: Link) -> bool:
        """Whether a link stands for items, not for a single one that is a chunk of its own."""
        if self.pairs or to.count != 1:
            return to.pairs == self.pairs and to.count > 0
        if to.node:
            return len(read(self._builder._content(to), _PLACE)) == 1
        return self._builder._size(to) <= ITEM_SPLIT_MIN

    def finished(self, to: Link, at: int) -> tuple[int, Node] | None:
        """The level and node of the finished page or index node that begins at `at`; None: it is a leaf."""
        if at + to.count > len(self._value):
            raise _OtherDivisionError
        segments = read(self._builder._content(to), _PLACE) if to.node else None
        if segments and len(segments) <= FANOUT_MAX and all(isinstance(s, Link) and self.is_paged(s) for s in segments):
            return self._index(to, segments, at)
        last = at + to.count - 1
        if segments is None or isinstance(segments[-1], bytes):
            flat = self._name(last) + pack(self._get(last))
            boundary, heavy = boundary_hash((flat,)), len(flat)
        else:
            content = (self._name(last), segments[-1]) if self.pairs else (segments[-1],)
            boundary, heavy = boundary_hash(content), weight(content)
        size = self._builder._size(to)
        page_weight = (
            size
            if segments is None
            else sum([len(s) if isinstance(s, bytes) else weight((s,)) + self.pairs for s in segments])
        )
        if not ends_page(page_weight, boundary, heavy):
            return None
        parts: tuple[Any, ...] = ()
        if segments is not None:
            stream = _Stream(segments)
            found = [self._builder.item(self._get(i), self._name(i), stream)[3] for i in range(at, last + 1)]
            stream.end()
            parts = tuple([part for part in found if part is not None])
        foreign = self._value.foreign and any(is_foreign(self._get(i)) for i in range(at, last + 1))
        closes = closed_levels(boundary, heavy)
        return 0, Node(to.count, size, to, closes=closes, parts=parts, divided=bool(parts), foreign=foreign)

    def _index(self, to: Link, links: list[Any], at: int) -> tuple[int, Node]:
        found = []
        for child in links:
            one = self.finished(child, at)
            if one is None:
                raise _OtherDivisionError
            found.append(one)
            at += child.count
        children = tuple([node for _, node in found])
        if len({level for level, _ in found}) != 1 or sum([node.items for node in children]) != to.count:
            raise _OtherDivisionError
        return found[0][0] + 1, Node(
            to.count,
            sum([node.size for node in children]),
            to,
            closes=children[-1].closes,
            children=children,
            divided=any(node.divided for node in children),
            foreign=any(node.foreign for node in children),
        )

    def add(self, pager: Pager, stream: _Stream | None, place: int) -> None:
        """Add an item that is not in a finished page."""
        if place >= len(self._value):
            raise _OtherDivisionError
        item = self._get(place)
        if is_foreign(item):
            pager.mark_foreign()
        size, segments, heavy, part = self._builder.item(item, self._name(place), stream)
        if pager.add(segments, heavy, size, part):
            raise _OtherDivisionError

    def _get(self, at: int) -> Any:
        return list.__getitem__(self._value, at) if self.keys is None else dict.__getitem__(self._value, self.keys[at])

    def _name(self, at: int) -> bytes:
        return b"" if self.keys is None else key_bytes(self.keys[at])
