"""Fixtures of this adapter's tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("burr")
from holdfast.adapters.burr import HoldfastPersister
from tests.adapters.burr.material import Scene


@pytest.fixture
def persister() -> Iterator[HoldfastPersister]:
    with HoldfastPersister("memory:") as found:
        yield found


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)
