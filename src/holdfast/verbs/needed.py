"""What a checkpoint needs beside itself, as whoever saved it tells in its metadata, and what may go for all they tell.

    metadata["holdfast"] = {"spans": [[first, last], …], "needs": [checkpoint id, …], "keeps": [[first, last], …]}

`spans` are the journal entries, at or below what the checkpoint covers, without which nobody can go on from it; `needs`
are other checkpoints of the run. Entries behind what it covers are always needed. `keeps` are entries that an open
rollback will go on from.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import msgspec

from holdfast.errors import DamagedData
from holdfast.model.rows import CheckpointRow, EntryRow, RunRow
from holdfast.store.pruning import PRUNED
from holdfast.store.seal import check_seal
from holdfast.verbs.core import Core
from holdfast.verbs.values import body_value, metadata_dict

_KEY: Final = "holdfast"


class Needed(NamedTuple):
    """What a checkpoint tells."""

    spans: list[tuple[int, int]] | None = None
    """None: it tells nothing of the journal, or nothing that can be understood."""
    needs: frozenset[str] = frozenset()
    told: bool = False
    """Whether it tells anything at all."""


_NOTHING: Final = Needed()


def needed(row: CheckpointRow) -> Needed:
    """What the checkpoint tells. What cannot be understood of it counts as not told."""
    if _KEY.encode() not in row.metadata:
        return _NOTHING
    try:
        told: Any = metadata_dict(row.metadata, "").get(_KEY)
    except (DamagedData, ValueError):
        return Needed(told=True)
    if told is None:
        return _NOTHING
    parts = told if isinstance(told, dict) else {}
    spans = _understood(parts.get("spans"), list[tuple[int, int]])
    if spans is not None:
        spans += _understood(parts.get("keeps"), list[tuple[int, int]]) or []
    return Needed(spans, frozenset(_understood(parts.get("needs"), list[str]) or ()), told=True)


def _understood(value: object, kind: Any) -> Any:
    """The value, if it is of this kind, else None."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return None


def with_needed(kept: set[int], checkpoints: list[CheckpointRow]) -> set[int]:
    """The numbers of these checkpoints and of all they need, and those need, and so on."""
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
    if row.lane or not needed(row).told:
        return None
    engine = [each.number for each in checkpoints if not each.lane and needed(each).told]
    if not ended and engine[-1] == row.number:
        return "the run goes on from it; remove it when the run has a newer one or has ended"
    if is_pruned and engine[0] == row.number:
        return "the journal before it was pruned, and the run can only go back to what follows with it"
    return None


class EntrySizes:
    """How many bytes the bodies of journal entries take; 16 bytes are kept of each, so a journal may be long."""

    def __init__(self) -> None:
        self._positions = array("Q")
        self._totals = array("Q", [0])
        """For each entry, and the place behind the last: what all entries before it take."""

    def add(self, rows: Iterable[EntryRow]) -> None:
        """Note these entries, which follow those noted so far. Rows that stand for removed entries do not count."""
        for row in rows:
            if row.kind != PRUNED:
                self._positions.append(row.position)
                self._totals.append(self._totals[-1] + len(row.body))

    def sum_of(self, ranges: Iterable[tuple[int, int]]) -> int:
        """What the entries in these ranges of positions take."""
        at = self._positions
        return sum(self._totals[bisect_right(at, b)] - self._totals[bisect_left(at, a)] for a, b in ranges)


class Lasting(NamedTuple):
    """Journal entries that outlast every prune: a later rollback or fork needs them whatever checkpoints are kept.

    They say what earlier rollbacks took back, where a fork came from, and which children may have to be undone.
    """

    positions: frozenset[int]
    through: int
    """How far the journal was read; beyond that nothing may be removed."""
    sizes: EntrySizes


def lasting_entries(core: Core, run: RunRow) -> Lasting:
    """The entries of a run that no prune may remove."""
    found, sizes, after = set(), EntrySizes(), 0
    while rows := core.port.entries(run.run, after, _PAGE):
        sizes.add(rows)
        found |= {row.position for row in rows if row.kind in _LASTING or _starts_child_with_effects(core, run, row)}
        after = rows[-1].position
    return Lasting(frozenset(found), run.position, sizes)


_LASTING: Final = frozenset({"rolled_back", "forked"})
_PAGE: Final = 1_000


def _starts_child_with_effects(core: Core, run: RunRow, row: EntryRow) -> bool:
    """Whether the entry started a child that did something to the world, itself or by children of its own."""
    if row.kind != "child":
        return False
    place = f"entry {row.position} of run {run.run_id!r}"
    check_seal(row, run.incarnation, place)
    entry = body_value(row.body, place)
    child = core.port.run(entry["child"]) if isinstance(entry, dict) and isinstance(entry.get("child"), str) else None
    if child is None:
        return False
    return child.effects > 0 or any(each.kind == "child" for each in core.port.entries(child.run, 0, -1))


def unneeded_entries(checkpoints: Iterable[CheckpointRow], lasting: Lasting) -> list[tuple[int, int]]:
    """The ranges of positions that none of these checkpoints, oldest first, needs; none if they do not tell.

    That is as far as the oldest of the default lane covers, without what lies in anybody's spans, without the lasting
    entries, and without position 1, where a run's beginning stands. A checkpoint that another one needs is there for
    its state; what came after it is told by the spans of the one that needs it.
    """
    rows = list(checkpoints)
    told = [needed(row) for row in rows]
    beneath = {name for each in told for name in each.needs}
    default = [row for row in rows if not row.lane and row.checkpoint_id not in beneath]
    if not default or needed(default[0]).spans is None or any(each.told and each.spans is None for each in told):
        return []
    # A newer one may cover less, and whoever goes on from it needs what comes behind that.
    end = min([lasting.through, *[row.covers for row in default]])
    ranges, free = [], 2
    kept = [span for each in told for span in each.spans or ()] + [(at, at) for at in lasting.positions]
    for first, last in sorted(kept):
        if first > free:
            ranges.append((free, min(first - 1, end)))
        free = max(free, last + 1)
    return [(a, b) for a, b in [*ranges, (free, end)] if a <= b]
