"""The statuses of a run. "Terminal" means exactly these three, everywhere."""

from __future__ import annotations

from typing import Final

from holdfast.errors import InvalidInput

READY: Final = "ready"
RUNNING: Final = "running"
WAITING: Final = "waiting"
PAUSED: Final = "paused"
ROLLING_BACK: Final = "rolling_back"
COMPLETED: Final = "completed"
FAILED: Final = "failed"
CANCELLED: Final = "cancelled"

TERMINAL: Final = frozenset({COMPLETED, FAILED, CANCELLED})
AT_WORK: Final = frozenset({RUNNING, ROLLING_BACK})
"""Somebody is at it. Once nobody holds such a run any more it is ready, so that a worker takes it on."""
STATUSES: Final = frozenset({READY, RUNNING, WAITING, PAUSED, ROLLING_BACK}) | TERMINAL


def check_status(value: object) -> str:
    """Return `value` if it is a status, else raise InvalidInput listing them."""
    if type(value) is str and value in STATUSES:
        return value
    raise InvalidInput(f"status {value!r} is not one of {', '.join(sorted(STATUSES))}")
