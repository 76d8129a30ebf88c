"""The decision of what a commit does to a run, the same for every store.

It is pure: it has no clock and no database. A store reads the run's row inside its transaction, calls `decide`, and
writes the rows of the decision or, if the commit is refused, nothing. Other rows that a decision depends on are read by
`TransactionReads`, in the same transaction.
"""

from __future__ import annotations

import msgspec
from blake3 import blake3

from holdfast.limits import NUMBER_MAX
from holdfast.model.commit import HOLDER, OUTSIDER, PLAIN, Commit, Guard, NewRun, Reason, Refused
from holdfast.model.rows import NO_RUN, PAUSED, READY, TERMINAL, RunRow
from holdfast.store.decide.checkpoints import (
    add_checkpoints,
    append_entries,
    attach,
    is_repeated,
    mark_effects,
    positions_of,
)
from holdfast.store.decide.draft import (
    Decision,
    Draft,
    Lease,
    TransactionReads,
    follow_head,
    merge_metadata,
    set_claim,
    set_status,
)
from holdfast.store.decide.inbox import apply_outbox, deliver, restore, return_items, set_gates

__all__ = ["Decision", "Lease", "TransactionReads", "decide", "is_live"]


def decide(
    row: RunRow | None, commit: Commit, now_us: int, lease: Lease, reads: TransactionReads
) -> Decision | Refused:
    """What `commit` does to the run with this row, or why it is refused."""
    if row is None:
        if commit.create is None:
            return Refused(Reason.CLAIM_LOST if commit.guard.kind == HOLDER else Reason.NO_RUN)
        found = _new_run(commit, commit.create, now_us, reads)
        if isinstance(found, Refused):
            return found
        position = positions_of(commit.entries)
        draft = Draft(found, True, commit, now_us=now_us, lease=lease, reads=None, position=position, changes={})
    else:
        refused = _guard(row, commit, lease)
        if refused is not None:
            return refused
        position = row.position + positions_of(commit.entries) if commit.entries else row.position
        draft = Draft(row, False, commit, now_us=now_us, lease=lease, reads=reads, position=position, changes={})
        if commit.checkpoints and commit.checkpoints[0].checkpoint_id and is_repeated(draft, commit):
            return draft
    return _fill(draft, commit) or draft.finish(reads)


def is_live(row: RunRow, lease: Lease) -> bool:
    """Whether the run is claimed: its owner's lease has not expired, and the machine was not restarted since."""
    if not row.owner:
        return False
    boot, now_us = lease()
    return row.boot == boot and row.lease_us > now_us


def _is_held(row: RunRow, guard: Guard, lease: Lease) -> bool:
    """Whether the run is claimed, unless the writer knows that the owner is dead."""
    return row.fence != guard.gone and is_live(row, lease)


def _new_run(commit: Commit, create: NewRun, now_us: int, reads: TransactionReads) -> RunRow | Refused:
    family, epoch = 0, 0
    if create.source is not None:
        source = reads.source(create.source)
        if source is None or source.incarnation != create.source_incarnation or source.gc_epoch != create.source_epoch:
            return Refused(Reason.SOURCE)
        family, epoch = source.family, source.gc_epoch
    if commit.guard.kind == HOLDER:
        return Refused(Reason.CLAIM_LOST)
    if commit.guard.incarnation is not None:
        return Refused(Reason.INCARNATION)
    incarnation = create.incarnation
    if not incarnation:
        incarnation = blake3(b"%b %d %b" % (commit.commit_id, now_us, commit.run_id.encode())).digest(16)
    return msgspec.structs.replace(
        NO_RUN,
        run_id=commit.run_id,
        family=family,
        incarnation=incarnation,
        status=READY,
        origin=create.origin,
        created_us=now_us,
        updated_us=now_us,
        gc_epoch=epoch,
        ready_us=now_us,
        commit_id=commit.commit_id,
    )


def _guard(row: RunRow, commit: Commit, lease: Lease) -> Refused | None:
    """Refuse the commit if the run is not what its guard expects."""
    guard = commit.guard
    is_outsider_write = guard.kind == OUTSIDER and (commit.entries or commit.checkpoints or commit.effects)
    assert not is_outsider_write, "an outsider adds no entries, checkpoints or effects"
    if commit.create is not None and commit.create.required:
        return Refused(Reason.RUN_EXISTS, row)
    if guard.kind == HOLDER:
        if (
            row.nonce != guard.nonce
            or row.fence != guard.fence
            or row.incarnation != guard.incarnation
            or not row.owner
        ):
            return Refused(Reason.CLAIM_LOST, row)
    elif guard.incarnation is not None and row.incarnation != guard.incarnation:
        return Refused(Reason.INCARNATION, row)
    elif row.owner and guard.kind == PLAIN and _is_held(row, guard, lease):
        return Refused(Reason.CLAIMED, row)
    if guard.gc_epoch is not None and row.gc_epoch != guard.gc_epoch:
        return Refused(Reason.EPOCH, row)
    if guard.position is not None and row.position != guard.position:
        return Refused(Reason.POSITION, row)
    if guard.commit_id is not None and row.commit_id != guard.commit_id:
        return Refused(Reason.CHANGED, row)
    if commit.rearm is not None and (row.fence != commit.rearm or not row.owner or _is_held(row, guard, lease)):
        return Refused(Reason.NOT_EXPIRED, row)
    if commit.take is not None and row.status in TERMINAL and not commit.take.revive:
        return Refused(Reason.ENDED, row)
    if commit.take is not None and row.status == PAUSED and not commit.take.paused:
        return Refused(Reason.PAUSED, row)
    if commit.workflow is not None and row.workflow not in ("", commit.workflow):
        return Refused(Reason.WORKFLOW, row)
    return None


def _fill(draft: Draft, commit: Commit) -> Refused | None:
    """Add everything in the commit to the draft, or return why it is refused."""
    row = draft.run
    if row.serial + len(commit.checkpoints) > NUMBER_MAX or draft.position > NUMBER_MAX:
        return Refused(Reason.LIMIT, row, f"a run has at most {NUMBER_MAX} checkpoints and journal entries")
    refused = deliver(draft, commit.deliver) if commit.deliver else None
    if commit.take or commit.renew_us is not None or commit.release or commit.rearm is not None or row.owner:
        set_claim(draft, commit)
    if (
        commit.status is not None
        or commit.take
        or commit.release
        or commit.rearm is not None
        or "owner" in draft.changes
    ):
        set_status(draft, commit)
    if commit.workflow is not None and row.workflow != commit.workflow:
        draft.changes["workflow"] = commit.workflow
    if commit.metadata and refused is None:
        refused = merge_metadata(draft, commit.metadata)
    if commit.entries:
        append_entries(draft, commit.entries)
    if commit.checkpoints and refused is None:
        refused = add_checkpoints(draft, commit.checkpoints)
    if commit.status_by_head:
        follow_head(draft)
    if commit.effects and refused is None:
        refused = mark_effects(draft, commit.effects)
    if commit.attachments and refused is None:
        refused = attach(draft, commit.attachments)
    if (commit.gates or commit.close_gates) and refused is None:
        refused = set_gates(draft, commit)
    if commit.send or commit.take_items or commit.drop_timers:
        apply_outbox(draft, commit)
    if commit.return_items:
        return_items(draft, commit.return_items)
    if commit.restore is not None:
        restore(draft, commit.restore)
    return refused
