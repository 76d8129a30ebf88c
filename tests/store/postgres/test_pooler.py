"""Behind a pooler that gives every transaction another session: the whole contract, and nothing kept in a session.

With PgBouncer installed these tests use it. Without it the store is told that it is behind one, and what must be true
for it to work there is tested: no prepared statements, no settings, no locks and no listening outlive a transaction.
"""

from __future__ import annotations

import threading
from typing import Any

import pytest

import holdfast
from holdfast.errors import StorageFailed
from holdfast.store.port import StorePort
from holdfast.store.postgres import postgres_connection as connections
from holdfast.store.postgres.postgres_connection import Connection
from holdfast.store.postgres.postgres_store import PostgresStore
from holdfast.testing import ManualClock, StoreContract
from tests.store.postgres import pooler
from tests.store.postgres.server import newest
from tests.store.postgres.shared_servers import empty_url, new_schema, new_url, shared
from tests.today import every


def pooled_url(**options: object) -> str:
    if not pooler.is_installed():
        return new_url(**options)  # type: ignore[arg-type]
    more = {"schema": new_schema(), "durability": "relaxed", **options}
    return shared(newest()).url(port=pooler.pooler_port(), **more)  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def told_that_it_is_pooled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a pooler the first pid, which comes with the connection, is taken for another one."""
    if not pooler.is_installed():
        monkeypatch.setattr(connections, "_CHECK", connections._CHECK.replace("pg_backend_pid()", "-1"))


@every(2, turn=1)
class TestBehindAPooler(StoreContract):
    def open_port(self, clock: ManualClock) -> StorePort:
        return PostgresStore(pooled_url() if pooler.is_installed() else empty_url(), clock)


def links_of(store: holdfast.Store) -> list[Connection]:
    port = store.port
    assert isinstance(port, PostgresStore)
    return [*[each.writer.link for each in port._writers if each.writer is not None], *port._pool.links()]


def work_a_little(store: holdfast.Store) -> None:
    for n in range(8):
        store.save("run", {"n": n})
        store.append("run", [{"kind": "a"}])
        store.mark_done("run", f"key {n}")
        store.load("run")
        claim = store.claim("run", owner="w")
        assert claim is not None
        claim.save({"messages": ["x" * 3000] * n})
        claim.release()
    store.claim_ready("w")[0].release()
    store.prune("run", holdfast.Keep(last=2))


def test_a_pooler_is_noticed_and_nothing_is_prepared_or_listened_to() -> None:
    with holdfast.open(pooled_url()) as store:
        work_a_little(store)
        for link in links_of(store):
            assert link.pooled
            assert link.prepare_threshold is None
        assert isinstance(store.port, PostgresStore)
        with pytest.raises(StorageFailed, match="pooler"):
            store.port.listen()


def test_without_a_pooler_statements_are_prepared_and_nothing_else_is_kept_in_a_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.undo()
    with holdfast.open(new_url()) as store:
        work_a_little(store)
        for link in links_of(store):
            assert not link.pooled
            assert _kept(link) == []
        counts = [link.execute("SELECT count(*) FROM pg_prepared_statements").fetchone() for link in links_of(store)]
        assert set(counts) != {(0,)}


def _kept(link: Connection) -> list[Any]:
    """What the session holds: settings, listening, locks, temporary tables."""
    found = link.execute("SELECT name FROM pg_settings WHERE source = 'session'").fetchall()
    found += link.execute("SELECT pg_listening_channels()").fetchall()
    found += link.execute("SELECT mode FROM pg_locks WHERE pid = pg_backend_pid() AND locktype <> 'virtualxid'"
                          " AND relation::regclass::text NOT LIKE 'pg_%'").fetchall()  # fmt: skip
    found += link.execute("SELECT relname FROM pg_class WHERE relpersistence = 't'").fetchall()
    return found


def test_threads_share_a_few_sessions() -> None:
    url = pooled_url(pool_size=6)
    with holdfast.open(url) as one, holdfast.open(url) as other:
        errors: list[BaseException] = []

        def work(store: holdfast.Store, run_id: str) -> None:
            try:
                for n in range(15):
                    store.save(run_id, {"n": n})
                    assert store.load(run_id) is not None
            except BaseException as error:
                errors.append(error)

        stores = [(one if i % 2 else other, f"run {i % 5}") for i in range(10)]
        threads = [threading.Thread(target=work, args=arguments) for arguments in stores]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []
        assert [len(list(one.history(f"run {i}"))) for i in range(5)] == [30] * 5
        assert one.verify().problems == []
