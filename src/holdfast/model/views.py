"""The views of stored data that users see. They are immutable; times are in UTC."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection
from typing import Any, Final, Generic, Literal, TypeVar

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
    estimated: tuple[str, ...] = ()
    """Which numbers are estimates: terminal statuses of `runs`, and fields of this object."""


class Counts(View, frozen=True, kw_only=True):
    """How many runs and open gates there are."""

    runs: dict[str, int]
    """How many runs there are of each status."""
    open_gates: int
    estimated: tuple[str, ...] = ()
    """The terminal statuses of which there are so many runs that their number is an estimate."""


class WorkflowInfo(View, frozen=True, kw_only=True):
    """A published workflow, as `store.workflows` lists it."""

    name: str
    version: int
    doc: str
    """The first paragraph of its description."""
    form: Any
    """The fields of its input: a `holdfast.Form`. A field that cannot be described is of the kind "any"."""
    declared: bool
    """Whether it is a declared workflow: the values of the form are its `input`, and not its arguments."""
    published_at: dt.datetime


class Approval(View, frozen=True, kw_only=True):
    """An approval of a gate that needs several."""

    by: str
    at: dt.datetime
    via: str
    """Where it came from, as `web`, `api` or `cli`; empty for code."""
    answer: Any


class Escalation(View, frozen=True, kw_only=True):
    """A level of escalation: from a time on, these people are asked as well."""

    at: dt.datetime
    who: tuple[str, ...]
    due: bool
    """Whether the time had come when the gate was read."""


class Assignment(View, frozen=True, kw_only=True):
    """A change of the people that may answer a gate."""

    by: str
    at: dt.datetime
    via: str
    who: tuple[str, ...]
    reason: str


GROUP: Final = "group:"
"""How the name of a group begins where people are named: `group:finance`."""


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
    """The people and groups (`group:finance`) that may answer now, with the escalations due; empty: everyone."""
    purpose: str
    """`ask`, `in_doubt` for an effect whose outcome is unknown, or `interrupt` of a LangGraph thread, which is
    answered through its graph."""
    opened_at: dt.datetime
    expires_at: dt.datetime | None
    answered_at: dt.datetime | None
    answered_by: str | None
    approvals: int = 1
    """How many different people must approve."""
    approved: tuple[Approval, ...] = ()
    """The approvals so far, if it needs several. The last one is the answer."""
    not_by: tuple[str, ...] = ()
    """The people and groups that may not answer."""
    escalations: tuple[Escalation, ...] = ()
    assigned: tuple[Assignment, ...] = ()
    """How the people that may answer were changed, oldest first."""
    cursor: str = ""
    """Pass it as `after` to list the gates after this one."""
    question: str = ""
    """Identifies the question. Pass it to `answer`, which is then refused if the gate asks another one."""

    @property
    def name(self) -> str:
        """The gate as people see it: `approve` for `loop#1[2]/approve#1`. `answer` takes it if it means one gate."""
        return display_name(self.gate)

    def may_answer(self, by: str, groups: Collection[str] = ()) -> str | None:
        """Why this person, a member of these groups, may not answer; None if that is allowed.

        Example:
            gate = app.gates("order-17")[0]
            gate.may_answer("ben", groups=("finance",))
        """
        if self.state != "open":
            return f"it is {self.state}"
        if any(approval.by == by for approval in self.approved):
            return f"{by!r} has already approved it; another person must"
        excluded = next((name for name in self.not_by if _includes(name, by, groups)), None)
        if excluded is not None:
            return f"{by!r} may not answer it; it must be answered by others than {excluded}"
        if self.who and not any(_includes(name, by, groups) for name in self.who):
            return f"{by!r} may not answer it; it is for {', '.join(self.who)}"
        return None


def _includes(name: str, by: str, groups: Collection[str]) -> bool:
    """Whether a name of a person or of a group means this person."""
    return name.removeprefix(GROUP) in groups if name.startswith(GROUP) else name == by
