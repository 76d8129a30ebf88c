"""The reads of stores that keep whole runs in memory, folded from their changes."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import TypeVar

from holdfast.clock import Clock
from holdfast.errors import DamagedData
from holdfast.model.rows import AttachmentRow, EffectRow, GateRow, MessageRow, Row, RunRow, TimerRow
from holdfast.store import port
from holdfast.store.decide import is_live
from holdfast.store.folded_run import FoldedRun
from holdfast.store.search import Found, found_in, read_metadata, tag

Listed = TypeVar("Listed")


class FoldedReads(port.StorePort):
    """The reads of such a store. A backend finds the runs."""

    _clock: Clock

    @abstractmethod
    def _reading(self) -> AbstractContextManager[object]:
        """Inside, no other thread or process changes the store."""

    @abstractmethod
    def _find(self, run_id: str) -> FoldedRun | None: ...

    @abstractmethod
    def _at(self, run: int) -> FoldedRun | None:
        """The run of this number."""

    @abstractmethod
    def _readable_runs(self) -> Iterable[FoldedRun]:
        """All runs that are not damaged."""

    @abstractmethod
    def _family_runs(self, family: int) -> Sequence[FoldedRun]:
        """All runs of a family; raises DamagedData if one is damaged."""

    @abstractmethod
    def _listed(self, query: port.RunQuery) -> Iterable[RunRow]:
        """The rows from which `query` selects."""

    @abstractmethod
    def _chunk_totals(self) -> tuple[int, int]:
        """How many chunks there are, and the bytes that they take."""

    @abstractmethod
    def _file_bytes(self, chunk_bytes: int) -> int:
        """The bytes on disk, with those of all chunks."""

    # --- runs --------------------------------------------------------------------------------------------------------

    def runs(self, query: port.RunQuery) -> list[RunRow]:
        with self._reading():
            rows = [row for row in self._listed(query) if _matches(row, query) and self._has_claim(row, query)]
            return _cut(sorted(rows, key=lambda row: -row.run), query.limit)

    def _has_claim(self, row: RunRow, query: port.RunQuery) -> bool:
        if query.claimed is None:
            return True
        return bool(row.owner) and (query.claimed == "any" or not is_live(row, self._clock.lease_time))

    def run_rows(self, run_id: str) -> port.RunRows | None:
        with self._reading():
            found = self._find(run_id)
            return found.all_rows() if found else None

    # --- rows of one run ---------------------------------------------------------------------------------------------

    def rows(
        self, kind: type[port.Kind], run: int, after: int = 0, limit: int = -1, keys: Collection[port.Key] | None = None
    ) -> list[port.Kind]:
        with self._reading():
            found = self._at(run)
            return _cut(found.rows(kind, after, keys), limit) if found else []

    def checkpoint(self, run_id: str, select: port.Select, *, attachments: bool = False) -> port.Selected | None:
        with self._reading():
            found = self._find(run_id)
            return selected(found, found.row, select, attachments=attachments) if found else None

    # --- rows of several runs ----------------------------------------------------------------------------------------

    def find_checkpoints(self, query: port.CheckpointQuery) -> list[Found]:
        with self._reading():
            if query.run_id is None:
                return found_in(self._readable_runs(), query)
            found = self._find(query.run_id)
            return found_in([found], query) if found else []

    def family_effects(self, family: int, key: str) -> list[tuple[RunRow, EffectRow]]:
        with self._reading():
            # A damaged run is an error: without its effects they would seem never to have happened.
            found = [(run.row, run.effects[key]) for run in self._family_runs(family) if key in run.effects]
            return sorted(found, key=lambda pair: pair[0].run)

    def gates(
        self, state: str | None, limit: int, after: tuple[int, int, str] | None = None
    ) -> list[tuple[RunRow, GateRow]]:
        with self._reading():
            found = [
                ((row.opened_us, run.run, row.gate), (run, row))
                for run, row in self._pairs(GateRow)
                if state in (None, row.state)
            ]
            found = [each for each in found if after is None or each[0] > after]
            return _cut([pair for _, pair in sorted(found, key=lambda each: each[0])], limit)

    def due(self, kind: type[port.Kind], limit: int) -> list[tuple[RunRow, port.Kind]]:
        with self._reading():
            found = self._pairs(kind)
            if kind is not MessageRow:
                now_us = self._clock.now_us()
                found = [pair for pair in found if _due_us(pair[1]) <= now_us]
            return _cut(sorted(found, key=lambda pair: _due_us(pair[1])), limit)

    def _pairs(self, kind: type[port.Kind]) -> list[tuple[RunRow, port.Kind]]:
        return [(run.row, row) for run in self._readable_runs() for row in run.rows(kind)]

    # --- chunks and counts -------------------------------------------------------------------------------------------

    def roots(self, family: int) -> tuple[list[bytes], dict[int, port.ScanMark]]:
        with self._reading():
            runs = self._family_runs(family)
            seen = {run.row.run: port.ScanMark(run.row.serial, run.row.attached, run.row.rewrites) for run in runs}
            return [root for run in runs for root in run.all_roots()], seen

    def usage(self) -> port.Usage:
        with self._reading():
            runs, (chunks, chunk_bytes) = list(self._readable_runs()), self._chunk_totals()
            return port.Usage(
                runs=port.RunCounts(dict(Counter(run.row.status for run in runs))),
                checkpoints=sum(len(run.checkpoints) for run in runs),
                entries=sum(len(run.entries) for run in runs),
                effects=sum(len(run.effects) for run in runs),
                attachments=sum(len(run.attachments) for run in runs),
                chunks=chunks,
                chunk_bytes=chunk_bytes,
                root_bytes=sum(len(root) for run in runs for root in run.all_roots()),
                file_bytes=self._file_bytes(chunk_bytes),
            )


def selected(run: FoldedRun, row: RunRow, select: port.Select, *, attachments: bool) -> port.Selected:
    """One checkpoint of a run whose row is shown as `row`."""
    checkpoint = run.select(select)
    if checkpoint is None or not attachments:
        return port.Selected(row, checkpoint)
    return port.Selected(row, checkpoint, run.rows(AttachmentRow, keys=[(checkpoint.lane, checkpoint.checkpoint_id)]))


_NEVER = 2**62


def _due_us(row: Row) -> int:
    """When a row needs action."""
    if isinstance(row, TimerRow):
        return row.due_us
    if isinstance(row, GateRow):
        return row.expires_us if row.state == "open" and row.expires_us is not None else _NEVER
    assert isinstance(row, MessageRow)
    return row.created_us


def _cut(rows: list[Listed], limit: int) -> list[Listed]:
    return rows if limit < 0 else rows[:limit]


def _matches(row: RunRow, query: port.RunQuery) -> bool:
    if not row.run_id.startswith(query.prefix) or query.family not in (None, row.family):
        return False
    if query.statuses and row.status not in query.statuses:
        return False
    if query.workflow is not None and row.workflow != query.workflow:
        return False
    if query.before is not None and row.run >= query.before:
        return False
    if not query.tags:
        return True
    try:
        return set(query.tags) <= {tag(key, value) for key, value in read_metadata(row.metadata).items()}
    except (ValueError, DamagedData):  # of a damaged run
        return False
