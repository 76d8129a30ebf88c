"""The contract, on the directory store."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from holdfast.state.json_preview import Readable
from holdfast.store.directory.directory_store import DirectoryStore
from holdfast.store.port import StorePort
from holdfast.testing import ManualClock, StoreContract


class TestDirectoryStore(StoreContract):
    def open_port(self, clock: ManualClock) -> StorePort:
        base = "/dev/shm" if os.path.isdir("/dev/shm") else None
        self.directory = tempfile.TemporaryDirectory(dir=base)
        path = str(Path(self.directory.name) / "runs")
        return DirectoryStore(path, clock, reserve_bytes=0, renderer=Readable())

    def teardown_method(self) -> None:
        super().teardown_method()
        self.directory.cleanup()
