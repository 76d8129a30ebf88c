"""Reads through the connection that writes see what is committed, and never wait for a transaction."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.model.rows import CheckpointRow, EffectRow, EntryRow, RunRow
from holdfast.store.port import Select
from holdfast.store.sqlite.sqlite_store import SqliteStore
from holdfast.store.sqlite.sqlite_writer import SqliteTransactionReads

Look = Callable[[SqliteStore], object]


def _run(port: SqliteStore) -> RunRow:
    row = port.run("r")
    assert row is not None
    return row


def _positions(port: SqliteStore) -> list[int]:
    return [row.position for row in port.rows(EntryRow, _run(port).run)]


def _newest(port: SqliteStore) -> object:
    return port.checkpoint("r", Select(), attachments=True)


LOOKS: list[Look] = [_run, _positions, _newest]


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_read_during_a_transaction_sees_what_was_before_and_does_not_wait(
    tmp_path: Path, look: Look, elsewhere: bool
) -> None:
    with holdfast.open(f"sqlite:{tmp_path / 'runs.db'}") as store:
        port = store.port
        assert isinstance(port, SqliteStore)
        store.save("r", {"a": 1})
        store.append("r", [{"kind": "note"}])
        before, seen = look(port), []

        def choose(_: list[CheckpointRow], __: list[EffectRow]) -> list[int]:
            assert port._writer is not None
            port._writer.connection.execute("UPDATE runs SET position = 0, owner = 'x'")
            port._writer.connection.execute("DELETE FROM entries")
            if elsewhere:
                reader = threading.Thread(target=lambda: seen.append(look(port)))
                reader.start()
                reader.join()
            else:
                seen.append(look(port))
            raise InterruptedError

        with pytest.raises(InterruptedError):
            port.prune("r", choose)
        assert seen == [before]
        assert look(port) == before


def test_a_read_sees_the_commit_of_another_store(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'runs.db'}"
    with holdfast.open(url) as store, holdfast.open(url) as other:
        store.save("r", {"a": 1})
        for number in range(1, 4):
            other.append("r", [{"kind": "note"}])
            port: Any = store.port
            assert _run(port).position == number
            assert _positions(port) == list(range(1, number + 1))


def test_a_checkpoint_is_read_through_the_connection_that_writes(tmp_path: Path) -> None:
    with holdfast.open(f"sqlite:{tmp_path / 'runs.db'}") as store:
        port: Any = store.port
        store.save("r", {"a": 1})
        opened = len(port._idle)
        found, missing = port.checkpoint("r", Select()), port.checkpoint("none", Select())
        assert (found.checkpoint.number, missing) == (1, None)
        assert len(port._idle) == opened == 0


def test_a_new_checkpoint_is_looked_up_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A save with an id of the caller may repeat an earlier one, and may replace it."""
    reads: list[str] = []
    read = SqliteTransactionReads.checkpoint

    def counting(self: Any, run: int, lane: str, checkpoint_id: str) -> CheckpointRow | None:
        reads.append(checkpoint_id)
        return read(self, run, lane, checkpoint_id)

    monkeypatch.setattr(SqliteTransactionReads, "checkpoint", counting)
    with holdfast.open(f"sqlite:{tmp_path / 'runs.db'}") as store:
        for name in ("c1", "c2", "c3"):
            store.save("r", {"name": name}, checkpoint_id=name)
    assert reads == ["c2", "c3"]


def test_a_long_list_is_read_as_a_whole(tmp_path: Path) -> None:
    with holdfast.open(f"sqlite:{tmp_path / 'runs.db'}") as store:
        port: Any = store.port
        for count in (63, 64, 65, 200):
            while (_run(port).position if port.run("r") else 0) < count:
                store.append("r", [{"kind": "note"}])
            assert len(port.rows(EntryRow, _run(port).run)) == count
            assert len(port.rows(EntryRow, _run(port).run, 0, 64)) == min(count, 64)
            assert len(port.rows(EntryRow, _run(port).run, 10, 100)) == min(count - 10, 100)


def test_the_number_of_a_deleted_run_is_not_used_again(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'runs.db'}"
    with holdfast.open(url) as store, holdfast.open(url) as other:
        numbers = []
        for run_id in ("a", "b", "c"):
            store.save(run_id, {})
        for run_id, again in (("c", "d"), ("d", "e"), ("a", "f")):
            row = store.port.run(run_id)
            assert row is not None
            numbers.append(row.run)
            other.delete(run_id)
            store.save(again, {})
        last = store.port.run("f")
        assert last is not None
        assert numbers == [3, 4, 1]
        assert last.run == 6


def test_many_chunks_are_read_by_few_statements(tmp_path: Path) -> None:
    with holdfast.open(f"sqlite:{tmp_path / 'runs.db'}") as store:
        state: dict[str, list[str]] = {"messages": []}
        for number in range(120):  # more than one pack, and loose chunks
            state["messages"] += [f"message {number} " * 40, f"answer {number} " * 40]
            store.save("r", state)
        port, sql = store.port, list[str]()
        assert isinstance(port, SqliteStore)

        def trace(_: object, statement: str, __: object) -> bool:
            sql.append(statement)
            return True

        port._read(lambda connection: connection.set_exec_trace(trace))
        loaded = store.load("r")
        assert loaded is not None
        assert loaded.state == state
        assert len([text for text in sql if "packed" in text or "chunks" in text]) <= 12
        family = _run(port).family
        names, missing = list(port.packs(family)[0]), bytes(20)
        assert len(names) > 64
        assert set(port.packed(family, [missing, *names, missing])[0]) == set(names)
        loose = list(port.chunk_sizes(family))
        assert set(port.chunks(family, [missing, *loose, *names])) == set(loose)
