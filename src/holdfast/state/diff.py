"""The differences between two states. Chunks that both states share are not fetched.

Both ropes are joined with *stubs* in place of shared links: a stub stands for one item of a list, or one pair of a
dict, and equals only the same item of the same chunk. The rest is decoded and compared. If a stub has to be compared
with another value, both states are joined in full and compared again.
"""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Any, NamedTuple

from holdfast.model.views import Change
from holdfast.state import rope
from holdfast.state.rope import Fetch, Link, Segment, gather, join, verify_chunk
from holdfast.state.values import pack, stub_bytes, unpack

Path = tuple[str | int, ...]


class _Stub(NamedTuple):
    """One item of a chunk that both states have."""

    name: bytes


class _StubMet(Exception):
    """The comparison needs the value that a stub stands for."""


def diff(old: bytes, new: bytes, fetch: Fetch, place: str) -> list[Change]:
    """The changes that make the state behind root `old` the one behind root `new`, in an order that can be applied."""
    if old == new:
        return []
    try:
        before, after = _Pair(old, new, fetch, place).values()
        return compare(before, after)
    except _StubMet:
        return compare(_load(old, fetch, place), _load(new, fetch, place))


def compare(old: object, new: object) -> list[Change]:
    """The changes that make one value the other, in an order that can be applied."""
    return list(_changes(old, new, ()))


def _load(root: bytes, fetch: Fetch, place: str) -> object:
    segments = rope.read(root, place)
    return unpack(join(segments, gather(segments, fetch, place), place), place)


class _Pair:
    """Two ropes, opened only as far as they differ."""

    def __init__(self, old: bytes, new: bytes, fetch: Fetch, place: str) -> None:
        self._fetch = fetch
        self._place = place
        self._sides = (rope.read(old, place), rope.read(new, place))
        self._opened: dict[bytes, bytes] = {}
        self._key = os.urandom(8).hex()

    def values(self) -> tuple[object, object]:
        """Both states, decoded, with stubs for what they share."""
        while wanted := self._chunks_to_open():
            found = self._fetch(list(wanted))
            self._opened.update((name, verify_chunk(name, found.get(name), self._place)) for name in wanted)
        before, after = (b"".join(self._join(side, stubs=True)) for side in self._sides)
        return unpack(before, self._place, _Stub), unpack(after, self._place, _Stub)

    def _chunks_to_open(self) -> set[bytes]:
        """The chunks that only one side has, and those that contain part of a value."""
        old, new = (self._links(side) for side in self._sides)
        shared = {link.hash for link in old if link.count} & {link.hash for link in new if link.count}
        return {link.hash for link in (*old, *new) if link.hash not in shared and link.hash not in self._opened}

    def _links(self, segments: Iterable[Segment]) -> list[Link]:
        """The links of a side, with those below links that were opened."""
        found: list[Link] = []
        for segment in segments:
            if type(segment) is Link:
                found.append(segment)
                if segment.node and segment.hash in self._opened:
                    found += self._links(rope.read(self._opened[segment.hash], self._place))
        return found

    def _join(self, segments: list[Segment], *, stubs: bool) -> Iterator[bytes]:
        for segment in segments:
            if type(segment) is bytes:
                yield segment
                continue
            assert isinstance(segment, Link)
            plain = self._opened.get(segment.hash)
            if plain is None and stubs:
                yield from self._stubs(segment)
            elif plain is not None and not segment.node:
                yield plain[1:]
            else:
                yield from self._opened_node(segment, plain, stubs=stubs)

    def _opened_node(self, link: Link, plain: bytes | None, *, stubs: bool) -> Iterator[bytes]:
        inner: list[Segment] = [link] if plain is None else rope.read(plain, self._place)
        if plain is None or _has_length(inner):  # it starts with its length, which a stub would change
            yield join(inner, gather(inner, self._fetch, self._place), self._place)
        else:
            yield from self._join(inner, stubs=stubs)

    def _stubs(self, link: Link) -> Iterator[bytes]:
        for index in range(link.count):
            name = link.hash + index.to_bytes(4, "big")
            if link.pairs:
                yield pack(f"{self._key}{name.hex()}") + stub_bytes(name)
            else:
                yield stub_bytes(name)


def _has_length(segments: list[Segment]) -> bool:
    """Whether the rope is a value that starts with its length in bytes: text, bytes or an extension."""
    first = segments[0] if segments else b""
    return type(first) is bytes and first[:1] != b"" and not (0x80 <= first[0] <= 0x9F or 0xDC <= first[0] <= 0xDF)


# --- comparing -------------------------------------------------------------------------------------------------------


def _changes(old: object, new: object, path: Path) -> Iterator[Change]:
    if type(old) is _Stub or type(new) is _Stub:
        if old != new:
            raise _StubMet
    elif type(old) is dict and type(new) is dict:
        yield from _dict_changes(old, new, path)
    elif type(old) is list and type(new) is list:
        yield from _list_changes(old, new, path)
    elif not _is_same(old, new):
        yield Change(op="replace", path=path, old=_without_stubs(old), new=_without_stubs(new))


def _dict_changes(old: dict[str, object], new: dict[str, object], path: Path) -> Iterator[Change]:
    for key in old:
        if key not in new:
            yield Change(op="remove", path=(*path, key), old=_without_stubs(old[key]))
    for key, value in new.items():
        if key in old:
            yield from _changes(old[key], value, (*path, key))
        else:
            yield Change(op="add", path=(*path, key), new=_without_stubs(value))


def _list_changes(old: list[object], new: list[object], path: Path) -> Iterator[Change]:
    """Equal items at both ends are skipped; those between are compared one by one, the rest added or removed."""
    shorter = min(len(old), len(new))
    start = next((i for i in range(shorter) if not _is_same(old[i], new[i])), shorter)
    end = next((i for i in range(shorter - start) if not _is_same(old[-1 - i], new[-1 - i])), shorter - start)
    both = shorter - start - end
    for i in range(start, start + both):
        yield from _changes(old[i], new[i], (*path, i))
    for i in range(len(old) - end - 1, start + both - 1, -1):
        yield Change(op="remove", path=(*path, i), old=_without_stubs(old[i]))
    for i in range(start + both, len(new) - end):
        yield Change(op="add", path=(*path, i), new=_without_stubs(new[i]))


def _is_same(old: Any, new: Any) -> bool:
    """Equal in value and in type, at every level."""
    if type(old) is not type(new):
        return False
    if type(old) is dict:
        return old.keys() == new.keys() and all(_is_same(old[key], new[key]) for key in old)
    if type(old) in (list, tuple):
        return len(old) == len(new) and all(map(_is_same, old, new))
    if type(old) in (float, Decimal, set, frozenset, dt.datetime, dt.time):  # equal ones may differ when stored
        return pack(old) == pack(new)
    return bool(old == new)


def _without_stubs(value: object) -> object:
    """A value for the result; raises _StubMet if it contains a stub."""
    stack = [value]
    while stack:
        part = stack.pop()
        if type(part) is _Stub:
            raise _StubMet
        if type(part) is dict:
            stack.extend(part.values())
        elif type(part) is list or type(part) is tuple:
            stack.extend(part)
    return value
