"""A clock and ids that tests control."""

from __future__ import annotations

from holdfast.clock import US, LeaseTime


class ManualClock:
    """A clock that stands still until it is moved."""

    def __init__(self, now_us: int = 1_767_225_600 * US) -> None:
        self._now_us = now_us
        self._lease_us = US
        self._boot = "boot-1"

    def now_us(self) -> int:
        return self._now_us

    def lease_time(self) -> LeaseTime:
        return LeaseTime(self._boot, self._lease_us)

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self._now_us += int(seconds * US)
        self._lease_us += int(seconds * US)

    def set_wall(self, seconds: float) -> None:
        """Set the wall clock forward or, with a negative number, back. Leases do not notice."""
        self._now_us += int(seconds * US)

    def reboot(self) -> None:
        """Start the machine again: time since boot starts again."""
        self._boot += "'"
        self._lease_us = US


class CountedIds:
    """Tokens 1, 2, 3, … as bytes."""

    def __init__(self) -> None:
        self._count = 0

    def token(self, size: int) -> bytes:
        self._count += 1
        return self._count.to_bytes(size, "big")
