"""The report of a migration, its progress, and the comparison with the source."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Final, TextIO

import msgspec
from langgraph.checkpoint.serde.base import SerializerProtocol

from holdfast.adapters.langgraph.get import ReadCheckpoint, Reader
from holdfast.adapters.langgraph.migration.source import Row, Unreadable
from holdfast.adapters.langgraph.record_codec import metadata_of, sorted_writes, to_typed
from holdfast.adapters.langgraph.thread import lane_of
from holdfast.errors import DamagedData
from holdfast.operations.context import StoreContext
from holdfast.store.port import Select

_SHOWN_MAX: Final = 10
_UNITS: Final = ("bytes", "KB", "MB", "GB", "TB")


class Migrated(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a migration; in a dry run, what it would move."""

    threads: int
    """Threads of which something was moved."""
    checkpoints: int
    writes: int
    unchanged: int
    """Threads that an earlier call moved and that have not changed since, in the source or in the store."""
    skipped: list[str]
    """Threads whose copy in the store was not changed, each with the reason."""
    problems: list[str]
    """Data that could not be moved, or not exactly, each with its place and the reason."""
    source_bytes: int
    """Bytes of the moved threads in the tables of the source, without indexes."""
    stored_bytes: int
    """Bytes by which the store grew, with indexes and log; 0 in a dry run."""
    seconds: float
    dry_run: bool
    verified: bool
    """Whether everything moved was read back and compared."""

    def __str__(self) -> str:
        """Return the report as a few lines of text."""
        done = "would be moved" if self.dry_run else "moved and verified" if self.verified else "moved, not verified"
        lines = [
            f"{self.threads} threads, {self.checkpoints} checkpoints, {self.writes} writes {done} "
            f"in {self.seconds:.1f} s"
        ]
        if self.threads:
            lines.append(self._sizes())
        if self.unchanged:
            lines.append(f"{self.unchanged} threads were moved before and are unchanged")
        lines += _list("skipped", self.skipped) + _list("problem", self.problems)
        return "\n".join(lines)

    def _sizes(self) -> str:
        if self.dry_run or self.stored_bytes <= 0:
            return f"{_size(self.source_bytes)} in the source"
        ratio = self.source_bytes / self.stored_bytes
        return f"{_size(self.source_bytes)} in the source, {_size(self.stored_bytes)} in the store: {ratio:.1f} to 1"


def _list(what: str, texts: list[str]) -> list[str]:
    shown = [f"{what}: {text}" for text in texts[:_SHOWN_MAX]]
    more = len(texts) - len(shown)
    return [*shown, f"{what}: and {more} more"] if more else shown


def _size(count: float) -> str:
    for unit in _UNITS:
        if count < 1000 or unit == _UNITS[-1]:
            break
        count /= 1000
    return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"


Progress = Callable[[int, int], object]
"""Called with the number of checkpoints done and the total."""
_BAR: Final = 32
_BAR_PAUSE_S: Final = 0.1
_LINE_PAUSE_S: Final = 10.0


def progress_reporter(progress: Progress | bool | None) -> Progress:
    """Return the function that receives progress."""
    if callable(progress):
        return progress
    return _ProgressBar(sys.stderr) if progress else _ignore


def _ignore(done: int, total: int) -> None:
    """Report no progress."""


class _ProgressBar:
    """A progress bar on a terminal. Elsewhere, as in a log, a line every few seconds."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._bar = out.isatty()
        self._began = time.monotonic()
        self._last = self._began if not self._bar else 0.0
        self._ended = False

    def __call__(self, done: int, total: int) -> None:
        now, end = time.monotonic(), done >= total
        if self._ended or (not end and now - self._last < (_BAR_PAUSE_S if self._bar else _LINE_PAUSE_S)):
            return
        self._last, self._ended = now, end
        share = done / total if total else 1.0
        pace = done / max(now - self._began, 1e-6)
        text = f"{share:4.0%} {done}/{total} checkpoints, {pace:.0f}/s"
        if self._bar:
            full = int(share * _BAR)
            self._out.write(f"\r\x1b[2K{'█' * full}{'░' * (_BAR - full)} {text}" + ("\n" if end else ""))
        else:
            self._out.write(f"migrate: {text}\n")
        self._out.flush()


_SHARED_READS: Final = 50
"""Checkpoints whose comparison shares fetched chunks, which are then dropped."""


def differences(
    core: StoreContext, serde: SerializerProtocol, thread_id: str, rows: Iterable[Row], left_out: set[tuple[str, str]]
) -> Iterator[str]:
    """Iterate over the differences between source and store; checkpoints in `left_out` are not expected."""
    reader: Reader | None = None
    for number, row in enumerate(rows):
        if (row.namespace, row.checkpoint_id) in left_out:
            continue
        found = core.port.checkpoint(thread_id, Select(lane_of(row.namespace), row.checkpoint_id), attachments=True)
        differs: str | None = "it is missing"
        if found is not None and found[1] is not None:
            if reader is None or number % _SHARED_READS == 0:
                reader = Reader(core, found[0])
            try:
                reader.add_attachments(found[1], found[2])
                differs = _difference(serde, row, reader.read(found[1]))
            except (DamagedData, Unreadable) as error:
                differs = str(error)
        if differs:
            yield f"checkpoint {row.checkpoint_id!r} of namespace {row.namespace!r} differs in the store: {differs}"


def _difference(serde: SerializerProtocol, row: Row, found: ReadCheckpoint) -> str | None:
    if found.record.get("ns", found.row.lane) != row.namespace:
        return "the namespace"
    if found.row.parent_id != row.parent_id:
        return "the parent"
    metadata = metadata_of(serde, found.row.metadata, found.record.get("more", {}), "metadata")
    if _text(metadata) != _text(json.loads(row.metadata or b"{}")):
        return "the metadata"
    writes = [(*write[:4], to_typed(write.value)) for write in sorted_writes(found.attached)]
    if writes != [tuple(write) for write in row.writes]:
        return "the pending writes"
    return row.content.difference(serde, found)


def _text(metadata: object) -> str:
    """Encode metadata as text to compare, because NaN is not equal to itself."""
    return json.dumps(metadata, sort_keys=True)
