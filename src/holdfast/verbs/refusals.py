"""Refused commits as errors."""

from __future__ import annotations

import datetime as dt

from holdfast import errors
from holdfast.errors import HoldfastError
from holdfast.model import commit as why
from holdfast.model.commit import Commit, Refused
from holdfast.model.rows import GateRow
from holdfast.verbs.core import Place


def refusal(place: Place, commit: Commit, refused: Refused) -> HoldfastError:
    """The error that says why `commit` was refused."""
    run_id, row, detail = commit.run_id, refused.run, refused.detail
    match refused.why:
        case why.NO_RUN:
            return errors.RunNotFound(run_id)
        case why.RUN_EXISTS:
            return errors.RunExists(run_id)
        case why.DAMAGED:
            assert isinstance(refused.extra, HoldfastError)
            return refused.extra
        case why.COVERS:
            covers, position = detail.split()
            return errors.InvalidCursor(
                f"a checkpoint of run {run_id!r} cannot cover position {covers}: its journal ends at {position}"
            )
        case why.LIMIT:
            return errors.LimitExceeded(f"run {run_id!r}: {detail}")
        case why.CHECKPOINT_TAKEN:
            taken = next(new.checkpoint_id for new in commit.checkpoints if new.checkpoint_id)
            return errors.CheckpointConflict(run_id, taken, detail)
        case why.ATTACHMENT_TAKEN:
            return errors.AttachmentConflict(run_id, commit.attachments[0].checkpoint_id, detail)
        case why.NO_PARENT:
            return errors.ParentRemoved(run_id, detail)
        case why.GATE_CLOSED:
            return errors.GateClosed(run_id, str(refused.extra), detail)
        case why.CLAIM_LOST:
            holder = row.owner if row is not None and row.owner else None
            return errors.ClaimLost(run_id, commit.guard.owner, holder)
    assert row is not None, refused.why
    match refused.why:
        case why.CLAIMED:
            left_us = max(0, row.lease_us - place.core.clock.lease_time().us)
            return errors.RunClaimed(run_id, row.owner, left_us / 1e6)
        case why.ENDED:
            return errors.RunEnded(run_id, row.status)
        case why.WORKFLOW:
            return errors.WorkflowConflict(run_id, commit.workflow or "", row.workflow)
        case why.POSITION:
            return errors.PositionConflict(run_id, commit.guard.position or 0, row.position)
        case why.ANSWERED:
            assert isinstance(refused.extra, GateRow)
            at = dt.datetime.fromtimestamp((refused.extra.answered_us or 0) / 1e6, dt.UTC)
            return errors.AlreadyAnswered(run_id, detail, refused.extra.answered_by or "", at.isoformat())
    return errors.Conflict(f"run {run_id!r}: the change was refused ({refused.why})")
