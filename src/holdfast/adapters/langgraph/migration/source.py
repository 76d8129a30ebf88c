"""The interface that a migration reads LangGraph databases through.

A source is only read. Everything about one thread is read inside `snapshot`, so the copy and the comparison read the
same state of the database while other processes write to it. Rows are read one at a time, oldest first; no thread is
held in memory completely.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Final, NamedTuple, Protocol

from langgraph.checkpoint.serde.base import SerializerProtocol

from holdfast.adapters.langgraph.get import ReadCheckpoint
from holdfast.errors import InvalidInput

Typed = tuple[str, bytes]
"""A value as LangGraph's serde encoded it: format and bytes."""
Tables = Mapping[str, set[str]]
"""The columns of tables, by table."""

PAGE: Final = 500
"""Threads examined in one batch."""


class Unreadable(Exception):
    """A row of the source is not valid. It is reported, and the other rows are moved."""


class SourceChanged(Exception):
    """The source changed while it was read without a lock. The data read may be wrong and must be read again."""


class SourceFailed(Exception):
    """The database of the source failed. The failure is reported; other threads may still be readable."""


def check_tables(shown: str, kind: str, expected: Tables, found: Tables) -> None:
    """Raise InvalidInput if the database lacks a table or column of LangGraph's saver."""
    for table, columns in expected.items():
        if columns <= found[table]:
            continue
        missing = ", ".join(sorted(columns - found[table]))
        lack = f"its table {table!r} has no {missing}" if found[table] else f"it has no table {table!r}"
        raise InvalidInput(
            f"{shown} is not a database of LangGraph's {kind} saver, which has the tables "
            f"{', '.join(map(repr, expected))}: {lack}"
        )


class Thread(NamedTuple):
    """A thread in the source."""

    thread_id: str
    checkpoints: int
    bytes: int
    """The size of its columns."""
    print: str
    """The fingerprint: changes with every change of the thread, and is computed without reading its values."""


class SourceWrite(NamedTuple):
    """A write of a task; sorts in the order in which LangGraph applies writes."""

    task_path: str
    task_id: str
    idx: int
    channel: str
    value: Typed


class Parts(NamedTuple):
    """A decoded checkpoint."""

    ts: str
    frame: bytes
    """Encoded by `record_codec.frame_of`."""
    versions: dict[str, object]
    values: dict[str, Typed]


class Content(Protocol):
    """A checkpoint as the source keeps it."""

    def parts(self, serde: SerializerProtocol) -> Parts:
        """Decode the checkpoint; Unreadable if that fails. The serde is used only where necessary."""
        ...

    def difference(self, serde: SerializerProtocol, found: ReadCheckpoint) -> str | None:
        """Return what differs in the stored checkpoint, or None. The comparison does not rely on `parts` if it can."""
        ...


class Row(NamedTuple):
    """A checkpoint in the source, with its writes."""

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
        """Return the number of checkpoints of these threads, or of all."""

    @abstractmethod
    def threads(self, thread_ids: Sequence[str] | None) -> Iterator[Thread]:
        """Iterate over these threads, or all, if they have checkpoints."""

    def pages(self, thread_ids: Sequence[str] | None) -> Iterator[list[str]]:
        """Iterate over the ids of these threads, or of all, in pages."""
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
        """Return the next ids of threads, at most PAGE, in order."""

    @abstractmethod
    def snapshot(self) -> AbstractContextManager[None]:
        """Return a context in which all reads see the same state of the database."""

    @abstractmethod
    def rows(self, thread_id: str) -> Iterator[Row]:
        """Iterate over the checkpoints of a thread by id, oldest first, of all namespaces."""

    @abstractmethod
    def has(self, thread_id: str, namespace: str, checkpoint_id: str) -> bool:
        """Return whether this checkpoint exists."""

    def check(self) -> None:  # noqa: B027 - most sources are protected by their database
        """Raise SourceChanged if data read since the snapshot began may be wrong."""

    @abstractmethod
    def close(self) -> None:
        """Release the resources of the source."""
