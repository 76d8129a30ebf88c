"""Random sequences of verbs against a plain model, on the directory store."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, settings

from holdfast.store.directory.directory_store import DirectoryStore
from holdfast.store.port import StorePort
from holdfast.testing import ManualClock
from holdfast.testing.stateful import StoreMachine

EXAMPLES = int(os.environ.get("HOLDFAST_MACHINE_EXAMPLES", "40"))


class DirectoryMachine(StoreMachine):
    def open_port(self, clock: ManualClock) -> StorePort:
        base = "/dev/shm" if os.path.isdir("/dev/shm") else None
        self.directory = tempfile.TemporaryDirectory(dir=base)
        self.path = str(Path(self.directory.name) / "runs")
        return DirectoryStore(self.path, clock, reserve_bytes=0)

    def reopened(self) -> StorePort | None:
        return DirectoryStore(self.path, self.clock, reserve_bytes=0)

    def teardown(self) -> None:
        super().teardown()
        self.directory.cleanup()


TestDirectoryMachine = DirectoryMachine.TestCase
TestDirectoryMachine.settings = settings(
    max_examples=EXAMPLES, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)  # fmt: skip
