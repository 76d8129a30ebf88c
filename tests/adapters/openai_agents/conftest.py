"""Fixtures of this adapter's tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("agents")
import agents


@pytest.fixture(autouse=True)
def _no_tracing() -> Iterator[None]:
    agents.set_tracing_disabled(True)
    yield
    agents.set_tracing_disabled(False)


@pytest.fixture
def url(tmp_path: Any) -> str:
    return f"sqlite:{tmp_path / 'runs.db'}"
