"""The effects of a prune on a run's journal and heads, the same for every store.

One row replaces a range of removed entries. It is at the range's first position, has the kind `pruned`, and its body
names the last position. So positions never change, and a gap without such a row is damage. If a prune removes the
newest checkpoint of a lane, the newest that remains becomes its head; a run's `serial` stays, so numbers are not used
again.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Literal, NamedTuple

import msgspec

from holdfast.errors import DamagedData
from holdfast.model.rows import COMPLETED, WAITING, CheckpointRow, EntryRow, LaneRow, RunRow
from holdfast.store.checksum import verify_checksum, verify_run, with_checksum, with_new_commit_id

PRUNED: Final = "pruned"
"""The kind of such rows, which is reserved for them."""
_RAW: Final = b"\x00"

ChooseEntries = Callable[[RunRow, list[CheckpointRow]], Sequence[tuple[int, int]]]
"""Selects the entries to remove: inclusive ranges (first, last) of positions of a run with these checkpoints."""


class _Body(msgspec.Struct):
    kind: Literal["pruned"]
    through: int


_replace = msgspec.structs.replace
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Body).decode


def pruned_body(through: int) -> bytes:
    """The body of a row that covers all positions up to `through`."""
    return _RAW + _encode(_Body(PRUNED, through))


def last_of(row: EntryRow) -> int:
    """The last position that a row covers: its own, unless it replaces removed entries."""
    if row.kind != PRUNED:
        return row.position
    try:
        last = _decode(row.body[1:]).through if row.body[:1] == _RAW else 0
    except (msgspec.MsgspecError, TypeError):
        last = 0
    if last < row.position:
        raise DamagedData(f"journal entry {row.position}", "its range of pruned entries cannot be read")
    return last


class Pruning(NamedTuple):
    """The planned changes of a journal."""

    run: RunRow
    """The run's row afterwards: only its commit id changes."""
    rows: list[EntryRow]
    """Each replaces all rows from its position to the last one that it covers."""
    there: int
    """How many rows are replaced; if there are fewer, entries are missing, which must be reported."""
    entries: int
    """How many entries are removed."""

    def check(self, found: int) -> None:
        """Raise DamagedData if another number of rows was found."""
        if found != self.there:
            raise DamagedData(f"the journal of run {self.run.run_id!r}", "entries are missing in a range to be pruned")


def planned_pruning(
    run: RunRow, ranges: Iterable[tuple[int, int]], pruned: Iterable[EntryRow], now_us: int
) -> Pruning | None:
    """Plan the removal of these ranges; None if there is nothing to remove.

    `pruned` are all rows of the run that replace removed entries. Ranges adjacent to them, or to each other, are
    merged.
    """
    after = with_new_commit_id(run)
    rows: list[EntryRow] = []
    there = removed = 0
    for block in _blocks(run, ranges, pruned):
        entries = block.last - block.first + 1 - block.known
        if entries == 0 and block.rows < 2:
            continue  # all of it was removed before
        row = EntryRow(block.first, PRUNED, now_us, after.commit_id, pruned_body(block.last))
        rows.append(with_checksum(row, run.incarnation))
        there += entries + block.rows
        removed += entries
    return Pruning(after, rows, there, removed) if rows else None


class _Block(NamedTuple):
    """A range of positions, `known` of which were removed before and are replaced by `rows` rows."""

    first: int
    last: int
    rows: int
    known: int


def _blocks(run: RunRow, ranges: Iterable[tuple[int, int]], pruned: Iterable[EntryRow]) -> list[_Block]:
    """All ranges, new and old, merged where they are adjacent."""
    parts = [_Block(max(first, 1), min(last, run.position), 0, 0) for first, last in ranges]
    for row in pruned:
        verify_checksum(row, run.incarnation, f"entry {row.position} of run {run.run_id!r}")
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
    """The slice of a sorted list that has the rows of these positions."""
    return slice(bisect_left(entries, first, key=_position), bisect_right(entries, last, key=_position))


def _position(row: EntryRow) -> int:
    return row.position


class HeadMove(NamedTuple):
    """The new heads of lanes whose head was pruned."""

    run: RunRow
    """The run's row afterwards: with a new commit id, and a new head if that of the default lane was pruned."""
    lanes: list[LaneRow]
    """The heads of other lanes; a `head` of 0 means that the lane has no checkpoints any more."""


def heads_after(
    run: RunRow, checkpoints: Iterable[CheckpointRow], gone: Iterable[CheckpointRow], *, reopen: bool = False
) -> HeadMove | None:
    """The new heads if, of all `checkpoints` (oldest first), those in `gone` are removed; None if no head moves.

    With `reopen`, a completed run whose default lane loses its head becomes waiting. Raises DamagedData if the run's
    row or a new head does not match its checksum: a damaged row must not get a valid checksum.
    """
    numbers = {row.number for row in gone}
    newest: dict[str, int] = {}
    left: dict[str, CheckpointRow] = {}
    for row in checkpoints:
        newest[row.lane] = row.number
        if row.number not in numbers:
            left[row.lane] = row
    newest[""] = run.head
    heads = [_head(run, lane, left.get(lane)) for lane, number in newest.items() if number in numbers]
    if not heads:
        return None
    after = with_new_commit_id(verify_run(run))
    for head in heads:
        if not head.lane:
            status = WAITING if reopen and after.status == COMPLETED else after.status
            after = _replace(after, head=head.head, head_id=head.head_id, step=head.step, status=status, seal=0)
            after = with_checksum(after, after.incarnation)
    return HeadMove(after, [head for head in heads if head.lane])


def _head(run: RunRow, lane: str, row: CheckpointRow | None) -> LaneRow:
    if row is None:
        return LaneRow(lane, 0, "", 0)
    verify_checksum(row, run.incarnation, f"checkpoint {row.checkpoint_id!r} of run {run.run_id!r}")
    return LaneRow(lane, row.number, row.checkpoint_id, row.step)
