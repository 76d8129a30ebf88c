"""Stores for notifications, with a clock that tests set forward."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast
from tests.harness import ShiftedClock
from tests.notifications.flows import register
from tests.store.postgres.shared_servers import new_url


@pytest.fixture
def clock() -> ShiftedClock:
    return ShiftedClock()


@pytest.fixture(params=["memory", "sqlite", "dir", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A new store."""
    if request.param == "postgres":
        return new_url()
    return "memory:" if request.param == "memory" else f"{request.param}:{tmp_path / 'runs'}"


@pytest.fixture
def app(url: str, clock: ShiftedClock) -> Iterator[holdfast.App]:
    """An app with workflows that ask and fail."""
    with holdfast.open(url, clock=clock) as store, register(holdfast.App(store)) as app:
        yield app
