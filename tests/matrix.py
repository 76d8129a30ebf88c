"""The matrix: every test of the engine on SQLite and PostgreSQL, as `def` and as `async def`.

Each day has both stores and both kinds, in two of the four pairs: the engine knows neither store nor driver.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import App
from tests.folders import quick_folder
from tests.harness import Stage
from tests.store.postgres import shared_servers
from tests.today import matrix_params

_count = itertools.count(1)
_PAIRS = [(store, kind) for store in ("sqlite", "postgres") for kind in ("def", "async")]
_MATRIX = matrix_params(_PAIRS, daily=[_PAIRS[::3], _PAIRS[1:3]])


@pytest.fixture(scope="session")
def folder() -> Iterator[Path]:
    """A place for databases; in memory where there is such a place, since nothing here is about the disk."""
    with quick_folder("engine") as found:
        yield found


@functools.cache
def _postgres() -> str:
    return shared_servers.new_url()


def url_of(store: str, folder: Path) -> str:
    """The URL of the store that all tests of its kind share."""
    return _postgres() if store == "postgres" else f"sqlite:{folder / 'runs.db'}"


@pytest.fixture(params=_MATRIX)
def stage(request: pytest.FixtureRequest, folder: Path) -> Iterator[Stage]:
    """A store, a kind of workflow, an app, and the id of a run nobody else has."""
    store, kind = request.param
    stage = Stage(url_of(store, folder), kind, f"run-{next(_count)}")
    yield stage
    stage.close()


@pytest.fixture(params=["def", "async"])
def local(request: pytest.FixtureRequest, folder: Path) -> Iterator[Stage]:
    """Like `stage`, on SQLite only: for what does not depend on the store."""
    stage = Stage(url_of("sqlite", folder), request.param, f"run-{next(_count)}")
    yield stage
    stage.close()


@pytest.fixture
def awaiting(folder: Path) -> Iterator[Stage]:
    """Like `local`, for what only tasks can do."""
    stage = Stage(url_of("sqlite", folder), "async", f"run-{next(_count)}")
    yield stage
    stage.close()


@pytest.fixture(params=["def", "async"])
def alone(request: pytest.FixtureRequest, folder: Path) -> Iterator[Stage]:
    """Like `local`, on a database of its own: for workers, which see to every run there is."""
    number = next(_count)
    stage = Stage(f"sqlite:{folder / f'alone-{number}.db'}", request.param, f"run-{number}")
    yield stage
    stage.close()


@pytest.fixture(params=["memory", "sqlite", "dir", "postgresql"])
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[App]:
    """An app on each kind of store."""
    url = {"memory": "memory:", "sqlite": f"sqlite:{tmp_path}/runs.db", "dir": f"dir:{tmp_path}/runs"}
    with App(url.get(request.param) or shared_servers.new_url()) as found:
        yield found
