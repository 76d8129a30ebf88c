"""Golden stores: how they are written, and how a copy of one is opened."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import holdfast
from holdfast import App, Keep, Store
from holdfast.clock import US
from holdfast.store.directory.directory_store import DirectoryStore
from holdfast.testing import CountedIds, ManualClock
from tests.golden import stored_runs, workflow_runs
from tests.golden.flows import World, register
from tests.golden.states import growing
from tests.store.postgres.server import newest
from tests.store.postgres.shared_servers import new_schema, shared

KINDS = ("sqlite", "dir", "postgres")
SCHEMA = "holdfast_golden"
"""The schema that a dump of PostgreSQL names; it is replaced when the dump is loaded."""
ARCHIVED = ("states", "lanes", "pruned", "effects", "looping-pruned", "review-completed", "rolled-back", "fork-reuse")


class Opened(NamedTuple):
    """A copy of a golden store, and the workflows of its runs."""

    app: App
    world: World
    clock: ManualClock

    @property
    def store(self) -> Store:
        return self.app.store


def url_of(kind: str, folder: Path, schema: str = SCHEMA) -> str:
    """The URL of a store in this folder, or in this schema."""
    paths = {"sqlite": f"sqlite:{folder / 'runs.db'}", "dir": f"dir:{folder / 'runs'}"}
    return paths.get(kind) or shared(newest()).url(schema=schema, durability="relaxed")


@contextlib.contextmanager
def opened(kind: str, golden: Path, folder: Path, now_us: int) -> Iterator[Opened]:
    """Open a copy of a golden store, at the moment at which it was written."""
    shutil.copytree(golden, folder)
    schema = new_schema()
    if kind == "postgres":
        with shared(newest()).connect() as connection:
            connection.execute((golden / "runs.sql").read_bytes().replace(SCHEMA.encode(), schema.encode()))
    clock, world = ManualClock(), World(folder)
    clock.advance((now_us - clock.now_us()) / US)  # leases go on where they were as well
    with holdfast.open(url_of(kind, folder, schema), clock=clock) as store, App(store) as app:
        register(app, world)
        yield Opened(app, world, clock)


def write_store(url: str, folder: Path, killed: Callable[[], object]) -> int:
    """Write all runs. `killed` is called while the last one is under way. The time at the end."""
    clock, world = ManualClock(), World(folder)
    with holdfast.open(url, clock=clock, ids=CountedIds()) as store:
        stored_runs.write_runs(store)
        _stop_halfway(store)
        with App(store) as elsewhere:
            workflow_runs.write_started_elsewhere(elsewhere)
        with App(store) as app:
            workflow_runs.write_runs(app, world, clock)
            app.publish_workflows()
            world.hooks["killed"] = killed
            app.start("killed", run_id="killed").result()
    return clock.now_us()


def _stop_halfway(store: Store) -> None:
    """A delete and a prune. In a directory they leave what a process leaves that dies before all of it is gone."""
    for name in ("deleted-halfway", "pruned-halfway"):
        store.save(name, growing(20))
        store.save(name, {"small": True})
    with contextlib.ExitStack() as cut:
        if isinstance(store.port, DirectoryStore):
            cut.enter_context(mock.patch.object(store.port._index, "remove_leftovers", side_effect=OSError))
            cut.enter_context(mock.patch.object(store.port, "_compact"))
        store.delete("deleted-halfway")
        store.prune("pruned-halfway", Keep(last=1))
