"""Owners of a store on PostgreSQL, seen from outside: their rows, their connections, and time that has passed."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import holdfast
from holdfast.errors import StorageFailed
from holdfast.store.capabilities import liveness_of
from holdfast.store.postgres.owner_sessions import OwnerSession, lock_key
from holdfast.store.postgres.postgres_store import PostgresStore
from tests.store.postgres.server import Server
from tests.store.postgres.shared_servers import new_schema

PATIENCE_S = 60.0
NEVER_S = 3000
"""A grace period that does not end while a test runs."""
HOUR_US = 3600 * 1_000_000


def until(what: Callable[[], Any], words: str = "it did not happen") -> Any:
    end = time.monotonic() + PATIENCE_S
    while not (found := what()):
        assert time.monotonic() < end, words
        time.sleep(0.01)
    return found


def port_of(store: holdfast.Store) -> PostgresStore:
    assert isinstance(store.port, PostgresStore)
    return store.port


def session_of(store: holdfast.Store, owner: str) -> OwnerSession:
    return port_of(store)._owners._sessions[owner]


class Rows:
    """The rows of owners, seen and changed from outside."""

    def __init__(self, server: Server, schema: str) -> None:
        self._server, self._schema = server, schema

    def execute(self, statement: str, *bound: object) -> list[Any]:
        with self._server.connect() as connection:
            done = connection.execute(statement.replace("owners", f"{self._schema}.owners").encode(), bound)
            return done.fetchall() if done.description else []

    def names(self) -> list[str]:
        return [name for (name,) in self.execute("SELECT owner FROM owners ORDER BY owner")]

    def session(self, owner: str) -> int:
        found: list[tuple[int]] = self.execute("SELECT session FROM owners WHERE owner = %s", owner)
        return found[0][0] if found else 0

    def is_missing(self, owner: str) -> bool:
        return bool(self.execute("SELECT 1 FROM owners WHERE owner = %s AND missing_us IS NOT NULL", owner))

    def let_an_hour_pass(self) -> None:
        """Every lock that was seen missing has been missing for an hour."""
        self.execute("UPDATE owners SET missing_us = missing_us - %s", HOUR_US)

    def cut(self, owner: str) -> None:
        """End the connection of an owner's session, and wait until the server has freed its lock."""
        found = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND (classid::bigint << 32 | objid::bigint) = %s"
        key = lock_key(self._schema, owner)
        pids = [pid for (pid,) in self.execute(found, key)]
        assert pids
        self.execute("SELECT pg_terminate_backend(pid) FROM unnest(%s::int[]) AS n (pid)", pids)
        until(lambda: not self.execute(f"{found} AND pid = ANY(%s)", key, pids))


class Place:
    """A schema on a server, a store on it that looks, and its rows."""

    def __init__(self, server: Server, schema: str = "", grace: object = NEVER_S) -> None:
        self.schema = schema or new_schema()
        self.server = server
        self.url = server.url(schema=self.schema, durability="relaxed", owner_grace=grace)
        self.rows = Rows(server, self.schema)
        self.store = holdfast.open(self.url)

    def owner_is_dead(self, owner: str) -> bool:
        return liveness_of(self.store.port).owner_is_dead(owner)

    def claims(self, *run_ids: str) -> None:
        for run_id in run_ids:
            self.store.save(run_id, 1)


class Blocked:
    """Opens no connection, until it is let to."""

    def __init__(self, session: OwnerSession, times: int = 1_000_000) -> None:
        self._session, self._opener, self.times = session, session._opener, times
        self.settings, self.timeout_s = self._opener.settings, 0.5
        session._opener = self  # type: ignore[assignment]

    def open(self, until: float = 0.0) -> Any:
        self.times -= 1
        if self.times >= 0:
            raise StorageFailed("no connection is to be had")
        return self._opener.open(until)

    def end(self) -> None:
        self.times = 0
