"""Processes that tests start, and the notes that tests wait for."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.faults.engine import world
from tests.fork_server import PLAIN, Forked, start

PATIENCE_S = 60.0
_LOADED = f"{PLAIN},tests.faults.engine.world"


class Cast:
    """The processes of one test. Those still alive at its end are killed."""

    def __init__(self) -> None:
        self._processes: list[Forked] = []

    def begin(self, actor: str, **arguments: Any) -> Forked:
        """Start a process."""
        process = start("-m", "tests.runtime.actors", actor, json.dumps(arguments), loaded=_LOADED)
        self._processes.append(process)
        return process

    def end(self) -> None:
        for process in self._processes:
            process.close()


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
