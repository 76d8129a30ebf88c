"""The statements of the fast path, executed without the driver's cursors.

For every execution a cursor converts the query and looks up how to send each value, which takes about as long as the
server takes for the statement. Here a statement is prepared once for each connection, and values are encoded by their
types, always in binary. Behind a pooler no statement is prepared: its text is sent with the values.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any, Final

from psycopg import generators
from psycopg.abc import PQGen
from psycopg.errors import error_from_result
from psycopg.pq import ExecStatus, Format
from psycopg.pq.abc import PGconn, PGresult

from holdfast.store.postgres.dialect import Bigints, Booleans, Byteas, Column, Statements, Texts
from holdfast.store.postgres.postgres_connection import Connection

_BINARY: Final = Format.BINARY
_PLACEHOLDER: Final = re.compile(rb"%[s%]")


def _same(value: Any) -> Any:
    return value


def _boolean(value: bool) -> bytes:
    return b"\x01" if value else b"\x00"


_ENCODERS: Final[dict[type, Callable[[Any], bytes | None]]] = {
    int: Struct(">q").pack,
    str: str.encode,
    bytes: _same,
    type(None): _same,
    bool: _boolean,
    **dict.fromkeys((Bigints, Booleans, Byteas, Texts), Column.encoded),
}


class PreparedStatements:
    """The statements of one connection. Each execution is one round trip and commits by itself."""

    def __init__(self, link: Connection, sql: Statements) -> None:
        self._link = link
        self._sql = sql
        self._texts: dict[tuple[str, ...], tuple[bytes, bytes]] = {}
        """The names and texts of the statements executed so far; they are prepared unless there is a pooler."""

    def execute(self, parts: tuple[str, ...], values: Sequence[object]) -> PGresult:
        """Execute a statement, given by the names of its parts; raise the driver's error if it fails."""
        pgconn = self._link.pgconn
        encoders = _ENCODERS
        encoded = [encoders[type(value)](value) for value in values]
        name, text = self._texts.get(parts) or self._prepare(parts)
        if self._link.pooled:
            pgconn.send_query_params(text, encoded, None, [_BINARY] * len(encoded), _BINARY)
        else:
            pgconn.send_query_prepared(name, encoded, [_BINARY] * len(encoded), _BINARY)
        return self._link.wait(_result(pgconn))

    def _prepare(self, parts: tuple[str, ...]) -> tuple[bytes, bytes]:
        numbers = iter(range(1, 10_000))
        text = b" ".join([self._sql[part] for part in parts])
        text = _PLACEHOLDER.sub(lambda m: b"$%d" % next(numbers) if m[0] == b"%s" else b"%", text)
        name = "+".join(parts).encode()
        if not self._link.pooled:
            self._link.pgconn.send_prepare(name, text)
            self._link.wait(_result(self._link.pgconn))
        self._texts[parts] = name, text
        return name, text


def _result(pgconn: PGconn) -> PQGen[PGresult]:
    """The result of the statement that was sent; raise the driver's error if it failed."""
    found: PGresult = (yield from generators.execute(pgconn))[-1]
    if found.status == ExecStatus.FATAL_ERROR:
        raise error_from_result(found)
    return found


def keys_of(result: PGresult) -> list[tuple[int, bytes | None]]:
    """The rows of a result with a number and a hash."""
    value = result.get_value
    return [(int.from_bytes(value(row, 0) or b"", "big"), value(row, 1)) for row in range(result.ntuples)]
