"""Sizes of runs: the biggest ones, the biggest keys of their states, and what pruning would free."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import msgspec

from holdfast.errors import HoldfastError
from holdfast.limits import NUMBER_MAX
from holdfast.model.rows import CheckpointRow, EntryRow, RunRow
from holdfast.model.views import Keep, View
from holdfast.operations.context import StoreContext
from holdfast.operations.packs import StoredChunks
from holdfast.operations.prune import RemovalEstimate, plan_prune, reachable_chunks, record_bytes
from holdfast.operations.read import PAGE, load_checkpoint
from holdfast.state.values import pack
from holdfast.store.journal_prune import PRUNED
from holdfast.store.port import RunQuery, Select

BIGGEST: Final = 5
PRUNED_MAX: Final = 20
"""How many runs the advice to prune names at most."""
KEYS: Final = 5
TOO_MANY: Final = 20_000
"""Runs with more checkpoints are only counted, because measuring them would take long."""
KEEP: Final = Keep(last=10, journal=True)


class KeySize(View, frozen=True, kw_only=True):
    """A key of a state, and how many bytes its value takes, encoded and uncompressed."""

    key: str
    bytes: int


class RunSize(View, frozen=True, kw_only=True):
    """The size of a run."""

    run_id: str
    checkpoints: int
    entries: int
    """How many of each are stored now, without pruned ones."""
    bytes: int | None
    """The stored bytes of its family: state, journal and ledger; None if it was not measured."""
    bytes_per_checkpoint: int | None
    """Of the state alone."""
    keys: tuple[KeySize, ...]
    """The biggest keys of its newest state."""
    unused_chunks: int
    prune_frees: int | None
    """What pruning this run alone to ten checkpoints would free."""


class Growth(NamedTuple):
    """What pruning runs to ten checkpoints would free."""

    run_ids: tuple[str, ...]
    bytes: int


class _Counted(NamedTuple):
    row: RunRow
    checkpoints: int
    entries: int

    @property
    def rows(self) -> int:
        return self.checkpoints + self.entries


def measure_biggest(core: StoreContext, rows: list[RunRow]) -> tuple[RunSize, ...]:
    """The biggest of these runs, by checkpoints and entries; of each family only the biggest."""
    found: dict[int, _Counted] = {}
    for row in sorted(rows, key=lambda row: (row.serial + row.position, row.run), reverse=True):
        least = sorted([each.rows for each in found.values()], reverse=True)[BIGGEST - 1 : BIGGEST]
        if least and row.serial + row.position <= least[0]:
            break  # an upper bound for this run and all that follow
        counted = _count(core, row)
        if row.family not in found or counted.rows > found[row.family].rows:
            found[row.family] = counted
    biggest = sorted(found.values(), key=lambda each: (each.rows, each.row.run), reverse=True)[:BIGGEST]
    return tuple(_measure(core, each) for each in biggest)


def estimate_growth(core: StoreContext, rows: list[RunRow], biggest: Sequence[RunSize]) -> Growth:
    """What pruning the biggest runs and those of their families would free, as a prune of just these runs would.

    The runs of a family share their state, so pruning one of them may free little.
    """
    names = {run.run_id for run in biggest if run.prune_frees is not None}
    families = {row.family for row in rows if row.run_id in names}
    related = [row for row in rows if row.family in families and (row.run_id in names or row.serial <= TOO_MANY)]
    related.sort(key=lambda row: (row.run_id in names, row.serial), reverse=True)
    estimate, run_ids, freed = RemovalEstimate(core), [], 0
    for row in related[:PRUNED_MAX]:
        try:
            plan = plan_prune(core, row.run_id, KEEP, estimate)
        except HoldfastError:  # the run was deleted meanwhile, or is damaged
            continue
        if plan.removed or plan.entries or plan.bytes_freed:
            run_ids.append(row.run_id)
            freed += plan.bytes_freed
    return Growth(tuple(run_ids), freed)


def _count(core: StoreContext, row: RunRow) -> _Counted:
    """Count the stored checkpoints and entries of a run; their newest numbers also count removed ones."""
    port = core.port
    checkpoints = _count_pages(lambda after: [c.number for c in port.rows(CheckpointRow, row.run, after, PAGE)])
    entries = _count_pages(
        lambda after: [
            e.position if e.kind != PRUNED else -e.position for e in port.rows(EntryRow, row.run, after, PAGE)
        ]
    )
    return _Counted(row, checkpoints, entries)


def _count_pages(read: Callable[[int], list[int]]) -> int:
    """Count the numbers above 0 on all pages."""
    count, after = 0, 0
    while page := read(after):
        count += sum(number > 0 for number in page)
        after = abs(page[-1])
    return count


def _measure(core: StoreContext, counted: _Counted) -> RunSize:
    row = counted.row
    found = RunSize(
        run_id=row.run_id,
        checkpoints=counted.checkpoints,
        entries=counted.entries,
        bytes=None,
        bytes_per_checkpoint=None,
        keys=(),
        unused_chunks=0,
        prune_frees=None,
    )
    if counted.checkpoints > TOO_MANY:
        return found
    try:
        stored, (roots, _) = StoredChunks(core.port, row.family), core.port.roots(row.family)
        unused = stored.names - reachable_chunks(core, row.family, roots)
        state = stored.stored_bytes + sum(map(len, roots))
        family = core.port.runs(RunQuery(family=row.family, limit=NUMBER_MAX))
        plan = plan_prune(core, row.run_id, KEEP)
        return msgspec.structs.replace(
            found,
            bytes=state + sum(record_bytes(core, each) for each in family),
            bytes_per_checkpoint=state // len(roots) if roots else None,
            keys=_keys(core, row),
            unused_chunks=len(unused),
            prune_frees=plan.bytes_freed,
        )
    except HoldfastError:  # it was deleted meanwhile, or is damaged, which another check reports
        return found


def _keys(core: StoreContext, row: RunRow) -> tuple[KeySize, ...]:
    loaded = load_checkpoint(core, row.run_id, Select()) if row.head else None
    if loaded is None or not isinstance(loaded.state, dict):
        return ()
    sizes = [KeySize(key=str(key), bytes=len(pack(value))) for key, value in loaded.state.items()]
    return tuple(sorted(sizes, key=lambda size: (-size.bytes, size.key))[:KEYS])
