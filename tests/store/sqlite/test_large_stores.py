"""Reads of a large store cost what they cost in a small one: counted in steps of SQLite's virtual machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import pytest

import holdfast
from holdfast.operations.store import Store
from holdfast.store.port import RunQuery, Usage
from holdfast.store.sqlite.sqlite_store import SqliteStore

SMALL, LARGE = 5_000, 50_000
_SERIES = "WITH RECURSIVE s(i) AS (SELECT 2 UNION ALL SELECT i + 1 FROM s WHERE i < {count})"
_STATUS = "CASE WHEN i % 100 = 0 THEN 'failed' WHEN i > {count} - 50 THEN 'waiting' ELSE 'completed' END"


def fill(path: Path, count: int) -> Store:
    """Store copies of one run under many ids; their checksums are not compared."""
    store = holdfast.open(f"sqlite:{path}")
    store.save("order-000001", {"text": ["x" * 700] * 3}, metadata={"team": "a"})
    store.append("order-000001", [{"kind": "n"}] * 3)
    connection = apsw.Connection(str(path))
    copy(connection, "runs", count, run="i", run_id="printf('order-%06d', i)", family="i", owner="''",
         workflow="'w' || (i % 4)", status=_STATUS.format(count=count))  # fmt: skip
    copy(connection, "checkpoints", count, key="i << 32 | (key & 4294967295)", run="i")
    copy(connection, "entries", count, key="i << 32 | (key & 4294967295)")
    copy(connection, "tags", count, run="i")
    connection.close()
    return store


def copy(connection: apsw.Connection, table: str, count: int, **columns: str) -> None:
    names = [str(row[1]) for row in connection.execute(f"PRAGMA table_info({table})")]
    values = ", ".join(columns.get(name, name) for name in names)
    connection.execute(f"{_SERIES.format(count=count)} INSERT INTO {table} SELECT {values} FROM s CROSS JOIN {table}")


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[SqliteStore, SqliteStore]]:
    place = tmp_path_factory.mktemp("large")
    small, large = fill(place / "small.db", SMALL), fill(place / "large.db", LARGE)
    assert isinstance(small.port, SqliteStore)
    assert isinstance(large.port, SqliteStore)
    yield small.port, large.port
    small.close()
    large.close()


def steps(port: SqliteStore, read: Callable[[SqliteStore], object]) -> int:
    """The steps that a read takes, in units of 20."""
    found = [0]

    def count() -> bool:
        found[0] += 1
        return False

    port._read(lambda connection: connection.set_progress_handler(count, 20))
    try:
        read(port)
    finally:
        port._read(lambda connection: connection.set_progress_handler(None))
    return found[0]


TAGS = (("team", b"\xa1a"),)
READS: dict[str, Callable[[SqliteStore], object]] = {
    "counts": lambda port: port.count_runs(),
    "counts of some workflows": lambda port: port.count_runs(lambda name: name in ("w0", "w1")),
    "all": lambda port: port.runs(RunQuery()),
    "further": lambda port: port.runs(RunQuery(before=SMALL // 2)),
    "a status": lambda port: port.runs(RunQuery(("failed",))),
    "a workflow": lambda port: port.runs(RunQuery(workflow="w1")),
    "metadata": lambda port: port.runs(RunQuery(tags=TAGS)),
    "a prefix of all runs": lambda port: port.runs(RunQuery(prefix="order-")),
    "a prefix of few runs": lambda port: port.runs(RunQuery(prefix="order-00001")),
    "a prefix and a status": lambda port: port.runs(RunQuery(("failed",), prefix="order-")),
}


@pytest.mark.parametrize("name", READS)
def test_a_read_takes_as_many_steps_in_a_large_store(stores: tuple[SqliteStore, SqliteStore], name: str) -> None:
    small, large = (steps(port, READS[name]) for port in stores)
    assert large <= 2 * small + 20, (small, large)


def test_runs_that_have_not_ended_are_counted_and_the_others_estimated(stores: tuple[SqliteStore, SqliteStore]) -> None:
    port = stores[1]
    [waiting, failed, completed] = exact(port, None)
    found = port.count_runs()
    assert found.estimated == {"completed"}
    assert (found.runs["waiting"], found.runs["failed"]) == (waiting, failed)
    assert found.runs["completed"] == pytest.approx(completed, rel=0.02)
    seen = port.count_runs(lambda name: name in ("w0", "w1"))
    [waiting, failed, completed] = exact(port, ("w0", "w1"))
    assert seen.runs["waiting"] == waiting
    assert seen.runs["failed"] == pytest.approx(failed, rel=0.5)
    assert seen.runs["completed"] == pytest.approx(completed, rel=0.05)
    assert "completed" in seen.estimated


def exact(port: SqliteStore, names: tuple[str, ...] | None) -> list[int]:
    rows = [row for row in port.runs(RunQuery(limit=-1)) if names is None or row.workflow in names]
    return [sum(row.status == status for row in rows) for status in ("waiting", "failed", "completed")]


def test_numbers_that_are_missing_are_not_counted(stores: tuple[SqliteStore, SqliteStore]) -> None:
    def without_some(connection: apsw.Connection) -> tuple[int, int]:
        connection.execute("BEGIN")
        try:
            connection.execute("DELETE FROM runs WHERE run % 3 = 0 OR run BETWEEN 10000 AND 20000")
            query = "SELECT count(*) FROM runs WHERE status = 'completed'"
            left = connection.execute(query).get
            from holdfast.store.sql.run_counts import count_runs
            from holdfast.store.sqlite.sqlite_reads import fetch_on

            return left, count_runs(fetch_on(connection)).runs["completed"]
        finally:
            connection.execute("ROLLBACK")

    left, estimated = stores[1]._read(without_some)
    assert estimated == pytest.approx(left, rel=0.15)


def test_what_a_large_store_holds_is_estimated(
    stores: tuple[SqliteStore, SqliteStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    small, port = stores
    counted = port.usage()
    assert not counted.is_estimated
    monkeypatch.setattr("holdfast.store.sql.sql_reads._COUNTED_BYTES_MAX", 0)
    assert steps(port, SqliteStore.usage) <= 2 * steps(small, SqliteStore.usage) + 20
    estimated = port.usage()
    assert estimated.is_estimated
    for field in set(Usage._fields) - {"runs", "is_estimated"}:
        assert getattr(estimated, field) == pytest.approx(getattr(counted, field), rel=0.05), field
    stats = holdfast.open(port.url).stats()
    assert stats.estimated == ("completed", "checkpoints", "entries", "effects", "attachments", "chunks", "state_bytes")


def test_a_run_that_is_much_longer_than_others_stands_only_for_itself(
    stores: tuple[SqliteStore, SqliteStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.store.sql.sql_reads._COUNTED_BYTES_MAX", 0)
    port = stores[0]
    before = port.usage().entries
    series = "WITH RECURSIVE s(i) AS (SELECT 4 UNION ALL SELECT i + 1 FROM s WHERE i < 30000)"

    def lengthen(connection: apsw.Connection) -> None:
        connection.execute(
            f"{series} INSERT INTO entries SELECT 1 << 32 | i, kind, created_us, commit_id, seal, body "
            "FROM s CROSS JOIN entries WHERE key = 1 << 32 | 1"
        )

    def shorten(connection: apsw.Connection) -> None:
        connection.execute("DELETE FROM entries WHERE key > (1 << 32 | 3) AND key < 2 << 32")

    port._read(lengthen)
    try:
        assert port.usage().entries == pytest.approx(before + 29_997, rel=0.1)
    finally:
        port._read(shorten)
