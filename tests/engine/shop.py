"""A shop that is broken until it is repaired, for tests of failed runs."""

from __future__ import annotations

from typing import Any

import pytest

from tests.harness import Stage


class Shop:
    """Functions that fail until they are repaired, and what they were called with."""

    def __init__(self) -> None:
        self.broken = True
        self.calls: list[str] = []
        self.keys: list[str] = []

    def work(self, what: str) -> str:
        self.calls.append(what)
        if self.broken and what.startswith("bad"):
            raise ValueError(f"{what} is broken")
        return what.upper()

    def pay(self, what: str, idempotency_key: str) -> str:
        self.keys.append(idempotency_key)
        return self.work(what)


@pytest.fixture
def shop() -> Shop:
    return Shop()


def fail(stage: Stage, flow: Any, *args: Any) -> None:
    """Start a run that fails."""
    assert stage.start(flow, *args).status() == "failed"
