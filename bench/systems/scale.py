"""One store with very many runs: what each operation takes beside the same store with 1,000 runs.

A run that completed and one that waits are executed once; the others are their copies with a row of their own, made by
the store's own encoding of rows, so that every checksum matches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final

import apsw
import msgspec
import psycopg

import holdfast
from bench.scale_plans import KINDS, LISTED
from bench.systems.databases import new_database
from bench.systems.engine_holdfast import opened
from bench.systems.subject import timed
from holdfast.inspect.health import health
from holdfast.model.rows import RunRow
from holdfast.store.checksum import with_checksum
from holdfast.store.sql.statements import RUNS, statements

_WAITING: Final = 100
"""Runs that wait for an answer, in the small store and in the large one."""
_WORKFLOWS: Final = 20
_KEY: Final = f"(s.i << 32) | (t.key & {2**32 - 1})"
_COPIED: Final[dict[str, dict[str, str]]] = {
    "checkpoints": {"key": _KEY, "run": "s.i"},
    "entries": {"key": _KEY},
    "tags": {"run": "s.i"},
}
"""The tables with rows of a copied run, and the columns that name the run."""


class Scale:
    """`scale`: a store that was filled before."""

    offers: ClassVar[tuple[str, ...]] = tuple(KINDS)

    def __init__(self, directory: Path, total: int, *, runs: int, postgres: bool = False) -> None:
        url = new_database() if postgres else None
        self._app = opened(directory, url)

        @self._app.workflow
        def gated(run: holdfast.Run, order: str) -> str:
            run.step(str, 1)
            return f"{order}: {run.ask('Go on?', bool)}"

        self._gated = gated
        self._store = self._app.store
        self._store.save("filler", {"order": 1, "note": "x" * 200}, metadata={"team": "a"}, status="completed")
        self._store.append("filler", [{"kind": "note", "text": "x" * 50}] * 3)
        copies = list(_copies(self._store, runs))
        if url is None:
            _fill_sqlite(directory / "runs.db", copies)
        else:
            _fill_postgres(url, copies)
        for number in range(_WAITING):
            self._app.start(gated, "first", run_id=f"waiting-{number}")
        self._do: dict[str, Callable[[int], object]] = {
            "start": lambda n: self._app.start(gated, "new", run_id=f"started-{n}"),
            "claim": self._claim,
            "answer": lambda n: self._app.answer(f"answered-{n}", True, by="bench"),
            "inbox": lambda _: self._app.gates(limit=50),
            "stats": lambda _: self._store.stats(),
            "counts": lambda _: self._store.counts(),
            "doctor": lambda _: health(self._store),
            "prune": lambda n: self._store.prune(f"filler-{n % (runs - 2) + 1:07d}", holdfast.Keep(last=1)),
        }
        for kind, query in LISTED.items():
            self._do[kind] = partial(self._list, query)

    def slice(self, kind: str, first: int, count: int) -> list[float]:
        numbers = range(first, first + count)
        for number in numbers if kind == "answer" else ():
            self._app.start(self._gated, "answered", run_id=f"answered-{number}")
        return timed(self._do[kind], numbers)

    def _list(self, query: Mapping[str, Any], number: int) -> None:
        assert len(self._store.runs(limit=50, **query)) == 50 or "status" in query

    def _claim(self, number: int) -> None:
        claim = self._store.claim(f"waiting-{number % _WAITING}", owner="bench")
        assert claim is not None
        claim.release()

    def close(self) -> None:
        self._app.close()


def _copies(store: holdfast.Store, runs: int) -> Iterable[RunRow]:
    """The rows of all copies of `filler`."""
    template = store.port.run("filler")
    assert template is not None
    for number in range(1, runs):
        status = "failed" if number % 10 == 0 else "completed"
        row = msgspec.structs.replace(
            template,
            run=template.run + number,
            run_id=f"filler-{number:07d}",
            family=template.run + number,
            workflow=f"filler-{number % _WORKFLOWS}",
            status=status,
            seal=0,
        )
        yield with_checksum(row, row.incarnation)


def _fill_sqlite(path: Path, copies: list[RunRow]) -> None:
    """Write the copies past the store, in one transaction."""
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA synchronous = OFF; PRAGMA cache_size = -200000; BEGIN")
    connection.executemany(statements()["insert_run"], (RUNS.bind(row.run, row) for row in copies))
    series = "WITH RECURSIVE s(i) AS (SELECT ? UNION ALL SELECT i + 1 FROM s WHERE i < ?)"
    for table in _COPIED:
        names = [str(row[1]) for row in connection.execute(f"PRAGMA table_info({table})")]
        connection.execute(f"{series} {_copy(table, table, names)}", (copies[0].run, copies[-1].run, copies[0].run - 1))
    connection.execute("COMMIT; PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()


def _fill_postgres(url: str, copies: list[RunRow]) -> None:
    """Likewise; what all copies have in common is not sent."""
    varying = ("run", "run_id", "family", "workflow", "status", "seal")
    with psycopg.connect(url) as connection:
        columns = "i bigint, run_id text, family bigint, workflow text, status text, seal bigint"
        connection.execute(f"CREATE TEMP TABLE s ({columns})".encode())
        with connection.cursor().copy("COPY s FROM STDIN") as copy:
            for row in copies:
                copy.write_row([getattr(row, name) for name in varying])
        changed = {"run": "s.i", **{name: f"s.{name}" for name in varying[1:]}}
        for table in ("runs", *_COPIED):
            query = "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped"
            found = connection.execute(query, (f"holdfast.{table}",))
            names = [str(row[0]) for row in found.fetchall()]
            statement = _copy(table, f"holdfast.{table}", names, changed if table == "runs" else None)
            connection.execute(statement.replace("?", "%s").encode(), (copies[0].run - 1,))
        connection.execute("SELECT setval('holdfast.run_numbers', %s)", (copies[-1].run,))
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE")


def _copy(table: str, place: str, names: list[str], changed: Mapping[str, str] | None = None) -> str:
    """The statement that copies the rows of one run for each number `s.i`."""
    changed = changed or _COPIED[table]
    run = "key >> 32" if "key" in changed else "run"
    values = ", ".join(changed.get(name, f"t.{name}") for name in names)
    rows = f"(SELECT * FROM {place} WHERE {run} = ?) t"
    return f"INSERT INTO {place} ({', '.join(names)}) SELECT {values} FROM s CROSS JOIN {rows}"
