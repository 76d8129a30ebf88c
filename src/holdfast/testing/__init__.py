"""Test support for applications, and the contract that every store must pass.

`StoreContract` defines what a store is. Run it on yours:

    from holdfast.testing import StoreContract

    class TestMyStore(StoreContract):
        def open_port(self, clock):
            return MyStore(clock)

Each subject of the contract can be run alone, for example `holdfast.testing.contract.ClaimContract`.

`replay(app, run_id)` replays a stored run against the code of today, without doing or writing anything.

`ManualClock` and `CountedIds` take time and chance out of tests: `holdfast.open("memory:", clock=ManualClock())`.
"""

from __future__ import annotations

from holdfast.runtime.replay import Replayed, replay
from holdfast.testing.contract import StoreContract
from holdfast.testing.fakes import CountedIds, ManualClock

__all__ = ["CountedIds", "ManualClock", "Replayed", "StoreContract", "replay"]
