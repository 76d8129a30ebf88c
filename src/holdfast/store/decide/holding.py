"""Who holds the run, its status, and its metadata."""

from __future__ import annotations

from holdfast.limits import RUN_METADATA_BYTES_MAX
from holdfast.model import commit as why
from holdfast.model.commit import PLAIN, Commit, Refused
from holdfast.model.status import AT_WORK, COMPLETED, READY, RUNNING, WAITING
from holdfast.store.decide.draft import Draft
from holdfast.store.tags import merged_metadata


def set_claim(draft: Draft, commit: Commit) -> None:
    """Take, renew or give up the claim. The guard has made sure that this is allowed."""
    row, changes = draft.run, draft.changes
    if commit.take is not None:
        boot, now_us = draft.lease()
        changes.update(fence=row.fence + 1, owner=commit.take.owner, nonce=commit.take.nonce)
        changes.update(lease_us=now_us + commit.take.lease_us, boot=boot)
    elif commit.renew_us is not None:
        boot, now_us = draft.lease()
        changes.update(lease_us=now_us + commit.renew_us, boot=boot)
    elif commit.release or commit.rearm is not None or commit.guard.kind == PLAIN:
        # A plain write comes this far only if the claim has ended. Its former owner must not write any more.
        changes.update(owner="", nonce=b"", lease_us=0)


def set_status(draft: Draft, commit: Commit) -> None:
    """The status the commit asks for, or the one that follows from the claim."""
    status = commit.status
    if status is None:
        if commit.take is not None:
            status = RUNNING
        elif draft.run.status in AT_WORK:
            status = READY
        else:
            return
    if status == WAITING and commit.inbox_read is not None and draft.now("inbox") > commit.inbox_read:
        status = READY  # something came in that the writer has not read: it must not be slept through
    if status != draft.now("status"):
        become(draft, status)


def follow_head(draft: Draft) -> None:
    """Take the status of the newest checkpoint, if this commit saves it; else a completed run stays so."""
    head = draft.now("head")
    saved = (row for row in (*draft.checkpoints, *draft.replaced) if row.number == head and not row.lane)
    status = next((row.status for row in saved), None)
    if status is None and draft.run.status == COMPLETED:
        status = COMPLETED
    if status is None:
        return
    for name in ("status", "ready_us"):
        draft.changes.pop(name, None)
    if status != draft.run.status:
        become(draft, status)


def become(draft: Draft, status: str) -> None:
    """Change the status; the moment of becoming ready orders the queue."""
    draft.changes["status"] = status
    draft.changes["ready_us"] = draft.now_us if status == READY else 0


def merge_metadata(draft: Draft, changes: tuple[tuple[str, bytes], ...]) -> Refused | None:
    """Merge metadata into the run's."""
    metadata, old, new = merged_metadata(draft.run.metadata, changes)
    if len(metadata) > max(RUN_METADATA_BYTES_MAX, len(draft.run.metadata)):
        return Refused(
            why.LIMIT, draft.run, f"its metadata would have {len(metadata)} bytes of {RUN_METADATA_BYTES_MAX}"
        )
    if new:
        draft.changes["metadata"] = metadata
        draft.old_tags, draft.new_tags = old, new
    return None
