"""Stores to move into."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast
from holdfast import App, Store


@pytest.fixture(params=["memory", "sqlite", "dir"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    url = "memory:" if request.param == "memory" else f"{request.param}:{tmp_path / 'store'}"
    with holdfast.open(url) as opened:
        yield opened


@pytest.fixture
def app() -> Iterator[App]:
    with holdfast.open("memory:") as opened:
        yield App(opened)
