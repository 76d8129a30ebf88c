"""Heads that go back: if a prune takes the newest checkpoint of a lane, the newest that remains there is its head.

Decided here, the same for every store. Numbers are not used again: a run's `serial` stays what it is.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from holdfast.model.rows import CheckpointRow, LaneRow, RunRow
from holdfast.model.status import COMPLETED, WAITING
from holdfast.store.seal import check_run, check_seal, sealed, touched

_replace = msgspec.structs.replace


class Retreat(NamedTuple):
    """Where the heads are after a prune, of the lanes that lost theirs."""

    run: RunRow
    """The run's row afterwards: with another commit id, and another head if the default lane lost its own."""
    lanes: list[LaneRow]
    """The heads of other lanes; one whose `head` is 0 says that nothing remains on its lane."""


def heads_after(
    run: RunRow, checkpoints: Iterable[CheckpointRow], gone: Iterable[CheckpointRow], *, reopen: bool = False
) -> Retreat | None:
    """Where the heads go if of all `checkpoints`, oldest first, those in `gone` are removed; None if they stay.

    With `reopen`, a completed run whose default lane loses its head is waiting afterwards.
    Raises DamagedData if the run's row, or what becomes a head, does not fit its seal: damage must not get a new one.
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
    after = touched(check_run(run))
    for head in heads:
        if not head.lane:
            status = WAITING if reopen and after.status == COMPLETED else after.status
            after = _replace(after, head=head.head, head_id=head.head_id, step=head.step, status=status, seal=0)
            after = sealed(after, after.incarnation)
    return Retreat(after, [head for head in heads if head.lane])


def _head(run: RunRow, lane: str, row: CheckpointRow | None) -> LaneRow:
    if row is None:
        return LaneRow(lane, 0, "", 0)
    check_seal(row, run.incarnation, f"checkpoint {row.checkpoint_id!r} of run {run.run_id!r}")
    return LaneRow(lane, row.number, row.checkpoint_id, row.step)
