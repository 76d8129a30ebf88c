"""`run.transaction` when the connection breaks around its COMMIT, and on a connection that several branches share."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from holdfast import AsyncRun, EffectInDoubt, RunFailed, StepFailed
from tests.harness import Stage
from tests.runtime.test_transactions import MAKE, a_database, insert, rows
from tests.store.postgres import shared_servers
from tests.store.postgres.proxy import Proxy
from tests.store.postgres.server import newest


class Shop:
    """A database of the user's behind a proxy, with the table in a schema that only the session knows of."""

    def __init__(self) -> None:
        server = shared_servers.shared(newest())
        self.proxy = Proxy(server.port)
        self.schema = shared_servers.new_schema()
        self._direct = server.dsn()
        self.dsn = make_conninfo(self._direct, host="127.0.0.1", port=self.proxy.port, password="secret")
        with psycopg.connect(self._direct, autocommit=True) as connection:
            connection.execute(f"CREATE SCHEMA {self.schema}")
            connection.execute(f"SET search_path TO {self.schema}")
            connection.execute(MAKE)

    def connect(self) -> psycopg.Connection[Any]:
        connection = psycopg.connect(self.dsn)
        connection.execute(f"SET search_path TO {self.schema}")
        connection.commit()
        return connection

    async def connect_async(self) -> psycopg.AsyncConnection[Any]:
        connection = await psycopg.AsyncConnection.connect(self.dsn, autocommit=True)
        await connection.execute(f"SET search_path TO {self.schema}")
        return connection

    def count(self, table: str = "payments") -> int:
        with psycopg.connect(self._direct) as connection:
            found = connection.execute(f"SELECT count(*) FROM {self.schema}.{table}").fetchone()
            assert found is not None
            return int(found[0])


@pytest.fixture
def shop() -> Iterator[Shop]:
    found = Shop()
    yield found
    found.proxy.close()


@pytest.fixture(params=["def", "async", "awaited connection"])
def payer(request: pytest.FixtureRequest, folder: Path, shop: Shop) -> Iterator[Stage]:
    """A stage with a workflow that pays in a transaction: `cut` says what becomes of the COMMIT."""
    kind = request.param
    stage = Stage(f"sqlite:{folder / 'runs.db'}", "def" if kind == "def" else "async", shop.schema)

    def begin(cut: str) -> None:
        stage.calls.append("called")
        if cut == "swallow":
            shop.proxy.swallow(b"COMMIT")
        elif cut == "block":
            shop.proxy.block(b"COMMIT")

    def pay(connection: psycopg.Connection[Any], cut: str) -> str:
        connection.execute("INSERT INTO payments VALUES ('ana')")
        begin(cut)
        return "receipt"

    async def pay_async(connection: psycopg.AsyncConnection[Any], cut: str) -> str:
        await connection.execute("INSERT INTO payments VALUES ('ana')")
        begin(cut)
        return "receipt"

    @stage.flow
    async def order(run: AsyncRun, cut: str, refusals: int = 0) -> Any:
        if kind == "awaited connection":
            connection: Any = await shop.connect_async()
        else:
            connection = shop.connect()
        shop.proxy.refuse(refusals)
        try:
            return await run.transaction(connection, pay_async if kind == "awaited connection" else pay, cut)
        except EffectInDoubt as error:
            return f"in doubt: {error.error_message}"
        finally:
            closed = connection.close()
            if closed is not None:
                await closed

    yield stage
    stage.close()


def the_ledger(stage: Stage) -> list[str]:
    return [line.state for line in stage.onlooker.effects(stage.run_id)]


def test_a_commit_whose_answer_was_lost_is_found_to_have_happened(payer: Stage, shop: Shop) -> None:
    assert payer.start("order", "swallow").result(240) == "receipt"
    assert (shop.count(), shop.count("holdfast_outcomes")) == (1, 1)
    assert payer.calls == ["called"]
    assert the_ledger(payer) == ["done"]
    assert shop.proxy.cuts == 1


def test_a_commit_that_never_arrived_is_found_not_to_have_happened(payer: Stage, shop: Shop) -> None:
    with pytest.raises(RunFailed, match="EffectFailed"):
        payer.start("order", "block").result(240)
    assert shop.count() == 0
    assert the_ledger(payer) == ["failed"]


def test_while_the_outcome_cannot_be_read_it_is_in_doubt_and_looked_for_again(payer: Stage, shop: Shop) -> None:
    assert payer.start("order", "swallow", refusals=1).result(240) == "receipt"
    assert shop.count() == 1
    assert payer.calls == ["called"]
    (attempt,) = payer.journal("attempt")
    assert attempt["error"]["type"] == "InDoubt"
    assert the_ledger(payer) == ["done"]


def test_an_outcome_that_cannot_be_read_at_all_is_never_called_failed(payer: Stage, shop: Shop) -> None:
    payer.start("order", "swallow", refusals=1000)
    assert shop.count() == 1
    shop.proxy.refuse(0)
    if payer.status() == "waiting":  # given back between two tries: the next one has a connection that works
        payer.clock.advance(60)
        assert payer.app.resume(payer.run_id).result(240) == "receipt"
    else:
        assert (
            payer.app.handle(payer.run_id).result(240).startswith("in doubt: it raised InDoubt: the connection broke")
        )
        assert the_ledger(payer) == ["in_doubt"]
    assert shop.count() == 1


def test_the_fresh_connection_is_made_like_the_old_one(
    payer: Stage, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[dict[str, Any]] = []
    for kind in (psycopg.Connection, psycopg.AsyncConnection):
        connect = kind.connect

        def recorded(*args: Any, connect: Any = connect, **kwargs: Any) -> Any:
            seen.append(kwargs)
            return connect(*args, **kwargs)

        monkeypatch.setattr(kind, "connect", recorded)
    payer.start("order", "swallow").result(240)
    fresh = seen[-1]
    assert (fresh["password"], fresh["port"]) == ("secret", str(shop.proxy.port))


def test_a_commit_that_the_server_refuses_fails_the_transaction(local: Stage, shop: Shop) -> None:
    def pay(connection: psycopg.Connection[Any]) -> None:
        connection.execute("CREATE TABLE once (who TEXT UNIQUE DEFERRABLE INITIALLY DEFERRED)")
        connection.execute("INSERT INTO once VALUES ('ana'), ('ana')")

    @local.flow
    async def flow(run: AsyncRun) -> str:
        with shop.connect() as connection:
            try:
                await run.transaction(connection, pay)
            except StepFailed as error:
                return f"{type(error).__name__} {error.error_type} {connection.closed}"
        return ""

    assert local.start(flow).result(240) == "EffectFailed UniqueViolation False"
    assert the_ledger(local) == ["failed"]
    assert shop.proxy.count == 1


@pytest.mark.parametrize("driver", ["sqlite3", "psycopg"])
def test_a_try_that_held_the_key_says_that_an_earlier_one_did_not_commit(
    local: Stage, shop: Shop, tmp_path: Path, driver: str
) -> None:
    path = a_database(tmp_path)

    def pay(connection: Any) -> None:
        local.calls.append("called")
        insert(connection, "ana")
        if len(local.calls) == 1:
            raise KeyboardInterrupt  # the process ends inside the transaction
        raise TimeoutError("inside, where it does not matter")

    @local.flow
    async def flow(run: AsyncRun) -> str:
        connection: Any = shop.connect() if driver == "psycopg" else sqlite3.connect(path, check_same_thread=False)
        try:
            await run.transaction(connection, pay)
        except StepFailed as error:
            return f"{type(error).__name__} {error.error_type}"
        finally:
            connection.close()
        return ""

    with pytest.raises(KeyboardInterrupt):
        local.start(flow)
    assert local.resume().result(240) == "EffectFailed TimeoutError"
    assert local.calls == ["called", "called"]
    assert the_ledger(local) == ["failed"]
    assert rows(path) == 0
    assert shop.count() == 0


@pytest.mark.parametrize("driver", ["sqlite3", "psycopg", "psycopg, awaited where that is possible"])
def test_transactions_of_branches_on_one_connection_wait_for_one_another(
    local: Stage, shop: Shop, tmp_path: Path, driver: str
) -> None:
    path, inside = a_database(tmp_path), [0]
    awaited = "awaited" in driver and local.is_async

    def pay(connection: Any, who: str) -> str:
        inside[0] += 1
        assert inside[0] == 1, "two transactions at once"
        time.sleep(0.02)
        insert(connection, who)
        inside[0] -= 1
        return who

    async def pay_async(connection: Any, who: str) -> str:
        inside[0] += 1
        assert inside[0] == 1, "two transactions at once"
        await asyncio.sleep(0.02)
        await connection.execute("INSERT INTO payments VALUES (%s)", (who,))
        inside[0] -= 1
        return who

    @local.flow
    async def flow(run: AsyncRun) -> Any:
        connection: Any
        if awaited:
            connection = await shop.connect_async()
        else:
            connection = sqlite3.connect(path, check_same_thread=False) if driver == "sqlite3" else shop.connect()

        def branch(who: str) -> Any:
            async def pays(inner: AsyncRun) -> Any:
                return await inner.transaction(connection, pay_async if awaited else pay, who)

            return pays

        try:
            return await run.gather(*[branch(who) for who in ("ana", "ben", "eve", "joe")])
        finally:
            closed = connection.close()
            if closed is not None:
                await closed

    assert local.start(flow).result(240) == ["ana", "ben", "eve", "joe"]
    assert (rows(path) if driver == "sqlite3" else shop.count()) == 4


def test_a_transaction_of_sqlite_that_raises_after_its_commit_has_happened(local: Stage, tmp_path: Path) -> None:
    path = a_database(tmp_path)

    class Interrupted(sqlite3.Connection):
        """Raises when COMMIT is over."""

        def execute(self, sql: str, *args: Any) -> Any:
            found = super().execute(sql, *args)
            if sql == "COMMIT":
                raise sqlite3.OperationalError("disk I/O error")
            return found

    @local.flow
    async def flow(run: AsyncRun) -> Any:
        connection = sqlite3.connect(path, check_same_thread=False, factory=Interrupted)
        try:
            return await run.transaction(connection, insert, "ana")
        finally:
            connection.close()

    assert local.start(flow).result(240) == 1
    assert rows(path) == 1
    assert the_ledger(local) == ["done"]
