"""Encodes states as ropes, at a cost proportional to the change.

For the last state of a run the encoder keeps a *memo*: the encoded bytes of its parts and their segments. It encodes
the new state in large pieces in C, compares bytes, and descends only where they differ. It never relies on object
identity: a list changed in place is found like any other change.

The rope depends on the state alone. A missing memo, or the memo of another state, costs time and changes no byte. A
sweep may have removed chunks that the memo links to; the commit's `gc_epoch` guards against that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from holdfast.errors import LimitExceeded, Unstorable
from holdfast.limits import DEPTH_MAX, STATE_BYTES_MAX
from holdfast.state.chunker import Hunk, Pager, Pages, rebuild
from holdfast.state.headers import array_header, blob_header, header_size, map_header
from holdfast.state.rope import Link, Segment, chunk_hash, link, weight, write
from holdfast.state.values import check_storable, pack, pack_unchecked, plain_value

LITERAL_MAX: Final = 255
"""A field up to this size stays in its parent; a larger one becomes a chunk."""
SPLIT_MIN: Final = 2048
"""A state or a field up to this size is written whole; a larger container is divided."""
ITEM_SPLIT_MIN: Final = 8192
"""Likewise for an item of a list: up to this size it lies whole in its page."""
FIELDS_MAX: Final = 32
"""A dict with more keys is divided into pages like a list."""
EMBED_MAX: Final = 1024
"""A field's rope up to this size stays in its parent."""
BLOCK: Final = 64
"""The number of items that are encoded and compared at once."""
BLOB: Final = 64 * 1024
"""Long text and bytes are divided into pieces of this size."""


class WholeMemo(msgspec.Struct, frozen=True):
    """Memo of a part that was encoded whole."""

    flat: bytes
    rope: tuple[Segment, ...]
    pieces: tuple[Segment, ...] = ()
    """Of long text or bytes: the segments of the chunk that `rope` links to."""


class Fields(msgspec.Struct, frozen=True):
    """Memo of a dict whose fields were encoded one by one."""

    parts: dict[str, Memo]


class Items(msgspec.Struct, frozen=True):
    """Memo of a list or dict that was divided into pages."""

    count: int
    pairs: bool
    blocks: list[bytes]
    pages: Pages
    parts: dict[int, Memo]


Memo = WholeMemo | Fields | Items


class Encoded(msgspec.Struct, frozen=True):
    """An encoded state."""

    root: bytes
    chunks: dict[bytes, bytes]
    """Plain chunks, by hash, that may not be stored yet."""
    linked: bool
    memo: Memo | None
    size: int
    """The state's encoded size."""


class Part(NamedTuple):
    """An encoded part of a state."""

    rope: Sequence[Segment]
    size: int
    memo: Memo | None


def encode(
    state: object,
    memo: Memo | None = None,
    known: set[bytes] | frozenset[bytes] = frozenset(),
    split_min: int = SPLIT_MIN,
) -> Encoded:
    """Encode `state`. Chunks whose hash is in `known`, or that the memo links to, are not returned again.

    A smaller `split_min` divides it finer, so that values share small parts.
    """
    flat = None
    if (memo is None or type(memo) is WholeMemo) and not looks_large(state, split_min):
        flat = pack(state)
        if len(flat) <= split_min:
            return Encoded(b"\x01" + flat, {}, False, None, len(flat))
    encoder = Encoder(known, split_min)
    try:
        part = encoder.value(state, memo, 0, split_min, flat)
    except Unstorable:
        check_storable(state)
        raise
    if part.size > STATE_BYTES_MAX:
        raise LimitExceeded(f"the state has {part.size} bytes when encoded, at most {STATE_BYTES_MAX} are allowed")
    if part.size <= split_min:
        return Encoded(b"\x01" + pack(state), {}, False, None, part.size)
    return Encoded(write(part.rope), encoder.chunks, True, part.memo, part.size)


class Encoder:
    """One encoding; collects the chunks that are new."""

    def __init__(self, known: set[bytes] | frozenset[bytes], split_min: int) -> None:
        self._known = known
        self._split_min = split_min
        self._whole = split_min >= SPLIT_MIN
        self.chunks: dict[bytes, bytes] = {}

    def link(self, plain: bytes, count: int, *, node: bool, pairs: bool) -> Link:
        name = chunk_hash(plain)
        if name not in self._known:
            self.chunks[name] = plain
        return link(name, count, node=node, pairs=pairs)

    def value(self, value: object, memo: Memo | None, depth: int, split_min: int, flat: bytes | None = None) -> Part:
        """The rope of any value; `flat` is its encoding, if the caller has it.

        A value that was divided before, or looks large, is divided at once, without encoding it whole first.
        """
        if depth > DEPTH_MAX:
            raise Unstorable(f"the value is nested more than {DEPTH_MAX} containers deep", "state")
        value = plain_value(value)
        before = len(self.chunks)
        if type(memo) is Fields and type(value) is dict and len(value) <= FIELDS_MAX:
            part = self._fields(value, memo, depth)
        elif type(memo) is Items and type(value) is list:
            part = self._items(value, memo, depth, pairs=False)
        elif type(memo) is Items and type(value) is dict and len(value) > FIELDS_MAX:
            part = self._items(list(value.items()), memo, depth, pairs=True)
        elif flat is None and looks_large(value, split_min):
            part = self._divide(value, depth)
        else:
            return self._encode_whole(value, memo, depth, split_min, flat)
        if part.size > split_min:
            return part
        while len(self.chunks) > before:  # it has become small: drop its chunks
            self.chunks.popitem()
        return self._encode_whole(value, None, depth, split_min, flat)

    def _divide(self, value: Any, depth: int) -> Part:
        """The rope of a dict or list whose parts are encoded one by one."""
        if type(value) is list:
            return self._items(value, None, depth, pairs=False)
        if len(value) <= FIELDS_MAX:
            return self._fields(value, None, depth)
        return self._items(list(value.items()), None, depth, pairs=True)

    def _encode_whole(self, value: object, memo: Memo | None, depth: int, split_min: int, flat: bytes | None) -> Part:
        if flat is None:
            flat = pack(value, depth)
        if type(memo) is WholeMemo and memo.flat == flat:
            return Part(memo.rope, len(flat), memo)
        if len(flat) <= LITERAL_MAX:
            return Part((flat,), len(flat), None)
        if len(flat) > split_min:
            if type(value) is dict or type(value) is list:
                return self._divide(value, depth)
            if type(value) is tuple:
                return self._tuple(value, flat, depth)
            if len(flat) > BLOB:
                return self._blob(flat, memo)
        rope = (self.link(b"\x01" + flat, 1, node=False, pairs=False),)
        return Part(rope, len(flat), WholeMemo(flat, rope))

    def _fields(self, value: dict[str, object], memo: Fields | None, depth: int) -> Part:
        header = map_header(len(value))
        rope: list[Segment] = [header]
        size = len(header)
        parts: dict[str, Memo] = {}
        for key, field in value.items():
            name = key_bytes(key)
            part = self.value(field, memo.parts.get(key) if memo else None, depth + 1, self._split_min)
            rope.append(name)
            if len(part.rope) > 1 and weight(part.rope) > EMBED_MAX:
                rope.append(self.link(write(part.rope), 1, node=True, pairs=False))
            else:
                rope.extend(part.rope)
            size += len(name) + part.size
            if part.memo is not None:
                parts[key] = part.memo
        return Part(rope, size, Fields(parts))

    def _tuple(self, value: tuple[object, ...], flat: bytes, depth: int) -> Part:
        items = self._items(list(value), None, depth, pairs=False)
        rope = self._wrap([flat[: len(flat) - items.size], *items.rope])
        return Part(rope, len(flat), WholeMemo(flat, rope))

    def _blob(self, flat: bytes, memo: Memo | None) -> Part:
        """Long text or bytes, divided at fixed offsets, so that an append writes only the end again."""
        start = blob_header(flat[0])
        pieces: list[Segment] = [flat[:start]]
        old = memo if type(memo) is WholeMemo and memo.pieces and blob_header(memo.flat[0]) == start else None
        for number, at in enumerate(range(start, len(flat), BLOB), start=1):
            piece = flat[at : at + BLOB]
            if old is not None and old.flat[at : at + BLOB] == piece:
                pieces.append(old.pieces[number])
            else:
                pieces.append(self.link(b"\x01" + piece, 0, node=False, pairs=False))
        rope = self._wrap(pieces)
        return Part(rope, len(flat), WholeMemo(flat, rope, tuple(pieces)))

    def _wrap(self, pieces: Sequence[Segment]) -> tuple[Segment, ...]:
        """One link for a value that is divided inside."""
        return (self.link(write(pieces), 1, node=True, pairs=False),)

    def _items(self, items: list[Any], memo: Items | None, depth: int, *, pairs: bool) -> Part:
        if memo is not None and memo.pairs != pairs:
            memo = None  # a list where a dict was, or the other way round
        if memo is None:
            blocks: list[bytes] = []
            hunks: list[Hunk] = []
        else:
            blocks, hunks = _compare_blocks(items, memo, depth, pairs=pairs)
        block: list[bytes] = []
        parts = dict(memo.parts) if memo else {}
        pager = Pager(self, pairs=pairs, whole=self._whole)

        def add(at: int, *_: object) -> bool:
            nonlocal block
            flat, segments, heavy = self._item(items[at], at, parts, depth + 1, pairs=pairs)
            if memo is None:
                block.append(flat)
                if len(block) == BLOCK or at == len(items) - 1:
                    blocks.append((map_header if pairs else array_header)(len(block)) + b"".join(block))
                    block = []
            return pager.add(segments, heavy, len(flat))

        rebuild(pager, memo.pages if memo else None, hunks, len(items), add)
        header = (map_header if pairs else array_header)(len(items))
        rope = [header, *pager.segments()]
        return Part(rope, len(header) + pager.size, Items(len(items), pairs, blocks, pager.pages(), parts))

    def _item(
        self, item: Any, at: int, parts: dict[int, Memo], depth: int, *, pairs: bool
    ) -> tuple[bytes, Sequence[Segment], int]:
        """The item's encoding, its rope, and its weight in a page."""
        name = b""
        if pairs:
            name, item = key_bytes(item[0]), item[1]
        flat = pack(item, depth)
        if len(flat) <= ITEM_SPLIT_MIN:
            parts.pop(at, None)
            flat = name + flat if name else flat
            return flat, (flat,), len(flat)
        part = self.value(item, parts.get(at), depth, ITEM_SPLIT_MIN, flat)
        if part.memo is not None:
            parts[at] = part.memo
        rope = part.rope
        if len(rope) > 1:
            rope = (self.link(write(rope), 1, node=True, pairs=False),)
        segments = [name, *rope] if name else rope
        return name + flat if name else flat, segments, weight(segments)


def key_bytes(key: object) -> bytes:
    if not isinstance(key, str):
        raise Unstorable(f"the key {key!r} is {type(key).__name__}, and only text can be a key", "state")
    return pack(key)


def looks_large(value: Any, split_min: int) -> bool:
    """Whether a dict or list is certainly much larger than `split_min` when encoded, judged by a few of its parts.

    The estimate saves encoding most large values whole first. The division depends on the encoded size alone.
    """
    is_dict = isinstance(value, dict)
    if not is_dict or len(value) > FIELDS_MAX:
        return (is_dict or isinstance(value, list)) and _estimate_size(value) > 4 * split_min
    size = 0
    for part in value.values():
        if isinstance(part, _SIZED) and len(part) > _FEW:
            size += _estimate_size(part)
    return size > 4 * split_min


def _estimate_size(value: Any) -> int:
    """The approximate size of a text, dict or list; the first item stands for all."""
    if isinstance(value, (str, bytes)):
        return len(value)
    first: Any = next(iter(value.values() if isinstance(value, dict) else value), None)
    if isinstance(first, dict) and len(first) <= FIELDS_MAX:
        return len(value) * sum([len(part) for part in first.values() if isinstance(part, _SIZED)])
    return len(value) * (len(first) if isinstance(first, _SIZED) else 1)


_FEW: Final = 16
"""A field with no more items or characters counts as small: to estimate it would cost as much as to encode it."""
_SIZED: Final = (str, bytes, list, dict)


def _compare_blocks(items: list[Any], memo: Items, depth: int, *, pairs: bool) -> tuple[list[bytes], list[Hunk]]:
    """Encode the items in blocks and compare them with the memo's. Returns the blocks and the changes."""
    old, count = memo.blocks, memo.count
    shape: Callable[[Any], object] = dict if pairs else list
    blocks: list[bytes] = []
    first: int | None = None
    last = -1
    for number, start in enumerate(range(0, len(items), BLOCK)):
        block = pack_unchecked(shape(items[start : start + BLOCK]), depth)
        if number < len(old):
            if block == old[number]:
                block = old[number]  # frees the copy at once, so that the next block reuses warm memory
            elif not _extends(block, old[number], start, len(items), count):
                first = number if first is None else first
                last = number
        blocks.append(block)
    same, end = count if first is None else first * BLOCK, (last + 1) * BLOCK
    if len(items) < count or end >= count:
        same = min(same, len(items))
        return blocks, [Hunk(same, count, same, len(items))]
    changed = [] if first is None else [Hunk(same, end, same, end)]
    return blocks, [*changed, Hunk(count, count, count, len(items))]


def _extends(block: bytes, old: bytes, start: int, count: int, old_count: int) -> bool:
    """Whether the block starts with all items of the old one."""
    had, has = min(BLOCK, old_count - start), min(BLOCK, count - start)
    return had < has and block.startswith(old[header_size(had) :], header_size(has))
