"""Which ancestors the checkpoints of a run need to be read: those that delta channels are computed from.

A LangGraph record (docs/formats.md) may name delta channels, which have no value in it. Their value is the nearest one
that an ancestor stored and what was written since, so the checkpoint cannot be read without those ancestors and their
attachments. An attachment named "delta", a *fold*, replaces all ancestors. No prune removes what a kept checkpoint
needs, whether or not LangGraph is installed.

What goes is decided under the store's lock, where nothing else can be read. So records are read before that, and a
checkpoint whose record is not known counts as one that needs all its ancestors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from holdfast.errors import DamagedData
from holdfast.model.rows import CheckpointRow, EffectRow, RunRow
from holdfast.state.decoder import decode
from holdfast.verbs.core import Core

THREADS: Final = "langgraph"
"""The workflow of LangGraph threads."""
FOLD: Final = "delta"
"""The attachment that stands for the ancestors of a checkpoint."""
_MARKS: Final = (b"langgraph", b"delta")
"""Keys of a record with delta channels. The encoder leaves the keys of so small a dict in the root of the state."""
_TRIES: Final = 5

Channels = frozenset[str | None]
"""Channels of a graph; None stands for all there may be, where a record is not known."""
ChooseKept = Callable[[list[CheckpointRow], list[EffectRow], "Lineage"], list[int]]
"""Says which checkpoints, by number, are to go."""


class Contribution(NamedTuple):
    """What a checkpoint stores of a graph's channels, and what it leaves to its ancestors."""

    missing: Channels = frozenset()
    stored: Channels = frozenset()


_UNKNOWN: Final = Contribution(missing=frozenset({None}))


class _Record(msgspec.Struct):
    """The part of a LangGraph record that concerns delta channels."""

    langgraph: int
    frame: bytes
    values: dict[str, Any]
    delta: list[str] = []


def read_contribution(state: object) -> Contribution:
    """What a checkpoint with this state contributes; nothing if the state is not a LangGraph record."""
    try:
        record = msgspec.convert(state, _Record)
    except msgspec.ValidationError:
        return Contribution()
    return Contribution(frozenset(record.delta), frozenset(record.values))


class Lineage:
    """What the checkpoints of one run need of their ancestors. Reads and remembers the records it is asked about."""

    def __init__(self, core: Core, run: RunRow) -> None:
        self._core = core
        self._run = run
        self._known: dict[CheckpointRow, Contribution] = {}
        self._folds: set[tuple[str, str]] | None = None
        self._is_locked = False
        self.is_stale = False
        """Something was asked for under the lock that had not been read before."""

    def lock(self) -> None:
        """From now on, read nothing."""
        self._is_locked = True

    def unlock(self) -> None:
        """Read again; what is known of folds may be outdated."""
        self._is_locked = self.is_stale = False
        self._folds = None

    def add_needed(self, kept: Iterable[int], rows: Sequence[CheckpointRow]) -> set[int]:
        """The numbers of these checkpoints and of all ancestors they need. `rows` are all there are."""
        return self._trace(kept, rows).keys() | set(kept)

    def find_child(self, row: CheckpointRow, rows: Sequence[CheckpointRow]) -> CheckpointRow | None:
        """A checkpoint that cannot be read without its parent `row`."""
        children = [each for each in rows if each is not row and _parent(each) == (row.lane, row.checkpoint_id)]
        if not children:
            return None
        open_ = self._trace([each.number for each in rows if each is not row], rows)
        return next((child for child in children if open_[child.number]), None)

    def find_orphans(self, rows: Sequence[CheckpointRow]) -> list[CheckpointRow]:
        """The checkpoints with delta channels whose parent is not among `rows`, and that have no fold."""
        there = {(row.lane, row.checkpoint_id) for row in rows}
        orphans = [row for row in rows if row.parent_id and _parent(row) not in there and may_need_ancestors(row)]
        return [row for row in orphans if not self._is_folded(row) and self._contribution(row).missing - {None}]

    def _trace(self, kept: Iterable[int], rows: Sequence[CheckpointRow]) -> dict[int, set[str | None]]:
        """For these checkpoints and the ancestors they need: the channels that lie in ancestors of each."""
        by_name = {(row.lane, row.checkpoint_id): row for row in rows}
        numbers, found = set(kept), dict[int, set[str | None]]()
        work: list[tuple[CheckpointRow, Channels]] = [(row, frozenset()) for row in rows if row.number in numbers]
        while work:
            row, wanted = work.pop()
            known = found.setdefault(row.number, set())
            new = self._left_open(row, wanted) - known
            known |= new
            parent = by_name.get(_parent(row)) if new else None
            if parent is not None:
                work.append((parent, new))
        return found

    def _left_open(self, row: CheckpointRow, wanted: Channels) -> Channels:
        """The channels that must be looked for above a checkpoint: those of its descendants and its own."""
        if not wanted and not may_need_ancestors(row):
            return frozenset()
        contribution = self._contribution(row)
        open_ = contribution.missing | (wanted - contribution.stored)
        return frozenset() if open_ and self._is_folded(row) else open_

    def _contribution(self, row: CheckpointRow) -> Contribution:
        found = self._known.get(row)
        if found is None and self._is_locked:
            self.is_stale = True
            return _UNKNOWN
        if found is None:
            try:
                place = f"checkpoint {row.checkpoint_id!r} of run {self._run.run_id!r}"
                found = read_contribution(decode(row.root, self._core.fetch(self._run.family), place)[0])
            except DamagedData:  # what it needs is not known; verify reports the damage
                found = _UNKNOWN
            self._known[row] = found
        return found

    def _is_folded(self, row: CheckpointRow) -> bool:
        """Whether the checkpoint has a fold, which goes only together with it."""
        if self._is_locked and (self._folds is None or row not in self._known):
            self.is_stale = True
            return False
        if self._folds is None:
            attached = self._core.port.attachments(self._run.run, None, None)
            self._folds = {(each.lane, each.checkpoint_id) for each in attached if each.key == FOLD}
        return (row.lane, row.checkpoint_id) in self._folds


def _parent(row: CheckpointRow) -> tuple[str, str]:
    return row.lane, row.parent_id or ""


def may_need_ancestors(row: CheckpointRow) -> bool:
    """Whether the checkpoint may have delta channels; False for nearly all others, without reading their state."""
    return row.parent_id is not None and all(mark in row.root for mark in _MARKS)


def remove_checkpoints(core: Core, run: RunRow, choose: ChooseKept) -> list[CheckpointRow] | None:
    """Remove the checkpoints that `choose` picks by the run's lineage; None if the run is not there.

    If `choose` asks for something that is not known yet, or arrived since it was read, nothing is removed, it is read,
    and `choose` is asked again. At last it has to do with what is known. A completed LangGraph thread that loses its
    newest checkpoint is waiting afterwards.
    """
    lineage = Lineage(core, run)
    for tries_left in reversed(range(_TRIES)):

        def choose_locked(rows: list[CheckpointRow], effects: list[EffectRow], left: int = tries_left) -> list[int]:
            lineage.lock()
            gone = choose(rows, effects, lineage)
            return [] if lineage.is_stale and left else gone

        removed = core.port.prune(run.run_id, choose_locked, reopen=run.workflow == THREADS)
        if not lineage.is_stale or not tries_left:
            break
        lineage.unlock()
        choose(core.port.checkpoints(run.run, 0, -1), core.port.effects(run.run), lineage)
    return removed
