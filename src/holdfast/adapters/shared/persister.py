"""The state of a framework's instances as checkpoints: one run per instance, saved through the caller's claim."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable
from typing import Any, Final, TypeVar, Unpack

from holdfast.adapters.shared.run_claim import RunClaim, Status, access_for
from holdfast.drivers import Plan
from holdfast.errors import InvalidInput
from holdfast.model.views import Checkpoint
from holdfast.open_store import open as open_store
from holdfast.operations import read, write
from holdfast.operations.store import Store
from holdfast.runtime.app_core import Owner

R = TypeVar("R")
LEASE_S: Final = 30.0


class Persister:
    """A store, or its URL, as the place where a framework keeps states. Blocking and async calls are both native."""

    def __init__(self, store: Store | str, workflow: str) -> None:
        if not isinstance(store, (Store, str)):
            raise InvalidInput(f"a store or its URL is needed, not {type(store).__name__}")
        self.store = open_store(store) if isinstance(store, str) else store
        self.workflow = workflow
        self._owned = isinstance(store, str)
        self._core = self.store.access.core
        self._owner = Owner(self._core)

    def save(self, run_id: str, state: object, **options: Any) -> Plan[Any]:
        """The plan of a save; options as `store.save`. Execute it with `run` or `run_async`."""
        return write.save(access_for(self._core, run_id), run_id, state, workflow=self.workflow, **options)

    def load(self, run_id: str, **choice: Unpack[read.CheckpointChoice]) -> Plan[Checkpoint[Any] | None]:
        """The plan of a load; None if there is no such run or checkpoint."""
        return read.load(access_for(self._core, run_id), run_id, **choice)

    def run(self, plan: Plan[R]) -> R:
        """Execute a plan for a blocking caller. Inside a running event loop it is executed on another thread."""
        return call_blocking(lambda: self._core.blocking.run(plan))

    async def run_async(self, plan: Plan[R]) -> R:
        """Execute a plan for an async caller."""
        return await self._core.awaiting.run(plan)

    def claim(self, run_id: str, *, lease: float = LEASE_S, status: Status | None = None) -> RunClaim:
        """The exclusive right to write to a run, for `with` or `async with`; `status` as for `RunClaim`."""
        return RunClaim(self._core, self._owner, run_id, lease, self.workflow, status)

    def close(self) -> None:
        """Close the store if this object has opened it."""
        if self._owned:
            self.store.close()


def call_blocking(fn: Callable[[], R]) -> R:
    """Call a function that may not be called inside a running event loop; there, on a thread that this one waits for.

    Frameworks call blocking ports from their event loop. It stands still meanwhile, as with every blocking port.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return fn()
    with concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="holdfast-hop") as pool:
        return pool.submit(fn).result()
