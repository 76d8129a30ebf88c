"""Starting the processes of these tests, and waiting for what they tell."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.torture import engine_world as world
from tests.torture.alone import ROOT

PATIENCE_S = 60.0


class Cast:
    """The processes of one test. Those still alive at its end are killed."""

    def __init__(self) -> None:
        self._processes: list[subprocess.Popen[bytes]] = []

    def begin(self, actor: str, **arguments: Any) -> subprocess.Popen[bytes]:
        """Start a process."""
        command = [sys.executable, "-m", "tests.engine_processes.actors", actor, json.dumps(arguments)]
        process = subprocess.Popen(command, cwd=ROOT)
        self._processes.append(process)
        return process

    def end(self) -> None:
        for process in self._processes:
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    process.send_signal(signal.SIGKILL)
            process.wait()


@contextlib.contextmanager
def cast() -> Iterator[Cast]:
    """Processes for a while."""
    found = Cast()
    try:
        yield found
    finally:
        found.end()


def until(what: Callable[[], Any], words: str = "it did not happen") -> Any:
    """Wait until that is so."""
    end = time.monotonic() + PATIENCE_S
    while not (found := what()):
        assert time.monotonic() < end, words
        time.sleep(0.005)
    return found


def told(place: Path | str, kind: str, name: str) -> list[world.Line]:
    """What was told of that kind and name."""
    return [line for line in world.lines(place) if (line.kind, line.name) == (kind, name)]
