"""Damage in the columns by which SQLite finds rows, which no checksum of a row covers, is reported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import apsw
import pytest

from holdfast import App, Run, Store
from holdfast.model.commit import Commit, Committed, Guard, NewMessage
from tests.store.test_damage import flipped, prepared, raw


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "runs.db")


def with_inbox(path: str) -> Store:
    """Two runs with effects, a lane, a named checkpoint, gates, timers, and items that were taken or wait."""
    store = prepared(path)
    store.save("run", {"n": 2}, checkpoint_id="chosen")
    store.save("run", {"n": 3}, lane="side")
    store.mark_done("run", "key-2", tool="t")
    store.mark_done("other", "key", tool="t")
    app = App(store)

    @app.workflow
    def waits(run: Run) -> Any:
        run.wait_for("a")
        run.sleep(1000)

    @app.workflow
    def asks(run: Run) -> Any:
        return run.ask("b?", bool)

    app.start(asks, run_id="asks")
    app.start(waits, run_id="waits")
    app.send("waits", "a", 1)
    app.send("waits", "later", 2)
    app.close()
    assert store.verify().problems == []
    return store


KEYS = {
    "checkpoints": ["key", "run", "named"],
    "entries": ["key"],
    "effects": ["key", "run"],
    "attachments": ["key", "run"],
    "inbox": ["key", "run", "taken", "item", "kind"],
    "gates": ["run", "gate"],
    "timers": ["run"],
    "lanes": ["run", "lane", "head", "head_id", "step"],
    "runs": ["run", "family", "run_id", "effects", "inbox"],
}
"""The columns by which rows are found."""


BITS = (0, 1, 5, 31, 32, 33)


@pytest.mark.parametrize(("table", "column"), [(table, column) for table in KEYS for column in KEYS[table]])
def test_every_flipped_bit_in_a_key_column_is_found(path: str, table: str, column: str) -> None:
    store = with_inbox(path)
    keys = {"lanes": ["run", "lane"], "timers": ["run", "timer"]}.get(table, ["rowid"])
    rowid = {"runs": "run", "gates": ""}.get(table, "key")
    where = " AND ".join(f"{key} = ?" for key in keys)
    update = f"UPDATE {table} SET {column} = ? WHERE {where}"
    with raw(path) as connection:
        runs = {run for (run,) in connection.execute("SELECT run FROM runs")}
        for *place, value in connection.execute(f"SELECT {', '.join(keys)}, {column} FROM {table}").fetchall():
            for other in [value ^ 1 << bit for bit in BITS] if isinstance(value, int) else flipped(value):
                if table == "timers" and other in runs:
                    continue  # timers have no checksum
                try:
                    connection.execute(update, (other, *place))
                except apsw.ConstraintError:  # another row has that key
                    continue
                assert store.verify().problems, (value, other)
                is_key = [column in (key, rowid if key == "rowid" else "") for key in keys]
                now = [other if moved else old for moved, old in zip(is_key, place, strict=True)]
                connection.execute(update, (value, *now))
    assert store.verify().problems == []
    store.close()


@pytest.mark.parametrize("table", ["effects", "inbox"])
def test_a_missing_row_that_the_run_counts_is_found(path: str, table: str) -> None:
    store = with_inbox(path)
    with raw(path) as connection:
        connection.execute(f"DELETE FROM {table} WHERE key = (SELECT min(key) FROM {table})")
    [problem] = store.verify().problems
    assert ("effect 1 of 2 is missing" if table == "effects" else "items, not") in problem.reason
    store.close()


def test_a_damaged_message_in_the_outbox_is_found(path: str) -> None:
    store = prepared(path)
    send = NewMessage("other", "event", "n", "k", b"body")
    [outcome] = store.port.commit([Commit("run", b"id", Guard(), send=(send,))])
    assert isinstance(outcome, Committed)
    assert store.verify().problems == []
    with raw(path) as connection:
        connection.execute("UPDATE outbox SET name = 'm'")
    assert [problem.place for problem in store.verify().problems] == ["outbox message 1 of run 'run'"]
    store.close()
