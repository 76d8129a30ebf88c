"""The source: what a migration needs to know of a LangGraph database, whatever it is kept in.

A source is only ever read. Everything about one thread is read inside `snapshot`, so that what is moved and what it is
compared with afterwards is of one moment, while others continue writing. Rows come one at a time, oldest first; no
thread is held in memory as a whole.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Final, NamedTuple, Protocol

from langgraph.checkpoint.serde.base import SerializerProtocol

from holdfast.adapters.langgraph.get import ReadCheckpoint
from holdfast.errors import InvalidInput

Typed = tuple[str, bytes]
"""A value as LangGraph's serde made it: format and bytes."""

PAGE: Final = 500
"""Threads examined in one batch."""


class Unreadable(Exception):
    """A row of the source is not what it should be. It is reported, and the others are moved."""


class SourceChanged(Exception):
    """The source was changed under a reader that nothing protects. What was read since may be wrong: read it again."""


class SourceFailed(Exception):
    """The database below the source failed. What it failed at is reported; other threads may still be readable."""


def no_source(shown: str, kind: str, tables: Iterable[str], table: str, missing: Iterable[str]) -> InvalidInput:
    """The error for a database that is not LangGraph's: the expected tables and the missing ones."""
    lacks = ", ".join(sorted(missing))
    found = f"its table {table!r} has no {lacks}" if lacks else f"it has no table {table!r}"
    return InvalidInput(
        f"{shown} is not a database of LangGraph's {kind} saver: the tables {', '.join(map(repr, tables))} were looked "
        f"for, and {found}"
    )


class Thread(NamedTuple):
    """A thread in the source."""

    thread_id: str
    checkpoints: int
    bytes: int
    """In the columns of the tables."""
    print: str
    """Becomes another text with every change of the thread; found without reading its values."""


class SourceWrite(NamedTuple):
    """A task's write; sorts as LangGraph applies writes."""

    task_path: str
    task_id: str
    idx: int
    channel: str
    value: Typed


class Parts(NamedTuple):
    """A decoded checkpoint."""

    ts: str
    frame: bytes
    """As record.py stores it."""
    versions: dict[str, object]
    values: dict[str, Typed]


class Content(Protocol):
    """A checkpoint as the source keeps it."""

    def parts(self, serde: SerializerProtocol) -> Parts:
        """Decode the checkpoint; Unreadable if that fails. The serde is used only where necessary."""
        ...

    def difference(self, serde: SerializerProtocol, found: ReadCheckpoint) -> str | None:
        """What of the checkpoint is stored otherwise, computed independently of how it was decoded."""
        ...


class Row(NamedTuple):
    """A checkpoint in the source, with the writes that belong to it."""

    namespace: str
    checkpoint_id: str
    parent_id: str | None
    has_parent: bool
    """Whether the parent is in the source."""
    content: Content
    metadata: bytes | None
    """JSON."""
    writes: list[SourceWrite]


class Source(ABC):
    """A LangGraph database."""

    shown: str
    """For messages; without a password."""

    @abstractmethod
    def count(self, thread_ids: Sequence[str] | None) -> int:
        """How many checkpoints there are, of these threads or of all."""

    @abstractmethod
    def threads(self, thread_ids: Sequence[str] | None) -> Iterator[Thread]:
        """These threads, or all, as far as they have checkpoints."""

    def pages(self, thread_ids: Sequence[str] | None) -> Iterator[list[str]]:
        """The ids of these threads, or of all, some at a time."""
        if thread_ids is not None:
            yield from (list(thread_ids[at : at + PAGE]) for at in range(0, len(thread_ids), PAGE))
            return
        last = ""
        while True:
            with self.snapshot():
                page = self._ids_after(last)
            if not page:
                return
            yield page
            last = page[-1]

    @abstractmethod
    def _ids_after(self, last: str) -> list[str]:
        """The next ids of threads, up to PAGE, in order."""

    @abstractmethod
    def snapshot(self) -> AbstractContextManager[None]:
        """What is read inside is of one moment."""

    @abstractmethod
    def rows(self, thread_id: str) -> Iterator[Row]:
        """The thread's checkpoints by id, oldest first, of all namespaces."""

    @abstractmethod
    def has(self, thread_id: str, namespace: str, checkpoint_id: str) -> bool:
        """Whether this checkpoint is there."""

    def check(self) -> None:  # noqa: B027 - most sources are protected by their database
        """Raise SourceChanged if what was read since the snapshot began cannot be relied on."""

    @abstractmethod
    def close(self) -> None:
        """Give back what the source holds."""
