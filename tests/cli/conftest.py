"""Stores for the command to work on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast
from tests.cli import shop


@pytest.fixture(params=["sqlite:holdfast.db", "dir:runs"])
def url(request: pytest.FixtureRequest) -> str:
    """A store's URL, relative to the directory the command is run in."""
    return str(request.param)


@pytest.fixture
def app(tmp_path: Path, url: str) -> Iterator[holdfast.App]:
    """The shop on that store, in this process."""
    scheme, _, path = url.partition(":")
    with shop.make(f"{scheme}:{tmp_path / path}") as app:
        yield app
