"""`pg_answer`: how long after an answer in this process the next step runs in another one.

A child process waits for answers. One run at a time waits there; it is answered, and its next step tells the child's
clock, which is also ours, on standard output. What is measured begins before the answer is given, so it has the
answer's own commit in it.

    python -m bench.systems.answers KIND URL
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Final

import psycopg

import holdfast
from bench.systems.databases import new_database

_SETTLE_S: Final = 0.02
"""So that the run really waits, and the child with it, before the answer comes."""
_TABLE: Final = "CREATE TABLE answers (run text PRIMARY KEY, body bytea)"
_ANSWER: Final = (
    "WITH new AS (INSERT INTO answers VALUES (%s, %s) RETURNING run) SELECT pg_notify('answers', run) FROM new"
)


def stamp() -> int:
    """The step behind the gate: it tells when it ran."""
    now_ns = time.time_ns()
    _say(str(now_ns))
    return now_ns


def _say(line: str) -> None:
    os.write(1, line.encode() + b"\n")


class _Answers:
    """The driver's side."""

    offers: ClassVar[tuple[str, ...]] = ()
    kind = ""

    def __init__(self, directory: Path, total: int) -> None:
        self.url = new_database()
        self.prepare()
        self.child = subprocess.Popen(
            [sys.executable, "-m", "bench.systems.answers", self.kind, self.url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.hear() == "ready"

    def prepare(self) -> None:
        """Open the database."""

    def begin(self, name: str) -> None:
        """Have a run wait."""

    def answer(self, name: str) -> None:
        """Answer it."""
        raise NotImplementedError

    def slice(self, kind: str, first: int, count: int) -> list[float]:
        return [self._answered(f"run-{number:06d}") for number in range(first, first + count)]

    def _answered(self, name: str) -> float:
        self.begin(name)
        time.sleep(_SETTLE_S)
        start_ns = time.time_ns()
        self.answer(name)
        return (int(self.hear()) - start_ns) / 1e9

    def tell(self, line: str) -> None:
        assert self.child.stdin is not None
        self.child.stdin.write(line + "\n")
        self.child.stdin.flush()

    def hear(self) -> str:
        assert self.child.stdout is not None
        return self.child.stdout.readline().strip()

    def close(self) -> None:
        self.child.communicate(timeout=30)


class Notify(_Answers):
    """The floor: a row and a notification in one transaction, and somebody who listens."""

    kind = "notify"

    def prepare(self) -> None:
        self._connection = psycopg.connect(self.url, autocommit=True)
        self._connection.execute(_TABLE)

    def answer(self, name: str) -> None:
        self._connection.execute(_ANSWER, (name, b"yes"), prepare=True)

    def close(self) -> None:
        super().close()
        self._connection.close()


class Holdfast(_Answers):
    """A run that waits in the store, held by nobody; a worker takes it up, replays it and goes on."""

    kind = "holdfast"

    def prepare(self) -> None:
        self._app, self._gated = _gated_app(self.url)

    def begin(self, name: str) -> None:
        self._app.start(self._gated, run_id=name)

    def answer(self, name: str) -> None:
        self._app.answer(name, True, by="bench", enqueue=True)

    def close(self) -> None:
        super().close()
        self._app.close()


class Dbos(_Answers):
    """A workflow that waits in `recv`, alive in its process; a client sends to it."""

    kind = "dbos"

    def prepare(self) -> None:
        self._client: Any = None

    def begin(self, name: str) -> None:
        self.tell(name)
        assert self.hear() == f"waiting {name}"

    def answer(self, name: str) -> None:
        self._client.send(name, True, "answer")

    def slice(self, kind: str, first: int, count: int) -> list[float]:
        if self._client is None:  # the child has made the tables
            from dbos import DBOSClient

            self._client = DBOSClient(system_database_url=self.url)
        return super().slice(kind, first, count)

    def close(self) -> None:
        super().close()
        self._client.destroy()


# --- in the child ----------------------------------------------------------------------------------------------------


def _gated_app(url: str) -> tuple[holdfast.App, Any]:
    app = holdfast.App(url)

    @app.workflow
    def gated(run: holdfast.Run) -> int:
        run.ask("Go on?", bool)
        return run.step(stamp)

    return app, gated


def _until_told() -> None:
    """Wait for the end of standard input."""
    for _ in sys.stdin:
        pass


def _notify(url: str) -> None:
    connection = psycopg.connect(url, autocommit=True)
    connection.execute("LISTEN answers")

    def listen() -> None:
        for _ in connection.notifies():
            stamp()

    threading.Thread(target=listen, daemon=True).start()
    _say("ready")
    _until_told()


def _holdfast(url: str) -> None:
    app, _ = _gated_app(url)
    worker = app.worker(concurrency=8)
    threading.Thread(target=worker.run, daemon=True).start()
    _say("ready")
    _until_told()


def _dbos(url: str) -> None:
    from dbos import DBOS, SetWorkflowID

    from bench.systems.with_dbos import launch

    stamped = DBOS.step(name="stamp")(stamp)

    @DBOS.workflow()  # type: ignore[untyped-decorator, unused-ignore]
    def gated(name: str) -> Any:
        _say(f"waiting {name}")
        DBOS.recv("answer", timeout_seconds=600)
        return stamped()

    launch(Path(), url)
    _say("ready")
    for line in sys.stdin:
        with SetWorkflowID(line.strip()):
            DBOS.start_workflow(gated, line.strip())


_KINDS: Final[dict[str, Callable[[str], None]]] = {"notify": _notify, "holdfast": _holdfast, "dbos": _dbos}


def main(kind: str, url: str) -> None:
    _KINDS[kind](url)
    os._exit(0)  # threads that wait are left behind


if __name__ == "__main__":
    main(*sys.argv[1:])
