"""What only the SQLite store has: a file, connections, processes."""

from __future__ import annotations

import re
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import apsw
import pytest

import holdfast
from holdfast import DamagedData, Keep
from holdfast.errors import StorageBusy, StorageFailed, UnsupportedFormat
from holdfast.store.group_commit import Committer
from holdfast.store.port import CheckpointQuery, RunQuery
from holdfast.store.sql.statements import all_parts, statements
from holdfast.store.sqlite import sqlite_connection as connections
from holdfast.store.sqlite import sqlite_reads
from holdfast.store.sqlite.sqlite_reads import found_of_run
from holdfast.store.sqlite.sqlite_store import SqliteStore
from tests.harness import until


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:{tmp_path / 'runs.db'}"


def path_of(url: str) -> Path:
    return Path(url.removeprefix("sqlite:"))


def port_of(store: holdfast.Store) -> SqliteStore:
    assert isinstance(store.port, SqliteStore)
    return store.port


def test_every_connection_is_durable_and_that_is_read_back(url: str) -> None:
    with holdfast.open(url) as store:
        store.save("run", 1)
        store.runs()
        port = port_of(store)
        assert port._writer is not None
        for connection in (port._writer.connection, *port._idle):
            assert connection.pragma("journal_mode") == "wal"
            assert connection.pragma("synchronous") == 2
        assert len(port._idle) == 1


def test_a_connection_that_is_not_durable_is_refused(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "SYNCHRONOUS", ("NORMAL", 2))
    with pytest.raises(StorageFailed, match="durably"):
        holdfast.open(url)


def test_the_sqlite_in_use_has_no_wal_reset_bug(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    assert apsw.SQLITE_VERSION_NUMBER >= 3051003
    monkeypatch.setattr(apsw, "SQLITE_VERSION_NUMBER", 3051002)
    with pytest.raises(StorageFailed, match="WAL-reset"):
        holdfast.open(url)


class CountingVFS(apsw.VFS):
    """Counts the syncs of files."""

    def __init__(self) -> None:
        super().__init__("counting", "")
        self.syncs = 0

    def xOpen(self, name: Any, flags: Any) -> apsw.VFSFile:
        vfs = self

        class File(apsw.VFSFile):
            def __init__(self) -> None:
                super().__init__("", name, flags)

            def xSync(self, flags: int) -> None:
                vfs.syncs += 1
                super().xSync(flags)

        return File()


def test_a_save_is_exactly_one_sync(tmp_path: Path) -> None:
    vfs = CountingVFS()
    clock = holdfast.clock.SystemClock()
    store = holdfast.Store(SqliteStore(str(tmp_path / "runs.db"), clock, reserve_bytes=0, vfs="counting"))
    store.save("run", {"n": 0})
    for state in ({"n": 1}, {"messages": ["x" * 5000] * 20}, {"n": 2}):
        before = vfs.syncs
        store.save("run", state)
        store.append("run", [{"kind": "a"}, {"kind": "b"}])
        store.mark_done("run", repr(state)[:20])
        claim = store.claim("run", owner="w")
        assert claim is not None
        claim.save(state)
        claim.release()
        assert vfs.syncs - before == 6
    store.load("run")
    list(store.history("run"))
    assert vfs.syncs - before == 6
    store.close()
    del vfs


def test_threads_that_save_at_once_share_syncs(tmp_path: Path) -> None:
    vfs = CountingVFS()
    store = holdfast.Store(
        SqliteStore(str(tmp_path / "runs.db"), holdfast.clock.SystemClock(), reserve_bytes=0, vfs="counting")
    )
    store.save("run", 1)
    before = vfs.syncs
    committer = store.access.core.committer
    threads = [threading.Thread(target=store.save, args=(f"run-{number}", number)) for number in range(16)]
    assert isinstance(committer, Committer)
    with committer._leading:  # a commit is in progress until all of them wait
        for thread in threads:
            thread.start()
        until(lambda: len(committer._blocked) == 16, "all saves wait")
    for thread in threads:
        thread.join()
    assert vfs.syncs - before == 1
    assert store.stats().checkpoints == 17
    store.close()


def test_a_new_file_belongs_to_its_owner_alone(url: str) -> None:
    with holdfast.open(url) as store:
        store.save("run", {"secret": 1})
        for path in path_of(url).parent.iterdir():
            assert stat.S_IMODE(path.stat().st_mode) == 0o600, path


def test_another_programs_database_is_left_alone(url: str) -> None:
    other = apsw.Connection(str(path_of(url)))
    other.execute("CREATE TABLE mine (x)")
    other.close()
    with pytest.raises(StorageFailed, match="another program"):
        holdfast.open(url)


def test_a_newer_schema_is_refused(url: str) -> None:
    holdfast.open(url).close()
    other = apsw.Connection(str(path_of(url)))
    other.execute("PRAGMA user_version = 99")
    other.close()
    with pytest.raises(UnsupportedFormat, match="newer version"):
        holdfast.open(url)


def test_what_cannot_be_opened_is_said_and_not_taken_for_missing(tmp_path: Path) -> None:
    with pytest.raises(StorageFailed, match="directory"):
        holdfast.open(f"sqlite:{tmp_path}/none/runs.db")
    with pytest.raises(StorageFailed):
        holdfast.open(f"sqlite:{tmp_path}")
    (tmp_path / "text").write_text("this is no database, but it is long enough to be looked at " * 40)
    with pytest.raises(DamagedData):
        holdfast.open(f"sqlite:{tmp_path / 'text'}")


def test_a_writer_that_waits_too_long_is_told_so(url: str) -> None:
    with holdfast.open(url, timeout_s=0.05) as store:
        store.save("run", 1)
        other = apsw.Connection(str(path_of(url)))
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StorageBusy, match="try again") as caught:
            store.save("run", 2)
        assert caught.value.retryable
        found = store.load("run")
        assert found is not None
        assert found.state == 1
        other.execute("ROLLBACK")
        store.save("run", 2)
        other.close()


def test_reads_and_iterators_hold_nothing(url: str) -> None:
    with holdfast.open(url) as store:
        for i in range(300):
            store.save("run", i)
        history = store.history("run")
        next(history)
        store.runs()
        store.load("run")
        store.journal("run")
        port = port_of(store)
        assert all(not connection.in_transaction for connection in port._idle)
        assert port._writer is not None
        assert port._writer.connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)[0] == 0
        assert len(list(history)) == 299


def test_maintenance_leaves_no_statement_open(url: str) -> None:
    """One left in the middle would hold a snapshot, and the next transaction would be refused at once."""
    one, other = holdfast.open(url), holdfast.open(url)
    for _ in range(3):
        one.save("run", 1)
        one.prune("run", Keep(last=1))
        other.save("other", 1)
        one.save("gone", 1)
        other.save("other", 2)
        assert one.delete("gone")
        other.save("other", 3)
        assert one.port.claim_ready([], (), b"commit00") == []
    other.close()
    one.close()


def test_processes_that_create_the_file_at_once_agree(tmp_path: Path) -> None:
    script = "import holdfast, sys; s = holdfast.open('sqlite:' + sys.argv[1]); s.save(sys.argv[2], 1); s.close()"
    arguments = [sys.executable, "-c", script, str(tmp_path / "runs.db")]
    processes = [subprocess.Popen([*arguments, f"run-{i}"]) for i in range(6)]
    assert [process.wait(timeout=240) for process in processes] == [0] * 6
    with holdfast.open(f"sqlite:{tmp_path / 'runs.db'}") as store:
        assert len(store.runs()) == 6


# A search through all checkpoints there are.
ALL_RUNS = {"found", "found_before", "found_end", "found_by_id", "found_by_id_end"}

CHECKS = {
    "rows_of_another_run", "rows_without_run", "rows_numbered_zero", "rows_with_invalid_flag", "lanes_without_head",
    "items_taken", "inboxes_miscounted",
}  # fmt: skip
"""Verifying reads all there is."""

EXPECTED_SCANS = {
    *ALL_RUNS, *CHECKS,
    "usage",  # counting all there is
    "count_prefix", "count_runs", "count_ended_of_workflow",  # of the rows of a subquery with a limit
    "strata_of_status", "strata_of_workflow", "workflows", "packed_size",  # of a CTE, or with a limit
    "published",  # one row for each workflow
    "gates_all", "gates_of_state",  # for looking through old gates; open ones have an index
}  # fmt: skip


EXPECTED_SORTS = {
    *ALL_RUNS, *CHECKS, "found_of_workflow",
    "found_of_run_by_id_end",  # ids are in no order within the run's keys
    "runs_page_statuses",  # one page of several statuses
    "runs_page_of_prefix", "runs_page_of_prefix_end",  # ids that begin so are few
    "gates_open",  # only gates of one run that were opened at once
    "gates_of_run", "gates_of_state", "gates_all", "timers",  # few rows each
    "runs_page_of_claims", "runs_page_of_claims_end",
    "strata_of_status", "strata_of_workflow", "count_ended_of_workflow", "count_runs_of_workflows",  # few rows each
    "chunk_sizes", "places",  # of one family, before a pack or a sweep
}  # fmt: skip


def parts_around(name: str) -> list[str]:
    """A statement, or the parts one is put together of to use this part of it."""
    if name.startswith("runs_page"):
        leads = ("runs_page_of_tag", "runs_page_of_prefix", "runs_page_of_claims")
        page = next((lead for lead in leads if name.startswith(lead)), "runs_page")
        return [page, name, f"{page}_end"]
    if name.startswith("sample_"):
        return [name, "sample_from"] if name.startswith("sample_of_") else ["sample_of_chunks", name]
    if name == "found_of_workflow":
        return [name, "found_end"]
    if name in ALL_RUNS:
        return ["found", name, *(["found_end"] if not name.endswith("_end") else [])]
    if name.startswith("found_of_run") and name.endswith("_end"):
        return ["found_of_run", name]
    return ["found_of_run", name, "found_of_run_end"] if name.startswith("found_") else [name]


def test_every_statement_finds_its_rows_by_an_index(url: str) -> None:
    with holdfast.open(url) as store:
        store.save("run", 1)
        connection = apsw.Connection(str(path_of(url)))
        for name in statements().all():
            sql = " ".join(statements()[part] for part in dict.fromkeys(parts_around(name)))
            plan: list[Any] = connection.execute("EXPLAIN QUERY PLAN " + sql, (1,) * sql.count("?")).fetchall()
            scans = [
                row[3]
                for row in plan
                if re.match(r"SCAN (?!json_each|CONSTANT|p$)", str(row[3])) and "INDEX" not in row[3]
            ]
            assert not scans or name in EXPECTED_SCANS, (name, scans)
            sorts = [row[3] for row in plan if "TEMP B-TREE" in str(row[3])]
            assert not sorts or name in EXPECTED_SORTS, (name, sorts)
        connection.close()


def test_remembered_rows_do_not_hide_what_others_did(url: str) -> None:
    one, two = holdfast.open(url), holdfast.open(url)
    one.save("run", 1)
    two.save("run", 2)
    assert one.save("run", 3).step == 3
    claim = two.claim("run", owner="w2")
    assert claim is not None
    with pytest.raises(holdfast.RunClaimed):
        one.save("run", 4)
    claim.release()
    assert one.save("run", 4).step == 4
    one.save("run", 4, status="completed")
    two.save("run", 4, status="ready")
    claim = one.claim("run", owner="w1")
    assert claim is not None
    claim.release()
    two.delete("run")
    assert one.save("run", 5).step == 1
    large = {"messages": [{"text": f"m{i} " * 100} for i in range(60)]}
    one.save("run", large)
    two.save("run", "small")
    two.prune("run", Keep(last=1))
    one.save("run", large)
    two.delete("run")
    one.save("run", large)
    found = two.load("run")
    assert found is not None
    assert found.state == large
    assert one.verify().problems == []
    one.close()
    two.close()


def test_a_search_of_one_run_reads_the_range_of_its_keys_and_nothing_else(url: str) -> None:
    queries = [
        CheckpointQuery("run"),
        CheckpointQuery("run", lane="side", before=(0, 5), limit=1),
        CheckpointQuery("run", "w", checkpoint_id="c", tags=(("k", b"\x01"), ("l", b"\x02"))),
        CheckpointQuery("run", lane="side", by_id=("d", 0), limit=1),
    ]
    with holdfast.open(url) as store:
        store.save("run", 1)
        for query in queries:
            names, bindings = found_of_run(7, query)
            plan = plan_of(port_of(store), joined(names), bindings)
            sort = ["USE TEMP B-TREE FOR ORDER BY"] if query.by_id else []
            assert plan == ["SEARCH c USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)", *sort], plan
        statement = statements()["checkpoint_by_id"]
        assert "USING INDEX checkpoints_by_id" in plan_of(port_of(store), statement, [7, "", "c"])[0]


def test_runs_are_found_by_the_beginning_of_their_ids_through_the_index_of_ids(url: str) -> None:
    with holdfast.open(url) as store:
        store.save("run", 1)
        tags = (("k", b"\x01"),)
        for query in (RunQuery(prefix="r"), RunQuery(("ready",), "w", tags, 5, prefix="r")):
            plan = runs_plan(port_of(store), query)
            assert "SEARCH runs USING COVERING INDEX sqlite_autoindex_runs_1 (run_id>? AND run_id<?)" in plan, plan
            assert "SEARCH r USING INTEGER PRIMARY KEY (rowid=?)" in plan, plan


def test_claimed_runs_are_found_through_their_own_index(url: str) -> None:
    with holdfast.open(url) as store:
        store.save("run", 1)
        for query in (RunQuery(claimed="any"), RunQuery(claimed="expired", before=5)):
            plan = runs_plan(port_of(store), query)
            assert "SCAN r USING INDEX runs_held" in plan, plan


def test_a_search_of_a_workflow_reads_its_runs_only(url: str) -> None:
    with holdfast.open(url) as store:
        store.save("run", 1)
        names, bindings = all_parts(CheckpointQuery(workflow="w", tags=(("k", b"\x01"),), before=(9, 9)))
        statement = joined(names)
        by_index, by_key, *_ = plan_of(port_of(store), statement, [*bindings, 5])
        assert by_index.startswith("SEARCH r USING INDEX runs_by_workflow")
        assert by_key == "SEARCH c USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"


def test_a_search_by_lane_and_id_does_not_read_a_long_run(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with holdfast.open(url) as store:
        own = store.save("run", 1).checkpoint_id
        store.save("run", 2, checkpoint_id="c", lane="side")
        monkeypatch.setattr(sqlite_reads, "found_of_run", None)
        for lane, checkpoint_id in (("side", "c"), ("", own)):
            query = CheckpointQuery("run", lane=lane, checkpoint_id=checkpoint_id)
            assert [row.checkpoint_id for _, row in store.port.find_checkpoints(query)] == [checkpoint_id]


def joined(names: list[str]) -> str:
    return " ".join(statements()[name] for name in names)


def runs_plan(port: SqliteStore, query: RunQuery) -> list[str]:
    names, bindings = port._runs_page(query)
    return plan_of(port, joined(names), bindings)


def plan_of(port: SqliteStore, statement: str, bindings: list[Any]) -> list[str]:
    rows = port._read(lambda connection: connection.execute(f"EXPLAIN QUERY PLAN {statement}", bindings).fetchall())
    return [str(row[3]) for row in rows]
