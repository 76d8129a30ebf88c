"""Encodes tracked states: only what changed, and the pages and index nodes above it.

The result is that of `encoder.encode` for an equal plain state, byte for byte. Instead of encoded bytes the memo of a
tracked state keeps the containers themselves, with the number of the save: a part with an older stamp is unchanged.

Functions in C can change a list or dict without calling its methods, such as `heapq.heappush`. As a safeguard every
save encodes small fields, and compares the length of each large field, and the items of a short list, with the memo.
"""

from __future__ import annotations

import operator
from collections.abc import Sized
from typing import Any, Final, NamedTuple, cast

import msgspec

from holdfast.errors import LimitExceeded, Unstorable
from holdfast.limits import DEPTH_MAX, TRACKED_STATE_BYTES_MAX
from holdfast.state.change_stamps import IMMUTABLE, Tracking, clock, is_immutable, record_interrupted
from holdfast.state.chunker import Cursor, Hunk, Pager, Pages, rebuild
from holdfast.state.edit_log import EditLog
from holdfast.state.encoder import (
    EMBED_MAX,
    FIELDS_MAX,
    ITEM_SPLIT_MIN,
    LITERAL_MAX,
    SPLIT_MIN,
    Encoder,
    Memo,
    Part,
    WholeMemo,
    encode,
    key_bytes,
    looks_large,
)
from holdfast.state.headers import array_header, map_header
from holdfast.state.rope import Segment, weight, write
from holdfast.state.settlement import end_settling, settle, settle_part
from holdfast.state.values import NATIVE, check_storable, pack

_SNAPSHOT_MAX: Final = 256
"""Items of a longer list are not compared one by one."""
_ANY: Final = object()
"""Stands in a snapshot for an item that is encoded by every save."""
_ATTEMPTS: Final = 8
_COMPARED_MAX: Final = SPLIT_MIN
"""A dict or list in a divided dict that is not larger is encoded by every save, and compared by bytes."""


class TrackedFields(msgspec.Struct, frozen=True):
    """Memo of a dict whose fields were encoded one by one."""

    parts: dict[str, TrackedPart]


class TrackedItems(msgspec.Struct, frozen=True):
    """Memo of a list or dict that was divided into pages."""

    count: int
    pages: Pages
    rest: tuple[TrackedPart, ...]
    """The parts of the divided items behind the last finished leaf."""
    keys: list[str] | None
    """Of a dict."""
    snapshot: list[Any] | None
    """The items of a short list."""


class TrackedPart(NamedTuple):
    """How a value was encoded."""

    value: object
    """None if it is not tracked and can change: a reference to it would keep it from becoming tracked."""
    identity: int
    stamp: int
    """The save that encoded it."""
    length: int
    """Of a dict or list."""
    rope: tuple[Segment, ...]
    weight: int
    size: int
    memo: TrackedFields | TrackedItems | Memo | None


class TrackedState(msgspec.Struct, frozen=True):
    """An encoded tracked state."""

    root: bytes
    chunks: dict[bytes, bytes]
    linked: bool
    memo: TrackedPart | None
    size: int


def encode_tracked(
    state: Any, memo: TrackedPart | None = None, known: set[bytes] | frozenset[bytes] = frozenset()
) -> TrackedState:
    """Encode a tracked dict or list. Chunks whose hash is in `known`, or that the memo links to, are not returned."""
    with clock.lock:
        record_interrupted()
        for _ in range(_ATTEMPTS):
            stamp = clock.now
            encoded = _encode(state, memo, known)
            if state.stamp <= stamp:
                return encoded  # else a signal handler or a model changed the state meanwhile
    raise Unstorable("the state changes while it is encoded", "state")


def _encode(state: Any, memo: TrackedPart | None, known: set[bytes] | frozenset[bytes]) -> TrackedState:
    encoder = TrackedEncoder(known, clock.now)
    clock.now += 1
    try:
        part = encoder.part(state, memo, 0, SPLIT_MIN)
    except Unstorable:
        check_storable(state)
        raise
    except RecursionError:  # a deep state: the other encoder needs fewer calls for each level
        found = encode(state, None, known)
        return TrackedState(found.root, found.chunks, found.linked, None, found.size)
    if part.size > TRACKED_STATE_BYTES_MAX:
        raise LimitExceeded(
            f"the state has {part.size} bytes when encoded, at most {TRACKED_STATE_BYTES_MAX} are allowed"
        )
    if part.size <= SPLIT_MIN:
        return TrackedState(b"\x01" + encoder.flat(state, 0), {}, False, None, part.size)
    return TrackedState(write(part.rope), encoder.chunks, True, part, part.size)


class TrackedEncoder(Encoder):
    """One encoding of a tracked state, while the lock is held."""

    def __init__(self, known: set[bytes] | frozenset[bytes], stamp: int) -> None:
        super().__init__(known, SPLIT_MIN)
        self._stamp = stamp

    def part(self, value: object, old: TrackedPart | None, depth: int, split_min: int) -> TrackedPart:
        """A value encoded, or `old` if it is still the same."""
        is_same = old is not None and old.value is value
        if isinstance(value, Tracking):
            old = old if is_same else None
            if old is not None and is_unchanged(old):
                return old
            found = self._container(value, old, depth, split_min)
            count = len(cast("Sized", value))
        elif old is not None and is_same and type(value) in IMMUTABLE:
            return old
        else:
            plain = old.memo if old is not None and not isinstance(old.memo, (TrackedFields, TrackedItems)) else None
            found, count = self.value(value, plain, depth, split_min), 0
        rope, kept = tuple(found.rope), None if is_foreign_itself(value) else value
        return TrackedPart(kept, id(value), self._stamp, count, rope, weight(rope), found.size, found.memo)

    def flat(self, value: Any, depth: int) -> bytes:
        """The bytes of a value as a whole."""
        if not isinstance(value, Tracking):
            return pack(value, depth)
        if value.foreign:
            settle(value)
        return pack(value, depth) if value.foreign else pack(value, depth, NATIVE)

    def _container(self, value: Any, old: TrackedPart | None, depth: int, split_min: int) -> Part:
        if depth > DEPTH_MAX:
            raise Unstorable(f"the value is nested more than {DEPTH_MAX} containers deep", "state")
        before = len(self.chunks)
        divided = old is not None and isinstance(old.memo, (TrackedFields, TrackedItems))
        if not divided and not looks_large(value, split_min):
            return self._whole_container(value, depth, split_min)
        part = self._divide_container(value, old, depth)
        if part.size > split_min:
            return part
        self._drop_chunks(before)  # it has become small
        return self._whole_container(value, depth, split_min)

    def _whole_container(self, value: Any, depth: int, split_min: int) -> Part:
        flat = self.flat(value, depth)
        if len(flat) > split_min:
            return self._divide_container(value, None, depth)
        if len(flat) <= LITERAL_MAX:
            return Part((flat,), len(flat), None)
        rope = (self.link(b"\x01" + flat, 1, node=False, pairs=False),)
        return Part(rope, len(flat), WholeMemo(b"", rope))

    def _divide_container(self, value: Any, old: TrackedPart | None, depth: int) -> Part:
        if isinstance(value, dict) and len(value) <= FIELDS_MAX:
            return self._tracked_fields(value, old, depth)
        return self._tracked_items(value, old, depth)

    def _tracked_fields(self, value: Any, old: TrackedPart | None, depth: int) -> Part:
        known = old.memo.parts if old is not None and isinstance(old.memo, TrackedFields) else {}
        header = map_header(len(value))
        rope: list[Segment] = [header]
        size = len(header)
        parts: dict[str, TrackedPart] = {}
        foreign = plain = False
        for key in list(value):
            field = settle_part(value, key) if value.foreign else value[key]
            if isinstance(field, Tracking) and not field.is_attached_to(value):
                field.attach(value, key)
            name = key_bytes(key)
            part = parts[key] = self.part(field, known.get(key), depth + 1, self._split_min)
            rope.append(name)
            if len(part.rope) > 1 and part.weight > EMBED_MAX:
                rope.append(self.link(write(part.rope), 1, node=True, pairs=False))
            else:
                rope.extend(part.rope)
            size += len(name) + part.size
            foreign = foreign or is_foreign(field) or type(key) is not str
            plain = plain or type(field) is dict or type(field) is list
        end_settling(value, foreign=foreign, plain=plain)
        return Part(rope, size, TrackedFields(parts))  # type: ignore[arg-type]

    def _tracked_items(self, value: Any, old: TrackedPart | None, depth: int) -> Part:
        pairs = isinstance(value, dict)
        memo = old.memo if old is not None and isinstance(old.memo, TrackedItems) else None
        if memo is not None and (memo.keys is not None) != pairs:
            memo = None
        keys = list(value) if pairs else None
        hunks: list[Hunk] | None = []
        if value.log is None:
            value.log, memo = EditLog(self._stamp), None
        elif memo is not None and old is not None:
            hunks = _changes(value, keys, old.stamp, memo)
        if hunks is None or (memo is not None and not _is_snapshot_valid(value, hunks, memo.snapshot)):
            value.record_anything(self._stamp)
            memo, hunks = None, []
        pager = Pager(self, pairs=pairs, whole=True)
        parts = _Parts(memo)
        plain = False

        def add(at: int, cursor: Cursor | None, shift: int) -> bool:
            nonlocal plain
            place: Any = at if keys is None else keys[at]
            item = settle_part(value, place) if value.foreign else value[place]
            if isinstance(item, Tracking) and not item.is_attached_to(value):
                item.attach(value, place)
            old = None if cursor is None else parts.find(item, cursor, at - shift)
            name = b"" if keys is None else key_bytes(place)
            size, segments, heavy, part = self._tracked_item(item, name, old, depth + 1)
            plain = plain or type(item) is dict or type(item) is list
            if is_foreign(item) or (pairs and type(place) is not str):
                pager.mark_foreign()
            return pager.add(segments, heavy, size, part)

        rebuild(pager, memo.pages if memo else None, hunks, len(value), add)
        end_settling(value, foreign=pager.has_foreign, plain=plain)
        header = (map_header if pairs else array_header)(len(value))
        made = TrackedItems(len(value), pager.pages(), pager.rest, keys, snapshot_of(value))
        return Part([header, *pager.segments()], len(header) + pager.size, made)  # type: ignore[arg-type]

    def _tracked_item(
        self, item: Any, name: bytes, old: TrackedPart | None, depth: int
    ) -> tuple[int, tuple[Segment, ...], int, TrackedPart | None]:
        """The item's size, its rope, its weight in a page, and its memo if it is divided."""
        if old is None:
            flat = self.flat(item, depth)
            if len(flat) <= ITEM_SPLIT_MIN:
                flat = name + flat
                return len(flat), (flat,), len(flat), None
        before = len(self.chunks)
        part = self.part(item, old, depth, ITEM_SPLIT_MIN)
        if part.size <= ITEM_SPLIT_MIN:
            self._drop_chunks(before)
            return self._tracked_item(item, name, None, depth)
        if len(part.rope) > 1:
            part = part._replace(rope=(self.link(write(part.rope), 1, node=True, pairs=False),))
        segments = (name, *part.rope) if name else part.rope
        return len(name) + part.size, segments, weight(segments), part

    def _drop_chunks(self, before: int) -> None:
        while len(self.chunks) > before:
            self.chunks.popitem()


class _Parts:
    """The parts of divided items in an earlier encoding, found by the item."""

    def __init__(self, memo: TrackedItems | None) -> None:
        self._pages = memo.pages if memo and any(node.divided for _, node in memo.pages.tops()) else None
        self._ahead: Cursor | None = None
        known = () if memo is None else (*memo.rest, *[part for leaf in memo.pages.leaves for part in leaf.parts])
        self._known = {part.identity: part for part in known}

    def find(self, item: object, cursor: Cursor, at: int) -> TrackedPart | None:
        """The part of an item that lay at `at` or shortly before, behind the cursor."""
        if self._pages is not None:
            if self._ahead is None or self._ahead.at < cursor.at:
                self._ahead = cursor.copy()
            while self._ahead.at <= at and (found := self._ahead.take(self._pages.paged, _no_level)) is not None:
                self._known.update({part.identity: part for part in found[1].parts})
        return self._known.get(id(item))


def _no_level(_: int) -> bool:
    return False


def _changes(value: Any, keys: list[str] | None, since: int, memo: TrackedItems) -> list[Hunk] | None:
    if keys is None:
        return value.log.list_changes(since, value, memo.pages, memo.count)  # type: ignore[no-any-return]
    return value.log.dict_changes(since, value, memo.pages, memo.keys, keys)  # type: ignore[no-any-return]


def is_unchanged(part: TrackedPart) -> bool:
    """Whether the tracked container is as it was when it was encoded; False also if its fields must be checked."""
    value: Any = part.value
    if value.stamp > part.stamp or value.foreign or len(value) != part.length or part.size <= _COMPARED_MAX:
        return False
    return isinstance(part.memo, TrackedItems) and _is_snapshot_valid(value, [], part.memo.snapshot)


def snapshot_of(value: Any) -> list[Any] | None:
    """The items of a short list, for comparison; None for others."""
    if isinstance(value, dict) or len(value) > _SNAPSHOT_MAX:
        return None
    return [_ANY if is_foreign_itself(item) else item for item in value] if value.foreign else list(value)


def _is_snapshot_valid(value: Any, hunks: list[Hunk], snapshot: list[Any] | None) -> bool:
    """Whether a short list has the same items as before outside of the recorded changes."""
    if snapshot is None:
        return True
    before, now = snapshot, list(value)
    for hunk in reversed(hunks):
        before, now = before[: hunk.old] + before[hunk.old_end :], now[: hunk.new] + now[hunk.new_end :]
    if len(before) != len(now):
        return False
    return all(map(operator.is_, before, now)) or all(a is b or a is _ANY for a, b in zip(before, now, strict=True))


def is_foreign(value: Any) -> bool:
    """Whether changes of the value, or inside it, are not tracked."""
    return bool(value.foreign) if isinstance(value, Tracking) else not is_immutable(value)


def is_foreign_itself(value: object) -> bool:
    """Whether the value is not tracked and can change."""
    return not isinstance(value, Tracking) and not is_immutable(value)
