"""What everything an app does shares: the store, what is known by name, who we are, and how long claims last."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final

from holdfast import forking
from holdfast.engine.execution import Execution
from holdfast.engine.verdicts import Classifier
from holdfast.forking import watch
from holdfast.runtime.heart import Heart
from holdfast.runtime.owner import Owner
from holdfast.runtime.registry import Registry
from holdfast.verbs.core import Core, Place
from holdfast.verbs.store import Store

if TYPE_CHECKING:
    from holdfast.runtime.awaiting import AwaitingDriver
    from holdfast.runtime.blocking import BlockingDriver
    from holdfast.runtime.loops import LoopThread

LEASE_S: Final = 15.0


class AppCore:
    """The inside of an app."""

    def __init__(
        self, store: Store, *, lease_s: float, cleanup_s: float, branches: int, classify: Classifier | None = None
    ) -> None:
        self.store = store
        self.place: Place = store._place
        self.registry = Registry()
        self._owner = Owner(self.core)
        self.lease_s = lease_s
        self.cleanup_s = cleanup_s
        self.branches = branches
        self.classify = classify
        self.blocking: BlockingDriver
        self._awaiting: AwaitingDriver | None = None
        self.after_fork()
        watch(self)

    def after_fork(self) -> None:
        """A child process is another owner, with threads of its own."""
        self._lock = threading.Lock()
        self._loop: LoopThread | None = None
        self.heart = Heart(self.lease_s)
        self.executions: set[Execution] = set()
        """What goes on in this process right now."""
        self.executes: dict[int, list[str]] = {}
        """The workflows that each worker of this app executes."""
        self.nonces: set[bytes] = set()
        """The claims that somebody in this process holds, or is about to."""

    @property
    def core(self) -> Core:
        return self.place.core

    @property
    def owner(self) -> str:
        """Who we are to other processes."""
        return self._owner.name

    @property
    def loop(self) -> LoopThread:
        """The event loop for `async def` workflows and steps of blocking callers, on a thread of its own."""
        if self._loop is None:
            with forking.loading:
                from holdfast.runtime.loops import LoopThread  # asyncio is loaded by those who use it
            with self._lock:
                self._loop = self._loop or LoopThread()
        return self._loop

    @property
    def awaiting(self) -> AwaitingDriver:
        """The driver for tasks."""
        if self._awaiting is None:
            with forking.loading:
                from holdfast.runtime.awaiting import AwaitingDriver  # asyncio is loaded by those who use it

                self._awaiting = self._awaiting or AwaitingDriver(self)
        return self._awaiting

    def close(self) -> None:
        """Stop the threads."""
        self.heart.close()
        if self._loop is not None:
            self._loop.close()
        if self._awaiting is not None:
            self._awaiting.close()

    def token(self, size: int) -> bytes:
        return self.core.ids.token(size)

    def known(self, workflow: str) -> Any:
        """The workflow of that name, or None."""
        return self.registry.workflows.get(workflow)
