"""Ends a server when whoever started it is gone, however that came about.

    python guardian.py DIRECTORY

Waits for the end of its standard input, which the kernel sees to, then ends every server that has left a file with its
process id in DIRECTORY, or in a directory in it, and removes it.
Uses nothing but the standard library, so that it starts at once.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import time
from pathlib import Path


def end(directory: Path) -> None:
    """End the servers of this directory and remove it."""
    for file in (*directory.glob("*.pid"), *directory.glob("*/*.pid")):
        with contextlib.suppress(OSError, ValueError, IndexError):
            end_server(int(file.read_text().splitlines()[0]))
    shutil.rmtree(directory, ignore_errors=True)


def end_server(pid: int) -> None:
    """SIGQUIT ends a server and its processes at once; whoever does not obey is killed."""
    for number in (signal.SIGQUIT, signal.SIGKILL):
        os.kill(pid, number)
        for _ in range(100):
            time.sleep(0.05)
            os.kill(pid, 0)


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sys.stdin.buffer.read()
    end(Path(sys.argv[1]))
