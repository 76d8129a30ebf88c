"""`run.transaction`: the user's change and its record are one transaction, so a crash cannot part them."""

from __future__ import annotations

import linecache
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import apsw
import psycopg
import pytest

from holdfast import App, AsyncRun, Run, RunFailed
from holdfast.runtime import transactions
from tests.harness import Stage
from tests.store.postgres import shared_servers
from tests.store.postgres.server import newest

MAKE = "CREATE TABLE IF NOT EXISTS payments (who TEXT)"


def insert(connection: Any, who: str) -> int:
    connection.execute(f"INSERT INTO payments VALUES ('{who}')")
    return int(connection.execute("SELECT count(*) FROM payments").fetchone()[0])


def a_database(tmp_path: Path) -> str:
    path = str(tmp_path / "shop.db")
    with sqlite3.connect(path) as connection:
        connection.execute(MAKE)
    connection.close()
    return path


def rows(path: str, table: str = "payments") -> int:
    connection = sqlite3.connect(path)
    try:
        return int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])
    finally:
        connection.close()


@pytest.mark.parametrize("driver", ["sqlite3", "apsw"])
@pytest.mark.parametrize("cut", ["before", "after"])
def test_a_crash_around_the_commit_does_nothing_twice(stage: Stage, tmp_path: Path, driver: str, cut: str) -> None:
    path = a_database(tmp_path)

    def connect() -> Any:
        return apsw.Connection(path) if driver == "apsw" else sqlite3.connect(path, check_same_thread=False)

    def pay(connection: Any, who: str) -> int:
        stage.calls.append(who)
        found = insert(connection, who)
        if cut == "before" and len(stage.calls) == 1:
            raise KeyboardInterrupt  # the process ends inside the transaction
        if len(stage.calls) == 1:
            stage.die()  # the user's database commits, ours cannot any more
        return found

    @stage.flow
    async def flow(run: AsyncRun) -> Any:
        connection = connect()
        try:
            return [await run.transaction(connection, pay, "ana"), await run.transaction(connection, pay, "ben")]
        finally:
            connection.close()

    with pytest.raises(BaseException) as caught:
        stage.start(flow)
    assert type(caught.value).__name__ == ("KeyboardInterrupt" if cut == "before" else "StorageFailed")
    assert rows(path) == (0 if cut == "before" else 1)
    assert stage.resume().result(240) == [1, 2]
    assert stage.calls == (["ana", "ana", "ben"] if cut == "before" else ["ana", "ben"])
    assert rows(path) == rows(path, "holdfast_outcomes") == 2
    assert [line.state for line in stage.app.store.effects(stage.run_id)] == ["done", "done"]


def test_what_raises_is_rolled_back_and_fails_the_call(stage: Stage, tmp_path: Path) -> None:
    path = a_database(tmp_path)

    def pay(connection: Any) -> None:
        insert(connection, "ana")
        raise KeyError("no")

    @stage.flow
    async def flow(run: AsyncRun) -> None:
        connection = sqlite3.connect(path, check_same_thread=False)
        try:
            await run.transaction(connection, pay)
        finally:
            connection.close()

    with pytest.raises(RunFailed, match=r"EffectFailed.*KeyError"):
        stage.start(flow).result(240)
    assert rows(path) == 0


@pytest.mark.parametrize("driver", ["sqlite3", "apsw"])
def test_a_function_that_rolls_back_and_continues_changes_nothing(local: Stage, tmp_path: Path, driver: str) -> None:
    path = a_database(tmp_path)

    def pay(connection: Any) -> str:
        connection.execute("ROLLBACK")
        connection.execute("BEGIN")
        insert(connection, "ana")
        return "paid"

    @local.flow
    async def flow(run: AsyncRun) -> Any:
        connection = apsw.Connection(path) if driver == "apsw" else sqlite3.connect(path, check_same_thread=False)
        try:
            await run.transaction(connection, insert, "first")  # creates the table of outcomes
            return await run.transaction(connection, pay)
        finally:
            connection.close()

    with pytest.raises(RunFailed, match="ended its transaction itself"):
        local.start(flow).result(240)
    assert rows(path) == 1


def test_a_connection_in_a_transaction_or_of_another_kind_is_refused(local: Stage, tmp_path: Path) -> None:
    path = a_database(tmp_path)

    @local.flow
    async def flow(run: AsyncRun, kind: str) -> None:
        connection = sqlite3.connect(path, check_same_thread=False)
        try:
            if kind == "busy":
                connection.execute("INSERT INTO payments VALUES ('mine')")
            await run.transaction(connection if kind == "busy" else object(), insert, "ana")
        finally:
            connection.close()

    with pytest.raises(RunFailed, match="without an open transaction"):
        local.start(flow, "busy").result(240)
    with pytest.raises(RunFailed, match="takes a connection of sqlite3, apsw or psycopg"):
        local.start(flow, "strange", run_id=f"{local.run_id}-strange").result(240)


def test_a_key_names_the_same_transaction_everywhere_in_the_run(local: Stage, tmp_path: Path) -> None:
    path = a_database(tmp_path)

    @local.flow
    async def flow(run: AsyncRun) -> Any:
        connection = sqlite3.connect(path, check_same_thread=False)

        async def branch(inner: AsyncRun) -> Any:
            return await inner.transaction(connection, insert, "ana", key="pay ana")

        try:
            return [*await run.gather(branch), *await run.gather(branch)]
        finally:
            connection.close()

    assert local.start(flow).result(240) == [1, 1]
    assert rows(path) == 1


def a_schema() -> str:
    """Connection text for a schema of its own on the test server."""
    schema = shared_servers.new_schema()
    dsn = shared_servers.shared(newest()).dsn()
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {schema}")
    dsn += f" options=-csearch_path={schema}"
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(MAKE)
    return dsn


@pytest.mark.parametrize("kind", ["def", "async"])
def test_psycopg_does_nothing_twice_either(folder: Path, kind: str) -> None:
    dsn = a_schema()
    stage = Stage(f"sqlite:{folder / 'runs.db'}", kind, f"psycopg-{kind}")

    def pay(connection: psycopg.Connection[Any], who: str) -> int:
        stage.calls.append(who)
        connection.execute("INSERT INTO payments VALUES (%s)", (who,))
        if len(stage.calls) == 1:
            stage.die()
        return len(stage.calls)

    @stage.flow
    async def flow(run: AsyncRun) -> Any:
        with psycopg.connect(dsn, row_factory=psycopg.rows.dict_row) as connection:
            return [await run.transaction(connection, pay, "ana"), await run.transaction(connection, pay, "ben")]

    stage.start_and_die(flow)
    assert stage.resume().result(240) == [1, 2]
    stage.close()
    with psycopg.connect(dsn) as connection:
        assert connection.execute("SELECT who FROM payments ORDER BY who").fetchall() == [("ana",), ("ben",)]


def test_an_awaiting_psycopg_connection_works_in_an_async_workflow(folder: Path) -> None:
    dsn = a_schema()
    stage = Stage(f"sqlite:{folder / 'runs.db'}", "async", "psycopg-awaiting")

    async def pay(connection: psycopg.AsyncConnection[Any], who: str) -> int:
        stage.calls.append(who)
        await connection.execute("INSERT INTO payments VALUES (%s)", (who,))
        if len(stage.calls) == 1:
            stage.die()
        if who == "eve":
            raise PermissionError("not her")
        return len(stage.calls)

    @stage.flow
    async def flow(run: AsyncRun) -> Any:
        async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
            found = [await run.transaction(connection, pay, "ana"), await run.transaction(connection, pay, "ben")]
            try:
                await run.transaction(connection, pay, "eve")
            except Exception as error:
                found.append(type(error).__name__)
            return found

    stage.start_and_die(flow)
    assert stage.resume().result(240) == [1, 2, "EffectFailed"]
    stage.close()
    with psycopg.connect(dsn) as connection:
        assert connection.execute("SELECT who FROM payments ORDER BY who").fetchall() == [("ana",), ("ben",)]


def test_a_connection_is_let_go_of_after_the_run(tmp_path: Path) -> None:
    import gc
    import weakref

    path, seen = a_database(tmp_path), []

    class Connection(sqlite3.Connection):
        pass

    with App("memory:") as app:

        @app.workflow
        def flow(run: Run) -> None:
            connection = sqlite3.connect(path, factory=Connection)
            seen.append(weakref.ref(connection))
            run.transaction(connection, insert, "ana")
            connection.close()

        app.start(flow).result(240)
        gc.collect()
        assert seen[0]() is None


class InterruptAtLine:
    """Raises KeyboardInterrupt before the nth line of `runtime.transactions` on this thread, as Ctrl-C does.

    The line of a `with` is not counted: a trace function is also called when the block is left, before the lock is
    released, where Python handles no signal.
    """

    def __init__(self, number: int) -> None:
        self._left = number

    def __enter__(self) -> None:
        sys.settrace(self._trace)

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _trace(self, frame: FrameType, event: str, _: object) -> Any:
        if frame.f_code.co_filename != transactions.__file__:
            return None
        line = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
        if event == "line" and not line.startswith("with "):
            self._left -= 1
            if self._left == 0:
                sys.settrace(None)
                raise KeyboardInterrupt
        return self._trace


def interrupt_everywhere(connection: Any, pay: Any, is_open: Callable[[], bool]) -> int:
    """Interrupt a transaction once before each of its lines; return how often."""
    with App("memory:") as app:

        @app.workflow
        def flow(run: Run, number: int) -> Any:
            with InterruptAtLine(number):
                return run.transaction(connection, pay, str(number))

        for number in range(1, 1000):
            try:
                found = app.start(flow, number, run_id=str(number)).result(240)
            except KeyboardInterrupt:
                assert not is_open(), f"line {number}"
                assert not transactions._THREAD_LOCKS.lock(connection).locked(), f"line {number}"
            else:
                assert found == str(number)
                return number - 1
    raise AssertionError("the transaction never ended")


@pytest.mark.parametrize("driver", ["sqlite3", "apsw"])
def test_an_interrupt_at_any_moment_leaves_no_open_transaction(tmp_path: Path, driver: str) -> None:
    path = a_database(tmp_path)
    connection: Any = apsw.Connection(path) if driver == "apsw" else sqlite3.connect(path)
    other = sqlite3.connect(path, timeout=0, isolation_level=None)

    def pay(connection: Any, who: str) -> str:
        insert(connection, who)
        return who

    def is_open() -> bool:
        other.execute("BEGIN IMMEDIATE")  # raises if the database is locked
        other.execute("ROLLBACK")
        return bool(connection.in_transaction)

    assert interrupt_everywhere(connection, pay, is_open) > 20
    whole = "SELECT count(*) FROM payments WHERE who NOT IN (SELECT who FROM payments GROUP BY who HAVING count(*) = 1)"
    assert other.execute(whole).fetchone()[0] == 0
    other.close()
    connection.close()


def test_an_interrupt_at_any_moment_leaves_no_open_transaction_in_psycopg() -> None:
    with psycopg.connect(a_schema(), autocommit=True) as connection:

        def pay(connection: psycopg.Connection[Any], who: str) -> str:
            connection.execute("INSERT INTO payments VALUES (%s)", (who,))
            return who

        def is_open() -> bool:
            return connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE

        assert interrupt_everywhere(connection, pay, is_open) > 20
