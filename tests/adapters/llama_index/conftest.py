"""Fixtures of this adapter's tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("workflows")
import holdfast
from tests.adapters.llama_index.material import (
    calls,
)


@pytest.fixture(autouse=True)
def _no_calls() -> None:
    calls.clear()


@pytest.fixture
def app() -> Iterator[holdfast.App]:
    with holdfast.App("memory:") as found:
        yield found
