"""The clocks of stores, which tests replace.

Wall time dates things for people. A lease must not expire because the wall clock was set, and must expire when the
machine restarts, so leases on local stores are measured by the time since boot, together with the boot's id.
"""

from __future__ import annotations

import time
from typing import Final, NamedTuple, Protocol

US: Final = 1_000_000


class LeaseTime(NamedTuple):
    """A time for leases: comparable only within one `boot`."""

    boot: str
    us: int


class Clock(Protocol):
    """The source of time for stores."""

    def now_us(self) -> int:
        """Wall time in microseconds since 1970, UTC."""
        ...

    def lease_time(self) -> LeaseTime:
        """Monotonic time, shared by all processes of this machine."""
        ...


class SystemClock:
    """The machine's clocks."""

    def __init__(self) -> None:
        self._boot, self._clock_id = _boot_clock()

    def now_us(self) -> int:
        return time.time_ns() // 1000

    def lease_time(self) -> LeaseTime:
        return LeaseTime(self._boot, time.clock_gettime_ns(self._clock_id) // 1000)


def _boot_clock() -> tuple[str, int]:
    """The boot's id and the clock that counts from it; wall time and the id "" if the system has neither."""
    boottime = getattr(time, "CLOCK_BOOTTIME", None)
    if boottime is not None:
        try:
            with open("/proc/sys/kernel/random/boot_id", "rb") as file:
                return file.read().decode().strip(), boottime
        except OSError:  # without /proc, use wall time
            pass
    return "", time.CLOCK_REALTIME
