"""Rollback: take a run back to an earlier position, undoing effects in reverse, and go on from there."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.engine.goingback import Cut, LedgerLine, Undo, begin_entry, carry_out, cut_at, undo_of
from holdfast.engine.line import Line
from holdfast.engine.record import record_of
from holdfast.errors import (
    ClaimLost,
    Halted,
    InvalidInput,
    LeaseLost,
    RollbackFailed,
    RollbackRefused,
    RunClaimed,
    StorageError,
    UnknownWorkflow,
)
from holdfast.model import commit as why
from holdfast.model.commit import Commit, Committed, Guard, NewCheckpoint, NewEntry
from holdfast.model.plans import EffectPlan, RollbackPlan
from holdfast.model.status import READY, ROLLING_BACK
from holdfast.runtime.carrier import Carrier
from holdfast.runtime.descendants import Descendant, check_free, check_wanted, descendants
from holdfast.runtime.outside import known_run, leave, somebody
from holdfast.runtime.reads import RESUME, past_of
from holdfast.runtime.starting import Acts, Claimed, claim, claimed_of, fence_of_dead, take_of, taking
from holdfast.runtime.whole import Base, Whole, ledger_line, whole_of
from holdfast.state.encoder import encode
from holdfast.state.values import pack_sorted
from holdfast.store.tags import write_metadata
from holdfast.verbs.refusals import refusal
from holdfast.verbs.values import value_body

if TYPE_CHECKING:
    from holdfast.runtime.core import AppCore


def planned(app: AppCore, run_id: str, to: Any) -> Acts[RollbackPlan]:
    """What a rollback would do."""
    whole: Whole = yield lambda: whole_of(app.core, run_id)
    taken: Taken = yield lambda: _taken_back(app, whole, to)
    return _shown(run_id, taken)


def rolled_back(
    app: AppCore, run_id: str, to: Any, by: str | None, *, force: bool, here: bool
) -> Acts[tuple[RollbackPlan | None, Claimed | None]]:
    """Begin a rollback, or take up one that was begun: the claim with which it is carried out.

    `to` may be a function that decides, from the run's whole, what is taken back. The claim is None if this process
    does not know the workflow and need not carry it out `here`: then the rollback is begun, and the run is left ready
    for a process that knows it.
    """
    who = somebody(by)
    if to is None:
        taken = (yield from _taken_up(app, run_id))._replace(force=force)
        return None, (yield from _kept(app, taken, here=here))
    gone: int | None = None
    while True:
        whole: Whole = yield lambda: whole_of(app.core, run_id)
        if here and app.known(whole.run.workflow) is None:
            raise UnknownWorkflow(whole.run.workflow, list(app.registry.workflows))
        yield from check_wanted(app, whole)
        cut, undo, inside = yield lambda whole=whole: _taken_back(app, whole, to)
        plan = _shown(run_id, Taken(cut, undo, inside))
        yield from check_free(app, inside)
        if plan.problems and not force:
            raise RollbackRefused(run_id, plan, plan.problems)
        base = whole.base(cut.to)
        entry = begin_entry(
            cut, undo, base.row.checkpoint_id if base.row else "", base.spans, base.loops, base.edits, who,
            base.row.next_node if base.row else None,
        )  # fmt: skip
        entry["force"] = force
        body = value_body(app.core, entry, "a journal entry")
        guard = Guard(incarnation=whole.run.incarnation, commit_id=whole.run.commit_id, gone=gone)
        taken_at = time.monotonic()
        commit = Commit(
            run_id, app.token(8), guard, take=take_of(app, revive=True), status=ROLLING_BACK,
            entries=(NewEntry("rolling_back", body),), checkpoints=_pin(whole, base),
        )  # fmt: skip
        outcome = yield from taking(app, commit)
        if type(outcome) is Committed:
            return plan, (yield from _kept(app, claimed_of(app, outcome.run, taken_at), here=here))
        if outcome.why == why.CHANGED:
            continue  # it moved on, or was pruned, while it was looked at
        gone = (yield from fence_of_dead(app, outcome)) if outcome.why == why.CLAIMED else None
        if gone is None:
            raise refusal(app.place, commit, outcome)


def _pin(whole: Whole, base: Base) -> tuple[NewCheckpoint, ...]:
    """A checkpoint of the run as it stands that keeps all the rollback needs from being pruned until it has ended."""
    if not whole.checkpoints:
        return ()
    head = next((row for row in reversed(whole.checkpoints) if row.number == whole.run.head), None)
    now = whole.base(whole.run.position)
    line = Line(loops=now.loops)
    line.epoch, line.forked, line.left = now.epoch, now.forked, now.left
    resume = line.told(now.spans, now.loops, now.version, now.edits)
    resume["needs"] = sorted({*resume["needs"], *base.needs, *([base.row.checkpoint_id] if base.row else [])})
    resume["keeps"] = [list(span) for span in base.spans]
    return (
        NewCheckpoint(
            "", head.root if head is not None else encode({}).root, covers=whole.run.position,
            next_node=head.next_node if head is not None else None,
            metadata=write_metadata(((RESUME, pack_sorted(resume)),)),
        ),
    )  # fmt: skip


def _kept(app: AppCore, claimed: Claimed, *, here: bool) -> Acts[Claimed | None]:
    """The claim, unless nothing can be done with it here."""
    if here or app.known(claimed.row.workflow) is not None:
        return claimed
    yield from leave(app, claimed)
    return None


def _taken_up(app: AppCore, run_id: str) -> Acts[Claimed]:
    """Hold a run whose rollback was begun and has not ended."""
    row = yield from known_run(app, run_id)
    past = yield lambda: past_of(app.core, row)
    if not record_of(past.entries).rollback:
        raise InvalidInput(f"no rollback of run {run_id!r} was begun; say where to go back to with to=")
    claimed = yield from claim(app, run_id)
    if claimed is None:
        raise ClaimLost(run_id, app.owner, row.owner or None)
    return claimed


class Taken(NamedTuple):
    """What a rollback takes back, of the run and of its children."""

    cut: Cut
    undo: Undo
    inside: list[Descendant]


def _taken_back(app: AppCore, whole: Whole, to: Any) -> Taken:
    return (
        to(whole) if callable(to) else taken_by(app, whole, cut_at(whole.live, whole.target(to), ended=whole.has_ended))
    )


def taken_by(app: AppCore, whole: Whole, cut: Cut) -> Taken:
    """What a cut takes back of the ledgers."""
    lines = [ledger_line(whole.run, row) for row in whole.effects]
    inside = descendants(app.core, whole.run, cut.children)
    attached = [line for each in inside if not each.is_detached for line in each.lines]
    return Taken(cut, undo_of(lines, cut, whole.recorded_keys(), whole.undone_keys(), attached), inside)


def _shown(run_id: str, taken: Taken) -> RollbackPlan:
    cut, undo = taken.cut, taken.undo
    alone = [each for each in taken.inside if each.is_detached]
    attached = [each for each in taken.inside if not each.is_detached]
    left = [line for each in alone for line in each.lines if line.state in ("done", "intent")]
    return RollbackPlan(
        run_id=run_id, to=cut.to, undo=_effects(run_id, undo.undo), irreversible=_effects(run_id, undo.irreversible),
        in_doubt=_effects(run_id, undo.in_doubt), compensated=_effects(run_id, undo.compensated),
        calls=tuple(cut.calls), children=tuple(each.run_id for each in attached if each.run is not None),
        missing=tuple(each.run_id for each in attached if each.run is None),
        detached=tuple(each.run_id for each in alone),
        detached_effects=_effects(run_id, [line for line in left if not (line.call or {}).get("reused")]),
    )  # fmt: skip


def _effects(run_id: str, lines: list[LedgerLine]) -> tuple[EffectPlan, ...]:
    return tuple(
        EffectPlan(
            run_id=line.run_id or run_id, key=line.key, tool=line.tool, undo=(line.call or {}).get("undo"),
            arguments=(line.call or {}).get("args", []), result=line.result,
            keywords=(line.call or {}).get("kwargs", {}),
        )
        for line in lines
    )  # fmt: skip


def go_on(carrier: Carrier) -> Acts[BaseException | None]:
    """Carry out a rollback that was begun. What the caller should be told."""
    exe = carrier.exe
    force = bool(exe.record.rollback[0].get("force")) or carrier.force
    try:
        yield from carrier.carry(carry_out(exe, carrier.app.registry.undos, force=force))
    except Halted as stopped:
        return stopped.__cause__
    except LeaseLost:
        return ClaimLost(exe.run_id, carrier.row.owner, carrier.taken_by or None)
    except (RollbackFailed, RunClaimed) as failed:
        return failed
    except GeneratorExit:
        raise
    except BaseException:  # the process is being ended: another may take it up
        with contextlib.suppress(StorageError):
            yield Commit(exe.run_id, carrier.app.token(8), carrier.place.guard(), status=READY, release=True)
        raise
    return None
