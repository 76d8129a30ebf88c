"""A stage for copies: on SQLite, PostgreSQL and a directory, as `def` and as `async def`."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import App, Store
from holdfast.store.port import RunRows
from tests.folders import quick_folder
from tests.harness import Stage
from tests.matrix import url_of
from tests.sync_and_async import as_def

COUNT = itertools.count(1)
_KINDS = [("sqlite", "def"), ("sqlite", "async"), ("postgres", "async"), ("dir", "def")]


@pytest.fixture(scope="session")
def folder() -> Iterator[Path]:
    """A place for databases."""
    with quick_folder("copies") as found:
        yield found


def url_in(store: str, folder: Path) -> str:
    """The URL of the store that all tests of its kind share."""
    return f"dir:{folder / 'runs'}" if store == "dir" else url_of(store, folder)


@pytest.fixture(params=_KINDS, ids=["-".join(kind) for kind in _KINDS])
def stage(request: pytest.FixtureRequest, folder: Path) -> Iterator[Stage]:
    """A store, a kind of workflow, an app, and the id of a run nobody else has."""
    store, kind = request.param
    stage = Stage(url_in(store, folder), kind, f"copied-{next(COUNT)}")
    yield stage
    stage.close()


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[Stage]:
    """A stage on a database of its own."""
    stage = Stage(f"sqlite:{tmp_path / 'alone.db'}", "def", "alone")
    yield stage
    stage.close()


def tree_of(stage: Stage, run_id: str) -> dict[str, RunRows | None]:
    """The run and all below it, with every row."""
    store = stage.onlooker
    names = [run_id, *[info.run_id for info in store.runs(prefix=f"{run_id}/")]]
    return {name: store.port.run_rows(name) for name in names}


def same_app(stage: Stage, store: Store) -> App:
    """An app on another store that knows the same workflows."""
    flows = {name: flow if stage.is_async else as_def(flow) for name, (flow, _) in stage._flows.items()}
    app = App(store)
    for name, flow in flows.items():
        app.workflow(name=name, **stage._flows[name][1])(flow)
    for undo in stage._undos:
        app.undo(undo)
    return app
