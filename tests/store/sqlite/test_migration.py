"""A file of an earlier schema is migrated in one transaction: a killed process leaves the old or the new version."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path
from unittest import mock

import apsw

import holdfast
from holdfast.store.sqlite import sqlite_store
from holdfast.store.sqlite.sqlite_connection import SCHEMA_VERSION, Connector, version_at
from tests.faults.core.scratch import child, reap
from tests.golden.conftest import HOME


def _open_and_die(path: Path, events: int) -> None:
    """Open the file, and kill this process before or after one of the statements this takes."""

    def trace(_event: object) -> None:
        nonlocal events
        events -= 1
        if events < 0:
            os.kill(os.getpid(), signal.SIGKILL)

    class TracedConnector(Connector):
        def open(self) -> apsw.Connection:
            connection = super().open()
            connection.trace_v2(apsw.SQLITE_TRACE_STMT | apsw.SQLITE_TRACE_PROFILE, trace)
            return connection

    with mock.patch.object(sqlite_store, "Connector", TracedConnector):
        holdfast.open(f"sqlite:{path}").close()


def _schema(path: Path) -> list[tuple[object, ...]]:
    connection = apsw.Connection(str(path))
    try:
        return connection.execute("SELECT type, name, sql FROM sqlite_master ORDER BY type, name").fetchall()
    finally:
        connection.close()


def test_a_killed_migration_leaves_the_old_or_the_new_version(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    versions: list[int] = []
    shutil.copy(HOME / "0.1.0" / "sqlite" / "runs.db", path)
    before = _schema(path)
    while reap(child(_open_and_die, path, len(versions)), 60) != 0:
        versions.append(version_at(str(path)))
        assert (_schema(path) == before) == (versions[-1] == 1)
    assert set(versions) == {1, SCHEMA_VERSION}
    with holdfast.open(f"sqlite:{path}") as store:
        assert store.verify().ok
        store.save("states", {"more": 1})
    assert version_at(str(path)) == SCHEMA_VERSION


def test_a_migrated_file_has_the_schema_of_a_new_one(tmp_path: Path) -> None:
    shutil.copy(HOME / "0.1.0" / "sqlite" / "runs.db", tmp_path / "old.db")
    for name in ("old", "new"):
        holdfast.open(f"sqlite:{tmp_path / name}.db").close()
    assert _schema(tmp_path / "old.db") == _schema(tmp_path / "new.db")
