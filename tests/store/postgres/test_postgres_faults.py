"""The PostgreSQL store in trouble: connections that are cut or hang, answers that never come, servers that restart."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

import holdfast
from holdfast import StorageError
from holdfast.errors import StorageBusy, StorageFailed
from holdfast.model.commit import Commit, Committed, NewEffect, NewEntry, NewRun
from holdfast.model.rows import EffectRow, EntryRow
from holdfast.store.postgres.postgres_store import PostgresStore
from holdfast.testing import ManualClock
from tests.store.postgres.changes import CHANGES
from tests.store.postgres.proxy import Proxy
from tests.store.postgres.server import Server, newest, running
from tests.store.postgres.shared_servers import new_schema, shared

HANGS_S = 30.0
"""Longer than any call may take, on any machine."""


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    found = Proxy(shared(newest()).port)
    yield found
    found.close()


@pytest.fixture
def store(proxy: Proxy) -> Iterator[holdfast.Store]:
    url = shared(newest()).url(port=proxy.port, schema=new_schema(), durability="relaxed")
    with holdfast.open(url, timeout_s=3) as opened:
        yield opened


def port_of(store: holdfast.Store) -> PostgresStore:
    assert isinstance(store.port, PostgresStore)
    return store.port


def execution_of(*parts: str) -> bytes:
    """What a message has that executes this prepared statement, and the one that prepares it has not."""
    return b"\x00" + "+".join(parts).encode() + b"\x00"


# --- answers that never come -----------------------------------------------------------------------------------------


def test_a_save_whose_answer_was_lost_is_there_once_and_is_reported_as_saved(
    store: holdfast.Store, proxy: Proxy
) -> None:
    store.save("run", {"n": 0})
    for n in range(1, 4):
        proxy.swallow(execution_of("save_one"))
        saved = store.save("run", {"n": n})
        assert saved.number == n + 1
        store.append("run", [{"kind": "n"}])  # reads the row again, so that the next save is one statement
    assert proxy.cuts == 3
    assert [info.number for info in store.history("run")] == [1, 2, 3, 4]
    assert store.load("run").state == {"n": 3}  # type: ignore[union-attr]


def test_a_save_that_never_reached_the_server_is_sent_again(store: holdfast.Store, proxy: Proxy) -> None:
    store.save("run", {"n": 0})
    for n in range(1, 4):
        proxy.block(execution_of("save_one"))
        assert store.save("run", {"n": n}).number == n + 1
        store.append("run", [{"kind": "n"}])
    assert proxy.cuts == 3
    assert len(list(store.history("run"))) == 4


def test_a_large_save_whose_answer_was_lost_is_there_once(store: holdfast.Store, proxy: Proxy) -> None:
    state = {"messages": [f"message {i} " * 100 for i in range(50)]}
    store.save("run", state)
    proxy.swallow(execution_of("save_one_with_chunks"))
    store.save("run", {**state, "more": "x" * 5000})
    store.append("run", [{"kind": "a"}])
    proxy.swallow(execution_of("move_progress", "add_entries", "moved_or_nothing"))
    assert store.append("run", [{"kind": "b"}, {"kind": "c"}]) == 3
    assert proxy.cuts == 2
    assert len(list(store.history("run"))) == 2
    assert [entry.kind for entry in store.journal("run")] == ["a", "b", "c"]
    assert store.verify().problems == []


@pytest.mark.parametrize("what", CHANGES)
@pytest.mark.parametrize("lost", ["answer", "request"])
def test_every_change_whose_commit_was_cut_happens_exactly_once(
    store: holdfast.Store, proxy: Proxy, what: str, lost: str
) -> None:
    for n in range(3):
        store.append("run", [{"kind": "n"}])
        store.save("run", {"n": n})
    single = {  # one statement, which commits by itself
        "attach": ("attach_new",),
        "named": ("save_one",),
        "complete": ("move_runs", "moved_or_nothing"),
    }
    (proxy.swallow if lost == "answer" else proxy.block)(execution_of(*single[what]) if what in single else b"COMMIT")
    change, is_there = CHANGES[what]
    assert change(store)
    assert proxy.cuts == 1
    assert is_there(store)
    assert store.verify().problems == []


@pytest.mark.parametrize("run_id", ["run", "new"])
@pytest.mark.parametrize("lost", ["answer", "request"])
def test_commits_of_one_run_that_went_together_all_happen_exactly_once(proxy: Proxy, run_id: str, lost: str) -> None:
    url = shared(newest()).url(port=proxy.port, schema=new_schema(), durability="relaxed")
    port = PostgresStore(url, ManualClock(), timeout_s=5)
    port.commit([Commit("run", b"commit00", create=NewRun())])
    commits = [
        Commit(run_id, b"commit1%d" % n, create=NewRun(), effects=(NewEffect(f"key {n}", "done"),),
               entries=(NewEntry("k", b"\x00\xc0"),))
        for n in range(4)
    ]  # fmt: skip
    (proxy.swallow if lost == "answer" else proxy.block)(b"COMMIT")
    outcomes = port.commit(commits)
    assert proxy.cuts == 1
    assert [type(outcome) for outcome in outcomes] == [Committed] * 4
    row = port.run(run_id)
    assert row is not None
    assert [entry.commit_id for entry in port.rows(EntryRow, row.run)] == [commit.commit_id for commit in commits]
    assert [effect.key for effect in port.rows(EffectRow, row.run)] == [f"key {n}" for n in range(4)]
    port.close()


def test_a_commit_is_recognised_though_others_have_gone_on_meanwhile(store: holdfast.Store, proxy: Proxy) -> None:
    """Between the lost answer and the look, somebody else saves: the row has another commit's id, but remembers."""
    store.save("run", {"n": 0})
    port = port_of(store)
    other = holdfast.open(shared(newest()).url(schema=port._schema, durability="relaxed"))
    opener_open = port._opener.open

    def late(until: float = 0.0) -> Any:
        other.save("run", "other")
        other.append("run", [{"kind": "other"}])
        return opener_open(until)

    port._opener.open = late  # type: ignore[method-assign]
    proxy.swallow(execution_of("save_one"))
    saved = store.save("run", {"n": 1})
    proxy.swallow(b"COMMIT")
    store.append("run", [{"kind": "mine"}])
    port._opener.open = opener_open  # type: ignore[method-assign]
    assert saved.number == 2
    states = [store.load("run", checkpoint_id=info.checkpoint_id).state for info in store.history("run")]  # type: ignore[union-attr]
    assert states == [{"n": 0}, {"n": 1}, "other", "other"]
    assert [entry.kind for entry in store.journal("run")].count("mine") == 1
    other.close()


@pytest.mark.parametrize("meanwhile", ["prune", "delete", "much"])
def test_if_a_commit_cannot_be_told_any_more_it_is_neither_repeated_nor_called_saved(
    store: holdfast.Store, proxy: Proxy, meanwhile: str
) -> None:
    store.save("run", {"n": 0})
    port = port_of(store)
    other = holdfast.open(shared(newest()).url(schema=port._schema, durability="relaxed"))
    opener_open = port._opener.open

    def late(until: float = 0.0) -> Any:
        other.save("run", "other")
        if meanwhile == "delete":
            other.delete("run")
        for n in range(20 if meanwhile == "much" else 1):
            other.save("run", n)
        other.prune("run", holdfast.Keep(last=1))
        return opener_open(until)

    port._opener.open = late  # type: ignore[method-assign]
    proxy.swallow(execution_of("save_one"))
    if meanwhile == "prune":
        assert store.save("run", {"n": 1}).number == 2
    else:
        with pytest.raises(StorageFailed, match="is unknown"):
            store.save("run", {"n": 1})
    port._opener.open = opener_open  # type: ignore[method-assign]
    assert len(list(other.history("run"))) == 1
    store.save("run", {"n": 2})
    other.close()


def test_what_cannot_be_found_out_is_said(store: holdfast.Store, proxy: Proxy) -> None:
    store.save("run", {"n": 0})
    proxy.swallow(execution_of("save_one"))
    proxy_target, proxy._target = proxy._target, 1
    with pytest.raises(StorageFailed, match="is unknown"):
        store.save("run", {"n": 1})
    proxy.swallow(b"")
    with pytest.raises(StorageFailed, match="reached"):
        store.save("run", {"n": 2})
    proxy._target = proxy_target
    store.save("run", {"n": 3})
    assert store.load("run").state == {"n": 3}  # type: ignore[union-attr]


# --- connections that hang or are cut --------------------------------------------------------------------------------


def test_a_half_open_connection_is_an_error_in_time(store: holdfast.Store, proxy: Proxy) -> None:
    store.save("run", 1)
    store.load("run")
    proxy.freeze()
    for call in (lambda: store.save("run", 2), lambda: store.load("run")):
        with pytest.raises(StorageError):
            call()
    proxy.thaw()
    proxy.cut()
    store.save("run", 3)
    assert store.load("run").state == 3  # type: ignore[union-attr]


def test_readers_and_writers_go_on_after_their_connections_were_cut(store: holdfast.Store, proxy: Proxy) -> None:
    for n in range(3):
        store.save("run", n)
        assert store.load("run").state == n  # type: ignore[union-attr]
        proxy.cut()
    assert store.load("run").state == 2  # type: ignore[union-attr]
    assert proxy.count >= 5


def test_a_row_that_somebody_else_holds_locked_is_busy_and_nothing_comes_later(store: holdfast.Store) -> None:
    store.save("run", 1)
    port = port_of(store)
    with shared(newest()).connect() as other, other.transaction():
        other.execute(f"SELECT 1 FROM {port._schema}.runs FOR UPDATE")
        with pytest.raises(StorageBusy, match="try again"):
            store.save("run", 2)
        with pytest.raises(StorageBusy, match="try again"):
            store.claim("run", "w")
    assert store.load("run").state == 1  # type: ignore[union-attr]
    assert store.port.run("run").fence == 0  # type: ignore[union-attr]
    store.save("run", 3)
    assert [info.number for info in store.history("run")] == [1, 2]


# --- restarts --------------------------------------------------------------------------------------------------------


def test_calls_wait_for_a_server_that_restarts() -> None:
    with running() as server, holdfast.open(server.url()) as store:
        store.save("run", {"n": 0})
        store.load("run")
        done: list[int] = []

        def work() -> None:
            for n in range(1, 2000):
                store.save("run", {"n": n})
                done.append(n)
                if len(done) > 40 and restarted.is_set():
                    return

        restarted = threading.Event()
        worker = threading.Thread(target=work)
        worker.start()
        for _ in range(2):
            time.sleep(0.2)
            server.crash()
            server.start()
        restarted.set()
        worker.join(HANGS_S * 2)
        assert not worker.is_alive()
        assert done == list(range(1, len(done) + 1))
        assert [info.number for info in store.history("run")] == list(range(1, len(done) + 2))
        assert store.load("run").state == {"n": done[-1]}  # type: ignore[union-attr]


def test_a_commit_that_died_with_the_server_is_not_taken_for_one_that_came_after() -> None:
    """After a crash the server gives out numbers of transactions again that it had given to unfinished ones."""
    with running() as server:
        proxy = Proxy(server.port)
        with holdfast.open(server.url(port=proxy.port)) as store, holdfast.open(server.url()) as other:
            store.save("run", 1)
            other.save("other", 1)
            port = port_of(store)
            opener_open = port._opener.open

            def late(until: float = 0.0) -> Any:
                server.crash()
                server.start()
                for n in range(30):
                    other.mark_done("other", f"key {n}")
                port._opener.open = opener_open  # type: ignore[method-assign]
                return opener_open(until + HANGS_S)

            port._opener.open = late  # type: ignore[method-assign]
            port._opener.timeout_s = HANGS_S
            proxy.block(b"COMMIT")
            assert store.mark_done("run", "key")
            assert proxy.cuts == 1
            assert [effect.key for effect in other.effects("run")] == ["key"]
        proxy.close()


def test_a_server_that_stays_away_is_an_error_and_its_return_is_noticed() -> None:
    with running() as server, holdfast.open(server.url()) as store:
        store.save("run", 1)
        server.crash()
        port_of(store)._opener.timeout_s = 0.5
        for call in (lambda: store.save("run", 2), lambda: store.load("run"), store.runs):
            with pytest.raises(StorageFailed, match="reached"):
                call()
        server.start()
        port_of(store)._opener.timeout_s = 10
        assert store.load("run").state == 1  # type: ignore[union-attr]
        store.save("run", 3)


# --- a replica -------------------------------------------------------------------------------------------------------


def test_a_synchronous_replica_that_takes_over_has_everything_that_was_acknowledged() -> None:
    with running(settings={"wal_level": "replica"}) as primary:
        replica = Server()
        try:
            replica.copy_of(primary)
            with primary.connect() as connection:
                connection.execute("ALTER SYSTEM SET synchronous_standby_names = 'replica'")
                connection.execute("SELECT pg_reload_conf()")
            _wait_for_replica(primary)
            with pytest.raises(StorageFailed, match="replica"):
                holdfast.open(replica.url())
            told = _acknowledged_until_killed(primary)
            replica.promote()
            with holdfast.open(replica.url(durability="relaxed")) as store:
                _check_told(store, told)
        finally:
            replica.remove()


def _wait_for_replica(primary: Server) -> None:
    with primary.connect() as connection:
        for _ in range(200):
            if connection.execute("SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'").fetchone():
                return
            time.sleep(0.05)
    raise AssertionError("the replica does not follow")


def _acknowledged_until_killed(primary: Server) -> dict[str, list[str]]:
    """Save and claim from several threads until the primary is killed; what was acknowledged."""
    told: dict[str, list[str]] = {f"run {i}": [] for i in range(4)}
    store = holdfast.open(primary.url(), timeout_s=1.5)

    def work(run_id: str) -> None:
        try:
            for n in range(100_000):
                told[run_id].append(store.save(run_id, {"n": n}).checkpoint_id)
        except StorageError:
            return

    threads = [threading.Thread(target=work, args=(run_id,)) for run_id in told]
    for thread in threads:
        thread.start()
    time.sleep(0.7)
    primary.kill()
    for thread in threads:
        thread.join(HANGS_S)
        assert not thread.is_alive()
    store.close()
    assert all(told.values())
    return told


def _check_told(store: holdfast.Store, told: dict[str, list[str]]) -> None:
    for run_id, saved in told.items():
        there = [info.checkpoint_id for info in store.history(run_id)]
        assert there[: len(saved)] == saved
        assert len(there) <= len(saved) + 1
    assert store.verify().problems == []
    claim = store.claim("run 0", "w")
    assert claim is not None
    claim.save("after")
