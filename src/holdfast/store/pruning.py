"""Pruned journal entries: one row stands for a range of positions whose entries were removed.

It stands at the range's first position, has the kind `pruned`, and its body says through which position it reaches. So
positions never change, and a gap that no such row explains is damage. What a prune makes of a journal is decided here,
the same for every store.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Literal, NamedTuple

import msgspec

from holdfast.errors import DamagedData
from holdfast.model.rows import CheckpointRow, EntryRow, RunRow
from holdfast.store.seal import check_seal, sealed, touched

PRUNED: Final = "pruned"
"""The kind of such rows; nobody else's entries may have it."""
_RAW: Final = b"\x00"

ChooseEntries = Callable[[RunRow, list[CheckpointRow]], Sequence[tuple[int, int]]]
"""Says which entries are to go: ranges (first, last) of positions, inclusive, of a run with these checkpoints."""


class _Body(msgspec.Struct):
    kind: Literal["pruned"]
    through: int


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Body).decode


def pruned_body(through: int) -> bytes:
    """The body of a row that stands for all positions up to `through`."""
    return _RAW + _encode(_Body(PRUNED, through))


def last_of(row: EntryRow) -> int:
    """The last position a row stands for: its own, unless it stands for entries that were removed."""
    if row.kind != PRUNED:
        return row.position
    try:
        last = _decode(row.body[1:]).through if row.body[:1] == _RAW else 0
    except (msgspec.MsgspecError, TypeError):
        last = 0
    if last < row.position:
        raise DamagedData(f"journal entry {row.position}", "it does not say which entries it stands for")
    return last


class Pruning(NamedTuple):
    """What is to be done to a journal."""

    run: RunRow
    """The run's row afterwards: nothing but its commit id is another."""
    rows: list[EntryRow]
    """Sealed; each is to be put in the place of all rows from its position through the last it stands for."""
    there: int
    """So many rows must be in those places now; otherwise some are missing, which must not be covered up."""
    entries: int
    """How many entries are removed."""

    def check(self, found: int) -> None:
        """Raise DamagedData if not so many rows were found as must be there."""
        if found != self.there:
            raise DamagedData(f"the journal of run {self.run.run_id!r}", "entries are missing where it is to be pruned")


def planned_pruning(
    run: RunRow, ranges: Iterable[tuple[int, int]], pruned: Iterable[EntryRow], now_us: int
) -> Pruning | None:
    """What removing these ranges comes to; None if there is nothing to remove.

    `pruned` are all rows of the run that stand for removed entries. Ranges that touch them, or each other, become one.
    """
    after = touched(run)
    rows: list[EntryRow] = []
    there = removed = 0
    for block in _blocks(run, ranges, pruned):
        entries = block.last - block.first + 1 - block.known
        if entries == 0 and block.rows < 2:
            continue  # all of it went before
        row = EntryRow(block.first, PRUNED, now_us, after.commit_id, pruned_body(block.last))
        rows.append(sealed(row, run.incarnation))
        there += entries + block.rows
        removed += entries
    return Pruning(after, rows, there, removed) if rows else None


class _Block(NamedTuple):
    """A range of positions; of them `known` went before, and so many `rows` stand for those."""

    first: int
    last: int
    rows: int
    known: int


def _blocks(run: RunRow, ranges: Iterable[tuple[int, int]], pruned: Iterable[EntryRow]) -> list[_Block]:
    """All ranges, wanted and known, that do not touch each other any more."""
    parts = [_Block(max(first, 1), min(last, run.position), 0, 0) for first, last in ranges]
    for row in pruned:
        check_seal(row, run.incarnation, f"entry {row.position} of run {run.run_id!r}")
        last = last_of(row)
        parts.append(_Block(row.position, last, 1, last - row.position + 1))
    found: list[_Block] = []
    for part in sorted(part for part in parts if part.first <= part.last):
        if found and part.first <= found[-1].last + 1:
            first, last, rows, known = found[-1]
            found[-1] = _Block(first, max(last, part.last), rows + part.rows, known + part.known)
        else:
            found.append(part)
    return found


def entries_between(entries: Sequence[EntryRow], first: int, last: int) -> slice:
    """Where the rows of these positions are in a list that is in order."""
    return slice(bisect_left(entries, first, key=_position), bisect_right(entries, last, key=_position))


def _position(row: EntryRow) -> int:
    return row.position
