"""Fixtures of this adapter's tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("ag2")
import holdfast


@pytest.fixture
def app() -> Iterator[holdfast.App]:
    with holdfast.App("memory:") as made:
        yield made
