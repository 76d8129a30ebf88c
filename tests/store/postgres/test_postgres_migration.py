"""A PostgreSQL migration that is stopped at any statement loses nothing, and the next open finishes it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal

import psycopg
import pytest

import holdfast
from holdfast.store.postgres import migrations
from holdfast.store.postgres.migrations import VERSION, version_at
from tests.store.postgres.server import newest
from tests.store.postgres.shared_servers import new_schema, shared

Fault = Literal["refuse", "kill before", "kill after"]
COPIED = ("runs", "tags", "checkpoints", "lanes", "chunks", "entries", "effects", "attachments", "gates", "timers",
          "inbox", "outbox")  # fmt: skip
REFUSED = "DO $$ BEGIN RAISE insufficient_privilege; END $$"


class FaultyConnection:
    """A connection that executes a script statement by statement, and fails at one of them."""

    def __init__(self, connection: psycopg.Connection[Any], fault: Fault, at: int) -> None:
        self._connection = connection
        self._fault, self._left = fault, at

    def transaction(self) -> AbstractContextManager[psycopg.Transaction]:
        return self._connection.transaction()

    def execute(self, script: str | bytes, bindings: Sequence[Any] | None = None) -> psycopg.Cursor[Any]:
        text = script if isinstance(script, str) else script.decode()
        lines = [line for line in text.splitlines() if not line.startswith("--")]
        cursor = self._connection.cursor()
        for statement in filter(str.strip, "\n".join(lines).split(";\n")):
            self._left -= 1
            fault = self._fault if self._left < 0 else None
            if fault == "kill before":
                self._kill()
            cursor = self._connection.execute((REFUSED if fault == "refuse" else statement).encode(), bindings)
            if fault == "kill after":
                self._kill()
        return cursor

    def _kill(self) -> None:
        """End the session as a crash of its process does; what it has not committed is gone."""
        pid = self._connection.info.backend_pid
        with shared(newest()).connect() as other:
            other.execute("SELECT pg_terminate_backend(%s, 30000)", (pid,))


def url_of(schema: str) -> str:
    return shared(newest()).url(schema=schema, durability="relaxed")


def fill(store: holdfast.Store) -> None:
    """Store runs with everything an old schema has."""
    for number in range(3):
        run = f"run-{number}"
        store.save(
            run, {"messages": [{"text": f"m{i} " * 60} for i in range(30)]}, workflow="w", metadata={"n": number}
        )
        store.save(run, {"n": number}, lane="side")
        store.append(run, [{"kind": "n", "number": n} for n in range(3)])
        store.mark_done(run, "key")
        store.attach(run, "c", "k", number)


def create_old(connection: psycopg.Connection[Any], schema: str, version: int, source: str) -> None:
    """Create a schema as an earlier version did, with the rows of `source`."""
    connection.execute(f"CREATE SCHEMA {schema}")
    for number in range(1, version + 1):
        connection.execute(migrations._body(schema, number).encode())
    for table in COPIED:
        found = connection.execute(
            "SELECT column_name FROM information_schema.columns WHERE table_schema = %s AND table_name = %s",
            (schema, table),
        )
        columns = ", ".join(row[0] for row in found.fetchall())
        connection.execute(f"INSERT INTO {schema}.{table} ({columns}) SELECT {columns} FROM {source}.{table}".encode())
    connection.execute(f"SELECT setval('{schema}.run_numbers', (SELECT max(run) FROM {schema}.runs))")


def tables_of(connection: psycopg.Connection[Any], schema: str) -> list[tuple[str, str]]:
    return connection.execute(
        "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = %s ORDER BY 1, 2",
        (schema,),
    ).fetchall()


def contents(store: holdfast.Store) -> list[object]:
    found: list[object] = []
    for run in store.runs():
        loaded = store.load(run.run_id)
        assert loaded is not None
        side = store.load(run.run_id, lane="side")
        assert side is not None
        found += [run, loaded.state, side.state, store.journal(run.run_id), store.effects(run.run_id)]
        found.append(store.attachments(run.run_id, "c"))
    return found


@pytest.mark.parametrize("fault", ["refuse", "kill before", "kill after"])
def test_a_migration_that_is_stopped_at_any_statement_is_finished_by_the_next_open(fault: Fault) -> None:
    version, source = 3, new_schema()
    with holdfast.open(url_of(source)) as store:
        fill(store)
        expected = contents(store)
    server, at, versions = shared(newest()), 0, set()
    with server.connect() as connection:
        tables: dict[int, list[tuple[str, str]]] = {}
        for number in range(version, VERSION + 1):
            schema = new_schema()
            create_old(connection, schema, number, source)
            tables[number] = tables_of(connection, schema)
        is_stopped = True
        while is_stopped:
            schema = new_schema()
            create_old(connection, schema, version, source)
            link = server.connect()
            try:
                migrations.prepare(FaultyConnection(link, fault, at), schema, "shown")  # type: ignore[arg-type]
                is_stopped = False
            except psycopg.Error:
                pass
            finally:
                link.close()
            reached = version_at(url_of(schema))
            versions.add(reached)
            assert tables_of(connection, schema) == tables[reached], at
            with holdfast.open(url_of(schema)) as store:
                assert contents(store) == expected, at
                assert store.verify().ok
                store.save("run-0", {"more": 1})
                store.save("new", 1)
            assert version_at(url_of(schema)) == VERSION
            connection.execute(f"DROP SCHEMA {schema} CASCADE")
            at += 1
    assert at > 20
    assert versions == set(range(version, VERSION + 1))
