"""The versions of the PostgreSQL schema, and the migrations between them.

Each version is a file, and `sql_text` prints exactly what is executed. Every migration is one transaction, guarded by
an advisory lock, so that several processes may open a new schema at once. A role without the privilege to create tables
can use a schema that another role has created from the printed text.
"""

from __future__ import annotations

import re
from importlib.resources import files
from typing import Final

import psycopg
from blake3 import blake3

from holdfast.errors import UnsupportedFormat
from holdfast.store.postgres.dialect import quoted
from holdfast.store.postgres.errors import translated
from holdfast.store.postgres.postgres_connection import Connector
from holdfast.store.postgres.settings import read_url
from holdfast.store.sql.statements import Columns

VERSION: Final = 5
_IS_THERE: Final = (
    "SELECT 1 FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "
    "WHERE c.relname = 'schema_version' AND n.nspname = %s"
)
"""Not to_regclass: it reads a cache, which is not updated by waiting for the lock."""
_NAMED: Final = re.compile(r"\b(CREATE TABLE|CREATE UNLOGGED TABLE|ALTER TABLE|CREATE SEQUENCE|DROP INDEX|ON) (\w+)")


def sql_text(schema: str, after: int = 0) -> str:
    """The SQL that migrates a schema from version `after` (0: none exists) to the current one."""
    name = quoted(schema)
    parts = [f"CREATE SCHEMA IF NOT EXISTS {name};\n"] if not after else []
    lock = f"SELECT pg_advisory_xact_lock({_lock_of(schema)});"
    parts += [f"BEGIN;\n{lock}\n{_body(schema, version)}COMMIT;\n" for version in range(after + 1, VERSION + 1)]
    return "\n".join(parts)


def prepare(connection: psycopg.Connection[Columns], schema: str, shown: str) -> None:
    """Create or migrate the schema; raise UnsupportedFormat if a newer Holdfast created it."""
    if _require_known(_version(connection, schema), shown) == VERSION:
        return
    for version in range(1, VERSION + 1):
        with connection.transaction():
            # Independent of the server's default: what another process created must be visible once the lock is held.
            connection.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED READ WRITE")
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (_lock_of(schema),))
            if _require_known(_version(connection, schema), shown) >= version:
                continue  # another process was faster
            if not _first(connection, "SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = %s", schema):
                connection.execute(f"CREATE SCHEMA {quoted(schema)}".encode())
            connection.execute(_body(schema, version).encode())


def version_at(url: str, timeout_s: float = 10.0) -> int:
    """The version of the schema that a URL names, 0 if it does not exist. Creates nothing."""
    settings = read_url(url)
    link = Connector(settings, timeout_s).open()
    try:
        return _version(link, settings.schema)
    except psycopg.Error as error:
        raise translated(error, settings.shown, timeout_s) from error
    finally:
        link.close()


def _body(schema: str, version: int) -> str:
    name = quoted(schema)
    text = files("holdfast.store.postgres").joinpath(f"schema_{version}.sql").read_text("utf-8")
    qualified = (_NAMED.sub(lambda m: f"{m[1]} {name}.{m[2]}", line) for line in text.splitlines())
    lines = [old if old.startswith("--") else new for old, new in zip(text.splitlines(), qualified, strict=True)]
    done = f"INSERT INTO {name}.schema_version VALUES ({version});"  # noqa: S608 - a quoted name and our own number
    return "\n".join([*lines, done, ""])


def _lock_of(schema: str) -> int:
    """The key of the advisory lock: a hash, so that other programs are unlikely to use it."""
    return int.from_bytes(blake3(b"holdfast schema " + schema.encode()).digest(8), "big", signed=True)


def _version(connection: psycopg.Connection[Columns], schema: str) -> int:
    if _first(connection, _IS_THERE, schema) is None:
        return 0
    select = f"SELECT max(version) FROM {quoted(schema)}.schema_version"  # noqa: S608 - a quoted name
    return int(_first(connection, select.replace("%", "%%")) or 0)


def _require_known(version: int, shown: str) -> int:
    if version > VERSION:
        raise UnsupportedFormat(shown, f"its schema has version {version}, this Holdfast supports {VERSION}")
    return version


def _first(connection: psycopg.Connection[Columns], statement: str, *bindings: object) -> int | None:
    found = connection.execute(statement.encode(), bindings).fetchone()
    return found[0] if found else None
