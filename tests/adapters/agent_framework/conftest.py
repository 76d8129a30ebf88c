"""Fixtures of this adapter's tests."""

from __future__ import annotations

import logging

import pytest

pytest.importorskip("agent_framework")


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "holdfast")
