"""Fixtures: the saver on all four stores, called blocking and awaiting."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.adapters.langgraph import HoldfastSaver
from tests.adapters.langgraph.sources import Source
from tests.adapters.langgraph.sync_and_async_caller import Caller
from tests.folders import quick_folder
from tests.store.postgres import shared_servers
from tests.today import matrix_params

_count = itertools.count(1)
STORES = ("memory", "dir", "sqlite", "postgres")
SQL = [(store, kind) for store in ("sqlite", "postgres") for kind in ("blocking", "awaiting")]
_MATRIX = matrix_params([("memory", "awaiting"), ("dir", "blocking"), *SQL], daily=[SQL[::3], SQL[1:3]])


@pytest.fixture(scope="session")
def folder() -> Iterator[Path]:
    """A directory for databases, in memory if possible, because no test here concerns the disk."""
    with quick_folder("langgraph") as found:
        yield found


@functools.cache
def _postgres() -> str:
    return shared_servers.new_url()


def url_of(store: str, folder: Path) -> str:
    """The URL of the store that all tests of its kind share."""
    if store == "memory":
        return "memory:"
    return _postgres() if store == "postgres" else f"{store}:{folder / f'threads.{store}'}"


@pytest.fixture(params=_MATRIX)
def caller(request: pytest.FixtureRequest, folder: Path) -> Iterator[Caller]:
    """A saver on one of the stores, and a way to call it."""
    store, kind = request.param
    with HoldfastSaver(url_of(store, folder)) as saver:
        caller = Caller(saver, kind)
        yield caller
        caller.close()


@pytest.fixture(params=STORES)
def saver(request: pytest.FixtureRequest, folder: Path) -> Iterator[HoldfastSaver]:
    """A saver on one of the stores."""
    with HoldfastSaver(url_of(request.param, folder)) as saver:
        yield saver


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, folder: Path) -> str:
    """A store that several processes can use."""
    return url_of(request.param, folder)


@pytest.fixture
def thread() -> str:
    """The id of a thread that no other test uses."""
    return f"thread-{next(_count)}"


# --- migrations ------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["sqlite", "postgres"])
def source(request: pytest.FixtureRequest, folder: Path) -> Source:
    """A database of LangGraph."""
    return Source(request.param, folder, f"source-{next(_count)}")


@pytest.fixture
def sqlite_source(folder: Path) -> Source:
    """A database of LangGraph that is a file."""
    return Source("sqlite", folder, f"source-{next(_count)}")


@pytest.fixture(params=["sqlite", "postgres"])
def target(request: pytest.FixtureRequest, folder: Path) -> str:
    """An empty store."""
    return shared_servers.new_url() if request.param == "postgres" else f"sqlite:{folder / f'target-{next(_count)}.db'}"


@pytest.fixture
def file_target(folder: Path) -> str:
    """An empty store that is a file."""
    return f"sqlite:{folder / f'target-{next(_count)}.db'}"
