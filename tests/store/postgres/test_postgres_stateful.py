"""Random sequences of verbs against a plain model, on PostgreSQL: the oldest version there is, and the newest."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

from holdfast.store.port import StorePort
from holdfast.store.postgres.postgres_store import PostgresStore
from holdfast.testing import ManualClock
from holdfast.testing.stateful import StoreMachine
from tests.store.postgres.server import newest, oldest
from tests.store.postgres.shared_servers import new_url

EXAMPLES = int(os.environ.get("HOLDFAST_MACHINE_EXAMPLES", "8"))
SETTINGS = settings(
    max_examples=EXAMPLES, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)  # fmt: skip


class PostgresMachine(StoreMachine):
    major: int

    def open_port(self, clock: ManualClock) -> StorePort:
        self.url = new_url(self.major)
        return PostgresStore(self.url, clock)

    def reopened(self) -> StorePort | None:
        return PostgresStore(self.url, self.clock)


class NewestMachine(PostgresMachine):
    major = newest()


class OldestMachine(PostgresMachine):
    major = oldest()


TestNewestMachine = NewestMachine.TestCase
TestNewestMachine.settings = SETTINGS
TestOldestMachine = OldestMachine.TestCase
TestOldestMachine.settings = SETTINGS
