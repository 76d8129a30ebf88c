"""The views of stored data that users see. They are immutable; times are in UTC."""

from __future__ import annotations

import datetime as dt
from typing import Any, Generic, Literal, TypeVar

import msgspec

from holdfast.errors import InvalidInput
from holdfast.ids import display_name
from holdfast.model.rows import TERMINAL

State = TypeVar("State")
StoredDict = dict[str, Any]
"""A dict of values that can be stored: metadata, the data of an entry, attachments by key."""


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
    metadata: StoredDict
    created_at: dt.datetime
    number: int
    """Checkpoints of a run are numbered in the order of their saves; numbers are never reused."""

    @property
    def terminal(self) -> bool:
        """Whether it was saved with a terminal status."""
        return self.status in TERMINAL


class Checkpoint(CheckpointInfo, Generic[State], frozen=True, kw_only=True):
    """A checkpoint with its state, as `store.load` returns it."""

    state: State


class Saved(View, frozen=True, kw_only=True):
    """The result of `save`."""

    run_id: str
    checkpoint_id: str
    covers: int
    """The journal position the checkpoint covers."""
    step: int
    terminal: bool
    bytes_added: int
    """How much state was added to the store; 0 if the same checkpoint was stored already."""
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
    metadata: StoredDict
    created_at: dt.datetime
    updated_at: dt.datetime
    position: int
    """The last position of its journal."""
    checkpoint_id: str | None
    """Its newest checkpoint on the default lane."""
    step: int
    owner: str | None
    """The owner of its claim; the lease may have expired."""
    forked_from: str | None
    cursor: str
    """Pass it as `after` to list the runs after this one."""

    @property
    def terminal(self) -> bool:
        """Whether it has ended: completed, failed or cancelled."""
        return self.status in TERMINAL


class RunList(list[RunInfo]):
    """A page of runs. `cursor` is the start of the next page; None if there is none."""

    def __init__(self, runs: list[RunInfo], cursor: str | None) -> None:
        super().__init__(runs)
        self.cursor = cursor


class Entry(View, frozen=True, kw_only=True):
    """A journal entry. `entry["key"]` reads its data."""

    position: int
    kind: str
    data: StoredDict
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
    """The key by which its attempts are distinguished from other calls; None if a workflow did not call it."""

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
    """What `prune` keeps. A checkpoint stays if any rule keeps it; the newest one of each lane always stays."""

    last: int = 1
    """How many of the newest checkpoints of each lane stay."""
    covering: int | None = None
    """Keep all that cover this journal position or a later one."""
    latest_terminal: bool = True
    """Keep the newest of each lane that was saved with a terminal status."""
    before_pending_effects: bool = True
    """Keep, for every effect in doubt, the newest checkpoint before it."""
    journal: bool = False
    """True: also remove the journal entries that none of the kept checkpoints declares as needed."""

    def __post_init__(self) -> None:
        if type(self.last) is not int or self.last < 1:
            raise InvalidInput(f"Keep(last={self.last!r}) must be 1 or more: the newest checkpoint is always kept")
        if self.covering is not None and (type(self.covering) is not int or self.covering < 0):
            raise InvalidInput(f"Keep(covering={self.covering!r}) must be a journal position, an integer of at least 0")


class Pruned(View, frozen=True, kw_only=True):
    """What `prune` removed, or would remove in a dry run."""

    run_id: str
    removed: tuple[str, ...]
    """The ids of the checkpoints, oldest first."""
    kept: int
    chunks: int
    """Pieces of state that were not needed any more."""
    bytes_freed: int
    """The removed bytes, as stored: of state, attachments and journal entries."""
    dry_run: bool
    damage: str | None = None
    """Damage that prevented the removal of state or entries: the needs of a damaged checkpoint are unknown."""
    entries: int = 0
    """How many journal entries were removed."""
    kept_more: dict[str, int] = {}
    """How many checkpoints were kept beyond the newest `Keep.last` of each lane, by reason.

    `resume`: a resume, retry or rollback starts from it; `ended`: saved when the run ended; `effect`: the newest
    before an effect in doubt; `covering`: it covers what `Keep.covering` asks for; `needed`: a kept checkpoint names it
    as needed; `delta`: delta channels of a kept LangGraph checkpoint are computed from it.
    """


class Problem(View, frozen=True, kw_only=True):
    """A problem that `verify` found."""

    place: str
    reason: str


class Report(View, frozen=True, kw_only=True):
    """The result of `verify`."""

    problems: list[Problem]
    runs: int
    checkpoints: int
    entries: int
    chunks: int
    unused_chunks: int
    """Pieces of state that nothing needs; harmless, and freed by the next prune of their run."""

    @property
    def ok(self) -> bool:
        """Whether there are no problems."""
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
    """On disk, with all files of the store; 0 for a store without a disk."""


class GateInfo(View, frozen=True, kw_only=True):
    """A gate, at which a run waits for an answer, as `app.gates` lists it."""

    run_id: str
    workflow: str
    gate: str
    state: str
    """`open`, `answered`, `expired` or `closed`."""
    prompt: str
    form: Any
    """The fields an answer has: a `holdfast.Form`."""
    show: Any
    """What is shown together with the question."""
    who: tuple[str, ...]
    """The people or groups that may answer; empty: everyone."""
    purpose: str
    """`ask`, `in_doubt` for an effect whose outcome is unknown, or `interrupt` of a LangGraph thread, which is
    answered through its graph."""
    opened_at: dt.datetime
    expires_at: dt.datetime | None
    answered_at: dt.datetime | None
    answered_by: str | None

    @property
    def name(self) -> str:
        """The gate as people see it: `approve` for `loop#1[2]/approve#1`. `answer` takes it if it means one gate."""
        return display_name(self.gate)


class EffectPlan(View, frozen=True, kw_only=True):
    """An effect that a rollback concerns."""

    run_id: str
    """The run that performed it: the one that is rolled back, or a child of it."""
    key: str
    tool: str
    undo: str | None
    """The function that undoes it."""
    arguments: list[Any]
    result: Any
    keywords: StoredDict = {}
    """Arguments that were passed by name."""


class RollbackPlan(View, frozen=True, kw_only=True):
    """What `app.rollback` would do, or has done."""

    run_id: str
    to: int
    """The journal position to which the run is rolled back."""
    undo: tuple[EffectPlan, ...]
    """Effects that are undone, in this order."""
    irreversible: tuple[EffectPlan, ...]
    """Effects that cannot be undone. They stop the rollback unless it is forced."""
    in_doubt: tuple[EffectPlan, ...]
    """Effects whose outcome is unknown. They stop it, too."""
    compensated: tuple[EffectPlan, ...]
    """Effects that the run has undone itself since, but would treat as done after the rollback. They stop it, too."""
    calls: tuple[str, ...]
    """The recorded calls that are rolled back, and repeated when the run continues."""
    children: tuple[str, ...]
    """Child runs that are rolled back, with their own children: they are stopped, and their effects undone."""
    missing: tuple[str, ...] = ()
    """Ended child runs that are not in this store: their effects cannot be undone. They stop it, too."""
    detached: tuple[str, ...] = ()
    """Detached child runs. They are not rolled back, and started again when the run continues."""
    detached_effects: tuple[EffectPlan, ...] = ()
    """Effects of detached children, which would be performed again. They stop it, too."""
    forks: tuple[str, ...] = ()
    """Forks that keep the results of effects that are undone. They do not stop it."""

    @property
    def problems(self) -> list[str]:
        """Why the rollback is refused."""
        found = [f"{self._effect(e)} cannot be undone" for e in self.irreversible]
        found += [f"the outcome of {self._effect(e)} is unknown" for e in self.in_doubt]
        found += [f"{self._effect(e)} was undone since; go back to before it" for e in self.compensated]
        found += [f"child run {name!r} is not in this store, so what it did cannot be undone" for name in self.missing]
        return found + [
            f"{self._effect(e)} is not undone, since that child is detached, and would be performed again"
            for e in self.detached_effects
        ]

    @property
    def warnings(self) -> list[str]:
        """What to know before the rollback; it is not refused."""
        count, names = len(self.forks), ", ".join(map(repr, self.forks))
        text = f"1 fork keeps the undone results: {names}" if count == 1 else ""
        return [text or f"{count} forks keep the undone results: {names}"] if count else []

    def _effect(self, effect: EffectPlan) -> str:
        of_child = f" of child run {effect.run_id!r}" if effect.run_id != self.run_id else ""
        return f"effect {effect.key!r} ({effect.tool}){of_child}"
