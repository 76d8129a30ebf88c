"""Damaged data is reported with its place, never guessed, and the newest undamaged checkpoint stays loadable."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest

import holdfast
from holdfast import DamagedData, Keep, Store
from holdfast.model.commit import HOLDER, Commit, Committed, Guard, NewEffect, NewRun, Reason, Refused
from holdfast.model.rows import CheckpointRow
from holdfast.store.checksum import with_checksum


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "runs.db")


@contextlib.contextmanager
def raw(path: str) -> Iterator[apsw.Connection]:
    """The file by another road than the store's."""
    connection = apsw.Connection(path)
    try:
        yield connection
    finally:
        connection.close()


def conversation(turns: int) -> dict[str, Any]:
    return {"messages": [{"content": f"message {i} " * 60} for i in range(turns)]}


def flipped(value: Any) -> list[Any]:
    """The value with one bit flipped or cut somewhere, in a few ways."""
    if isinstance(value, bytes):
        every = range(0, len(value), max(1, len(value) // 40))
        bits = [value[:i] + bytes([value[i] ^ 1 << i % 8]) + value[i + 1 :] for i in every]
        return [*bits, value + b"\0", *([value[:-1]] if value else [])]
    if isinstance(value, str):
        return [value + "x", value[:-1] or "y"]
    if isinstance(value, int):
        return [value ^ 1, value + 1000]
    return ["x"]


COLUMNS = {
    "checkpoints": ["lane", "checkpoint_id", "parent_id", "step", "next_node", "covers", "status", "metadata",
                    "created_us", "seal", "root"],
    "entries": ["kind", "created_us", "commit_id", "seal", "body"],
    "effects": ["name", "state", "tool", "target", "reversible", "after_checkpoint", "created_us", "body", "call",
                "seal"],
    "attachments": ["lane", "checkpoint_id", "name", "created_us", "seal", "root"],
    "runs": ["incarnation", "workflow", "status", "metadata", "position", "serial", "head", "step", "fence", "owner",
             "nonce", "lease_us", "gc_epoch", "commit_id", "seal"],
}  # fmt: skip


def prepared(path: str) -> Store:
    store = holdfast.open(f"sqlite:{path}")
    store.append("run", [{"kind": "note", "text": "x"}])
    store.save("run", {"n": 1}, workflow="w", metadata={"team": "a"}, next_node="tool")
    store.save("run", conversation(40), status="waiting", metadata={"team": "a"}, next_node="tool")
    store.mark_done("run", "key", tool="t", target="x", result=[1])
    store.attach("run", "c", "k", {"v": 1})
    assert store.verify().problems == []
    return store


@pytest.mark.parametrize("table", COLUMNS)
def test_every_flipped_bit_in_a_row_is_found(path: str, table: str) -> None:
    store = prepared(path)
    with raw(path) as connection:
        for column in COLUMNS[table]:
            found: Any = connection.execute(
                f"SELECT rowid, {column} FROM {table} ORDER BY rowid DESC LIMIT 1"
            ).fetchone()
            key, value = found
            for other in flipped(value):
                connection.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (other, key))
                assert store.verify().problems, (column, other)
            connection.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (value, key))
    assert store.verify().problems == []
    store.close()


def test_every_row_that_is_missing_or_moved_is_found(path: str) -> None:
    store = prepared(path)
    store.save("other", conversation(40))
    statements = [
        "DELETE FROM checkpoints WHERE key = (SELECT max(key) FROM checkpoints WHERE run = 1)",
        "DELETE FROM entries",
        "DELETE FROM chunks WHERE id = (SELECT max(id) FROM chunks WHERE family = 1)",
        "UPDATE checkpoints SET key = key + 4294967296 + 7, run = 2 WHERE run = 1",
        "UPDATE entries SET key = key + 1",
        "UPDATE chunks SET family = 2 WHERE family = 1 AND hash NOT IN (SELECT hash FROM chunks WHERE family = 2)",
    ]
    with raw(path) as connection:
        for statement in statements:
            connection.execute("BEGIN")
            connection.execute(statement)
            connection.execute("COMMIT")
            problems = store.verify().problems
            assert problems or "chunks SET" in statement, statement
            assert all(problem.place for problem in problems)
    store.close()


DAMAGES: list[Callable[[apsw.Connection], object]] = [
    lambda c: c.execute("UPDATE checkpoints SET root = zeroblob(9) WHERE key = (SELECT max(key) FROM checkpoints)"),
    lambda c: c.execute("UPDATE checkpoints SET step = 99 WHERE key = (SELECT max(key) FROM checkpoints)"),
    lambda c: c.execute("DELETE FROM checkpoints WHERE key = (SELECT max(key) FROM checkpoints)"),
    lambda c: c.execute("DELETE FROM chunks"),
    lambda c: c.execute("UPDATE chunks SET body = X'000178'"),
    lambda c: c.execute("UPDATE chunks SET body = zeroblob(0)"),
    lambda c: c.execute("UPDATE runs SET head = 7"),
]


@pytest.mark.parametrize("number", range(len(DAMAGES)))
def test_the_newest_undamaged_checkpoint_stays_reachable(path: str, number: int) -> None:
    store = prepared(path)
    with raw(path) as connection:
        DAMAGES[number](connection)
    with pytest.raises(DamagedData) as caught:
        store.load("run")
    assert "'run'" in str(caught.value)
    found = store.load("run", damaged="previous")
    assert found is not None
    assert found.state in ({"n": 1}, conversation(40))
    if number != 6:
        assert found.state == {"n": 1}
        assert store.load("run", step=1) == found or number == 6
    assert store.verify().problems
    store.close()


def test_if_all_is_damaged_that_is_said(path: str) -> None:
    store = prepared(path)
    with raw(path) as connection:
        connection.execute("UPDATE checkpoints SET covers = 7")
    with pytest.raises(DamagedData):
        store.load("run")
    with pytest.raises(DamagedData):
        store.load("run", damaged="previous")
    store.close()


def test_a_damaged_run_is_not_written_to_and_does_not_stop_the_others(path: str) -> None:
    store = prepared(path)
    store.save("other", 1)
    with raw(path) as connection:
        connection.execute("UPDATE runs SET fence = fence + 1 WHERE run_id = 'run'")
    store.close()
    store = holdfast.open(f"sqlite:{path}")
    for write in (
        lambda: store.save("run", 2),
        lambda: store.append("run", [{"kind": "a"}]),
        lambda: store.claim("run", owner="w"),
        lambda: store.load("run"),
        store.runs,
    ):
        with pytest.raises(DamagedData, match="run"):
            write()
    assert [run.run_id for run in store.runs(damaged="skip")] == ["other"]
    store.save("other", 2)
    assert [claim.run_id for claim in store.claim_ready("w", limit=1, lease=0.001)] == ["other"]
    assert store.load("other", step=2) is not None
    assert [problem.place for problem in store.verify().problems] == ["run 'run'"]
    store.close()


def test_a_damaged_checkpoint_can_be_pruned_and_nothing_else_is_lost(path: str) -> None:
    store = prepared(path)
    store.save("run", conversation(41))
    with raw(path) as connection:
        connection.execute("UPDATE checkpoints SET root = CAST(X'02FF' AS BLOB) WHERE key & 4294967295 = 2")
    report = store.prune("run", Keep(last=2))
    assert report.damage is not None
    assert report.chunks == 0
    assert store.load("run", damaged="previous") is not None
    report = store.prune("run", Keep(last=1))
    assert report.damage is None
    assert store.verify().problems == []
    found = store.load("run")
    assert found is not None
    assert found.state == conversation(41)
    store.close()


def test_a_damaged_journal_is_an_error(path: str) -> None:
    store = prepared(path)
    store.append("run", [{"kind": "b"}, {"kind": "c"}])
    with raw(path) as connection:
        connection.execute("DELETE FROM entries WHERE kind = 'b'")
    with pytest.raises(DamagedData, match="entry 2 is missing"):
        store.journal("run")
    store.close()


def test_a_damaged_file_is_reported(path: str) -> None:
    store = prepared(path)
    for i in range(300):
        store.save("run", {"n": i, "text": "x" * 500})
    store.close()
    content = bytearray(Path(path).read_bytes())
    assert len(content) > 50_000
    content[20_000:40_000] = bytes(20_000)
    Path(path).write_bytes(content)
    with holdfast.open(f"sqlite:{path}") as damaged, contextlib.suppress(DamagedData):
        assert damaged.verify().problems


def test_a_run_is_deleted_although_a_fork_of_it_is_damaged(path: str) -> None:
    with holdfast.open(f"sqlite:{path}") as store:
        store.save("run", conversation(40))
        store.fork("run", "fork")
        with raw(path) as connection:
            connection.execute("UPDATE chunks SET body = CAST(X'00FF' AS BLOB)")
        assert store.delete("fork") is True
        assert store.delete("fork") is False


@pytest.mark.parametrize(
    ("damage", "write"),
    [
        ("UPDATE effects SET tool = 'other'", lambda store: store.mark_done("run", "pay")),
        ("UPDATE checkpoints SET step = 9", lambda store: store.save("run", 1, checkpoint_id="c", replace=True)),
    ],
)
def test_damage_gets_no_new_seal(path: str, damage: str, write: Any) -> None:
    with holdfast.open(f"sqlite:{path}") as store:
        store.save("run", 1, checkpoint_id="c")
        store.mark_intent("run", "pay")
        with raw(path) as connection:
            connection.execute(damage)
        with pytest.raises(DamagedData):
            write(store)
        assert len(store.verify().problems) == 1


def test_a_sweep_gives_a_damaged_run_no_new_seal(path: str) -> None:
    with holdfast.open(f"sqlite:{path}") as store:
        for turns in (30, 40):
            store.save("run", conversation(turns))
        store.fork("run", "fork")
        with raw(path) as connection:
            connection.execute("UPDATE runs SET position = 77 WHERE run_id = 'fork'")
        assert store.prune("run", holdfast.Keep(last=1)).damage is not None
        assert [problem.place for problem in store.verify().problems] == ["run 'fork'"]


def test_a_head_that_goes_back_covers_no_damage_up(path: str) -> None:
    with holdfast.open(f"sqlite:{path}") as store:
        for n in range(1, 6):
            store.save("run", n)
        row = store.port.run("run")
        with raw(path) as connection:
            connection.execute("UPDATE checkpoints SET step = 77 WHERE key & 4294967295 = 3")
        with pytest.raises(DamagedData, match="checkpoint '3"):
            store.port.prune("run", lambda _rows, _effects: [4, 5])
        assert len(list(store.port.rows(CheckpointRow, 1))) == 5
        assert store.port.run("run") == row
        store.port.prune("run", lambda _rows, _effects: [3, 4, 5])
        assert store.verify().problems == []
        with raw(path) as connection:
            connection.execute("DELETE FROM checkpoints WHERE key & 4294967295 = 2")
        store.port.prune("run", lambda rows, _effects: [row.number for row in rows])
        assert [problem.reason for problem in store.verify().problems] == [
            "its newest checkpoint, number 2, is missing"
        ]


def test_a_run_that_does_not_know_its_newest_checkpoint_is_damaged(path: str) -> None:
    with holdfast.open(f"sqlite:{path}") as store:
        for n in range(1, 4):
            store.save("run", n)
        found = store.port.run("run")
        assert found is not None
        back = with_checksum(msgspec.structs.replace(found, head=2, seal=0), found.incarnation)
        with raw(path) as connection:
            connection.execute("UPDATE runs SET head = 2, seal = ?", (back.seal,))
        (problem,) = store.verify().problems
        assert "number 3" in problem.reason


def test_what_is_missing_is_not_covered_up_by_pruning(path: str) -> None:
    with holdfast.open(f"sqlite:{path}") as store:
        store.append("run", [{"kind": "n", "n": n} for n in range(1, 10)])
        store.port.prune_entries("run", lambda _run, _checkpoints: [(2, 3)])
        with raw(path) as connection:
            connection.execute("DELETE FROM entries WHERE key & 4294967295 = 6")
        with pytest.raises(DamagedData, match="missing"):
            store.port.prune_entries("run", lambda _run, _checkpoints: [(5, 7)])
        assert len(store.verify().problems) == 1
        store.save("run", 1, metadata={"holdfast": {"spans": []}})
        report = store.prune("run", Keep(journal=True))
        assert report.damage is not None
        assert "missing" in report.damage
        assert report.entries == 0
        with pytest.raises(DamagedData, match="entry 6 is missing"):
            store.journal("run")
        assert store.port.prune_entries("run", lambda _run, _checkpoints: [(8, 9)]) == 2


def test_every_flipped_bit_in_what_stands_for_pruned_entries_is_found(path: str) -> None:
    with holdfast.open(f"sqlite:{path}") as store, raw(path) as connection:
        store.append("run", [{"kind": "n", "n": n} for n in range(1, 10)])
        store.port.prune_entries("run", lambda _run, _checkpoints: [(2, 8)])
        for column in COLUMNS["entries"]:
            where = "FROM entries WHERE kind = 'pruned'"
            ((key, value),) = connection.execute(f"SELECT rowid, {column} {where}").fetchall()
            for other in flipped(value):
                connection.execute(f"UPDATE entries SET {column} = ? WHERE rowid = ?", (other, key))
                assert store.verify().problems, (column, other)
                with pytest.raises(DamagedData):
                    store.journal("run")
                with pytest.raises(DamagedData):
                    store.port.prune_entries("run", lambda _run, _checkpoints: [(1, 9)])
            connection.execute(f"UPDATE entries SET {column} = ? WHERE rowid = ?", (value, key))
        assert store.verify().problems == []


def test_a_damaged_row_refuses_its_own_commit_and_no_other_of_the_batch() -> None:
    with holdfast.open("memory:") as store:
        store.save("a", 1)
        claim = store.claim("a", owner="w")
        assert claim is not None
        claim.mark_intent("k", tool="t")
        effects = store.port._ids["a"].effects  # type: ignore[attr-defined]
        effects["k"] = msgspec.structs.replace(effects["k"], tool="other")
        row = store.port.run("a")
        assert row is not None
        guard = Guard(HOLDER, row.incarnation, row.fence, row.nonce, row.owner)
        commits = [
            Commit("b", b"12345678", create=NewRun()),
            Commit("a", b"87654321", guard, effects=(NewEffect("k", "done"),)),
        ]
        made, refused = store.port.commit(commits)
        assert isinstance(made, Committed)
        assert isinstance(refused, Refused)
        assert refused.reason == Reason.DAMAGED
