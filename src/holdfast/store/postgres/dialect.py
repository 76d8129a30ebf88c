"""The named statements of PostgreSQL, and arrays of columns as their bindings.

They are the shared statements, overridden by those of `statements.sql` beside this file. In all of them `?` becomes
`%s`, every table is qualified by its schema, and the final semicolon is removed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from importlib.resources import files
from struct import Struct, pack
from typing import Any, Final

import psycopg
from psycopg import sql
from psycopg.adapt import Dumper
from psycopg.pq import Format
from psycopg.types.numeric import Int8BinaryDumper
from psycopg.types.string import StrBinaryDumper

from holdfast.store.sql.statements import Columns, SqlStatements

Statements = dict[str, bytes]
"""Statements by name, as the driver takes them."""
_TABLES: Final = (
    "attachments|checkpoints|chunks|effects|entries|gates|inbox|lanes|outbox|runs|tags|timers"
    "|schema_version|owners|server_mark|workers|catalog|packs|packed|keys|buckets"
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
        for key, text in SqlStatements(shared + "\n" + own).all().items()
    }


_NULL: Final = b"\xff\xff\xff\xff"
_EMPTY: Final = pack(">iii", 0, 0, 0)
_LENGTH: Final = Struct(">i").pack
_BIGINT: Final = Struct(">iq").pack


class Column:
    """The values of one column, one for each row: an array as PostgreSQL takes it in binary."""

    __slots__ = ("values",)
    element_oid: int

    def __init__(self, values: Sequence[Any]) -> None:
        self.values = values

    def elements(self) -> Iterable[bytes]:
        """Each value with its length before it."""
        raise NotImplementedError

    def encoded(self) -> bytes:
        """The array."""
        values = self.values
        if not values:
            return _EMPTY[:8] + pack(">i", self.element_oid)
        head = pack(">iiiii", 1, int(None in values), self.element_oid, len(values), 1)
        return head + b"".join(self.elements())


class Bigints(Column):
    """bigint[]"""

    __slots__ = ()
    element_oid = 20

    def elements(self) -> Iterable[bytes]:
        sized = _BIGINT
        return [_NULL if value is None else sized(8, value) for value in self.values]


class Texts(Column):
    """text[]"""

    __slots__ = ()
    element_oid = 25

    def elements(self) -> Iterable[bytes]:
        found: list[bytes] = []
        for value in self.values:
            if value is None:
                found.append(_NULL)
            else:
                data = value.encode()
                found += (_LENGTH(len(data)), data)
        return found


class Byteas(Column):
    """bytea[]"""

    __slots__ = ()
    element_oid = 17

    def elements(self) -> Iterable[bytes]:
        return [part for value in self.values for part in (_LENGTH(len(value)), value)]


class Booleans(Column):
    """boolean[]"""

    __slots__ = ()
    element_oid = 16

    def elements(self) -> Iterable[bytes]:
        return [pack(">i?", 1, value) for value in self.values]


class _ColumnDumper(Dumper):
    format = Format.BINARY

    def dump(self, obj: Column) -> bytes:
        return obj.encoded()


_ARRAY_OIDS: Final[dict[type[Column], int]] = {Bigints: 1016, Texts: 1009, Byteas: 1001, Booleans: 1000}


def register(connection: psycopg.Connection[Columns]) -> None:
    """Send columns, numbers and texts always as the same type."""
    adapters = connection.adapters
    adapters.register_dumper(int, Int8BinaryDumper)
    adapters.register_dumper(str, StrBinaryDumper)
    for column, oid in _ARRAY_OIDS.items():
        adapters.register_dumper(column, type(column.__name__, (_ColumnDumper,), {"oid": oid}))


_KINDS: Final[dict[str, type[Column]]] = {"i": Bigints, "t": Texts, "b": Byteas, "o": Booleans}


def columns_of(shape: str, rows: Sequence[Columns]) -> tuple[Column, ...]:
    """Rows as columns. A shape has a letter for each column: i bigint, t text, b bytea, o boolean."""
    values: Iterable[Columns] = zip(*rows, strict=True) if rows else [()] * len(shape)
    return tuple([_KINDS[kind](column) for kind, column in zip(shape, values, strict=True)])
