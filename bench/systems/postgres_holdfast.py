"""Holdfast on PostgreSQL: the same as on SQLite, by another URL."""

from __future__ import annotations

from pathlib import Path

from bench.systems import crowd_systems, with_holdfast
from bench.systems.databases import bytes_of, new_database


class Save(with_holdfast.Save):
    """`save`: a whole state, one after another."""

    def __init__(self, directory: Path, total: int, *, claim: bool = False) -> None:
        super().__init__(directory, total, claim=claim, url=new_database())


class Turns(with_holdfast.Turns):
    """`turns`: change the state in place, then save all of it."""

    def __init__(self, directory: Path, total: int) -> None:
        self._url = new_database()
        super().__init__(directory, total, url=self._url)

    def size(self) -> int:
        return bytes_of(self._url)


class StoreThreads(crowd_systems.HoldfastThreads):
    """One store for all threads."""

    def __init__(self, directory: Path, total: int) -> None:
        super().__init__(directory, total, url=new_database())


class StoreTasks(crowd_systems.HoldfastTasks):
    """One store for all tasks."""

    def __init__(self, directory: Path, total: int) -> None:
        super().__init__(directory, total, url=new_database())
