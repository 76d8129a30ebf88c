"""Stores to move into."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast
from holdfast import App, Store
from tests.store.postgres.shared_servers import new_url


@pytest.fixture(params=["memory", "sqlite", "dir", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    urls = {"memory": lambda: "memory:", "postgres": new_url}
    url = urls.get(request.param, lambda: f"{request.param}:{tmp_path / 'store'}")()
    with holdfast.open(url) as opened:
        yield opened


@pytest.fixture
def app() -> Iterator[App]:
    with holdfast.open("memory:") as opened:
        yield App(opened)
