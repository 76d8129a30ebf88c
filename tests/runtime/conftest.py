"""The fixtures of the matrix, and those of tests with processes of their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.matrix import alone, app, awaiting, folder, local, stage
from tests.processes import Cast, cast
from tests.runtime.planned import Planned
from tests.store.postgres.shared_servers import new_url

__all__ = ["actors", "alone", "app", "awaiting", "folder", "local", "place", "stage", "url"]


@pytest.fixture
def actors() -> Iterator[Cast]:
    """Processes that end with the test."""
    with cast() as found:
        yield found


@pytest.fixture
def place(tmp_path: Path) -> str:
    """The file in which processes tell what they do."""
    return str(tmp_path / "world")


@pytest.fixture(params=["sqlite", "dir", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A new store."""
    if request.param == "postgres":
        return new_url()
    return f"{request.param}:{tmp_path / 'runs'}"


@pytest.fixture(params=["memory", "sqlite", "dir"])
def planned(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Planned]:
    made = Planned("memory:" if request.param == "memory" else f"{request.param}:{tmp_path / 'runs'}")
    yield made
    made.close()
