"""What the harnesses use of the machine: scratch directories, clocks, ids, and child processes, always reaped."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from holdfast.clock import LeaseTime

_MEMORY_DISK: Final = Path("/dev/shm")
_ROOM: Final = 256 * 1024 * 1024


@contextlib.contextmanager
def scratch(*, fast: bool = False) -> Iterator[Path]:
    """A directory that is gone afterwards; `fast` asks for one in memory, where there is one with enough room."""
    base = None
    if fast and _MEMORY_DISK.is_dir() and os.access(_MEMORY_DISK, os.W_OK):
        base = _MEMORY_DISK if shutil.disk_usage(_MEMORY_DISK).free > _ROOM else None
    with tempfile.TemporaryDirectory(prefix="holdfast-torture-", dir=base) as name:
        yield Path(name)


class StillClock:
    """Time that moves only by being looked at, and a machine that restarts when `boot` changes."""

    def __init__(self, boot: str) -> None:
        self._boot = boot
        self._us = 1_700_000_000_000_000

    def now_us(self) -> int:
        self._us += 1
        return self._us

    def lease_time(self) -> LeaseTime:
        return LeaseTime(self._boot, 1_000_000)


class SeededIds:
    """Tokens that a seed decides."""

    def __init__(self, seed: object) -> None:
        self._random = random.Random(f"ids {seed}")

    def token(self, size: int) -> bytes:
        return self._random.randbytes(size)


def child(work: Callable[..., None], *arguments: object) -> int:
    """Fork; the child does `work(*arguments)` and exits with 0, or with 1 if that raised. Gives the child's id."""
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        work(*arguments)
        status = 0
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(status)


def reap(pid: int, timeout_s: float) -> int | None:
    """Wait for a child and give its exit status; one that does not end in time is killed, and None says so."""
    end = time.monotonic() + timeout_s
    pause_s = 0.0005
    while time.monotonic() < end:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(pause_s)
        pause_s = min(pause_s * 2, 0.02)
    kill(pid)
    return None


def kill(pid: int) -> None:
    """SIGKILL a child, stopped or not, and reap it."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, 0)
