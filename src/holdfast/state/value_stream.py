"""Reads single values from a rope without following its links.

A dict or list with links becomes *sections*: its links to pages, and between them the parts that are stored beside
these, as a dict or list. A value in such a dict may be a link, too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, cast

from holdfast.errors import DamagedData
from holdfast.state.rope import Link, Segment
from holdfast.state.values import unpack

Make = Callable[[int, list[Any], list[Segment], bool], Any]
"""Makes the value of a dict or list: from its count, its sections, its rope, and whether it is a dict."""

_SIZES: Final = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xC7: 1, 0xC8: 2, 0xC9: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}
"""How many bytes the length of a text, bytes or extension has, by its mark."""
_FIXED: Final[dict[int, int]] = {
    0xCA: 5,
    0xCB: 9,
    0xCC: 2,
    0xCD: 3,
    0xCE: 5,
    0xCF: 9,
    0xD0: 2,
    0xD1: 3,
    0xD2: 5,
    0xD3: 9,
} | {0xD4 + n: 2 + 2**n for n in range(5)}
"""The sizes of numbers and short extensions."""


class ValueStream:
    """Reads values from a rope whose links are not followed."""

    def __init__(self, segments: list[Segment], place: str, make: Make) -> None:
        self._place = place
        self._make = make
        self._segments = [segment for segment in segments if segment]
        self._at = self._offset = 0

    def link(self) -> Link | None:
        """The link that comes next, if one does; it is passed."""
        if self._at >= len(self._segments):
            raise self._damaged()
        segment = self._segments[self._at]
        if type(segment) is not Link:
            return None
        self._at += 1
        return segment

    def _literal(self) -> bytes:
        segment = self._segments[self._at] if self._at < len(self._segments) else None
        if type(segment) is not bytes:
            raise self._damaged()
        return segment

    def _advance(self, size: int) -> None:
        self._offset += size
        left = len(self._literal()) - self._offset
        if left < 0:
            raise self._damaged()
        if not left:
            self._at, self._offset = self._at + 1, 0

    def _header(self) -> tuple[int, int, bool] | None:
        """The size, count and kind of the dict or list that comes next; None if another value does."""
        data, at = self._literal(), self._offset
        mark = data[at]
        if 0x80 <= mark <= 0x9F:
            return 1, mark & 0x0F, mark < 0x90
        if 0xDC <= mark <= 0xDF:
            size = 4 if mark & 1 else 2
            return 1 + size, int.from_bytes(data[at + 1 : at + 1 + size], "big"), mark >= 0xDE
        return None

    @property
    def is_container(self) -> bool:
        """Whether a dict or list comes next."""
        return self._header() is not None

    def _skip(self) -> bool:
        """Pass one value; returns whether it has links."""
        left, linked = 1, False
        while left > 0:
            link = self.link()
            if link is not None:
                left, linked = left - link.count * (1 + link.pairs), True
            elif (header := self._header()) is not None:
                self._advance(header[0])
                left += header[1] * (1 + header[2]) - 1
            else:
                self._advance(self._scalar_size())
                left -= 1
        if left:
            raise self._damaged()
        return linked

    def _scalar_size(self) -> int:
        data, at = self._literal(), self._offset
        mark = data[at]
        if mark < 0x80 or mark >= 0xE0 or mark in (0xC0, 0xC2, 0xC3):
            return 1
        if 0xA0 <= mark <= 0xBF:
            return 1 + (mark & 0x1F)
        if mark in _FIXED:
            return _FIXED[mark]
        if mark not in _SIZES:
            raise self._damaged()
        size = _SIZES[mark]
        return 1 + size + int.from_bytes(data[at + 1 : at + 1 + size], "big") + (0xC7 <= mark <= 0xC9)

    def _value(self) -> Any:
        """The next value; a dict or list with links is a view."""
        at, offset, data = self._at, self._offset, self._literal()
        if not self._skip():
            return unpack(data[offset : self._offset if self._at == at else len(data)], self._place)
        end, self._at, self._offset = (self._at, self._offset), at, offset
        found = self.container(offset)
        if (self._at, self._offset) != end:
            raise self._damaged()
        return found

    def container(self, offset: int) -> Any:
        """The dict or list that comes next, which begins at `offset` of the literal."""
        first, header = self._at, self._header()
        if header is None:
            raise self._damaged()
        self._advance(header[0])
        sections = self.sections(header[1], pairs=header[2])
        segments = self._segments[first : self._at]
        if self._offset:
            segments.append(self._literal()[: self._offset])
        segments[0] = cast("bytes", segments[0])[offset:]
        return self._make(header[1], sections, segments, header[2])

    def sections(self, count: int, *, pairs: bool) -> list[Any]:
        """The sections of a dict or list with so many parts, which come next."""
        found: list[Any] = []
        while count > 0:
            link = self.link()
            if link is not None:
                if link.pairs != pairs or not link.count:
                    raise self._damaged()
                found.append(link)
                count -= link.count
                continue
            if not found or type(found[-1]) is Link:
                found.append({} if pairs else [])
            if pairs:
                key = self._key()
                found[-1][key] = self._pair_value()
            else:
                found[-1].append(self._value())
            count -= 1
        if count:
            raise self._damaged()
        return found

    def _key(self) -> str:
        key = self._value()
        if type(key) is not str:
            raise self._damaged()
        return key

    def _pair_value(self) -> Any:
        link = self.link()
        if link is not None and (link.count != 1 or link.pairs):
            raise self._damaged()
        return self._value() if link is None else link

    def _damaged(self) -> DamagedData:
        return DamagedData(self._place, "its chunks do not fit together")
