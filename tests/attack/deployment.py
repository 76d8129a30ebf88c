"""Where an attack takes place: stores, the processes that use them, a clock that is moved by hand, and a world.

A process is an app on a store of its own. It can be killed around any commit; the store then learns that its owner is
dead, at once or only when the lease has ended.
"""

from __future__ import annotations

import contextlib
import itertools
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, cast

import holdfast
from holdfast import App, Store
from holdfast.inspect.timeline import timeline
from holdfast.model.commit import Commit, Guard
from holdfast.model.rows import TERMINAL, EffectRow, GateRow, ItemRow, RunRow, TimerRow
from holdfast.runtime.reaper import reap
from holdfast.store.memory import MemoryStore
from holdfast.store.port import RunQuery, StorePort
from holdfast.testing import ManualClock
from tests.attack.program import register
from tests.attack.world import WatchedPort, World
from tests.faulty_port import Wire

STORES: Final = ("memory", "sqlite", "dir", "postgres")
_WAKES: Final = "holdfast.child/"
"""Events by which children wake their parents. They carry nothing, and one too many is harmless."""
_count = itertools.count(1)


class SeededIds:
    """Ids that are the same in every execution of a case."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)

    def token(self, size: int) -> bytes:
        return self._rng.randbytes(size)


class Process:
    """An app, its store, and the wire between them, which a crash cuts."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.wire = Wire(cast(StorePort, place.open_port()))
        self.store = Store(cast(StorePort, self.wire), clock=place.clock, ids=place.ids)
        self.app = App(self.store, branches=place.branches)
        register(self.app, place.world)

    def close(self) -> str:
        """End it; gives the name of its owner, if it had one."""
        owner = self.app._core._owner._name
        self.app.close()
        self.store.close()
        return owner


class Place:
    """One store, with two processes on it."""

    def __init__(self, url: str, prefix: str, clock: ManualClock, ids: SeededIds, world: World, branches: int) -> None:
        self.url = url
        self.prefix = prefix
        self.clock = clock
        self.ids = ids
        self.world = world
        self.branches = branches
        self._memory = MemoryStore(clock) if url == "memory:" else None
        self.dead: set[str] = set()
        """Owners that died unnoticed."""
        self.onlooker = Store(cast(StorePort, self.open_port()), clock=clock, ids=ids)
        self.processes = [Process(self), Process(self)]

    def open_port(self) -> WatchedPort:
        """A new connection."""
        if self._memory is not None:
            return WatchedPort(self._memory, self.world, shared=True)
        return WatchedPort(holdfast.open(self.url, clock=self.clock).port, self.world, shared=False)

    def kill(self, number: int) -> None:
        """End a process as a crash ends it, and start another in its place."""
        self.processes[number].wire.cut()
        self.replace(number)

    def replace(self, number: int) -> None:
        """End a process and start another; nobody has noticed yet that the first is gone."""
        owner = self.processes[number].close()
        if owner:
            self.dead.add(owner)
        self.processes[number] = Process(self)

    def remove_dead_owners(self) -> None:
        """Let the store know of all owners that died."""
        port = self.onlooker.port
        for row in port.runs(RunQuery(claimed="any", limit=1000)):
            if row.owner in self.dead:
                guard = Guard(incarnation=row.incarnation, gone=row.fence)
                port.commit([Commit(row.run_id, self.ids.token(8), guard, rearm=row.fence)])
        self.dead.clear()

    def close(self) -> None:
        for process in self.processes:
            process.close()
        if self._memory is None:
            for row in self.onlooker.port.runs(RunQuery(limit=1000)):
                with contextlib.suppress(holdfast.HoldfastError):
                    self.onlooker.delete(row.run_id)
        self.onlooker.close()

    # --- looking -----------------------------------------------------------------------------------------------------

    def rows(self) -> list[RunRow]:
        """All runs of this case, oldest first, without those that only keep the place of a child nobody started."""
        rows = self.onlooker.port.runs(RunQuery(limit=1000))
        return [row for row in reversed(rows) if row.run_id.startswith(self.prefix) and row.workflow]

    def print_of(self, row: RunRow) -> tuple[Any, ...]:
        """A fingerprint of a run: all that must not change when another run is driven."""
        port = self.onlooker.port
        return (
            row.run_id, row.status, row.position, row.owner,
            tuple((gate.gate, gate.state) for gate in port.rows(GateRow, row.run)),
            tuple((effect.key, effect.state) for effect in port.rows(EffectRow, row.run)),
            tuple((item.kind, item.name) for item in port.rows(ItemRow, row.run) if not item.name.startswith(_WAKES)),
            tuple((timer.timer, timer.due_us) for timer in port.rows(TimerRow, row.run)),
        )  # fmt: skip

    def standing(self, run_id: str) -> Any:
        """Where the run stands, as `holdfast show` says it."""
        return timeline(self.onlooker, run_id).standing

    def reap(self, number: int) -> None:
        """What a worker's reaper does."""
        core = self.processes[number].app._core
        core.blocking.run(reap(core))


def root_of(run_id: str) -> str:
    """The run at the top of a tree of children."""
    return run_id.partition("/")[0]


def is_over(row: RunRow) -> bool:
    return row.status in TERMINAL


class Scratch:
    """Where stores of cases are made: files that are gone afterwards, and one schema for all cases."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._postgres = ""

    def url(self, store: str) -> str:
        """A place for one more case."""
        if store == "memory":
            return "memory:"
        if store == "postgres":
            from tests.store.postgres import shared_servers

            self._postgres = self._postgres or shared_servers.new_url()
            return self._postgres
        return f"{store}:{self._folder / f'case-{next(_count)}'}"


@contextlib.contextmanager
def scratch() -> Iterator[Scratch]:
    """A scratch place for many cases."""
    from tests.folders import quick_folder

    with quick_folder("attack") as folder:
        yield Scratch(folder)
