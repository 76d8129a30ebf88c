"""Was the machine quiet? A shared disk stalls for milliseconds at random, and such a moment says nothing of anybody."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median
from time import monotonic, perf_counter, sleep
from typing import ClassVar, Final

STALL_S: Final = 0.005
"""A single operation that takes longer than this, and far longer than its neighbours, was stopped by the disk."""
_FAR: Final = 10
LOST_MAX: Final = 0.05
"""The part of a system's time in a round that may be lost in stalls."""
SLOW: Final = 3.0
"""A disk whose syncs take this many times as long as they usually do is busy with something else."""
_SLOW_MIN_S: Final = 0.0005
_PATIENCE_S: Final = 20.0
_SYNCS: Final = 4
_BLOCK: Final = b"\xa5" * 4096


class Probe:
    """Appends to a file and syncs it, a few times, before every slice."""

    _looks: ClassVar[dict[int, list[float]]] = {}
    """What was found so far on each device, by this and earlier probes: a slow hour is known by the quiet ones."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "probe"
        self._file = os.open(self._path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
        self.seconds: list[float] = []
        self._found = self._looks.setdefault(os.fstat(self._file).st_dev, [])

    def look(self) -> bool:
        """Whether the disk stalls right now."""
        found = []
        for _ in range(_SYNCS):
            start = perf_counter()
            os.write(self._file, _BLOCK)
            os.fdatasync(self._file)
            found.append(perf_counter() - start)
        self.seconds += found
        self._found.append(median(found))
        return max(found) > 2 * STALL_S

    def slow(self, looks: int) -> bool:
        """Whether at least a fifth of the last so many looks, and not just one, found a disk far slower than usual."""
        quiet = sorted(self._found)[len(self._found) // 10]
        last = self._found[-looks:]
        found = sum(look > max(SLOW * quiet, _SLOW_MIN_S) for look in last)
        return found >= min(2, len(last)) and found * 5 >= len(last)

    def wait(self) -> None:
        """Wait for a quiet moment, but not for ever."""
        until = monotonic() + _PATIENCE_S
        while monotonic() < until:
            sleep(1)
            if not self.look() and not self.slow(1):
                return

    def close(self) -> None:
        os.close(self._file)
        self._path.unlink()


def lost(seconds: Sequence[float]) -> float:
    """How much of the time of these operations was lost in stalls."""
    limit = max(STALL_S, _FAR * median(seconds))
    return sum(one - limit for one in seconds if one > limit)


class Neighbours:
    """How much of the processors the machine's other processes took meanwhile. Linux only; elsewhere it stays at 0."""

    def __init__(self, own: Iterable[int]) -> None:
        self._start, self._busy, self._own = monotonic(), _busy_s(), _own_s(own)

    def part(self, own: Iterable[int]) -> float:
        """Processors that others kept busy, on average; `own` are the processes that do not count."""
        others = _busy_s() - self._busy - (_own_s(own) - self._own)
        return max(0.0, others / (monotonic() - self._start))


def _own_s(pids: Iterable[int]) -> float:
    return sum(map(_process_s, (os.getpid(), *pids)))


def _busy_s() -> float:
    try:
        fields = Path("/proc/stat").read_text("ascii").splitlines()[0].split()[1:9]
    except OSError:
        return 0.0
    user, nice, system, _, _, interrupts, soft, steal = map(int, fields)
    return (user + nice + system + interrupts + soft + steal) / os.sysconf("SC_CLK_TCK")


def _process_s(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
