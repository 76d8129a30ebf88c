"""Which version a store's schema has, and which it could have. Looking makes nothing."""

from __future__ import annotations

from typing import Any, NamedTuple

from holdfast.errors import InvalidInput


class Schema(NamedTuple):
    """The schema of a store."""

    kind: str
    found: int
    """0: there is none yet."""
    newest: int

    @property
    def pending(self) -> list[int]:
        """The versions it has yet to be brought to."""
        return list(range(self.found + 1, self.newest + 1))


def schema_at(url: str) -> Schema:
    """The schema of the store at a URL."""
    scheme, _, path = url.partition(":")
    if scheme == "sqlite":
        from holdfast.store.sqlite import connection

        return Schema(scheme, connection.version_at(path), connection.SCHEMA_VERSION)
    if scheme == "dir":
        from holdfast.store.directory import base

        return Schema(scheme, base.version_at(path), base.VERSION)
    if scheme in ("postgresql", "postgres"):
        migrations = _migrations()
        return Schema("postgresql", migrations.version_at(url), migrations.VERSION)
    raise InvalidInput(f"{scheme}: has no schema that could be migrated")


def sql_of(url: str, after: int) -> str:
    """What brings a PostgreSQL schema from version `after` to the newest, to read or to run."""
    if url.partition(":")[0] not in ("postgresql", "postgres"):
        raise InvalidInput("--sql is for PostgreSQL; the other stores are brought up to date when they are opened")
    migrations = _migrations()
    from holdfast.store.postgres.settings import read_url

    text: str = migrations.sql_text(read_url(url).schema, after)
    return text


def _migrations() -> Any:
    try:
        from holdfast.store.postgres import migrations
    except ImportError as error:
        if error.name is None or not error.name.startswith("psycopg"):
            raise
        raise InvalidInput('PostgreSQL needs its driver; pip install "holdfast[postgres]"') from error
    return migrations
