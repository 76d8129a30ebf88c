"""Random sequences of verbs against a plain model, on every store."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, settings

from holdfast.store.memory import MemoryStore
from holdfast.store.port import StorePort
from holdfast.store.sqlite.sqlite_store import SqliteStore
from holdfast.testing import ManualClock
from holdfast.testing.stateful import StoreMachine

EXAMPLES = int(os.environ.get("HOLDFAST_MACHINE_EXAMPLES", "40"))
SETTINGS = settings(
    max_examples=EXAMPLES, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)  # fmt: skip


class MemoryMachine(StoreMachine):
    def open_port(self, clock: ManualClock) -> StorePort:
        return MemoryStore(clock)


class SqliteMachine(StoreMachine):
    def open_port(self, clock: ManualClock) -> StorePort:
        base = "/dev/shm" if os.path.isdir("/dev/shm") else None
        self.directory = tempfile.TemporaryDirectory(dir=base)
        self.path = str(Path(self.directory.name) / "runs.db")
        return SqliteStore(self.path, clock, reserve_bytes=0)

    def reopened(self) -> StorePort | None:
        return SqliteStore(self.path, self.clock, reserve_bytes=0)

    def teardown(self) -> None:
        super().teardown()
        self.directory.cleanup()


TestMemoryMachine = MemoryMachine.TestCase
TestMemoryMachine.settings = SETTINGS
TestSqliteMachine = SqliteMachine.TestCase
TestSqliteMachine.settings = SETTINGS
