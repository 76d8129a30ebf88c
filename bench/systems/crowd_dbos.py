"""DBOS in a crowd: 64 workflows at once, each taking its steps one after another."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter

from bench.systems.crowds import CROWD, Crowd, State
from bench.systems.with_dbos import Running


class DbosWorkflows(Crowd):
    """A workflow for each member."""

    def __init__(self, directory: Path, total: int, *, url: str | None = None) -> None:
        self._names = [f"run-{member:02d}" for member in range(CROWD)]
        self._running = Running(directory, self._names, url)

    def together(self, work: list[list[State]]) -> float:
        start = perf_counter()
        waiting = [self._running.submit(name, states) for name, states in zip(self._names, work, strict=True)]
        for wait in waiting:
            wait()
        return perf_counter() - start

    def close(self) -> None:
        self._running.close()
