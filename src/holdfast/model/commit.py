"""The commit: one atomic change of a run, as data, and its outcome.

If the run still is what the guard expects, a store applies all parts of the commit at once; otherwise it refuses the
commit, and nothing changes. Facts that must be true together are in one commit.
"""

from __future__ import annotations

import enum
from typing import Final, Literal

import msgspec

from holdfast.errors import HoldfastError
from holdfast.model.rows import ChunkRow, GateRow, ItemRow, MessageRow, RunRow


class Part(msgspec.Struct, frozen=True, gc=False):
    """Base of the parts of a commit."""


HOLDER: Final = "holder"
PLAIN: Final = "plain"
OUTSIDER: Final = "outsider"


class Guard(Part, frozen=True):
    """What must still be true of the run.

    `holder`: the claim with this fence and nonce is the run's claim.
    `plain`: the run is not claimed. A claim whose lease has expired is revoked by the write.
    `outsider`: nothing is required; such a commit only concerns the inbox, open gates, due timers and delivered outbox
    items.
    """

    kind: Literal["holder", "plain", "outsider"] = "plain"
    incarnation: bytes | None = None
    fence: int = 0
    nonce: bytes = b""
    owner: str = ""
    position: int | None = None
    gc_epoch: int | None = None
    """Set if the commit links to chunks that are already stored."""
    commit_id: bytes | None = None
    """The run's last commit: the run has not changed since it was read, not even by a prune."""
    gone: int | None = None
    """A claim with this fence is treated as expired: its owner is known to be dead.

    Set the incarnation, too: another run with the same id starts its fences at 1 again.
    """


class NewRun(Part, frozen=True):
    """Create the run if it does not exist."""

    required: bool = False
    """True: the run must not exist yet."""
    source: str | None = None
    """A run whose family is joined; it must still have `source_incarnation` and `source_epoch`."""
    source_incarnation: bytes = b""
    source_epoch: int = 0
    origin: bytes = b""
    incarnation: bytes = b""
    """16 random bytes, for a caller that must know them before the commit; empty: derived from the commit's id."""


class NewCheckpoint(Part, frozen=True):
    """A checkpoint to add. A field that is None is derived from the run."""

    checkpoint_id: str
    """Empty: the store generates one from the checkpoint's number and the commit's id."""
    root: bytes
    lane: str = ""
    parent_id: str | None = None
    """Empty: it has none, even if its lane has checkpoints."""
    step: int | None = None
    next_node: str | None = None
    covers: int | None = None
    status: str | None = None
    metadata: bytes | None = None
    created_us: int | None = None
    """Only set by copies, which keep their dates."""
    replace: bool = False
    needs_parent: bool = False
    """True: the checkpoint cannot be used without its parent, so it is refused if that does not exist."""


class NewEntry(Part, frozen=True):
    """A journal entry to append."""

    kind: str
    body: bytes
    created_us: int | None = None
    positions: int = 1
    """How many positions it occupies. Only copies set it, for rows that replace pruned entries."""


class NewEffect(Part, frozen=True):
    """An effect to record in the ledger: an intent, or an outcome."""

    key: str
    state: Literal["intent", "done", "failed", "undone"]
    tool: str = ""
    target: str | None = None
    reversible: bool = False
    body: bytes = b""
    call: bytes = b""
    """The recorded call; empty: the stored one stays."""
    created_us: int | None = None
    after_checkpoint: int | None = None
    after_position: int | None = None
    """When and after what it was recorded; only set by copies, which keep this."""


class NewAttachment(Part, frozen=True):
    """A value to attach to a checkpoint."""

    checkpoint_id: str
    key: str
    root: bytes
    lane: str = ""
    replace: bool = False
    created_us: int | None = None
    """Only set by copies, which keep their dates."""
    keep: bool = False
    """An existing attachment with this key stays, whatever its value. Never together with `replace`."""


class NewGate(Part, frozen=True):
    """A gate to open, or the new body and expiry of an open gate."""

    gate: str
    body: bytes
    expires_us: int | None = None
    replaces: int | None = None
    """The checksum of the gate's row as it was read: the gate must still be open, not expired and unchanged."""


class NewItem(Part, frozen=True):
    """An inbox item. `answer` names a gate that must be open and not expired; `expiry` one that must have expired."""

    kind: Literal["answer", "event", "pause", "cancel", "timer", "expiry"]
    name: str
    key: str
    by: str
    body: bytes
    expects: int | None = None
    """Of an answer: the checksum of the gate's row as it was read. A gate that has changed since refuses the answer."""


class ReturnedItem(Part, frozen=True):
    """An event that was taken from the inbox and is returned to its place, to be read again."""

    number: int
    """0 if it is unknown; then it becomes the newest item."""
    name: str
    by: str
    body: bytes


class NewMessage(Part, frozen=True):
    """An item for another run's inbox, delivered at least once and recognised by its key."""

    target: str
    kind: Literal["event", "pause", "cancel"]
    name: str
    key: str
    body: bytes


class Timer(Part, frozen=True):
    """A timer to arm."""

    timer: str
    due_us: int


class TakeClaim(Part, frozen=True):
    """Take the claim for `owner`. With `release` in the same commit, the claim only counts: its fence is used."""

    owner: str
    nonce: bytes
    lease_us: int
    revive: bool = False
    """True: also if the run has ended; then it continues."""
    paused: bool = True
    """False: not if the run is paused."""


class Restored(Part, frozen=True):
    """Gates, inbox and outbox of a run that is created as a copy or from an archive, with new checksums."""

    gates: tuple[GateRow, ...] = ()
    items: tuple[ItemRow, ...] = ()
    """All items that the run ever had, numbered from 1: the key of a taken item is not accepted again."""
    messages: tuple[MessageRow, ...] = ()


class Commit(Part, frozen=True):
    """One atomic change of one run."""

    run_id: str
    commit_id: bytes
    guard: Guard = Guard()
    create: NewRun | None = None
    workflow: str | None = None
    status: str | None = None
    metadata: tuple[tuple[str, bytes], ...] = ()
    """Metadata to merge into the run's: key and encoded value."""
    entries: tuple[NewEntry, ...] = ()
    checkpoints: tuple[NewCheckpoint, ...] = ()
    chunks: tuple[ChunkRow, ...] = ()
    attachments: tuple[NewAttachment, ...] = ()
    effects: tuple[NewEffect, ...] = ()
    gates: tuple[NewGate, ...] = ()
    close_gates: tuple[str, ...] = ()
    timers: tuple[Timer, ...] = ()
    drop_timers: tuple[str, ...] = ()
    deliver: tuple[NewItem, ...] = ()
    take_items: tuple[int, ...] = ()
    return_items: tuple[ReturnedItem, ...] = ()
    """Only rollbacks set it."""
    inbox_read: int | None = None
    """With status `waiting`: the last inbox number the writer has read. A newer item makes the run ready instead."""
    send: tuple[NewMessage, ...] = ()
    sent: tuple[int, ...] = ()
    """Outbox items that were delivered."""
    take: TakeClaim | None = None
    renew_us: int | None = None
    release: bool = False
    rearm: int | None = None
    """Release the claim with this fence, whose lease has expired or whose owner is dead according to the guard."""
    restore: Restored | None = None
    """Only with `create.required`."""
    status_by_head: bool = False
    """With `status`: if the commit saves the newest checkpoint of the default lane, the run gets the status of that
    checkpoint; if it does not, a completed run stays completed and any other gets `status`."""
    keep_updated: bool = False
    """True: the run's `updated_us` does not change, because the commit is maintenance."""


def commit_bytes(commit: Commit) -> int:
    """The size of all values and states in a commit."""
    size = 0
    for checkpoint in commit.checkpoints:
        size += len(checkpoint.root)
    for attachment in commit.attachments:
        size += len(attachment.root)
    for effect in commit.effects:
        size += len(effect.body) + len(effect.call)
    bodies = commit.entries + commit.chunks + commit.gates + commit.deliver + commit.send
    return size + sum([len(part.body) for part in bodies]) if bodies else size


class Committed(Part, frozen=True):
    """The commit was applied and is durable."""

    run: RunRow
    """The run as this commit left it: its entries are the last ones up to `run.position`."""
    numbers: tuple[int, ...] = ()
    """The numbers of the commit's checkpoints, or of its delivered items."""
    bytes_added: int = 0
    checkpoint_id: str = ""
    covers: int = 0
    step: int = 0
    """Id, covered position and step of the commit's last checkpoint."""
    fresh: bool = True
    """False if everything was stored already and nothing was written."""


class Reason(enum.StrEnum):
    """Why a commit was refused."""

    NO_RUN = "no_run"
    RUN_EXISTS = "run_exists"
    ENDED = "ended"
    PAUSED = "paused"
    CLAIMED = "claimed"
    CLAIM_LOST = "claim_lost"
    INCARNATION = "incarnation"
    EPOCH = "epoch"
    POSITION = "position"
    COVERS = "covers"
    CHECKPOINT_TAKEN = "checkpoint_taken"
    ATTACHMENT_TAKEN = "attachment_taken"
    EFFECT_DONE = "effect_done"
    ANSWERED = "answered"
    GATE_CLOSED = "gate_closed"
    SOURCE = "source"
    NOT_EXPIRED = "not_expired"
    DAMAGED = "damaged"
    """The stored run is damaged; `error` is the DamagedData."""
    FAILED = "failed"
    """The storage failed on this commit alone; `error` is the StorageError."""
    WORKFLOW = "workflow"
    LIMIT = "limit"
    CHANGED = "changed"
    NO_PARENT = "no_parent"


class Refused(Part, frozen=True):
    """The commit changed nothing."""

    reason: Reason
    run: RunRow | None = None
    detail: str = ""
    extra: object = None
    """The conflicting row, an effect or a gate; or the gate's name."""
    error: HoldfastError | None = None
    """What the store raises for it. Set with `DAMAGED` and `FAILED`."""


Outcome = Committed | Refused
