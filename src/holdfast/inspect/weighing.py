"""How much runs weigh: the biggest of some runs, what lies in their state, and what pruning would free."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from holdfast.errors import HoldfastError
from holdfast.model.rows import RunRow
from holdfast.model.views import Keep, View
from holdfast.state.values import pack
from holdfast.store.port import Select
from holdfast.verbs.core import Core, Place
from holdfast.verbs.keeping import marked, prune
from holdfast.verbs.plans import run_plan
from holdfast.verbs.reading import load_checkpoint

BIGGEST: Final = 5
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
    """How many were ever made."""
    entries: int
    bytes: int | None
    """What its family takes in the store; None if it was not weighed."""
    bytes_per_checkpoint: int | None
    keys: tuple[KeyWeight, ...]
    """The biggest keys of its newest state."""
    unused_chunks: int
    prune_frees: int | None
    """What pruning it to ten checkpoints would free."""


def weighed(core: Core, rows: list[RunRow]) -> Iterator[Weighed]:
    """The biggest of these runs, by checkpoints and entries; each family once."""
    seen: set[int] = set()
    for row in sorted(rows, key=lambda row: (row.serial + row.position, row.run), reverse=True):
        if row.family in seen:
            continue
        seen.add(row.family)
        yield _weigh(core, row)
        if len(seen) == BIGGEST:
            return


def _weigh(core: Core, row: RunRow) -> Weighed:
    found = Weighed(
        run_id=row.run_id, checkpoints=row.serial, entries=row.position, bytes=None, bytes_per_checkpoint=None, keys=(),
        unused_chunks=0, prune_frees=None,
    )  # fmt: skip
    if row.serial > TOO_MANY:
        return found
    try:
        sizes, (roots, _) = core.port.chunk_sizes(row.family), core.port.roots(row.family)
        unused = sizes.keys() - marked(core, row.family, roots)
        total = sum(sizes.values()) + sum(map(len, roots))
        plan = run_plan(Place(core), prune(Place(core), row.run_id, KEEP, dry_run=True))
        return Weighed(
            run_id=row.run_id, checkpoints=row.serial, entries=row.position, bytes=total,
            bytes_per_checkpoint=total // len(roots) if roots else None, keys=_keys(core, row),
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
