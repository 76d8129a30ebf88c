"""DBOS on SQLite: a workflow whose steps return what is to be kept.

DBOS asks SQLite for unixepoch('subsec'), which came with 3.42; an older SQLite of the standard library gets that
function from here, which was found to disturb it less than another SQLite module does.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import Any, ClassVar, Final

from dbos import DBOS

from bench import data
from bench.systems.subject import timed


class Connection(sqlite3.Connection):
    """A connection whose SQLite can tell the time to the millisecond."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if sqlite3.sqlite_version_info < (3, 42):
            self.create_function("unixepoch", 1, _unixepoch)


def _unixepoch(modifier: str) -> float:
    assert modifier == "subsec"
    return time.time()


Work = tuple[list[Any], "SimpleQueue[list[float]]"]
_work: Final[dict[str, SimpleQueue[Work | None]]] = {}


@DBOS.step()  # type: ignore[untyped-decorator, unused-ignore]
def keep(value: Any) -> Any:
    """A step that returns what is to be kept."""
    return value


@DBOS.workflow()  # type: ignore[untyped-decorator, unused-ignore]
def workflow(name: str) -> None:
    """Takes steps as they are asked for, until it is told to end."""
    queue = _work[name]
    while (work := queue.get()) is not None:
        values, done = work
        done.put(timed(keep, values))


def launch(directory: Path, url: str | None = None) -> None:
    """DBOS on a new SQLite database, or on the one at `url`."""
    settings: dict[str, Any] = {} if url else {"connect_args": {"factory": Connection}}
    url = url or f"sqlite:///{directory / 'dbos.sqlite'}"
    DBOS(
        config={
            "name": "bench",
            "system_database_url": url,
            "db_engine_kwargs": settings,
            "log_level": "CRITICAL",
            "enable_otlp": False,
        }
    )
    DBOS.launch()


class Running:
    """DBOS, launched on a new database, and its workflows."""

    def __init__(self, directory: Path, names: list[str], url: str | None = None) -> None:
        launch(directory, url)
        _work.update({name: SimpleQueue() for name in names})
        self._handles = {name: DBOS.start_workflow(workflow, name) for name in names}

    def submit(self, name: str, values: list[Any]) -> Callable[[], list[float]]:
        """Have steps taken; what is returned waits for them."""
        done: SimpleQueue[list[float]] = SimpleQueue()
        _work[name].put((values, done))
        return lambda: done.get(timeout=120)

    def steps(self, name: str) -> list[Any]:
        """What the workflow has kept."""
        return list(DBOS.list_workflow_steps(self._handles[name].workflow_id))

    def close(self) -> None:
        for name, handle in self._handles.items():
            _work[name].put(None)
            handle.get_result()
            del _work[name]  # not before: the workflow may begin only now, when a worker of DBOS is free
        DBOS.destroy()


class Save:
    """`save`: a step returns the whole state."""

    offers: ClassVar[tuple[str, ...]] = ()

    def __init__(self, directory: Path, total: int, *, url: str | None = None) -> None:
        self._running = Running(directory, [data.RUN], url)

    def slice(self, kind: str, first: int, count: int) -> list[float]:
        return self._running.submit(data.RUN, [data.state(n) for n in range(first, first + count)])()

    def close(self) -> None:
        self._running.close()


class Turns:
    """`turns`: a step returns the message that is new."""

    offers: ClassVar[tuple[str, ...]] = ()

    def __init__(self, directory: Path, total: int, *, url: str | None = None) -> None:
        self._running = Running(directory, [data.RUN], url)

    def slice(self, kind: str, first: int, count: int) -> list[float]:
        return self._running.submit(data.RUN, [data.message(n) for n in range(first, first + count)])()

    def close(self) -> None:
        self._running.close()


class Load:
    """`load`: the steps of the workflow, which are its state and its history at once."""

    offers: ClassVar[tuple[str, ...]] = ("latest", "history")

    def __init__(self, directory: Path, total: int, **options: Any) -> None:
        self._running = Running(directory, [data.RUN])
        self._running.submit(data.RUN, [data.message(n) for n in range(total)])()

    def slice(self, kind: str, first: int, count: int) -> list[float]:
        return timed(self._running.steps, [data.RUN] * count)

    def close(self) -> None:
        self._running.close()
