"""Retry: a failed run goes on from the call that failed, once the cause is fixed. Nothing finished is undone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.engine.record import record_of
from holdfast.engine.repair import failed_children, repair_cut
from holdfast.errors import Conflict, UnknownWorkflow
from holdfast.model.rows import RunRow
from holdfast.model.status import CANCELLED, COMPLETED, FAILED
from holdfast.runtime.descendants import check_wanted
from holdfast.runtime.outside import leave
from holdfast.runtime.rollback import Taken, rolled_back, taken_by
from holdfast.runtime.starting import Acts, Claimed
from holdfast.runtime.whole import Whole, whole_of

if TYPE_CHECKING:
    from holdfast.runtime.core import AppCore


def retry(app: AppCore, run_id: str, by: str | None, *, here: bool, with_parent: bool = False) -> Acts[Claimed | None]:
    """Begin the retry of a failed run, its failed children first. Returns the claim with which it is carried out.

    A crash between child and parent leaves the child retried and the parent failed; retrying the parent again goes on.
    """
    whole: Whole = yield lambda: whole_of(app.core, run_id)
    if record_of(whole.live).rollback:  # a retry, or a rollback, that was begun and not carried out
        return (yield from rolled_back(app, run_id, None, by, force=False, here=here))[1]
    if here and app.known(whole.run.workflow) is None:
        raise UnknownWorkflow(whole.run.workflow, list(app.registry.workflows))
    _check_failed(whole)
    yield from check_wanted(app, whole, ended=not with_parent)
    lost: set[str] = set()
    for child in failed_children(whole.live):
        if not (yield from _goes_on(app, child, by)):
            lost.add(child)
    chosen = rolled_back(app, run_id, lambda whole: _taken_back(app, whole, lost), by, force=False, here=here)
    return (yield from chosen)[1]


def _goes_on(app: AppCore, child: str, by: str | None) -> Acts[bool]:
    """Retry a child if it failed. Whether its parent can wait for it."""
    row: RunRow | None = yield lambda: app.core.port.run(child)
    if row is not None and row.status == FAILED:
        try:
            claimed = yield from retry(app, child, by, here=False, with_parent=True)
        except Conflict:
            row = yield lambda: app.core.port.run(child)
            if row is not None and row.status == FAILED:
                raise
        else:
            if claimed is not None:
                yield from leave(app, claimed)
    return row is not None and row.status != CANCELLED


def _check_failed(whole: Whole) -> None:
    run = whole.run
    if run.status == FAILED:
        return
    advice = {
        CANCELLED: "a cancellation is final; fork it to go on from an earlier position",
        COMPLETED: "roll it back or fork it to do something again",
    }
    then = advice.get(run.status, "resume it if nothing executes it")
    raise Conflict(f"run {run.run_id!r} is {run.status}, and only a failed run can be retried; {then}")


def _taken_back(app: AppCore, whole: Whole, lost: set[str]) -> Taken:
    """What the retry takes back. Conflict if that would undo something, or nothing says how the run failed."""
    _check_failed(whole)
    run_id = whole.run.run_id
    cut = repair_cut(whole.live, lost.__contains__)
    if cut is None:
        raise Conflict(f"run {run_id!r} has no recorded failure of a workflow, so there is nothing to retry")
    whole.target(cut.to)
    taken = taken_by(app, whole, cut)
    gone = [each.run_id for each in taken.inside if each.run is None and not each.is_detached]
    if gone:
        raise Conflict(
            f"run {run_id!r} cannot be retried: its failed child run {gone[0]!r} was deleted, so what it did is "
            "not known; start the run again under another id, or pass force=True to rollback, which starts it again"
        )
    undo = taken.undo
    effects = [*undo.undo, *undo.irreversible, *undo.in_doubt, *undo.compensated, *undo.let_go]
    if effects:
        raise Conflict(
            f"run {run_id!r} cannot be retried: effect {effects[0].key!r} was performed, and going on before it would "
            "undo or repeat it; choose where to go back to with rollback_plan and rollback"
        )
    return taken
