"""What these tests share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine_processes.cast import Cast, cast
from tests.postgres.places import new_url


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
