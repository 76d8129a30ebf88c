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


def new_database() -> str:
    """Create a database; its URL."""
    server = os.environ[SERVER]
    name = f"bench_{uuid4().hex}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    return urlsplit(server)._replace(path=f"/{name}").geturl()


def bytes_of(url: str) -> int:
    """What a database takes on disk, indexes and all."""
    with psycopg.connect(url, autocommit=True) as connection:
        found = connection.execute("SELECT pg_database_size(current_database())").fetchone()
    assert found is not None
    return int(found[0])
