"""Columns as PostgreSQL arrays, in the binary form of the protocol: many rows in one statement.

The driver can make arrays of lists, but guesses their type from the values (so one statement would be prepared many
times) and takes several times as long.

    array   := dimensions(1) has_nulls element_type length first_index(1) { element }
    element := length bytes | -1                                                          all numbers: 32 bits
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from struct import pack
from typing import Any, Final

import psycopg
from psycopg.adapt import Dumper
from psycopg.pq import Format
from psycopg.types.numeric import Int8BinaryDumper
from psycopg.types.string import StrBinaryDumper

_NULL: Final = b"\xff\xff\xff\xff"
_EMPTY: Final = pack(">iii", 0, 0, 0)


class Column:
    """The values of one column, one for each row."""

    __slots__ = ("values",)

    def __init__(self, values: Sequence[Any]) -> None:
        self.values = values


class Bigints(Column):
    """bigint[]"""


class Texts(Column):
    """text[]"""


class Byteas(Column):
    """bytea[]"""


class Booleans(Column):
    """boolean[]"""


class _ArrayDumper(Dumper):
    format = Format.BINARY
    element_oid: int

    def dump(self, obj: Any) -> bytes:
        values = obj.values
        if not values:
            return _EMPTY[:8] + pack(">i", self.element_oid)
        head = pack(">iiiii", 1, int(None in values), self.element_oid, len(values), 1)
        return head + b"".join(self.elements(values))

    def elements(self, values: Sequence[Any]) -> Iterable[bytes]:
        """Each value with its length before it."""
        raise NotImplementedError


class _BigintsDumper(_ArrayDumper):
    oid, element_oid = 1016, 20

    def elements(self, values: Sequence[Any]) -> Iterable[bytes]:
        return [_NULL if value is None else pack(">iq", 8, value) for value in values]


class _BooleansDumper(_ArrayDumper):
    oid, element_oid = 1000, 16

    def elements(self, values: Sequence[Any]) -> Iterable[bytes]:
        return [pack(">i?", 1, value) for value in values]


class _ByteasDumper(_ArrayDumper):
    oid, element_oid = 1001, 17

    def elements(self, values: Sequence[Any]) -> Iterable[bytes]:
        return [part for value in values for part in (pack(">i", len(value)), value)]


class _TextsDumper(_ArrayDumper):
    oid, element_oid = 1009, 25

    def elements(self, values: Sequence[Any]) -> Iterable[bytes]:
        found: list[bytes] = []
        for value in values:
            if value is None:
                found.append(_NULL)
            else:
                data = value.encode()
                found += (pack(">i", len(data)), data)
        return found


def register(connection: psycopg.Connection[Any]) -> None:
    """Send these, and single numbers and texts too, always as the same type."""
    adapters = connection.adapters
    adapters.register_dumper(int, Int8BinaryDumper)
    adapters.register_dumper(str, StrBinaryDumper)
    adapters.register_dumper(Bigints, _BigintsDumper)
    adapters.register_dumper(Texts, _TextsDumper)
    adapters.register_dumper(Byteas, _ByteasDumper)
    adapters.register_dumper(Booleans, _BooleansDumper)


_KINDS: Final[dict[str, type[Column]]] = {"i": Bigints, "t": Texts, "b": Byteas, "o": Booleans}


def columns_of(shape: str, rows: Sequence[Sequence[Any]]) -> tuple[Column, ...]:
    """Rows as columns. A shape has a letter for each column: i bigint, t text, b bytea, o boolean."""
    values: Iterable[Sequence[Any]] = zip(*rows, strict=True) if rows else [()] * len(shape)
    return tuple([_KINDS[kind](column) for kind, column in zip(shape, values, strict=True)])
