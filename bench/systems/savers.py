"""The savers that are compared, each opened as its own documentation opens it, and nothing tuned.

LangGraph's SqliteSaver sets journal_mode=WAL and leaves synchronous as SQLite has it, which is FULL (2); Holdfast asks
for the same. Two floors keep everything in memory: LangGraph's InMemorySaver, which serialises, and the same one with a
serde that hands objects through, which leaves only what LangGraph itself costs.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver

from bench.systems import postgres_langgraph
from bench.systems.databases import drop_database, new_database, table_bytes_of
from holdfast.adapters.langgraph import HoldfastSaver

_FILES: Final = {"holdfast": "runs.db", "langgraph": "langgraph.db"}


class _AsIs:
    """A serde that does nothing: what goes in comes out."""

    def dumps_typed(self, obj: Any) -> tuple[str, Any]:
        return "as is", obj

    def loads_typed(self, data: tuple[str, Any]) -> Any:
        return data[1]


class Home:
    """Where one saver keeps its checkpoints."""

    def __init__(self, saver: str, place: str, address: str) -> None:
        self.saver, self.place, self.address = saver, place, address

    @classmethod
    def new(cls, saver: str, place: str, directory: Path) -> Home:
        """One in which nothing is, with its tables made."""
        home = cls(saver, place, _new_address(saver, place, directory))
        made, close = home.open()
        if place == "postgres" and saver == "langgraph":
            made.setup()  # once for a database, as its documentation says
        close()
        return home

    def open(self) -> tuple[Any, Callable[[], None]]:
        """The saver, and what closes it as a user would."""
        return _OPEN[self.saver](self.place, self.address)

    def size(self) -> int | None:
        """What the tables take on PostgreSQL; elsewhere the files tell."""
        return table_bytes_of(self.address) if self.place == "postgres" else None

    def leave(self) -> None:
        """A database is removed, because a long conversation takes hundreds of megabytes in some; files stay."""
        if self.place == "postgres":
            drop_database(self.address)
        elif self.place == "sqlite":
            left = [path.name for path in Path(self.address).parent.glob("*-wal")]
            assert not left, f"closed, but not checkpointed: {left}"


def _new_address(saver: str, place: str, directory: Path) -> str:
    match place:
        case "postgres":
            return new_database()
        case "sqlite":
            return str(directory / _FILES[saver])
        case "dir":
            return str(directory / "runs")
        case _:
            return ""


def _nothing() -> None:
    """There is nothing to close."""


def _objects(place: str, address: str) -> tuple[Any, Callable[[], None]]:
    serde: Any = _AsIs()
    return InMemorySaver(serde=serde), _nothing


def _memory(place: str, address: str) -> tuple[Any, Callable[[], None]]:
    return InMemorySaver(), _nothing


def _holdfast(place: str, address: str) -> tuple[Any, Callable[[], None]]:
    saver = HoldfastSaver(address if place == "postgres" else f"{place}:{address}")
    return saver, saver.close


def _langgraph(place: str, address: str) -> tuple[Any, Callable[[], None]]:
    if place == "postgres":
        connection, saver = postgres_langgraph.connected(address)
        return saver, connection.close
    opened = sqlite3.connect(address, check_same_thread=False)
    made = SqliteSaver(opened)
    made.setup()
    synchronous, journal = (opened.execute(f"PRAGMA {name}").fetchone()[0] for name in ("synchronous", "journal_mode"))
    assert (synchronous, journal) == (2, "wal"), "not what the documents say of it"
    return made, opened.close


_OPEN: Final = {"objects": _objects, "memory": _memory, "holdfast": _holdfast, "langgraph": _langgraph}
