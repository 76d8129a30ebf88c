"""`pg_claims`: four processes take everything that waits, and finish it.

A slice puts `count` things into the queue, which is not measured, and then lets four processes empty it. They are
started once and wait for their word on standard input; what each did it says on standard output.

    python -m bench.systems.drains KIND URL NAME
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter
from typing import Any, ClassVar, Final

import psycopg

import holdfast
from bench.systems.databases import new_database

PROCESSES: Final = 4
BATCH: Final = 50
_TABLE: Final = "CREATE TABLE items (id bigserial PRIMARY KEY, state text NOT NULL, owner text, body text NOT NULL)"
_INDEX: Final = "CREATE INDEX items_ready ON items (id) WHERE state = 'ready'"
_CLAIM: Final = (
    "UPDATE items SET state = 'running', owner = %s WHERE id = "
    "(SELECT id FROM items WHERE state = 'ready' ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING id"
)
_FINISH: Final = "UPDATE items SET state = 'done' WHERE id = %s"


class _Drains:
    """The driver's side."""

    offers: ClassVar[tuple[str, ...]] = ()
    kind = ""

    def __init__(self, directory: Path, total: int) -> None:
        self._url = new_database()
        self.prepare(self._url)
        self._workers = [
            subprocess.Popen(
                [sys.executable, "-m", "bench.systems.drains", self.kind, self._url, f"worker-{number}"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
            for number in range(PROCESSES)
        ]
        self._hear()

    def prepare(self, url: str) -> None:
        raise NotImplementedError

    def fill(self, url: str, first: int, count: int) -> None:
        raise NotImplementedError

    def slice(self, kind: str, first: int, count: int) -> list[float]:
        self.fill(self._url, first, count)
        start = perf_counter()
        for worker in self._workers:
            assert worker.stdin is not None
            worker.stdin.write(b"go\n")
            worker.stdin.flush()
        done = sum(self._hear())
        seconds = perf_counter() - start
        assert done == count, f"{done} of {count} were finished"
        return [seconds / count] * count

    def _hear(self) -> list[int]:
        return [int(worker.stdout.readline()) for worker in self._workers if worker.stdout is not None]

    def close(self) -> None:
        for worker in self._workers:
            worker.communicate(timeout=30)


class OneByOne(_Drains):
    """The floor: a table, SKIP LOCKED, one at a time: claim, finish."""

    kind = "raw"

    def prepare(self, url: str) -> None:
        with psycopg.connect(url) as connection:
            connection.execute(_TABLE)
            connection.execute(_INDEX)

    def fill(self, url: str, first: int, count: int) -> None:
        with psycopg.connect(url) as connection:
            rows = [(f"item {number}",) for number in range(first, first + count)]
            connection.cursor().executemany("INSERT INTO items (state, body) VALUES ('ready', %s)", rows)


class Holdfast(_Drains):
    """Claims in batches of 50, each run completed by its own commit."""

    kind = "batches"

    def prepare(self, url: str) -> None:
        holdfast.open(url).close()

    def fill(self, url: str, first: int, count: int) -> None:
        async def save(store: holdfast.Store) -> None:
            await asyncio.gather(*[store.aio.save(f"run-{n}", {"item": n}) for n in range(first, first + count)])

        with holdfast.open(url) as store:
            asyncio.run(save(store))


class HoldfastOneByOne(Holdfast):
    """Claims one at a time."""

    kind = "singles"


# --- in the worker processes -----------------------------------------------------------------------------------------


def _raw(url: str, name: str) -> Iterator[int]:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.cursor()
        while True:
            found = cursor.execute(_CLAIM, (name,), prepare=True).fetchone()
            if found is None:
                yield 0
            else:
                cursor.execute(_FINISH, found, prepare=True)
                yield 1


def _batches(url: str, name: str) -> Iterator[int]:
    loop = asyncio.new_event_loop()

    async def drain(store: holdfast.Store) -> int:
        claims = await store.aio.claim_ready(name, limit=BATCH)
        await asyncio.gather(*[claim.complete() for claim in claims])
        return len(claims)

    with holdfast.open(url) as store:
        while True:
            yield loop.run_until_complete(drain(store))


def _singles(url: str, name: str) -> Iterator[int]:
    with holdfast.open(url) as store:
        while True:
            claims = store.claim_ready(name)
            for claim in claims:
                claim.complete()
            yield len(claims)


_KINDS: Final[dict[str, Callable[[str, str], Iterator[int]]]] = {"raw": _raw, "batches": _batches, "singles": _singles}


def main(kind: str, url: str, name: str) -> None:
    drained: Any = _KINDS[kind](url, name)
    next(drained)  # connects
    print(0, flush=True)
    for _ in sys.stdin:
        done = 0
        while count := next(drained):
            done += count
        print(done, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
