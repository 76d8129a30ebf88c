"""Floors of the engine: the rows any engine must write for the same durability, and nothing beside."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any, ClassVar

import ormsgpack
import psycopg

from bench import data
from bench.systems import floors, postgres_floors
from bench.systems.crowds import CROWD, State
from bench.systems.databases import new_database
from bench.systems.subject import timed


def row(number: int, run: str = data.RUN) -> tuple[str, str, bytes]:
    """The row of a step: what it is called, and what it returned."""
    return run, f"{number:012d}", ormsgpack.packb({"kind": "step", "call": f"trivial#{number}", "result": number})


class Steps:
    """`steps`: one INSERT and its COMMIT, through apsw or the sqlite3 of the standard library."""

    offers: ClassVar[tuple[str, ...]] = ()

    def __init__(self, directory: Path, total: int, *, stdlib: bool = False) -> None:
        self._connection: Any = floors.opened(directory)
        if stdlib:
            self._connection.close()
            self._connection = sqlite3.connect(directory / "floor.db", isolation_level=None)
            self._connection.execute("PRAGMA synchronous = FULL")

    def slice(self, kind: str, first: int, count: int) -> list[float]:
        execute = self._connection.cursor().execute
        return timed(lambda number: execute(floors.INSERT, row(number)), range(first, first + count))

    def close(self) -> None:
        self._connection.close()


class PostgresSteps:
    """`pg_steps`: one prepared INSERT, which commits by itself."""

    offers: ClassVar[tuple[str, ...]] = ()

    def __init__(self, directory: Path, total: int) -> None:
        self._connection = psycopg.connect(new_database(), autocommit=True)
        self._connection.execute(postgres_floors.TABLE)

    def slice(self, kind: str, first: int, count: int) -> list[float]:
        execute, insert = self._connection.cursor().execute, postgres_floors.INSERT
        return timed(lambda number: execute(insert, row(number), prepare=True), range(first, first + count))

    def close(self) -> None:
        self._connection.close()


class Pauses:
    """`pauses`: two small rows for each run, one when it pauses and one when it is resumed, each with its COMMIT."""

    offers: ClassVar[tuple[str, ...]] = ("pause", "resume")

    def __init__(self, directory: Path, total: int) -> None:
        self._connection = floors.opened(directory)
        self._waiting = range(0)

    def slice(self, kind: str, first: int, count: int) -> list[float]:
        execute = self._connection.cursor().execute
        if kind == "pause":
            self._waiting = range(first, first + count)
        return timed(lambda number: execute(floors.INSERT, row(number, kind)), self._waiting)

    def close(self) -> None:
        self._connection.close()


class Loop:
    """`loop`: the newest row of one of two runs is read and decoded, with a COMMIT before and one after it."""

    offers: ClassVar[tuple[str, ...]] = ("early", "late")

    def __init__(self, directory: Path, total: int) -> None:
        self._connection = floors.opened(directory)
        self._commits = 0
        with self._connection:
            for kind, count in (("early", total // 100), ("late", total)):
                rows = (row(number, kind) for number in range(count))
                self._connection.executemany(floors.INSERT, rows)

    def slice(self, kind: str, first: int, count: int) -> list[float]:
        return timed(self._resume, [kind] * count)

    def _resume(self, kind: str) -> Any:
        self._commit()
        newest = "SELECT body FROM saved WHERE thread = ? ORDER BY id DESC LIMIT 1"
        found = ormsgpack.unpackb(self._connection.execute(newest, (kind,)).get)
        self._commit()
        return found

    def _commit(self) -> None:
        self._commits += 1
        self._connection.execute(floors.INSERT, row(self._commits, "commits"))

    def close(self) -> None:
        self._connection.close()


def _steps(work_each: int, first: int) -> list[list[State]]:
    """What the members of a crowd save: the rows of trivial steps."""
    return [[{"kind": "step", "call": f"trivial#{n}", "result": n} for n in range(first, first + work_each)]] * CROWD


class PoolRuns(postgres_floors.PoolTasks):
    """`pg_runs`: 64 tasks share 16 connections; every step's row commits by itself."""

    def slice(self, kind: str, first: int, count: int) -> list[float]:
        return self.shared(_steps(count // CROWD, first))


class GroupRuns(postgres_floors.GroupTasks):
    """`pg_runs`: group commit over one connection."""

    def slice(self, kind: str, first: int, count: int) -> list[float]:
        return self.shared(_steps(count // CROWD, first))
