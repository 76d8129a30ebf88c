"""What users see of what is stored. All of it is immutable; times are in UTC."""

from __future__ import annotations

import datetime as dt
from typing import Any, Generic, Literal, TypeVar

import msgspec

from holdfast.errors import InvalidInput
from holdfast.model.status import TERMINAL

State = TypeVar("State")


class View(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all views."""


class CheckpointInfo(View, frozen=True, kw_only=True):
    """A checkpoint without its state, as `store.history` lists it."""

    run_id: str
    checkpoint_id: str
    parent_id: str | None
    lane: str
    step: int
    next_node: str | None
    covers: int
    """The journal position up to which the state includes the journal."""
    status: str
    metadata: dict[str, Any]
    created_at: dt.datetime
    number: int
    """Checkpoints of a run are numbered as they were made; numbers are never reused."""

    @property
    def terminal(self) -> bool:
        """Whether it was saved with a terminal status."""
        return self.status in TERMINAL


class Checkpoint(CheckpointInfo, Generic[State], frozen=True, kw_only=True):
    """A checkpoint with its state, as `store.load` gives it."""

    state: State


class Saved(View, frozen=True, kw_only=True):
    """What `save` did."""

    run_id: str
    checkpoint_id: str
    covers: int
    """The journal position the checkpoint covers."""
    step: int
    terminal: bool
    bytes_added: int
    """How much state was added to the store; 0 if the very same checkpoint was there already."""
    number: int

    @property
    def reference(self) -> str:
        """The checkpoint's id, by which it can be loaded again."""
        return self.checkpoint_id


class RunInfo(View, frozen=True, kw_only=True):
    """A run, as `store.runs` lists it."""

    run_id: str
    workflow: str
    status: str
    metadata: dict[str, Any]
    created_at: dt.datetime
    updated_at: dt.datetime
    position: int
    """The last position of its journal."""
    checkpoint_id: str | None
    """Its newest checkpoint on the default lane."""
    step: int
    owner: str | None
    """Who holds it; the lease may have ended."""
    forked_from: str | None
    cursor: str
    """Pass it as `after` to go on behind this run."""

    @property
    def terminal(self) -> bool:
        """Whether it has ended: completed, failed or cancelled."""
        return self.status in TERMINAL


class RunList(list[RunInfo]):
    """A page of runs. `cursor` goes on behind it; None if there is certainly nothing more."""

    def __init__(self, runs: list[RunInfo], cursor: str | None) -> None:
        super().__init__(runs)
        self.cursor = cursor


class Entry(View, frozen=True, kw_only=True):
    """A journal entry. `entry["key"]` reads its data."""

    position: int
    kind: str
    data: dict[str, Any]
    """The entry as it was appended."""
    created_at: dt.datetime

    def __getitem__(self, key: str) -> Any:
        return self.data[key]


class Effect(View, frozen=True, kw_only=True):
    """A line of the ledger of side effects."""

    key: str
    state: Literal["in_doubt", "done", "failed", "undone"]
    """`in_doubt`: its intent is recorded, its outcome is not."""
    tool: str
    target: str | None
    reversible: bool
    result: Any
    created_at: dt.datetime
    updated_at: dt.datetime
    idempotency_key: str | None = None
    """What its function was given to tell its tries from other calls; None if a workflow did not call it."""

    @property
    def done(self) -> bool:
        """Whether it was done."""
        return self.state == "done"


class Change(View, frozen=True, kw_only=True):
    """One difference between two states."""

    op: Literal["add", "remove", "replace"]
    path: tuple[str | int, ...]
    old: Any = None
    new: Any = None

    @property
    def pointer(self) -> str:
        """The path as a JSON Pointer."""
        return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in self.path)


class Keep(View, frozen=True, kw_only=True):
    """What `prune` must leave. A checkpoint stays if any rule keeps it; on each lane the newest one always does."""

    last: int = 1
    """The newest so many of each lane."""
    covering: int | None = None
    """All that cover this journal position or a later one."""
    latest_terminal: bool = True
    """The newest of each lane that was saved with a terminal status."""
    before_pending_effects: bool = True
    """For every effect in doubt, the newest checkpoint that was there before it."""
    journal: bool = False
    """True: also remove the journal entries that none of the kept checkpoints needs, as far as those tell."""

    def __post_init__(self) -> None:
        if type(self.last) is not int or self.last < 1:
            raise InvalidInput(
                f"Keep(last={self.last!r}): at least the newest checkpoint is kept, so it must be 1 or more"
            )
        if self.covering is not None and (type(self.covering) is not int or self.covering < 0):
            raise InvalidInput(f"Keep(covering={self.covering!r}) must be a journal position")


class Pruned(View, frozen=True, kw_only=True):
    """What `prune` removed, or would remove."""

    run_id: str
    removed: tuple[str, ...]
    """The ids of the checkpoints, oldest first."""
    kept: int
    chunks: int
    """Pieces of state that nothing needs any more."""
    bytes_freed: int
    """The bodies that went, as stored: of the state, the attachments and the journal entries."""
    dry_run: bool
    damage: str | None = None
    """Damage that kept state or entries from being removed: what a damaged checkpoint needs is not known."""
    entries: int = 0
    """How many journal entries were removed."""
    kept_more: dict[str, int] = {}
    """How many checkpoints were kept beyond the newest `Keep.last` of each lane, by reason.

    `resume`: a resume, retry or rollback goes on from it; `ended`: saved when the run ended; `effect`: the newest
    before an effect in doubt; `covering`: it covers what `Keep.covering` asks for; `needed`: a kept checkpoint names it
    as needed; `delta`: delta channels of a kept LangGraph checkpoint are computed from it.
    """


class Problem(View, frozen=True, kw_only=True):
    """Something `verify` found wrong."""

    place: str
    reason: str


class Report(View, frozen=True, kw_only=True):
    """What `verify` looked at and found."""

    problems: list[Problem]
    runs: int
    checkpoints: int
    entries: int
    chunks: int
    unused_chunks: int
    """Pieces of state that nothing needs; harmless, and freed by the next prune of their run."""

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems


class Stats(View, frozen=True, kw_only=True):
    """What a store holds."""

    runs: dict[str, int]
    """How many runs there are of each status."""
    checkpoints: int
    entries: int
    effects: int
    attachments: int
    chunks: int
    state_bytes: int
    """All checkpoints and attachments together, as stored."""
    file_bytes: int
    """On disk, with everything the store keeps beside it; 0 for a store without a disk."""
