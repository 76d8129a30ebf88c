"""The stage of a test: a store, a kind of workflow, and an app. When the app dies another takes over."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

import holdfast
from holdfast import App, Handle, Store
from holdfast.clock import SystemClock
from holdfast.errors import StorageFailed
from holdfast.model.commit import Commit, Guard
from holdfast.runtime.reaper import redeliver
from holdfast.store.liveness import _held_locks
from holdfast.store.port import RunQuery, StorePort
from holdfast.store.sqlite.sqlite_store import SqliteStore
from tests.faulty_port import Wire
from tests.sync_and_async import Flow, as_def


class ShiftedClock(SystemClock):
    """The machine's clock, set forward as a test likes. Leases do not notice."""

    def __init__(self) -> None:
        super().__init__()
        self._shift_us = 0

    def now_us(self) -> int:
        return super().now_us() + self._shift_us

    def advance(self, seconds: float) -> None:
        self._shift_us += int(seconds * 1_000_000)


class Stage:
    """A store by its URL, and one app at a time on it."""

    def __init__(self, url: str, kind: str, run_id: str) -> None:
        self.url = url
        self.is_async = kind == "async"
        self.run_id = run_id
        self.clock = ShiftedClock()
        self.calls: list[Any] = []
        """For functions of a test to note that they were called."""
        self._flows: dict[str, tuple[Flow, dict[str, Any]]] = {}
        self._undos: list[Callable[..., Any]] = []
        self._apps: list[tuple[App, Store]] = []
        self._options: dict[str, Any] = {}
        self._onlooker: Store | None = None
        self.wire: Wire
        self.app: App
        self.open()

    # --- apps --------------------------------------------------------------------------------------------------------

    def open(self, **options: Any) -> App:
        """A new app, with all that was registered, beside those there are. It is the current one from now on."""
        self._options = options or self._options
        inner = holdfast.open(self.url, clock=self.clock)
        self.wire = Wire(inner.port)
        store = Store(cast(StorePort, self.wire), clock=self.clock)
        self.app = App(store, **self._options)
        self._apps.append((self.app, store))
        for fn in self._undos:
            self.app.undo(fn)
        for name, (flow, more) in self._flows.items():
            self._register(name, flow, more)
        return self.app

    def flow(self, flow: Flow, **more: Any) -> Flow:
        """Register a workflow, here and in every app to come."""
        name = more.pop("name", flow.__name__)
        self._flows[name] = flow, more
        self._register(name, flow, more)
        return flow

    def change(self, flow: Flow, **more: Any) -> None:
        """From now on the code of the workflow is this: what was deployed before is gone."""
        name = more.pop("name", flow.__name__)
        self._flows[name] = flow, more
        self.restart()

    def forget(self) -> None:
        """Go on with an app that has no workflows, as a process of another program."""
        self._flows.clear()
        self.restart()

    def undo(self, fn: Callable[..., Any]) -> None:
        """Register an undo, here and in every app to come."""
        self._undos.append(fn)
        self.app.undo(fn)

    def _register(self, name: str, flow: Flow, more: dict[str, Any]) -> None:
        self.app.workflow(name=name, **more)(flow if self.is_async else as_def(flow))

    def restart(self) -> App:
        """End the current app, as death ends it, and open another."""
        self.wire.cut()
        app, store = self._apps.pop()
        owner = app._core.owner
        app.close()
        store.close()
        self._bury(owner)
        return self.open()

    def _bury(self, owner: str) -> None:
        """Leave behind what a dead process leaves; where nothing tells that it is dead, its leases have ended."""
        port = self.onlooker.port
        if isinstance(port, SqliteStore):
            sign = Path(port._owners._path(owner))
            release_as_dead(str(sign))
            sign.parent.mkdir(exist_ok=True)
            sign.touch()
            return
        for row in port.runs(RunQuery(claimed="any", limit=1000)):
            if row.run_id.startswith(self.run_id):
                guard = Guard(incarnation=row.incarnation, gone=row.fence)
                port.commit([Commit(row.run_id, row.nonce[:8], guard, rearm=row.fence)])

    def close(self) -> None:
        for app, store in self._apps:
            app.close()
            store.close()
        if self._onlooker is not None:
            self._onlooker.close()

    # --- runs --------------------------------------------------------------------------------------------------------

    def start(self, flow: Flow | str, *args: Any, run_id: str | None = None, **kwargs: Any) -> Handle:
        """Start the test's run."""
        name = flow if isinstance(flow, str) else flow.__name__
        return self.app.start(name, *args, run_id=run_id or self.run_id, **kwargs)

    def start_and_die(self, flow: Flow, *args: Any) -> None:
        """Start the test's run; on its way the wire is cut."""
        with pytest.raises(StorageFailed):
            self.start(flow, *args)

    def resume(self) -> Handle:
        """The process has died: take the run up in another one."""
        self.restart()
        return self.app.resume(self.run_id)

    def redeliver(self) -> None:
        """What a worker's reaper does: deliver what the dead have left in their outboxes."""
        core = self.app._core
        core.blocking.run(redeliver(core))

    def die(self) -> None:
        """Cut the wire. For the test's functions: the process dies here."""
        self.wire.cut()

    # --- looking -----------------------------------------------------------------------------------------------------

    @property
    def onlooker(self) -> Store:
        """A store of its own, to look by another road."""
        if self._onlooker is None:
            self._onlooker = holdfast.open(self.url, clock=self.clock)
        return self._onlooker

    def journal(self, *kinds: str, run_id: str | None = None) -> list[dict[str, Any]]:
        """The entries of the run's journal, all or of these kinds."""
        entries = self.onlooker.journal(run_id or self.run_id)
        return [entry.data for entry in entries if not kinds or entry.kind in kinds]

    def status(self, run_id: str | None = None) -> str:
        return self.app.handle(run_id or self.run_id).status()


def release_as_dead(path: str) -> None:
    """Release the lock of an owner as the end of its process does: its file stays."""
    handle, _ = _held_locks.handles.pop(path, (None, 0))
    if handle is not None:
        os.close(handle)


def until(true: Callable[[], bool], what: str, seconds: float = 240.0) -> None:
    """Wait for something another thread does."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, f"not in time: {what}"
        time.sleep(0.002)
