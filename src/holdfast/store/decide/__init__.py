"""Decide what a commit does to a run. Pure: no clock, no database, the same for every store.

A store reads the run's row inside its transaction, asks `decide`, and writes down the rows of the decision or, if the
commit is refused, nothing. Whatever else must be known (is this effect done? is this gate open?) is asked through
`Look`, in the same transaction.
"""

from __future__ import annotations

from blake3 import blake3

from holdfast.limits import NUMBER_MAX
from holdfast.model import commit as why
from holdfast.model.commit import Commit, Guard, NewRun, Refused
from holdfast.model.rows import RunRow
from holdfast.model.status import READY, TERMINAL
from holdfast.store.decide.checkpoints import add_checkpoints, append_entries, is_repeated, positions_of
from holdfast.store.decide.draft import Decision, Draft, Lease, Look
from holdfast.store.decide.holding import follow_head, merge_metadata, set_claim, set_status
from holdfast.store.decide.inbox import deliver, pass_on, restore, return_items, set_gates
from holdfast.store.decide.ledger import attach, mark_effects

__all__ = ["Decision", "Lease", "Look", "decide", "is_live"]


def decide(row: RunRow | None, commit: Commit, now_us: int, lease: Lease, look: Look) -> Decision | Refused:
    """What `commit` does to the run whose row is `row`, or why it does nothing."""
    if row is None:
        if commit.create is None:
            return Refused(why.CLAIM_LOST if commit.guard.kind == why.HOLDER else why.NO_RUN)
        found = _new_run(commit, commit.create, now_us, look)
        if isinstance(found, Refused):
            return found
        position = positions_of(commit.entries)
        draft = Draft(found, True, commit, now_us=now_us, lease=lease, look=None, position=position, changes={})
    else:
        refused = _guard(row, commit, lease)
        if refused is not None:
            return refused
        position = row.position + positions_of(commit.entries)
        draft = Draft(row, False, commit, now_us=now_us, lease=lease, look=look, position=position, changes={})
        if commit.checkpoints and commit.checkpoints[0].checkpoint_id and is_repeated(draft, commit):
            return draft
    return _fill(draft, commit) or draft.decided(look)


def is_live(row: RunRow, lease: Lease) -> bool:
    """Whether somebody holds the run: has an owner whose lease has not ended and who did not die with the machine."""
    if not row.owner:
        return False
    boot, now_us = lease()
    return row.boot == boot and row.lease_us > now_us


def _is_held(row: RunRow, guard: Guard, lease: Lease) -> bool:
    """Whether somebody holds the run, as far as the writer knows: a lease does not outlive an owner who is dead."""
    return row.fence != guard.gone and is_live(row, lease)


def _new_run(commit: Commit, create: NewRun, now_us: int, look: Look) -> RunRow | Refused:
    family, epoch = 0, 0
    if create.source is not None:
        source = look.source(create.source)
        if source is None or source.incarnation != create.source_incarnation or source.gc_epoch != create.source_epoch:
            return Refused(why.SOURCE)
        family, epoch = source.family, source.gc_epoch
    if commit.guard.kind == why.HOLDER:
        return Refused(why.CLAIM_LOST)
    if commit.guard.incarnation is not None:
        return Refused(why.INCARNATION)
    incarnation = blake3(b"%b %d %b" % (commit.commit_id, now_us, commit.run_id.encode())).digest(16)
    return RunRow(
        run=0, run_id=commit.run_id, family=family, incarnation=incarnation, workflow="", status=READY,
        metadata=b"", origin=create.origin, created_us=now_us, updated_us=now_us, position=0, serial=0, head=0,
        head_id="", step=0, effects=0, attached=0, rewrites=0, inbox=0, outbox=0, fence=0, owner="", nonce=b"",
        lease_us=0, boot="", gc_epoch=epoch, ready_us=now_us, commit_id=commit.commit_id,
    )  # fmt: skip


def _guard(row: RunRow, commit: Commit, lease: Lease) -> Refused | None:
    """Whether the run still is what the commit's guard says."""
    guard = commit.guard
    assert guard.kind != why.OUTSIDER or not (commit.entries or commit.checkpoints or commit.effects), (
        "not an outsider's"
    )
    if commit.create is not None and commit.create.required:
        return Refused(why.RUN_EXISTS, row)
    if guard.kind == why.HOLDER:
        if (
            row.nonce != guard.nonce
            or row.fence != guard.fence
            or row.incarnation != guard.incarnation
            or not row.owner
        ):
            return Refused(why.CLAIM_LOST, row)
    elif guard.incarnation is not None and row.incarnation != guard.incarnation:
        return Refused(why.INCARNATION, row)
    elif guard.kind == why.PLAIN and _is_held(row, guard, lease):
        return Refused(why.CLAIMED, row)
    if guard.gc_epoch is not None and row.gc_epoch != guard.gc_epoch:
        return Refused(why.EPOCH, row)
    if guard.position is not None and row.position != guard.position:
        return Refused(why.POSITION, row)
    if guard.commit_id is not None and row.commit_id != guard.commit_id:
        return Refused(why.CHANGED, row)
    if commit.rearm is not None and (row.fence != commit.rearm or not row.owner or _is_held(row, guard, lease)):
        return Refused(why.NOT_EXPIRED, row)
    if commit.take is not None and row.status in TERMINAL and not commit.take.revive:
        return Refused(why.ENDED, row)
    if commit.workflow is not None and row.workflow not in ("", commit.workflow):
        return Refused(why.WORKFLOW, row)
    return None


def _fill(draft: Draft, commit: Commit) -> Refused | None:
    """Put everything the commit says into the draft, or say what stands against it."""
    row = draft.run
    if row.serial + len(commit.checkpoints) > NUMBER_MAX or draft.position > NUMBER_MAX:
        return Refused(why.LIMIT, row, f"a run has at most {NUMBER_MAX} checkpoints and journal entries")
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
        pass_on(draft, commit)
    if commit.return_items:
        return_items(draft, commit.return_items)
    if commit.restore is not None:
        restore(draft, commit.restore)
    return refused
