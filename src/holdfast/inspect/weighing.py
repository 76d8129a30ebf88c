"""How much runs weigh: the biggest of some runs, what lies in their state, and what pruning would free."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import msgspec

from holdfast.errors import HoldfastError
from holdfast.limits import NUMBER_MAX
from holdfast.model.rows import RunRow
from holdfast.model.views import Keep, View
from holdfast.state.values import pack
from holdfast.store.port import RunQuery, Select
from holdfast.store.pruning import PRUNED
from holdfast.verbs.core import Core
from holdfast.verbs.keeping import RemovalEstimate, marked, plan_prune, record_bytes
from holdfast.verbs.reading import PAGE, load_checkpoint

BIGGEST: Final = 5
PRUNED_MAX: Final = 20
"""So many runs are named in the advice to prune."""
KEYS: Final = 5
TOO_MANY: Final = 20_000
"""Runs with more checkpoints than this are only counted: looking into them would take long."""
KEEP: Final = Keep(last=10, journal=True)


class KeyWeight(View, frozen=True, kw_only=True):
    """A key of a state, and how many bytes its value takes, encoded and uncompressed."""

    key: str
    bytes: int


class Weighed(View, frozen=True, kw_only=True):
    """A run, and how much there is of it."""

    run_id: str
    checkpoints: int
    entries: int
    """How many of each there are now, without those that were pruned."""
    bytes: int | None
    """What its family takes in the store: state, journal and ledger, as stored; None if it was not weighed."""
    bytes_per_checkpoint: int | None
    """Of the state alone."""
    keys: tuple[KeyWeight, ...]
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


def weigh_biggest(core: Core, rows: list[RunRow]) -> tuple[Weighed, ...]:
    """The biggest of these runs, by checkpoints and entries; of each family only the biggest."""
    found: dict[int, _Counted] = {}
    for row in sorted(rows, key=lambda row: (row.serial + row.position, row.run), reverse=True):
        least = sorted([each.rows for each in found.values()], reverse=True)[BIGGEST - 1 : BIGGEST]
        if least and row.serial + row.position <= least[0]:
            break  # it never had more, and neither have those that follow
        counted = _count(core, row)
        if row.family not in found or counted.rows > found[row.family].rows:
            found[row.family] = counted
    biggest = sorted(found.values(), key=lambda each: (each.rows, each.row.run), reverse=True)[:BIGGEST]
    return tuple(_weigh(core, each) for each in biggest)


def estimate_growth(core: Core, rows: list[RunRow], biggest: Sequence[Weighed]) -> Growth:
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
        except HoldfastError:  # as below
            continue
        if plan.removed or plan.entries or plan.bytes_freed:
            run_ids.append(row.run_id)
            freed += plan.bytes_freed
    return Growth(tuple(run_ids), freed)


def _count(core: Core, row: RunRow) -> _Counted:
    """How many checkpoints and entries a run has. The numbers of the newest say how many there were."""
    port = core.port
    checkpoints = _count_pages(lambda after: [c.number for c in port.checkpoints(row.run, after, PAGE)])
    entries = _count_pages(
        lambda after: [e.position if e.kind != PRUNED else -e.position for e in port.entries(row.run, after, PAGE)]
    )
    return _Counted(row, checkpoints, entries)


def _count_pages(read: Callable[[int], list[int]]) -> int:
    """How many of the numbers are above 0, on all pages."""
    count, after = 0, 0
    while page := read(after):
        count += sum(number > 0 for number in page)
        after = abs(page[-1])
    return count


def _weigh(core: Core, counted: _Counted) -> Weighed:
    row = counted.row
    found = Weighed(
        run_id=row.run_id, checkpoints=counted.checkpoints, entries=counted.entries, bytes=None,
        bytes_per_checkpoint=None, keys=(), unused_chunks=0, prune_frees=None,
    )  # fmt: skip
    if counted.checkpoints > TOO_MANY:
        return found
    try:
        sizes, (roots, _) = core.port.chunk_sizes(row.family), core.port.roots(row.family)
        unused = sizes.keys() - marked(core, row.family, roots)
        state = sum(sizes.values()) + sum(map(len, roots))
        family = core.port.runs(RunQuery(family=row.family, limit=NUMBER_MAX))
        plan = plan_prune(core, row.run_id, KEEP)
        return msgspec.structs.replace(
            found, bytes=state + sum(record_bytes(core, each) for each in family),
            bytes_per_checkpoint=state // len(roots) if roots else None, keys=_keys(core, row),
            unused_chunks=len(unused), prune_frees=plan.bytes_freed,
        )  # fmt: skip
    except HoldfastError:  # it was deleted meanwhile, or is damaged, which is told elsewhere
        return found


def _keys(core: Core, row: RunRow) -> tuple[KeyWeight, ...]:
    loaded = load_checkpoint(core, row.run_id, Select()) if row.head else None
    if loaded is None or not isinstance(loaded.state, dict):
        return ()
    weights = [KeyWeight(key=str(key), bytes=len(pack(value))) for key, value in loaded.state.items()]
    return tuple(sorted(weights, key=lambda weight: (-weight.bytes, weight.key))[:KEYS])
