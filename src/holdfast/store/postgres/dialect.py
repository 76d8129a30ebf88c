"""The named statements of PostgreSQL, and arrays of columns as their bindings.

They are the shared statements, overridden by those of `statements.sql` beside this file. In all of them `?` becomes
`%s`, every table is qualified by its schema, and the final semicolon is removed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from importlib.resources import files
from struct import pack
from typing import Any, Final

import psycopg
from psycopg import sql
from psycopg.adapt import Dumper
from psycopg.pq import Format
from psycopg.types.numeric import Int8BinaryDumper
from psycopg.types.string import StrBinaryDumper

from holdfast.store.sql.statements import Columns, parse_statements

Statements = dict[str, bytes]
"""Statements by name, as the driver takes them."""
_TABLES: Final = (
    "attachments|checkpoints|chunks|effects|entries|gates|inbox|lanes|outbox|runs|tags|timers"
    "|schema_version|owners|server_mark|workers|catalog"
)
_TABLE: Final = re.compile(rf"\b(FROM|INTO|JOIN|UPDATE) ({_TABLES})\b")


def quoted(schema: str) -> str:
    """The schema's name as an identifier."""
    return sql.Identifier(schema).as_string()


@lru_cache(64)
def statements_for(schema: str) -> Statements:
    """All statements by name, on the tables of one schema."""
    shared = files("holdfast.store.sql").joinpath("statements.sql").read_text("utf-8")
    own = files("holdfast.store.postgres").joinpath("statements.sql").read_text("utf-8")
    name = quoted(schema).replace("%", "%%").replace("\\", "\\\\")
    return {
        key: _TABLE.sub(rf"\1 {name}.\2", text.removesuffix(";").replace("?", "%s")).encode()
        for key, text in parse_statements(shared + "\n" + own).items()
    }


_NULL: Final = b"\xff\xff\xff\xff"
_EMPTY: Final = pack(">iii", 0, 0, 0)


class Column:
    """The values of one column, one for each row."""

    __slots__ = ("values",)

    def __init__(self, values: Sequence[object]) -> None:
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

    def dump(self, obj: Column) -> bytes:
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


def register(connection: psycopg.Connection[Columns]) -> None:
    """Send columns, numbers and texts always as the same type."""
    adapters = connection.adapters
    adapters.register_dumper(int, Int8BinaryDumper)
    adapters.register_dumper(str, StrBinaryDumper)
    adapters.register_dumper(Bigints, _BigintsDumper)
    adapters.register_dumper(Texts, _TextsDumper)
    adapters.register_dumper(Byteas, _ByteasDumper)
    adapters.register_dumper(Booleans, _BooleansDumper)


_KINDS: Final[dict[str, type[Column]]] = {"i": Bigints, "t": Texts, "b": Byteas, "o": Booleans}


def columns_of(shape: str, rows: Sequence[Columns]) -> tuple[Column, ...]:
    """Rows as columns. A shape has a letter for each column: i bigint, t text, b bytea, o boolean."""
    values: Iterable[Columns] = zip(*rows, strict=True) if rows else [()] * len(shape)
    return tuple([_KINDS[kind](column) for kind, column in zip(shape, values, strict=True)])
