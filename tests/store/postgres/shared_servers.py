"""Servers that several tests share, one of each version, and a schema of its own for each store.

Creating a schema takes longer than most tests, so tests that only need an empty store share one that is emptied.
"""

from __future__ import annotations

import atexit
import functools
import itertools
import os

import psycopg
from psycopg import sql

import holdfast
from holdfast.store.postgres.settings import read_url
from tests.store.postgres.server import Server, newest, oldest

_URL = os.environ.get("HOLDFAST_TEST_POSTGRES", "")
_count = itertools.count()


@functools.cache
def shared(major: int) -> Server:
    """A server that does not sync, for tests that do not harm it; it ends with this process."""
    server = Server(major, fast=True)
    atexit.register(server.remove)
    return server.create()


def majors() -> list[int]:
    """The oldest and the newest version there is."""
    return sorted({oldest(), newest()})


def new_schema() -> str:
    """A name that no other test uses."""
    return f"test_{os.getpid()}_{next(_count)}"


def new_url(major: int = 0, **options: object) -> str:
    """The URL of a new schema, on the shared server of this version or on the server the environment names."""
    options = {"schema": new_schema(), "durability": "relaxed", **options}
    if _URL:
        return _URL + ("&" if "?" in _URL else "?") + "&".join(f"{name}={value}" for name, value in options.items())
    return shared(major or newest()).url(**options)  # type: ignore[arg-type]


def empty_url(major: int = 0) -> str:
    """The URL of a schema without any rows; the same in each test, which must have closed its store before the next."""
    url, connection, statement = _kept_schema(major or newest())
    connection.execute(statement)
    return url


@functools.cache
def _kept_schema(major: int) -> tuple[str, psycopg.Connection, sql.Composed]:
    """Create a schema; its URL, a connection, and the statement that removes all rows."""
    url = new_url(major)
    holdfast.open(url).close()
    settings = read_url(url)
    connection = psycopg.connect(**settings.conninfo, autocommit=True)
    found = connection.execute(
        "SELECT tablename FROM pg_tables WHERE schemaname = %s AND tablename <> 'schema_version'", [settings.schema]
    )
    names = [sql.Identifier(settings.schema, name) for (name,) in found]
    deletes = [sql.SQL("DELETE FROM {}").format(name) for name in names]
    restart = sql.SQL("ALTER SEQUENCE {} RESTART").format(sql.Identifier(settings.schema, "run_numbers"))
    return url, connection, sql.SQL("; ").join([*deletes, restart])
