"""New, empty PostgreSQL databases on the server that the driver has started."""

from __future__ import annotations

import os
from typing import Final
from urllib.parse import urlsplit
from uuid import uuid4

import psycopg
from psycopg import sql

SERVER: Final = "HOLDFAST_BENCH_POSTGRES"
"""The environment variable with the URL of the server's first database."""

_TABLE_BYTES: Final = """
SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'm') AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'
"""


def new_database() -> str:
    """Create a database; its URL."""
    server = os.environ[SERVER]
    name = f"bench_{uuid4().hex}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    return urlsplit(server)._replace(path=f"/{name}").geturl()


def drop_database(url: str) -> None:
    """Remove it, and whoever is still connected with it."""
    name = urlsplit(url).path[1:]
    with psycopg.connect(os.environ[SERVER], autocommit=True) as connection:
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


def table_bytes_of(url: str) -> int:
    """What all tables of a database take, with indexes and long values; not the catalogues every database has."""
    with psycopg.connect(url, autocommit=True) as connection:
        found = connection.execute(_TABLE_BYTES).fetchone()
    assert found is not None
    return int(found[0])


def bytes_of(url: str) -> int:
    """What a database takes on disk, indexes and all."""
    with psycopg.connect(url, autocommit=True) as connection:
        found = connection.execute("SELECT pg_database_size(current_database())").fetchone()
    assert found is not None
    return int(found[0])
