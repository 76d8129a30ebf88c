"""Decisions and drafts of them, with the rules for claim, status and metadata.

A draft collects what changes in the run's row and the rows to write; its rows get their checksums here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

import msgspec

from holdfast.clock import LeaseTime
from holdfast.limits import RUN_METADATA_BYTES_MAX
from holdfast.model import rows
from holdfast.model.commit import PLAIN, Commit, Committed, Reason, Refused
from holdfast.store.checksum import ChecksummedRow, verify_checksum, with_checksum
from holdfast.store.search import merged_metadata

_replace = msgspec.structs.replace

Lease = Callable[[], LeaseTime]
"""Returns the time by which leases are measured; called only if it is needed."""


PROGRESS: Final = frozenset({"position", "serial", "head", "head_id", "step", "updated_us", "commit_id", "seal"})
"""What a save or append changes in a run's row."""


class TransactionReads(Protocol):
    """Reads inside the transaction of a commit. `run` is the store's own number for the run."""

    def source(self, run_id: str) -> rows.RunRow | None: ...
    def new_run(self) -> int: ...
    def checkpoint(self, run: int, lane: str, checkpoint_id: str) -> rows.CheckpointRow | None: ...
    def lane(self, run: int, lane: str) -> rows.LaneRow | None: ...
    def effect(self, run: int, key: str) -> rows.EffectRow | None: ...
    def attachment(self, run: int, lane: str, checkpoint_id: str, key: str) -> rows.AttachmentRow | None: ...
    def gate(self, run: int, gate: str) -> rows.GateRow | None: ...
    def timer(self, run: int, timer: str) -> rows.TimerRow | None: ...
    def item(self, run: int, key: str) -> rows.ItemRow | None: ...
    def items(self, run: int, numbers: Sequence[int]) -> list[rows.ItemRow]: ...


class Decision(msgspec.Struct, gc=False):
    """The rows to write, with their checksums."""

    run: rows.RunRow
    created: bool
    commit: Commit
    fresh: bool = True
    """False: everything is stored already, and nothing is written."""
    changes: dict[str, Any] = {}
    """The fields of the run's row that have changed, with their new values."""
    checkpoints: Sequence[rows.CheckpointRow] = ()
    replaced: Sequence[rows.CheckpointRow] = ()
    lanes: Sequence[rows.LaneRow] = ()
    entries: Sequence[rows.EntryRow] = ()
    effects: Sequence[rows.EffectRow] = ()
    attachments: Sequence[rows.AttachmentRow] = ()
    gates: Sequence[rows.GateRow] = ()
    items: Sequence[rows.ItemRow] = ()
    taken: Sequence[rows.ItemRow] = ()
    """Existing items that change: removed from the inbox, or returned to it."""
    messages: Sequence[rows.MessageRow] = ()
    old_tags: Sequence[tuple[str, bytes]] = ()
    new_tags: Sequence[tuple[str, bytes]] = ()
    drop_timers: Sequence[str] = ()
    numbers: tuple[int, ...] = ()
    """The numbers of the commit's checkpoints, or of its delivered items."""
    checkpoint_id: str = ""
    covers: int = 0
    step: int = 0

    @property
    def progress(self) -> bool:
        """Whether of the run's row only what `PROGRESS` names has changed."""
        return self.changes.keys() <= PROGRESS

    def outcome(self, bytes_added: int = 0) -> Committed:
        """What the caller gets once the rows are durable."""
        return Committed(self.run, self.numbers, bytes_added, self.checkpoint_id, self.covers, self.step, self.fresh)


class Draft(Decision, gc=False, kw_only=True):
    """A decision that is not finished. `run` is still the old row; its new values are collected in `changes`."""

    now_us: int
    lease: Lease
    reads: TransactionReads | None
    """None for a run that is being created, which has no rows yet."""
    position: int
    """The journal's last position once this commit is applied."""
    stored: dict[tuple[str, str], rows.CheckpointRow | None] = {}
    """Checkpoints that were read, by lane and id."""

    def now(self, field: str) -> Any:
        """A field of the run's row, with the changes so far."""
        changes = self.changes
        return changes[field] if field in changes else getattr(self.run, field)

    def seal(self, row: ChecksummedRow) -> ChecksummedRow:
        """`row`, with its checksum for this run."""
        return with_checksum(row, self.run.incarnation)

    def verified(self, row: ChecksummedRow | None) -> ChecksummedRow | None:
        """Verify a row that was read to be changed: a damaged row must not get a valid checksum."""
        if row is not None:
            verify_checksum(row, self.run.incarnation, f"a row of run {self.run.run_id!r} ({type(row).__name__})")
        return row

    def finish(self, reads: TransactionReads) -> Decision:
        """The decision with the new row of the run, or one that writes nothing if nothing changes."""
        changes = self.changes
        if self.created:
            number = reads.new_run()
            changes["run"] = number
            changes["family"] = self.run.family or number
        elif not changes and not (self.gates or self.items or self.effects or self.taken or self.drop_timers):
            self.fresh = bool(self.commit.timers or self.commit.sent)
            if not self.fresh:
                return self
        changes["commit_id"] = self.commit.commit_id
        if not self.commit.keep_updated:
            changes["updated_us"] = self.now_us
        row = _replace(self.run, seal=0, **changes)
        self.run = with_checksum(row, row.incarnation)
        changes["seal"] = row.seal
        return self


def set_claim(draft: Draft, commit: Commit) -> None:
    """Take, renew or release the claim. The guard has checked that this is allowed."""
    row, changes = draft.run, draft.changes
    if commit.take is not None and commit.release:
        changes.update(fence=row.fence + 1, owner="", nonce=b"", lease_us=0)
    elif commit.take is not None:
        boot, now_us = draft.lease()
        changes.update(fence=row.fence + 1, owner=commit.take.owner, nonce=commit.take.nonce)
        changes.update(lease_us=now_us + commit.take.lease_us, boot=boot)
    elif commit.renew_us is not None:
        boot, now_us = draft.lease()
        changes.update(lease_us=now_us + commit.renew_us, boot=boot)
    elif commit.release or commit.rearm is not None or commit.guard.kind == PLAIN:
        # The guard admits a plain write only after the claim has expired. Its former owner must not write any more.
        changes.update(owner="", nonce=b"", lease_us=0)


def set_status(draft: Draft, commit: Commit) -> None:
    """Set the status in the commit, or the one that follows from the claim."""
    status = commit.status
    if status is None:
        if commit.take is not None and not commit.release:
            status = rows.RUNNING
        elif draft.run.status in rows.AT_WORK:
            status = rows.READY
        else:
            return
    if status == rows.WAITING and commit.inbox_read is not None and draft.now("inbox") > commit.inbox_read:
        status = rows.READY  # an item arrived that the writer has not read: the run must not wait
    if status != draft.now("status"):
        become(draft, status)


def follow_head(draft: Draft) -> None:
    """Set the status of the newest checkpoint, if this commit saves it; otherwise a completed run stays completed."""
    head = draft.now("head")
    saved = (row for row in (*draft.checkpoints, *draft.replaced) if row.number == head and not row.lane)
    status = next((row.status for row in saved), None)
    if status is None and draft.run.status == rows.COMPLETED:
        status = rows.COMPLETED
    if status is None:
        return
    for name in ("status", "ready_us"):
        draft.changes.pop(name, None)
    if status != draft.run.status:
        become(draft, status)


def become(draft: Draft, status: str) -> None:
    """Change the status. The time at which runs become ready orders the queue."""
    draft.changes["status"] = status
    draft.changes["ready_us"] = draft.now_us if status == rows.READY else 0


def merge_metadata(draft: Draft, changes: tuple[tuple[str, bytes], ...]) -> Refused | None:
    """Merge metadata into the run's."""
    metadata, old, new = merged_metadata(draft.run.metadata, changes)
    if len(metadata) > max(RUN_METADATA_BYTES_MAX, len(draft.run.metadata)):
        return Refused(
            Reason.LIMIT, draft.run, f"its metadata would have {len(metadata)} bytes of {RUN_METADATA_BYTES_MAX}"
        )
    if new:
        draft.changes["metadata"] = metadata
        draft.old_tags, draft.new_tags = old, new
    return None
