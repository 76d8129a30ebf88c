"""What only the PostgreSQL store has: connections, a clock of its own, listeners, and many processes at once."""

from __future__ import annotations

import os
import threading
import time
from typing import Any

import psycopg
import pytest
from psycopg import errors as pg

import holdfast
from holdfast import DamagedData, InvalidInput, RunClaimed
from holdfast.errors import StorageBusy, StorageFailed, StorageFull, StoreClosed
from holdfast.model.commit import OUTSIDER, Commit, Committed, Guard, NewEntry, NewItem, NewRun
from holdfast.store.group_commit import Committer
from holdfast.store.postgres.errors import translated
from holdfast.store.postgres.postgres_store import DatabaseClock, PostgresStore
from holdfast.store.postgres.postgres_writer import Writer
from tests.interrupted import interrupted
from tests.store.postgres.proxy import Proxy
from tests.store.postgres.server import newest
from tests.store.postgres.shared_servers import new_schema, new_url, shared


def port_of(store: holdfast.Store) -> PostgresStore:
    assert isinstance(store.port, PostgresStore)
    return store.port


# --- time ------------------------------------------------------------------------------------------------------------


def test_leases_go_by_the_clock_of_the_database(monkeypatch: pytest.MonkeyPatch) -> None:
    with holdfast.open(new_url()) as store:
        store.save("run", 1)
        claim = store.claim("run", "w1", lease=0.5)
        assert claim is not None
        hours = 3600 * 1_000_000
        monkeypatch.setattr(DatabaseClock, "now_us", lambda clock: time.time_ns() // 1000 + 24 * hours)
        assert store.claim("run", "w2") is None
        assert store.recover_expired() == 0
        with pytest.raises(RunClaimed):
            store.save("run", 2)
        monkeypatch.setattr(DatabaseClock, "now_us", lambda clock: time.time_ns() // 1000 - 24 * hours)
        time.sleep(0.6)
        assert store.recover_expired() == 1
        assert store.claim("run", "w2") is not None
        row = store.port.run("run")
        assert row is not None
        assert row.boot == ""
        assert abs(row.lease_us - time.time_ns() // 1000) < hours


# --- listening -------------------------------------------------------------------------------------------------------


def test_whoever_listens_hears_of_ready_runs_and_new_items() -> None:
    url = new_url()
    with holdfast.open(url) as store, holdfast.open(url) as other, port_of(other).listen() as listener:
        assert listener.notified_runs(0) == []
        store.save("run", 1)
        assert listener.notified_runs(20) == ["run"]
        store.save("run", 2)
        store.append("run", [{"kind": "a"}])
        claim = store.claim("run", "w")
        assert claim is not None
        assert listener.notified_runs(0.2) == []
        deliver = (NewItem("event", "n", "key", "ana", b"\x00"),)
        store.port.commit([Commit("run", b"commit01", guard=Guard(OUTSIDER), deliver=deliver)])
        assert listener.notified_runs(20) == ["run"]
        claim.release()
        assert listener.notified_runs(20) == ["run"]
        store.save("elsewhere", 1, status="waiting")
        assert listener.notified_runs(0.2) == []


def test_other_schemas_are_not_heard_of_and_a_lost_connection_is_opened_anew() -> None:
    url = new_url()
    with holdfast.open(url) as store, holdfast.open(new_url()) as other, port_of(store).listen() as listener:
        other.save("other", 1)
        assert listener.notified_runs(0.2) == []
        with shared(newest()).connect() as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%' AND state = 'idle'"
            )
        assert listener.notified_runs(1) == []
        store.save("run", 1)
        assert listener.notified_runs(20) == ["run"]


# --- connections -----------------------------------------------------------------------------------------------------


def test_a_closed_store_says_so() -> None:
    store = holdfast.open(new_url())
    store.save("run", 1)
    store.close()
    store.close()
    for call in (lambda: store.save("run", 2), lambda: store.load("run"), port_of(store).listen):
        with pytest.raises(StoreClosed):
            call()


def test_nothing_is_held_between_calls() -> None:
    schema = new_schema()
    with holdfast.open(new_url(schema=schema)) as store:
        store.save("run", {"messages": ["x" * 3000] * 5})
        claim = store.claim("run", "w")
        assert claim is not None
        store.load("run")
        store.prune("run", holdfast.Keep(last=1))
        with pytest.raises(RunClaimed):
            store.save("run", 1)
        next(iter(store.history("run")))
        with shared(newest()).connect() as connection:
            open_ones = connection.execute(
                "SELECT query FROM pg_stat_activity WHERE application_name = 'holdfast' AND xact_start IS NOT NULL "
                "AND query LIKE %s",
                (f"%{schema}%",),
            )
            assert open_ones.fetchall() == []


def test_more_readers_than_connections_take_turns_or_are_told() -> None:
    with holdfast.open(new_url(pool_size=2), timeout_s=2) as store:
        store.save("run", 1)
        threads = [threading.Thread(target=lambda: [store.load("run") for _ in range(20)]) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        pool = port_of(store)._pool
        assert len(pool.links()) <= 2
        pool._busy |= {"one", "two"}
        with pytest.raises(StorageBusy, match="pool_size"):
            store.load("run")
        pool._busy.clear()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_goes_on_with_connections_of_its_own() -> None:
    with holdfast.open(new_url()) as store:
        store.save("run", "parent")
        store.load("run")
        child = os.fork()
        if child == 0:
            try:
                for i in range(20):
                    store.save("child", i)
                assert store.load("run") is not None
                store.close()
                os._exit(0)
            except BaseException:
                os._exit(1)
        writer = port_of(store)._writer_of("run").writer
        for i in range(20):
            store.save("run", i)
            store.load("run")
        assert os.waitpid(child, 0)[1] == 0
        assert port_of(store)._writer_of("run").writer is writer
        assert len(list(store.history("child"))) == 20
        assert len(list(store.history("run"))) == 21
        assert store.verify().problems == []


def test_a_client_that_vanishes_in_a_transaction_does_not_keep_its_locks() -> None:
    proxy, schema = Proxy(shared(newest()).port), new_schema()
    url = shared(newest()).url(port=proxy.port, schema=schema, durability="relaxed")
    with holdfast.open(url, timeout_s=1) as vanishing, holdfast.open(new_url(schema=schema)) as store:
        store.save("run", 1)
        vanishing.save("other", 1)
        writer = port_of(vanishing)._writer_of("other").writer
        assert writer is not None
        transaction = writer.begin(["run"])
        assert "run" in transaction.rows
        proxy.freeze()
        assert store.claim("run", "w") is not None
        proxy.close()


# --- many at once ----------------------------------------------------------------------------------------------------


def test_batches_of_two_stores_over_the_same_runs_never_fail() -> None:
    url = new_url()
    with holdfast.open(url) as one, holdfast.open(url) as other:
        for i in range(12):
            one.save(f"run {i}", 0)
        errors: list[BaseException] = []

        def work(store: holdfast.Store, number: int) -> None:
            try:
                for n in range(12):
                    run_id = f"run {(n * 5 + number * 7) % 12}"
                    store.append(run_id, [{"kind": "a", "by": number, "n": n}])
                    store.mark_done(run_id, f"{number} {n}")
                    store.save(run_id, {"by": number, "messages": ["y" * 2500] * 2})
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=work, args=(one if i % 2 else other, i)) for i in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []
        entries = [entry.data for i in range(12) for entry in one.journal(f"run {i}")]
        assert len(entries) == len({(e["by"], e["n"]) for e in entries}) == 144
        assert one.verify().problems == []


def test_prune_and_fork_beside_writers_of_other_stores_take_nothing_a_checkpoint_needs() -> None:
    url = new_url()
    stores = [holdfast.open(url) for _ in range(3)]
    errors: list[BaseException] = []
    end = time.monotonic() + 3

    def state(n: int) -> Any:
        return {"messages": [f"message {i % (n % 7 + 3)} " * 100 for i in range(20 + n % 10)]}

    def repeat(work: Any) -> None:
        n = 0
        try:
            while time.monotonic() < end:
                work(n)
                n += 1
        except BaseException as error:
            errors.append(error)

    def fork(n: int) -> None:
        stores[2].fork("run", f"fork {n}")
        stores[0].save(f"fork {n}", state(n + 3))
        if n % 3 == 0:
            stores[1].delete(f"fork {n}")

    stores[0].save("run", state(0))
    jobs = [
        lambda n: stores[0].save("run", state(n)),
        lambda n: stores[1].save("run", state(n + 5)),
        lambda n: stores[2].prune("run", holdfast.Keep(last=2)),
        lambda n: stores[1].prune("run", holdfast.Keep(last=1)),
        fork,
    ]
    threads = [threading.Thread(target=repeat, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert stores[0].verify().problems == []
    stores[0].prune("run", holdfast.Keep(last=1))
    assert stores[0].verify().unused_chunks == 0
    for run in stores[0].runs(limit=1000):
        stores[0].delete(run.run_id)
    assert stores[0].stats().chunks == 0
    for store in stores:
        store.close()


def test_claims_in_batches_by_several_stores_never_meet() -> None:
    url = new_url()
    stores = [holdfast.open(url) for _ in range(4)]
    for i in range(60):
        stores[0].append(f"run {i}", [{"kind": "a"}])
    taken: list[str] = []

    def work(store: holdfast.Store) -> None:
        while claims := store.claim_ready("w", limit=5):
            taken.extend(claim.run_id for claim in claims)

    threads = [threading.Thread(target=work, args=(store,)) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(taken) == len(set(taken)) == 60
    for store in stores:
        store.close()


# --- errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (pg.DiskFull("x"), StorageFull),
        (pg.DataCorrupted("x"), DamagedData),
        (pg.IndexCorrupted("x"), DamagedData),
        (pg.DeadlockDetected("x"), StorageBusy),
        (pg.TooManyConnections("x"), StorageBusy),
        (pg.ReadOnlySqlTransaction("x"), StorageFailed),
        (pg.InternalError_("x"), StorageFailed),
        (psycopg.OperationalError("server closed the connection"), StorageFailed),
        (pg.NumericValueOutOfRange("x"), InvalidInput),
        (pg.CheckViolation("x"), holdfast.Conflict),
    ],
)
def test_what_an_error_of_the_driver_means(error: psycopg.Error, kind: type[holdfast.HoldfastError]) -> None:
    found = translated(error, "postgresql://ana@db/runs", 10)
    assert type(found) is kind
    assert "postgresql://ana@db/runs" in str(found)


def test_what_is_wrong_with_one_commit_leaves_nothing_and_is_not_blamed_on_the_storage() -> None:
    with holdfast.open(new_url()) as store:
        good = Commit("good", b"commit01", create=NewRun(), entries=(NewEntry("a", b"\x00\xc0"),))
        bad = Commit("bad", b"commit02", create=NewRun(), entries=(NewEntry("nul\x00", b"\x00\xc0"),))
        with pytest.raises(InvalidInput):
            store.port.commit([good, bad])
        assert store.runs() == []
        results = Committer(store.port.commit)._results([good, bad])
        assert isinstance(results[0], Committed)
        assert isinstance(results[1], InvalidInput)
        assert [run.run_id for run in store.runs()] == ["good"]


def test_a_transaction_that_met_another_is_done_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with holdfast.open(new_url()) as store:
        store.save("run", 1)
        commit, met = Writer.commit, list[int]()

        def unlucky(writer: Writer, *arguments: Any) -> Any:
            if len(met) < 3:
                met.append(1)
                raise pg.DeadlockDetected("x")
            return commit(writer, *arguments)

        monkeypatch.setattr(Writer, "commit", unlucky)
        assert store.save("run", 2).number == 2
        assert len(met) == 3


def test_the_driver_is_told_apart_from_the_store() -> None:
    with holdfast.open(new_url()) as store:
        store.save("run", 1)
        writer = port_of(store)._writer_of("run").writer
        assert writer is not None
        writer.link.execute(f"DROP TABLE {port_of(store)._schema}.checkpoints")
        with pytest.raises(StorageFailed, match="choose another") as caught:
            store.save("run", 2)
        assert isinstance(caught.value.__cause__, psycopg.Error)


# --- interrupts and settings -----------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of connections half made
def test_an_interrupt_at_any_moment_leaves_a_store_that_works() -> None:
    """An interrupted transaction must not swallow the saves that come after it."""
    url = new_url()
    with holdfast.open(url) as store, holdfast.open(url) as other:

        def work(number: int) -> None:
            if number % 2:
                store.mark_done("run", f"effect {number}")
            else:
                store.append("run", [{"kind": "n", "n": number}])
                assert other.journal("run")[-1].data["n"] == number

        interrupted(work, 200, 0.01)
        store.append("run", [{"kind": "n", "n": -1}])
        assert other.journal("run")[-1].data["n"] == -1
        assert store.verify().problems == []


def test_the_servers_default_isolation_does_not_matter() -> None:
    url = new_url() + "&options=-c%20default_transaction_isolation%3Dserializable"
    with holdfast.open(url) as store:
        store.save("run", 1)
        changes = port_of(store)._writer_of("run")
        transaction = changes._opened(time.monotonic() + 10).begin(["run"])
        with transaction.rolled_back_on_error():
            found = transaction._link.execute("SELECT current_setting('transaction_isolation')").fetchone()
            transaction.commit(list)
        assert found == ("read committed",)
