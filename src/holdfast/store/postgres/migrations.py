"""The schema and its versions. Each version is a file; what is run is what `sql_text` prints.

Migrations are numbered and each is one transaction, taken under an advisory lock of that transaction, so that any
number of processes may open a new schema at once. A role that may not create anything can use a schema that somebody
else has made from the printed text.
"""

from __future__ import annotations

import re
from importlib.resources import files
from typing import Any, Final

import psycopg
from blake3 import blake3

from holdfast.errors import UnsupportedFormat
from holdfast.store.postgres.connection import Opener
from holdfast.store.postgres.dialect import quoted
from holdfast.store.postgres.errors import translated
from holdfast.store.postgres.settings import read_url

VERSION: Final = 3
_IS_THERE: Final = (
    "SELECT 1 FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "
    "WHERE c.relname = 'schema_version' AND n.nspname = %s"
)
"""to_regclass would answer from a cache, which waiting for the lock does not bring up to date."""
_NAMED: Final = re.compile(r"\b(CREATE TABLE|CREATE UNLOGGED TABLE|ALTER TABLE|CREATE SEQUENCE|ON) (\w+)")


def sql_text(schema: str, after: int = 0) -> str:
    """What makes a schema of version `after` (0: none at all) into one of this version, to read or to run."""
    name = quoted(schema)
    parts = [f"CREATE SCHEMA IF NOT EXISTS {name};\n"] if not after else []
    lock = f"SELECT pg_advisory_xact_lock({_lock_of(schema)});"
    parts += [f"BEGIN;\n{lock}\n{_body(schema, version)}COMMIT;\n" for version in range(after + 1, VERSION + 1)]
    return "\n".join(parts)


def prepare(connection: psycopg.Connection[Any], schema: str, shown: str) -> None:
    """Create the schema or bring it up to date; refuse one that a newer Holdfast made."""
    if _checked(_version(connection, schema), shown) == VERSION:
        return
    for version in range(1, VERSION + 1):
        with connection.transaction():
            # Whatever the server's default is: what another opener made must be seen once the lock is there.
            connection.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED READ WRITE")
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (_lock_of(schema),))
            if _checked(_version(connection, schema), shown) >= version:
                continue  # somebody else was faster
            if not _first(connection, "SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = %s", schema):
                connection.execute(f"CREATE SCHEMA {quoted(schema)}".encode())
            connection.execute(_body(schema, version).encode())


def version_at(url: str, timeout_s: float = 10.0) -> int:
    """The version of the schema a URL names, 0 if it is not there. Makes nothing."""
    settings = read_url(url)
    link = Opener(settings, timeout_s).open()
    try:
        return _version(link, settings.schema)
    except psycopg.Error as error:
        raise translated(error, settings.shown, timeout_s) from error
    finally:
        link.close()


def _body(schema: str, version: int) -> str:
    name = quoted(schema)
    text = files("holdfast.store.postgres").joinpath(f"schema_{version}.sql").read_text("utf-8")
    lines = [line if line.startswith("--") else _NAMED.sub(lambda m: f"{m[1]} {name}.{m[2]}", line)
             for line in text.splitlines()]  # fmt: skip
    done = f"INSERT INTO {name}.schema_version VALUES ({version});"  # noqa: S608 - a quoted name and our own number
    return "\n".join([*lines, done, ""])


def _lock_of(schema: str) -> int:
    """A number for the advisory lock that others will hardly use."""
    return int.from_bytes(blake3(b"holdfast schema " + schema.encode()).digest(8), "big", signed=True)


def _version(connection: psycopg.Connection[Any], schema: str) -> int:
    if _first(connection, _IS_THERE, schema) is None:
        return 0
    select = f"SELECT max(version) FROM {quoted(schema)}.schema_version"  # noqa: S608 - a quoted name
    return int(_first(connection, select.replace("%", "%%")) or 0)


def _checked(version: int, shown: str) -> int:
    if version > VERSION:
        raise UnsupportedFormat(shown, f"its schema has version {version}, this is version {VERSION}")
    return version


def _first(connection: psycopg.Connection[Any], statement: str, *bindings: Any) -> Any:
    found = connection.execute(statement.encode(), bindings).fetchone()
    return found[0] if found else None
