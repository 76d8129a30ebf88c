"""DBOS on PostgreSQL."""

from __future__ import annotations

from pathlib import Path

from bench.systems import crowd_dbos, with_dbos
from bench.systems.databases import bytes_of, new_database


class Save(with_dbos.Save):
    """`save`: a step returns the whole state."""

    def __init__(self, directory: Path, total: int) -> None:
        super().__init__(directory, total, url=new_database())


class Turns(with_dbos.Turns):
    """`turns`: a step returns the message that is new."""

    def __init__(self, directory: Path, total: int) -> None:
        self._url = new_database()
        super().__init__(directory, total, url=self._url)

    def size(self) -> int:
        return bytes_of(self._url)


class Workflows(crowd_dbos.DbosWorkflows):
    """A workflow for each member of the crowd."""

    def __init__(self, directory: Path, total: int) -> None:
        super().__init__(directory, total, url=new_database())
