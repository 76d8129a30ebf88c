"""What checkpoints need besides themselves, and what may be removed.

    metadata["holdfast"] = {"spans": [[first, last], …], "needs": [checkpoint id, …], "keeps": [[first, last], …]}

The engine declares the needs of a checkpoint in its metadata. `spans` are the journal entries, at or below what the
checkpoint covers, that a resume from it reads; `needs` are other checkpoints of the run. Entries after what it covers
are always needed. `keeps` are entries that an open rollback needs to continue. LangGraph checkpoints with delta
channels need ancestors, which `Lineage` finds.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from holdfast.errors import DamagedData
from holdfast.model.rows import AttachmentRow, CheckpointRow, EffectRow, EntryRow, RunRow
from holdfast.operations.context import StoreContext
from holdfast.operations.views import decode_body, metadata_dict
from holdfast.state.rope import decode
from holdfast.store.checksum import verify_checksum
from holdfast.store.journal_prune import PRUNED

_KEY: Final = "holdfast"
T = TypeVar("T")


class Needed(NamedTuple):
    """The declared needs of a checkpoint."""

    spans: list[tuple[int, int]] | None = None
    """None: it declares nothing about the journal, or nothing that can be decoded."""
    needs: frozenset[str] = frozenset()
    is_declared: bool = False
    """Whether it declares anything at all."""


_NOTHING: Final = Needed()


def needed(row: CheckpointRow) -> Needed:
    """What the checkpoint declares; parts that cannot be decoded are ignored."""
    if _KEY.encode() not in row.metadata:
        return _NOTHING
    try:
        declared: object = metadata_dict(row.metadata, "").get(_KEY)
    except (DamagedData, ValueError):
        return Needed(is_declared=True)
    if declared is None:
        return _NOTHING
    parts = declared if isinstance(declared, dict) else {}
    spans = _convert(parts.get("spans"), list[tuple[int, int]])
    if spans is not None:
        spans += _convert(parts.get("keeps"), list[tuple[int, int]]) or []
    return Needed(spans, frozenset(_convert(parts.get("needs"), list[str]) or ()), is_declared=True)


def _convert(value: object, kind: type[T]) -> T | None:
    """The value, if it is of this type, else None."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return None


def with_needed(kept: set[int], checkpoints: list[CheckpointRow]) -> set[int]:
    """The numbers of these checkpoints and of all that they need, directly or indirectly."""
    by_id: dict[str, list[CheckpointRow]] = {}
    for row in checkpoints:
        by_id.setdefault(row.checkpoint_id, []).append(row)
    found, new = set(kept), [row for row in checkpoints if row.number in kept]
    while new:
        names = {name for row in new for name in needed(row).needs}
        new = [row for name in names for row in by_id.get(name, ()) if row.number not in found]
        found.update(row.number for row in new)
    return found


def why_needed(row: CheckpointRow, checkpoints: list[CheckpointRow], *, ended: bool, is_pruned: bool) -> str | None:
    """Why `row` must stay among these checkpoints, oldest first, with what to do; None if it may be removed.

    `is_pruned`: entries of the journal were pruned, so it can only be read from a checkpoint on.
    """
    other = next((each for each in checkpoints if row.checkpoint_id in needed(each).needs and each is not row), None)
    if other is not None:
        return f"checkpoint {other.checkpoint_id!r} needs it; remove that one first"
    if row.lane or not needed(row).is_declared:
        return None
    engine = [each.number for each in checkpoints if not each.lane and needed(each).is_declared]
    if not ended and engine[-1] == row.number:
        return "the run would be resumed from it; remove it when the run has a newer one or has ended"
    if is_pruned and engine[0] == row.number:
        return "the journal before it was pruned, so a rollback needs it; keep it as long as the run"
    return None


class EntrySizes:
    """The sizes of journal entries, with 16 bytes of memory for each, so that a journal may be long."""

    def __init__(self) -> None:
        self._positions = array("Q")
        self._totals = array("Q", [0])
        """For each entry, and for the end: the size of all entries before it."""

    def add(self, rows: Iterable[EntryRow]) -> None:
        """Add entries in their order. Rows that replace removed entries are not counted."""
        for row in rows:
            if row.kind != PRUNED:
                self._positions.append(row.position)
                self._totals.append(self._totals[-1] + len(row.body))

    def sum_of(self, ranges: Iterable[tuple[int, int]]) -> int:
        """The size of the entries in these ranges of positions."""
        at = self._positions
        return sum(self._totals[bisect_right(at, b)] - self._totals[bisect_left(at, a)] for a, b in ranges)


class Lasting(NamedTuple):
    """Journal entries that are never pruned: a later rollback or fork needs them, whatever checkpoints are kept.

    They record earlier rollbacks, the source of a fork, and children whose effects may have to be undone.
    """

    positions: frozenset[int]
    through: int
    """How far the journal was read; later entries must not be removed."""
    sizes: EntrySizes


def lasting_entries(core: StoreContext, run: RunRow) -> Lasting:
    """The entries of a run that no prune may remove."""
    found, sizes, after = set(), EntrySizes(), 0
    while rows := core.port.rows(EntryRow, run.run, after, _PAGE):
        sizes.add(rows)
        found |= {row.position for row in rows if row.kind in _LASTING or _starts_child_with_effects(core, run, row)}
        after = rows[-1].position
    return Lasting(frozenset(found), run.position, sizes)


_LASTING: Final = frozenset({"rolled_back", "forked"})
_PAGE: Final = 1_000


def _starts_child_with_effects(core: StoreContext, run: RunRow, row: EntryRow) -> bool:
    """Whether the entry started a child that has effects, or children of its own."""
    if row.kind != "child":
        return False
    place = f"entry {row.position} of run {run.run_id!r}"
    verify_checksum(row, run.incarnation, place)
    entry = decode_body(row.body, place)
    child = core.port.run(entry["child"]) if isinstance(entry, dict) and isinstance(entry.get("child"), str) else None
    if child is None:
        return False
    return child.effects > 0 or any(each.kind == "child" for each in core.port.rows(EntryRow, child.run))


def unneeded_entries(checkpoints: Iterable[CheckpointRow], lasting: Lasting) -> list[tuple[int, int]]:
    """The ranges of positions that none of these checkpoints, oldest first, needs; none if they declare nothing.

    They end where the oldest of the default lane covers, without the spans of any checkpoint, the lasting entries, and
    position 1, which starts the run. A checkpoint that another one needs is only needed for its state; the entries
    after it are in the spans of the one that needs it.
    """
    rows = list(checkpoints)
    declared = [needed(row) for row in rows]
    beneath = {name for each in declared for name in each.needs}
    default = [row for row in rows if not row.lane and row.checkpoint_id not in beneath]
    if (
        not default
        or needed(default[0]).spans is None
        or any(each.is_declared and each.spans is None for each in declared)
    ):
        return []
    # A newer one may cover less, and a resume from it needs the entries after that.
    end = min([lasting.through, *[row.covers for row in default]])
    ranges, free = [], 2
    kept = [span for each in declared for span in each.spans or ()] + [(at, at) for at in lasting.positions]
    for first, last in sorted(kept):
        if first > free:
            ranges.append((free, min(first - 1, end)))
        free = max(free, last + 1)
    return [(a, b) for a, b in [*ranges, (free, end)] if a <= b]


THREADS: Final = "langgraph"
"""The workflow of LangGraph threads."""
FOLD: Final = "delta"
"""The attachment that replaces the ancestors of a checkpoint."""
_MARKS: Final = (b"langgraph", b"delta")
"""Keys of a record with delta channels. The encoder leaves the keys of so small a dict in the root of the state."""
_TRIES: Final = 5
Channels = frozenset[str | None]
"""Channels of a graph; None means any channel, if a record is not known."""
ChooseKept = Callable[[list[CheckpointRow], list[EffectRow], "Lineage"], list[int]]
"""Selects the checkpoints to remove, by number."""


class Contribution(NamedTuple):
    """The channels that a checkpoint stores, and those that are stored in its ancestors."""

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
    """What the checkpoints of one run need of their ancestors. Reads and caches their records."""

    def __init__(self, core: StoreContext, run: RunRow) -> None:
        self._core = core
        self._run = run
        self._known: dict[CheckpointRow, Contribution] = {}
        self._folds: set[tuple[str, str]] | None = None
        self._is_locked = False
        self.is_stale = False
        """A record was needed under the lock that had not been read before."""

    def lock(self) -> None:
        """From now on, read nothing."""
        self._is_locked = True

    def unlock(self) -> None:
        """Allow reads again; the known folds may be out of date."""
        self._is_locked = self.is_stale = False
        self._folds = None

    def add_needed(self, kept: Iterable[int], rows: Sequence[CheckpointRow]) -> set[int]:
        """The numbers of these checkpoints and of all ancestors that they need. `rows` are all of the run."""
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
        existing = {(row.lane, row.checkpoint_id) for row in rows}
        orphans = [row for row in rows if row.parent_id and _parent(row) not in existing and may_need_ancestors(row)]
        return [row for row in orphans if not self._is_folded(row) and self._contribution(row).missing - {None}]

    def _trace(self, kept: Iterable[int], rows: Sequence[CheckpointRow]) -> dict[int, set[str | None]]:
        """For these checkpoints and the ancestors they need: the channels that are stored in ancestors of each."""
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
        """The channels to search for in the ancestors of a checkpoint: those of its descendants and its own."""
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
            except DamagedData:  # its needs are unknown; verify reports the damage
                found = _UNKNOWN
            self._known[row] = found
        return found

    def _is_folded(self, row: CheckpointRow) -> bool:
        """Whether the checkpoint has a fold, which is only removed together with it."""
        if self._is_locked and (self._folds is None or row not in self._known):
            self.is_stale = True
            return False
        if self._folds is None:
            attached = self._core.port.rows(AttachmentRow, self._run.run)
            self._folds = {(each.lane, each.checkpoint_id) for each in attached if each.key == FOLD}
        return (row.lane, row.checkpoint_id) in self._folds


def _parent(row: CheckpointRow) -> tuple[str, str]:
    return row.lane, row.parent_id or ""


def may_need_ancestors(row: CheckpointRow) -> bool:
    """Whether the checkpoint may have delta channels; False for nearly all others, without reading their state."""
    return row.parent_id is not None and all(mark in row.root for mark in _MARKS)


def remove_checkpoints(core: StoreContext, run: RunRow, choose: ChooseKept) -> list[CheckpointRow] | None:
    """Remove the checkpoints that `choose` selects by the run's lineage; None if the run does not exist.

    If `choose` needs a record that was not read before, nothing is removed, the record is read, and `choose` is called
    again; the last attempt uses what is known. A completed LangGraph thread that loses its newest checkpoint becomes
    waiting.
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
        choose(core.port.rows(CheckpointRow, run.run), core.port.rows(EffectRow, run.run), lineage)
    return removed
