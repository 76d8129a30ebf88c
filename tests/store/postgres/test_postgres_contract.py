"""The contract, on PostgreSQL: the oldest version there is, and the newest."""

from __future__ import annotations

from holdfast.store.port import StorePort
from holdfast.store.postgres.postgres_store import PostgresStore
from holdfast.testing import ManualClock, StoreContract
from tests.store.postgres.server import newest, oldest
from tests.store.postgres.shared_servers import empty_url
from tests.today import every


class TestNewest(StoreContract):
    def open_port(self, clock: ManualClock) -> StorePort:
        return PostgresStore(empty_url(newest()), clock)


@every(2, turn=0)
class TestOldest(StoreContract):
    def open_port(self, clock: ManualClock) -> StorePort:
        return PostgresStore(empty_url(oldest()), clock)
