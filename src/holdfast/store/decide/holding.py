"""Who holds the run, its status, and its metadata."""

from __future__ import annotations

from holdfast.model.commit import PLAIN, Commit
from holdfast.model.status import READY, RUNNING, WAITING
from holdfast.store.decide.draft import Draft
from holdfast.store.tags import merged_metadata


def set_claim(draft: Draft, commit: Commit) -> None:
    """Take, renew or give up the claim. The guard has made sure that this is allowed."""
    row, lease = draft.row, draft.lease
    if commit.take is not None:
        draft.change(
            fence=row.fence + 1, owner=commit.take.owner, nonce=commit.take.nonce,
            lease_us=lease.us + commit.take.lease_us, boot=lease.boot,
        )  # fmt: skip
    elif commit.renew_us is not None:
        draft.change(lease_us=lease.us + commit.renew_us, boot=lease.boot)
    elif commit.release or commit.rearm is not None or (row.owner and commit.guard.kind == PLAIN):
        # A plain write comes this far only if the lease has ended. Its former owner must not write any more.
        draft.change(owner="", nonce=b"", lease_us=0)


def set_status(draft: Draft, commit: Commit) -> None:
    """The status the commit asks for, or the one that follows from the claim."""
    status = commit.status
    if status is None:
        if commit.take is not None:
            status = RUNNING
        elif (commit.release or commit.rearm is not None) and draft.row.status == RUNNING:
            status = READY
        else:
            return
    if status == WAITING and commit.inbox_read is not None and draft.now("inbox") > commit.inbox_read:
        status = READY  # something came in that the writer has not read: it must not be slept through
    if status != draft.now("status"):
        become(draft, status)


def become(draft: Draft, status: str) -> None:
    """Change the status; the moment of becoming ready orders the queue."""
    if status == READY:
        draft.change(status=status, ready_us=draft.now_us)
    else:
        draft.change(status=status)


def merge_metadata(draft: Draft, changes: tuple[tuple[str, bytes], ...]) -> None:
    """Merge metadata into the run's."""
    metadata, old, new = merged_metadata(draft.row.metadata, changes)
    if new:
        draft.change(metadata=metadata)
        draft.out.old_tags, draft.out.new_tags = old, new
