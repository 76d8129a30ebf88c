"""The commit: everything that happens to one run at one moment, as data.

A commit says: *if the run still is what the guard says, then do all of this at once*. A store applies it whole or
refuses it whole. Two facts that must be true together travel in one commit.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from holdfast.model.rows import ChunkRow, GateRow, ItemRow, MessageRow, RunRow


class Part(msgspec.Struct, frozen=True, gc=False):
    """Base of the parts a commit is made of."""


HOLDER: Final = "holder"
PLAIN: Final = "plain"
OUTSIDER: Final = "outsider"


class Guard(Part, frozen=True):
    """What must still be true of the run.

    `holder`: the claim with this fence and nonce is the run's claim.
    `plain`: no claim of anybody lives. A claim whose lease has ended is revoked by the write.
    `outsider`: nothing is asked; such a commit may only touch inbox, timers that are due, and delivered outbox items.
    """

    kind: Literal["holder", "plain", "outsider"] = "plain"
    incarnation: bytes | None = None
    fence: int = 0
    nonce: bytes = b""
    owner: str = ""
    position: int | None = None
    gc_epoch: int | None = None
    """Set when the commit relies on chunks that are already stored."""
    commit_id: bytes | None = None
    """The run's last commit is this one: nothing of it has changed since it was read, not even by a prune."""
    gone: int | None = None
    """A claim with this fence counts as ended, whatever its lease says: its owner is known to be dead.

    Name the incarnation too: another run of the same id counts its fences anew.
    """


class NewRun(Part, frozen=True):
    """Create the run if it is not there. Its incarnation is made of the commit's id, which nobody else has."""

    required: bool = False
    """True: the run must not be there yet."""
    source: str | None = None
    """A run whose family is joined; it must still have `source_incarnation` and `source_epoch`."""
    source_incarnation: bytes = b""
    source_epoch: int = 0
    origin: bytes = b""


class NewCheckpoint(Part, frozen=True):
    """A checkpoint to add. None means: take what follows from the run."""

    checkpoint_id: str
    """Empty: the store makes one, of the checkpoint's number and the commit's id."""
    root: bytes
    lane: str = ""
    parent_id: str | None = None
    """Empty: it has none, whatever there is on its lane."""
    step: int | None = None
    next_node: str | None = None
    covers: int | None = None
    status: str | None = None
    metadata: bytes | None = None
    created_us: int | None = None
    """Only set by copies, which keep their dates."""
    replace: bool = False
    needs_parent: bool = False
    """True: the checkpoint cannot be used without its parent, so it is refused if that is not there."""


class NewEntry(Part, frozen=True):
    """A journal entry to append."""

    kind: str
    body: bytes
    created_us: int | None = None
    positions: int = 1
    """How many positions it takes. Only copies set it, for what stands for entries that were pruned."""


class NewEffect(Part, frozen=True):
    """A line of the ledger to write: an intent, or an outcome."""

    key: str
    state: Literal["intent", "done", "failed", "undone"]
    tool: str = ""
    target: str | None = None
    reversible: bool = False
    body: bytes = b""
    call: bytes = b""
    """How it is called; empty: what the line has already stays."""
    created_us: int | None = None
    after_checkpoint: int | None = None
    after_position: int | None = None
    """When and after what it was recorded; only set by copies, which keep that."""


class NewAttachment(Part, frozen=True):
    """A value to keep beside a checkpoint."""

    checkpoint_id: str
    key: str
    root: bytes
    lane: str = ""
    replace: bool = False
    created_us: int | None = None
    """Only set by copies, which keep their dates."""
    keep: bool = False
    """If there is one with this key, it stays as it is, whatever its value. Never together with `replace`."""


class NewGate(Part, frozen=True):
    """A gate to open."""

    gate: str
    body: bytes
    expires_us: int | None = None


class NewItem(Part, frozen=True):
    """An inbox item. `answer` names a gate that must be open and not expired; `expiry` one that must have expired."""

    kind: Literal["answer", "event", "pause", "cancel", "timer", "expiry"]
    name: str
    key: str
    by: str
    body: bytes


class ReturnedItem(Part, frozen=True):
    """An event that was taken out of the inbox and is put back at its place, to be read again."""

    number: int
    """0 if that is not known; then it becomes the newest item."""
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


class Take(Part, frozen=True):
    """Take the claim for `owner`."""

    owner: str
    nonce: bytes
    lease_us: int
    revive: bool = False
    """True: also if the run has ended; then it goes on."""


class Restored(Part, frozen=True):
    """Gates, inbox and outbox of a run that is created as a copy, or from an archive: as they were, with new seals."""

    gates: tuple[GateRow, ...] = ()
    items: tuple[ItemRow, ...] = ()
    """All items there ever were, numbered from 1: the key of one that was taken is not accepted again."""
    messages: tuple[MessageRow, ...] = ()


class Commit(Part, frozen=True):
    """All of it, for one run. Applied whole or refused whole."""

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
    take: Take | None = None
    renew_us: int | None = None
    release: bool = False
    rearm: int | None = None
    """Take the run from a claim with this fence whose lease has ended, or whose owner the guard says is gone."""
    restore: Restored | None = None
    """Only with `create.required`."""
    status_by_head: bool = False
    """With `status`: if the commit saves the newest checkpoint of the default lane, the run gets the status of that
    checkpoint; if it does not, a completed run stays completed and any other gets `status`."""
    keep_updated: bool = False
    """Housekeeping, not use: the run's `updated_us` stays as it is."""


def commit_bytes(commit: Commit) -> int:
    """How many bytes of values and states a commit carries."""
    size = sum([len(entry.body) for entry in commit.entries]) + sum([len(chunk.body) for chunk in commit.chunks])
    size += sum([len(c.root) for c in commit.checkpoints]) + sum([len(a.root) for a in commit.attachments])
    size += sum([len(effect.body) + len(effect.call) for effect in commit.effects])
    size += sum([len(gate.body) for gate in commit.gates]) + sum([len(item.body) for item in commit.deliver])
    return size + sum([len(message.body) for message in commit.send])


class Committed(Part, frozen=True):
    """The commit was applied and is durable."""

    run: RunRow
    """The run as this very commit left it: its entries are the last ones up to `run.position`."""
    numbers: tuple[int, ...] = ()
    """The numbers of the commit's checkpoints, or of its delivered items."""
    bytes_added: int = 0
    checkpoint_id: str = ""
    covers: int = 0
    step: int = 0
    """Id, covered position and step of the commit's last checkpoint."""
    fresh: bool = True
    """False if everything was there already and nothing was written."""


class Refused(Part, frozen=True):
    """The commit changed nothing. `why` is one of the constants below."""

    why: str
    run: RunRow | None = None
    detail: str = ""
    extra: object = None


NO_RUN: Final = "no_run"
RUN_EXISTS: Final = "run_exists"
ENDED: Final = "ended"
CLAIMED: Final = "claimed"
CLAIM_LOST: Final = "claim_lost"
INCARNATION: Final = "incarnation"
EPOCH: Final = "epoch"
POSITION: Final = "position"
COVERS: Final = "covers"
CHECKPOINT_TAKEN: Final = "checkpoint_taken"
ATTACHMENT_TAKEN: Final = "attachment_taken"
EFFECT_DONE: Final = "effect_done"
ANSWERED: Final = "answered"
GATE_CLOSED: Final = "gate_closed"
SOURCE: Final = "source"
NOT_EXPIRED: Final = "not_expired"
DAMAGED: Final = "damaged"
WORKFLOW: Final = "workflow"
LIMIT: Final = "limit"
CHANGED: Final = "changed"
NO_PARENT: Final = "no_parent"

Outcome = Committed | Refused
