"""A decision in the making: what changes in the run's row, and the rows that go with it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

import msgspec

from holdfast.clock import LeaseTime
from holdfast.model.commit import Commit
from holdfast.model.rows import (
    AttachmentRow,
    CheckpointRow,
    EffectRow,
    EntryRow,
    GateRow,
    ItemRow,
    LaneRow,
    MessageRow,
    RunRow,
    TimerRow,
)
from holdfast.store.seal import SealedRow, check_seal, sealed

_replace = msgspec.structs.replace

Lease = Callable[[], LeaseTime]
"""Tells the moment by which leases are measured, if anybody asks."""


PROGRESS: Final = frozenset({"position", "serial", "head", "head_id", "step"})
"""What an ordinary save or append changes in a run's row, beside `updated_us`, `commit_id` and `seal`."""


class Look(Protocol):
    """Reads inside the transaction of a commit. `run` is the store's own number for the run."""

    def source(self, run_id: str) -> RunRow | None: ...
    def new_run(self) -> int: ...
    def checkpoint(self, run: int, lane: str, checkpoint_id: str) -> CheckpointRow | None: ...
    def lane(self, run: int, lane: str) -> LaneRow | None: ...
    def effect(self, run: int, key: str) -> EffectRow | None: ...
    def attachment(self, run: int, lane: str, checkpoint_id: str, key: str) -> AttachmentRow | None: ...
    def gate(self, run: int, gate: str) -> GateRow | None: ...
    def timer(self, run: int, timer: str) -> TimerRow | None: ...
    def item(self, run: int, key: str) -> ItemRow | None: ...
    def items(self, run: int, numbers: Sequence[int]) -> list[ItemRow]: ...


class Decision(msgspec.Struct, gc=False):
    """The rows to write, sealed."""

    run: RunRow
    created: bool
    commit: Commit
    fresh: bool = True
    """False: everything is there already, nothing is to be written."""
    progress: bool = False
    """True: of the run's row only what `PROGRESS` names has changed."""
    checkpoints: Sequence[CheckpointRow] = ()
    replaced: Sequence[CheckpointRow] = ()
    lanes: Sequence[LaneRow] = ()
    entries: Sequence[EntryRow] = ()
    effects: Sequence[EffectRow] = ()
    attachments: Sequence[AttachmentRow] = ()
    gates: Sequence[GateRow] = ()
    items: Sequence[ItemRow] = ()
    taken: Sequence[ItemRow] = ()
    """Items already there that change: taken out of the inbox, or put back into it."""
    messages: Sequence[MessageRow] = ()
    old_tags: Sequence[tuple[str, bytes]] = ()
    new_tags: Sequence[tuple[str, bytes]] = ()
    drop_timers: Sequence[str] = ()
    numbers: tuple[int, ...] = ()
    """The numbers of the commit's checkpoints, or of its delivered items."""
    checkpoint_id: str = ""
    covers: int = 0
    step: int = 0


class Draft(Decision, gc=False, kw_only=True):
    """A decision in the making. `run` is still the row as it was; what changes in it is gathered in `changes`."""

    now_us: int
    lease: Lease
    look: Look | None
    """Reads; None for a run that is only now created, about which there is nothing to read."""
    position: int
    """The journal's last position once this commit is applied."""
    changes: dict[str, Any]

    def now(self, field: str) -> Any:
        """A field of the run's row, with the changes so far."""
        changes = self.changes
        return changes[field] if field in changes else getattr(self.run, field)

    def seal(self, row: SealedRow) -> SealedRow:
        """`row`, sealed for this run."""
        return sealed(row, self.run.incarnation)

    def sound(self, row: SealedRow | None) -> SealedRow | None:
        """A row that was read to be changed: damage must not get a new seal."""
        if row is not None:
            check_seal(row, self.run.incarnation, f"a row of run {self.run.run_id!r} ({type(row).__name__})")
        return row

    def decided(self, look: Look) -> Decision:
        """The decision: with the run's row as it will be, or nothing at all if there is nothing new."""
        changes = self.changes
        if self.created:
            number = look.new_run()
            changes["run"] = number
            changes["family"] = self.run.family or number
        elif not changes and not (self.gates or self.items or self.effects or self.taken or self.drop_timers):
            self.fresh = bool(self.commit.timers or self.commit.sent)
            if not self.fresh:
                return self
        self.progress = changes.keys() <= PROGRESS
        changes["commit_id"] = self.commit.commit_id
        if not self.commit.keep_updated:
            changes["updated_us"] = self.now_us
        row = _replace(self.run, seal=0, **changes)
        self.run = sealed(row, row.incarnation)
        return self
