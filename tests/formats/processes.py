"""Other processes, really ended: what they leave behind is what the tests look at."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

from holdfast.formats import car


def forked(work: Callable[[], object]) -> int:
    """Do `work` in a forked process; gives its id. It ends with 0, or with 1 if `work` raised."""
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        work()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def ended(pid: int) -> int:
    """How a process ended: its status, or minus the signal that killed it."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def dead_claim(place: Path, run_id: str) -> None:
    """A process claims the run and is killed."""

    def work() -> None:
        assert car.Directory(place).claim(run_id) is not None
        os.kill(os.getpid(), signal.SIGKILL)

    assert ended(forked(work)) == -signal.SIGKILL
