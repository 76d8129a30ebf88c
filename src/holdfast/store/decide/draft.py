"""A decision in the making: what changes in the run's row, and the rows that go with it."""

from __future__ import annotations

from collections.abc import Sequence
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
from holdfast.store.seal import SealedRow, sealed

_replace = msgspec.structs.replace


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
    messages: Sequence[MessageRow] = ()
    old_tags: Sequence[tuple[str, bytes]] = ()
    new_tags: Sequence[tuple[str, bytes]] = ()
    drop_timers: Sequence[str] = ()
    numbers: tuple[int, ...] = ()
    covers: int = 0
    step: int = 0


class Draft:
    """Gathers changes; becomes a `Decision`."""

    __slots__ = ("_changes", "_look", "commit", "created", "lease", "now_us", "out", "position", "row", "wrote")

    def __init__(
        self, row: RunRow, commit: Commit, now_us: int, lease: LeaseTime, look: Look, *, created: bool
    ) -> None:
        self.row = row
        self.commit = commit
        self.now_us = now_us
        self.lease = lease
        self._look = look
        self.created = created
        self.position = row.position + len(commit.entries)
        """The journal's last position once this commit is applied."""
        self.wrote = created
        self.out = Decision(row, created)
        self._changes: dict[str, Any] = {}

    @property
    def look(self) -> Look | None:
        """Reads; None for a run that is only now created, about which there is nothing to read."""
        return None if self.created else self._look

    def change(self, **fields: Any) -> None:
        """Change fields of the run's row."""
        self._changes.update(fields)
        self.wrote = True

    def now(self, field: str) -> Any:
        """A field of the run's row, with the changes so far."""
        return self._changes.get(field, getattr(self.row, field))

    def seal(self, row: SealedRow) -> SealedRow:
        """`row`, sealed for this run."""
        self.wrote = True
        return sealed(row, self.row.incarnation)

    def decision(self) -> Decision:
        """The rows, with the run's row as it will be."""
        out = self.out
        if not self.wrote:
            out.fresh = False
            return out
        if self.created:
            number = self._look.new_run()
            self.change(run=number, family=self.row.family or number)
        out.progress = self._changes.keys() <= PROGRESS
        row = _replace(self.row, updated_us=self.now_us, commit_id=self.commit.commit_id, **self._changes)
        out.run = sealed(row, row.incarnation)
        return out
