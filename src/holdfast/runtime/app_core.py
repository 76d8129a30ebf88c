"""The shared state of an app: its store, registry, owner and drivers."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from typing import TYPE_CHECKING, Final

from holdfast import fork_safety
from holdfast.engine.execution import Execution
from holdfast.engine.failures import Classifier
from holdfast.errors import StorageError, StoreClosed
from holdfast.fork_safety import reset_after_fork
from holdfast.operations.context import Access, StoreContext
from holdfast.operations.store import Store
from holdfast.runtime.lease_renewal import LeaseRenewer
from holdfast.runtime.registry import Registry, Workflow
from holdfast.store.capabilities import Liveness, Presence
from holdfast.store.port import RunQuery

if TYPE_CHECKING:
    from holdfast.runtime.async_driver import AsyncAppDriver
    from holdfast.runtime.blocking_driver import BlockingAppDriver
    from holdfast.runtime.loop_thread import LoopThread

LEASE_S: Final = 15.0
_CLAIMS_MAX: Final = 1_000


class AppCore:
    """The shared state of an app. A forked process is another owner with its own threads."""

    def __init__(
        self, store: Store, *, lease_s: float, cleanup_s: float, branches: int, classify: Classifier | None = None
    ) -> None:
        self.store = store
        self.access: Access = store.access
        self.registry = Registry()
        self._owner = Owner(self.core)
        self.lease_s = lease_s
        self.cleanup_s = cleanup_s
        self.branches = branches
        self.classify = classify
        self.blocking: BlockingAppDriver
        self._awaiting: AsyncAppDriver | None = None
        self.is_closed = False
        self.after_fork()
        reset_after_fork(self)

    def after_fork(self) -> None:
        self._lock = threading.Lock()
        self.claiming = threading.RLock()
        """Held by workers from a claim until its execution begins, and to close: so no claim is left behind."""
        self._loop: LoopThread | None = None
        self.lease_renewer = LeaseRenewer(self.lease_s)
        self.executions: set[Execution] = set()
        """The executions in this process."""
        self.executes: dict[int, list[str]] = {}
        """The workflows that each worker of this app executes."""
        self.nonces: set[bytes] = set()
        """The nonces of the claims that this process holds or is about to take."""

    @property
    def core(self) -> StoreContext:
        return self.access.core

    @property
    def owner(self) -> str:
        """The name of this process in claims."""
        return self._owner.name

    @property
    def loop(self) -> LoopThread:
        """The event loop for `async def` workflows and steps of blocking callers, on its own thread."""
        if self._loop is None:
            # Ctrl-C while the main thread imports asyncio would leave it half imported.
            loading = threading.Thread(target=_load_loop_thread, name="holdfast-import", daemon=True)
            loading.start()
            loading.join()
            from holdfast.runtime.loop_thread import LoopThread  # loaded now

            with self._lock:
                if self.is_closed:
                    raise closed_error()
                self._loop = self._loop or LoopThread()
        return self._loop

    @property
    def awaiting(self) -> AsyncAppDriver:
        """The async driver."""
        if self._awaiting is None:
            with fork_safety.loading:
                from holdfast.runtime.async_driver import AsyncAppDriver  # loads asyncio

                self._awaiting = self._awaiting or AsyncAppDriver(self)
        return self._awaiting

    def close(self) -> None:
        """Stop the threads."""
        self.lease_renewer.close()
        with self.claiming, self._lock:  # no loop begins after this
            self.is_closed = True
        if self._loop is not None:
            self._loop.close(self.awaiting.interrupt_all)
        if self._awaiting is not None:
            self._awaiting.close()

    def token(self, size: int) -> bytes:
        return self.core.ids.token(size)

    def known(self, workflow: str) -> Workflow | None:
        """The workflow of that name, or None."""
        return self.registry.workflows.get(workflow)


def _load_loop_thread() -> None:
    with fork_safety.loading:
        import holdfast.runtime.loop_thread  # noqa: F401 - loads asyncio


def closed_error() -> StoreClosed:
    """The error of a call that a closed app cannot execute."""
    return StoreClosed("the app was closed; a run that has not ended continues in another App, with `resume`")


class Owner:
    """The name under which this process claims runs. The store reports to others whether the process is alive."""

    def __init__(self, core: StoreContext) -> None:
        self._core = core
        self.after_fork()
        reset_after_fork(self)

    def after_fork(self) -> None:
        self._lock = threading.Lock()
        self._name = ""

    @property
    def name(self) -> str:
        """The name, announced to the store. A process that others declared dead continues with a new one."""
        if self._needs_name():
            with self._lock:
                if self._needs_name():
                    name = f"{socket.gethostname()}:{os.getpid()}:{self._core.ids.token(6).hex()}"
                    self._core.liveness.announce(name)
                    self._remove_dead_owners()
                    self._name = name
        return self._name

    def _needs_name(self) -> bool:
        return not self._name or self._core.liveness.presence(self._name) is Presence.LOST

    def _remove_dead_owners(self) -> None:
        """Remove the records of dead processes without claims; without a worker no other code does."""
        port = self._core.port
        if not isinstance(port, Liveness):
            return
        with contextlib.suppress(StorageError):
            held = port.runs(RunQuery(claimed="any", limit=_CLAIMS_MAX))
            if len(held) < _CLAIMS_MAX:
                port.remove_dead_owners({row.owner for row in held})
