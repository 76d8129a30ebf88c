"""The contract, on PostgreSQL: the oldest version there is, and the newest."""

from __future__ import annotations

from holdfast.store.port import StorePort
from holdfast.store.postgres.store import PostgresStore
from holdfast.testing import ManualClock, StoreContract
from tests.postgres.places import new_url
from tests.postgres.server import newest, oldest


class TestNewest(StoreContract):
    def open_port(self, clock: ManualClock) -> StorePort:
        return PostgresStore(new_url(newest()), clock)


class TestOldest(StoreContract):
    def open_port(self, clock: ManualClock) -> StorePort:
        return PostgresStore(new_url(oldest()), clock)
