"""LangGraph's SQLite savers, as they are set up by default: WAL, and synchronous=FULL because nothing changes it."""

from __future__ import annotations

import sqlite3
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.sqlite import SqliteSaver

from bench import data
from bench.systems.subject import timed


def opened(directory: Path) -> sqlite3.Connection:
    """The connection, as its documentation opens it."""
    return sqlite3.connect(directory / "langgraph.db", check_same_thread=False)


def config(thread: str = data.RUN, checkpoint_id: str | None = None) -> dict[str, Any]:
    """Where a checkpoint goes, and which one comes before it."""
    return {"configurable": {"thread_id": thread, "checkpoint_ns": "", "checkpoint_id": checkpoint_id}}


def checkpoint(number: int, state: dict[str, Any], version: str) -> dict[str, Any]:
    """A checkpoint as LangGraph's own loop makes one."""
    return {
        "v": 4,
        "id": str(uuid6(clock_seq=number)),
        "ts": datetime.now(UTC).isoformat(),
        "channel_values": state,
        "channel_versions": dict.fromkeys(state, version),
        "versions_seen": {"__input__": {}, "agent": {"branch:to:agent": version}},
        "updated_channels": list(state),
    }


def metadata(number: int) -> dict[str, Any]:
    """A checkpoint's metadata, likewise."""
    return {"source": "loop", "step": number, "parents": {}}


class Save:
    """`save`: make a checkpoint and put it. With `prebuilt` only the put is measured."""

    offers: ClassVar[tuple[str, ...]] = ()

    def __init__(self, directory: Path, total: int, *, prebuilt: bool = False) -> None:
        self._connection = opened(directory)
        self._saver: Any = SqliteSaver(self._connection)
        self._prebuilt = prebuilt
        self._version: Any = None
        self._last: Any = config()

    def slice(self, kind: str, first: int, count: int) -> list[float]:
        states = [(n, data.state(n)) for n in range(first, first + count)]
        if not self._prebuilt:
            return timed(self._make_and_put, states)
        version = self._saver.get_next_version(None, None)
        return timed(self._put, [(n, checkpoint(n, state, version)) for n, state in states])

    def _make_and_put(self, numbered: tuple[int, dict[str, Any]]) -> None:
        number, state = numbered
        self._version = self._saver.get_next_version(self._version, None)
        self._put((number, checkpoint(number, state, self._version)))

    def _put(self, numbered: tuple[int, dict[str, Any]]) -> None:
        number, made = numbered
        self._last = self._saver.put(self._last, made, metadata(number), made["channel_versions"])

    def close(self) -> None:
        self._connection.close()
