"""The contract, on every store there is."""

from __future__ import annotations

import tempfile
from pathlib import Path

from holdfast.store.memory import MemoryStore
from holdfast.store.port import StorePort
from holdfast.store.sqlite.sqlite_store import SqliteStore
from holdfast.testing import ManualClock, StoreContract


class TestMemoryStore(StoreContract):
    def open_port(self, clock: ManualClock) -> StorePort:
        return MemoryStore(clock)


class TestSqliteStore(StoreContract):
    def open_port(self, clock: ManualClock) -> StorePort:
        self.directory = tempfile.TemporaryDirectory()
        return SqliteStore(str(Path(self.directory.name) / "runs.db"), clock, reserve_bytes=0)

    def teardown_method(self) -> None:
        super().teardown_method()
        self.directory.cleanup()
