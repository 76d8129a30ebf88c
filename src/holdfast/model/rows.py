"""Rows: what a store keeps, as bytes and numbers. Only `verbs` turns them into what users see.

Every row that carries somebody's data has a `seal`: a checksum over all its other fields and the run's incarnation, so
that a flipped bit anywhere in it is found. `store/seal.py` says how it is made, docs/formats.md where it is kept.
"""

from __future__ import annotations

import msgspec


class Row(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Base of all rows: immutable, compared by value, encoded as an array of its fields."""


class RunRow(Row, frozen=True):
    """A run: identity, where it stands, and who holds it."""

    run: int
    """The store's own number for the run; never used twice."""
    run_id: str
    family: int
    incarnation: bytes
    workflow: str
    status: str
    metadata: bytes
    origin: bytes
    """Where a fork came from, encoded; empty for a run of its own."""
    created_us: int
    updated_us: int
    position: int
    """The last journal position."""
    serial: int
    """The number of the newest checkpoint ever made."""
    head: int
    """The number of the newest checkpoint on the default lane, 0 if none."""
    head_id: str
    step: int
    """The step of `head`."""
    effects: int
    """How many effects the ledger has ever had."""
    attached: int
    """The number of the newest attachment; an attachment that is replaced gets a new number."""
    rewrites: int
    """How often a checkpoint was replaced in its place."""
    inbox: int
    """The number of the newest inbox item."""
    outbox: int
    """The number of the newest outbox item."""
    fence: int
    owner: str
    """Empty when nobody holds the run."""
    nonce: bytes
    lease_us: int
    boot: str
    gc_epoch: int
    ready_us: int
    """When the run became ready, which orders the queue of workers; 0 if it is not."""
    commit_id: bytes
    """The id of the last commit; every change of the row changes it."""
    seal: int = 0


class CheckpointRow(Row, frozen=True):
    """A checkpoint. `root` is the state, or the top of its tree of chunks."""

    number: int
    lane: str
    checkpoint_id: str
    named: bool
    """Whether a caller chose the id. A store's own ids start with the number, so they are found without an index."""
    parent_id: str | None
    step: int
    next_node: str | None
    covers: int
    status: str
    metadata: bytes
    created_us: int
    root: bytes
    seal: int = 0


class LaneRow(Row, frozen=True):
    """The head of a lane other than the default one."""

    lane: str
    head: int
    head_id: str
    step: int


class EntryRow(Row, frozen=True):
    """A journal entry."""

    position: int
    kind: str
    created_us: int
    commit_id: bytes
    body: bytes
    seal: int = 0


class EffectRow(Row, frozen=True):
    """A line of the ledger of side effects."""

    number: int
    key: str
    state: str
    """`intent` (in doubt), `done`, `failed` or `undone`."""
    tool: str
    target: str | None
    reversible: bool
    after_checkpoint: int
    """The newest checkpoint when the effect was first recorded: it is the newest one before the effect."""
    after_position: int
    created_us: int
    updated_us: int
    commit_id: bytes
    """The commit that gave the row its present state."""
    body: bytes
    """The result, encoded; empty while there is none."""
    call: bytes
    """How it was called: arguments, and how to undo it, encoded; empty if nobody said. Stores do not look into it."""
    seal: int = 0


class AttachmentRow(Row, frozen=True):
    """A value kept beside a checkpoint, which may not have arrived yet."""

    number: int
    lane: str
    checkpoint_id: str
    key: str
    created_us: int
    root: bytes
    seal: int = 0


class GateRow(Row, frozen=True):
    """A planned stop for an answer."""

    gate: str
    state: str
    """`open`, `answered`, `expired` or `closed`."""
    opened_us: int
    expires_us: int | None
    answered_us: int | None
    answered_by: str | None
    body: bytes
    seal: int = 0


class ItemRow(Row, frozen=True):
    """An inbox item. It stays after it was taken, without its body, so that its key is not accepted again."""

    number: int
    kind: str
    name: str
    key: str
    by: str
    created_us: int
    taken: bool
    body: bytes
    seal: int = 0


class MessageRow(Row, frozen=True):
    """An outbox item: to be delivered to another run's inbox at least once."""

    number: int
    target: str
    kind: str
    name: str
    key: str
    created_us: int
    body: bytes
    seal: int = 0


class TimerRow(Row, frozen=True):
    """A moment at which the run is to be woken."""

    timer: str
    due_us: int


class ChunkRow(Row, frozen=True):
    """A piece of state, shared within a family; `hash` names its plain content."""

    hash: bytes
    body: bytes
