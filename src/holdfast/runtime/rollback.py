"""Rollback and retry: take a run back to an earlier position and continue from there.

A rollback undoes the effects after the position, newest first. Its first commit records the plan and takes the claim;
after a crash any process that knows the workflow continues it. A retry goes back to before the call that failed, its
failed children first, and undoes nothing.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from blake3 import blake3

from holdfast.drivers import Plan
from holdfast.engine.commands import EntryData
from holdfast.engine.effect_outcome import plain_result
from holdfast.engine.journal_cut import RollbackCut, cut_at, failed_children, repair_cut
from holdfast.engine.record import record_of
from holdfast.engine.resume_point import ResumePoint
from holdfast.engine.rollback import LedgerLine, Undo, begin_entry, perform_rollback, undo_of
from holdfast.errors import (
    ClaimLost,
    Conflict,
    DamagedData,
    Halted,
    InvalidInput,
    LeaseLost,
    PlanChanged,
    RollbackFailed,
    RollbackRefused,
    RunClaimed,
    StorageError,
    UnknownWorkflow,
)
from holdfast.ids import check_via
from holdfast.model.commit import Commit, Committed, Guard, NewCheckpoint, NewEntry, Reason
from holdfast.model.rollback_plan import EffectPlan, RollbackPlan
from holdfast.model.rows import CANCELLED, COMPLETED, FAILED, ROLLING_BACK, RunRow
from holdfast.operations.claims import release
from holdfast.operations.context import refusal
from holdfast.operations.run_tree import effect_call
from holdfast.operations.state_commit import EMPTY_STATE
from holdfast.operations.views import RESUME, encode_body
from holdfast.runtime.children import Descendant, check_free, check_wanted, descendants
from holdfast.runtime.control import default_actor, release_ready, require_run
from holdfast.runtime.interpreter import Interpreter
from holdfast.runtime.replay_input import read_replay_input
from holdfast.runtime.run_history import Base, RunHistory, ledger_line, read_history, read_history_to
from holdfast.runtime.start import Claimed, claim, new_take, take_claim, to_claimed
from holdfast.state.values import pack_sorted
from holdfast.store.search import write_metadata

if TYPE_CHECKING:
    from holdfast.runtime.app_core import AppCore


class TakenBack(NamedTuple):
    """What a rollback takes back, of the run and of its children."""

    cut: RollbackCut
    undo: Undo
    inside: list[Descendant]
    forks: tuple[str, ...]
    """Runs that have taken over the outcome of an effect that is undone."""


class _Requester(NamedTuple):
    """The person that asked for a rollback or retry, and where the request came from."""

    by: str
    via: str


SelectCut = Callable[[RunHistory], TakenBack]
"""Decides from the history of a run what is taken back."""


def plan_rollback(app: AppCore, run_id: str, to: object) -> Plan[RollbackPlan]:
    """What a rollback would do."""
    history: RunHistory = yield lambda: read_history_to(app.core, run_id, to)
    taken: TakenBack = yield lambda: take_back_to(app, history, to)
    return _to_plan(history, taken)


def roll_back(
    app: AppCore,
    run_id: str,
    to: object,
    by: str | None,
    *,
    force: bool,
    here: bool,
    basis: str | None = None,
    via: str = "",
) -> Plan[tuple[RollbackPlan | None, Claimed | None]]:
    """Begin a rollback to a position, or continue an open one if `to` is None. Returns the plan and the claim.

    The claim is None if this process does not know the workflow and need not perform the rollback `here`. The run is
    then left ready for a process that knows it.
    """
    actor = _Requester(default_actor(by), check_via(via))
    if to is None:
        claimed = (yield from _claim_open_rollback(app, run_id))._replace(force=force)
        return None, (yield from _keep_if_known(app, claimed, here=here))

    def select(history: RunHistory) -> TakenBack:
        taken = take_back_to(app, history, to)
        check_basis(history, taken, basis)
        return taken

    def read() -> RunHistory:
        return read_history_to(app.core, run_id, to)

    return (yield from _begin(app, run_id, read, select, actor, force=force, here=here))


def _begin(
    app: AppCore,
    run_id: str,
    read: Callable[[], RunHistory],
    select: SelectCut,
    actor: _Requester,
    *,
    force: bool,
    here: bool,
    is_retry: bool = False,
) -> Plan[tuple[RollbackPlan, Claimed | None]]:
    while True:
        history: RunHistory = yield read
        if here and app.known(history.run.workflow) is None:
            raise UnknownWorkflow(history.run.workflow, list(app.registry.workflows))
        yield from check_wanted(app, history)
        taken: TakenBack = yield lambda history=history: select(history)
        plan = _to_plan(history, taken)
        yield from check_free(app, taken.inside)
        if plan.problems and not force:
            raise RollbackRefused(run_id, plan, plan.problems)
        base = history.base(taken.cut.to)
        checkpoint_id, next_node = (base.row.checkpoint_id, base.row.next_node) if base.row else ("", None)
        entry = begin_entry(
            taken.cut, taken.undo, checkpoint_id, base.spans, base.loops, base.edits, actor.by, next_node
        )
        entry |= {"force": force, **({"via": actor.via} if actor.via else {}), **({"retry": True} if is_retry else {})}
        taken_at = time.monotonic()
        commit = Commit(
            run_id,
            app.token(8),
            Guard(incarnation=history.run.incarnation, commit_id=history.run.commit_id),
            take=new_take(app, revive=True, paused=True),
            status=ROLLING_BACK,
            entries=(NewEntry("rolling_back", encode_body(app.core, entry, "a journal entry")),),
            checkpoints=_pin(history, base),
        )
        outcome = yield from take_claim(app, commit, revocations=None)
        if isinstance(outcome, Committed):
            return plan, (yield from _keep_if_known(app, to_claimed(app, outcome.run, taken_at), here=here))
        if outcome.reason != Reason.CHANGED:  # else it was executed or pruned while it was read
            raise refusal(app.access, commit, outcome)


def _pin(history: RunHistory, base: Base) -> tuple[NewCheckpoint, ...]:
    """A checkpoint of the run as it is now that protects what the rollback needs from a prune until it has ended."""
    if not history.checkpoints:
        return ()
    head = next((row for row in reversed(history.checkpoints) if row.number == history.run.head), None)
    now = history.base(history.run.position)
    line = ResumePoint(loops=now.loops)
    line.epoch, line.forked, line.left = now.epoch, now.forked, now.left
    resume = line.to_metadata(now.spans, now.loops, now.version, now.edits)
    resume["needs"] = sorted({*resume["needs"], *base.needs, *([base.row.checkpoint_id] if base.row else [])})
    resume["keeps"] = [list(span) for span in base.spans]
    root, next_node = (head.root, head.next_node) if head is not None else (EMPTY_STATE, None)
    metadata = write_metadata(((RESUME, pack_sorted(resume)),))
    return (NewCheckpoint("", root, covers=history.run.position, next_node=next_node, metadata=metadata),)


def _keep_if_known(app: AppCore, claimed: Claimed, *, here: bool) -> Plan[Claimed | None]:
    """The claim; None, and the run is released, if this process does not know the workflow."""
    if here or app.known(claimed.row.workflow) is not None:
        return claimed
    yield from release_ready(app, claimed)
    return None


def _claim_open_rollback(app: AppCore, run_id: str) -> Plan[Claimed]:
    """Claim a run whose rollback was begun and has not ended."""
    row = yield from require_run(app, run_id)
    past = yield lambda: read_replay_input(app.core, row)
    if not record_of(past.entries).rollback:
        raise InvalidInput(
            f"no rollback of run {run_id!r} was begun",
            "choose where to go back to with to=",
            hint_code="rollback_target",
        )
    claimed = yield from claim(app, run_id, paused=True)
    if claimed is None:
        raise ClaimLost(run_id, app.owner, row.owner or None)
    return claimed


def take_back_to(app: AppCore, history: RunHistory, to: object) -> TakenBack:
    """What a rollback to a place takes back."""
    return _take_back(app, history, cut_at(history.live, history.target(to), run_ended=history.has_ended))


def _take_back(app: AppCore, history: RunHistory, cut: RollbackCut) -> TakenBack:
    """What a cut takes back of the ledgers."""
    lines = [ledger_line(history.run, row) for row in history.effects]
    inside = descendants(app.core, history.run, cut.children)
    attached = [line for each in inside if not each.is_detached for line in each.lines]
    undo = undo_of(lines, cut, history.recorded_keys(), history.undone_keys(), attached)
    runs = {"": history.run} | {each.run_id: each.run for each in inside if each.run is not None}
    forks = {name for line in undo.undo for name in _forks_with(app, runs[line.run_id], line.key)}
    return TakenBack(cut, undo, inside, tuple(sorted(forks)))


def _forks_with(app: AppCore, run: RunRow, key: str) -> Iterator[str]:
    """The other runs of the family that continue with the outcome of this run's effect."""
    for other, row in app.core.port.family_effects(run.family, key):
        if other.run == run.run or row.state != "done":
            continue
        with contextlib.suppress(DamagedData):  # damage of a fork does not prevent the rollback
            if effect_call(other, row).get("reused") == run.run_id:
                yield other.run_id


def check_basis(history: RunHistory, taken: TakenBack, basis: str | None) -> None:
    """Raise PlanChanged if the run, or a child that goes back with it, is not as the plan was made of it."""
    if basis is not None and basis != basis_of(history, taken):
        raise PlanChanged(history.run.run_id)


def basis_of(history: RunHistory, taken: TakenBack) -> str:
    """What identifies the state of a run and of its children at which a plan was made."""
    runs = [history.run, *[each.run for each in taken.inside if each.run is not None]]
    parts = [*taken.forks, *[f"{run.run} {run.commit_id.hex()}" for run in runs]]
    return blake3("\0".join(parts).encode()).hexdigest(16)


def _to_plan(history: RunHistory, taken: TakenBack) -> RollbackPlan:
    run_id, cut, undo = history.run.run_id, taken.cut, taken.undo
    alone = [each for each in taken.inside if each.is_detached]
    attached = [each for each in taken.inside if not each.is_detached]
    left = [line for each in alone for line in each.lines if line.state in ("done", "intent")]
    forked = cut_at(history.live, cut.to, fork=True)
    return RollbackPlan(
        run_id=run_id,
        to=cut.to,
        undo=_effects(run_id, undo.undo),
        irreversible=_effects(run_id, undo.irreversible),
        in_doubt=_effects(run_id, undo.in_doubt),
        compensated=_effects(run_id, undo.compensated),
        calls=tuple(cut.calls),
        gates=tuple(cut.gates),
        fork_calls=tuple(forked.calls),
        fork_gates=tuple(forked.gates),
        children=tuple(each.run_id for each in attached if each.run is not None),
        missing=tuple(each.run_id for each in attached if each.run is None),
        detached=tuple(each.run_id for each in alone),
        detached_effects=_effects(run_id, [line for line in left if not (line.call or {}).get("reused")]),
        forks=taken.forks,
        basis=basis_of(history, taken),
    )


def _effects(run_id: str, lines: list[LedgerLine]) -> tuple[EffectPlan, ...]:
    return tuple(_to_effect_plan(run_id, line, line.call or {}) for line in lines)


def _to_effect_plan(run_id: str, line: LedgerLine, call: EntryData) -> EffectPlan:
    return EffectPlan(
        run_id=line.run_id or run_id,
        key=line.key,
        tool=line.tool,
        undo=call.get("undo"),
        arguments=call.get("args", []),
        result=plain_result(line.key, line.result, line.call),
        keywords=call.get("kwargs", {}),
    )


def continue_rollback(interpreter: Interpreter) -> Plan[BaseException | None]:
    """Perform a rollback that was begun. Returns what to raise in the caller."""
    exe = interpreter.exe
    force = bool(exe.record.rollback[0].get("force")) or interpreter.force
    try:
        yield from interpreter.translate(perform_rollback(exe, interpreter.app.registry.undos, force=force))
    except Halted as stopped:
        return stopped.__cause__
    except LeaseLost:
        return ClaimLost(exe.run_id, interpreter.row.owner, interpreter.new_owner or None)
    except (RollbackFailed, RunClaimed) as failed:
        return failed
    except GeneratorExit:
        raise
    except BaseException:  # the process is exiting; another may continue it
        with contextlib.suppress(StorageError):
            yield release(interpreter.access, exe.run_id)
        raise
    return None


# --- retry -----------------------------------------------------------------------------------------------------------


def retry(
    app: AppCore, run_id: str, by: str | None, *, here: bool, with_parent: bool = False, via: str = ""
) -> Plan[Claimed | None]:
    """Begin the retry of a failed run, its failed children first. Returns the claim to execute it with.

    A crash between child and parent leaves the child retried and the parent failed. Another retry of the parent
    continues from there.
    """
    actor = _Requester(default_actor(by), check_via(via))
    history: RunHistory = yield lambda: read_history(app.core, run_id)
    if record_of(history.live).rollback:  # a retry or a rollback that was begun and has not ended
        return (yield from roll_back(app, run_id, None, by, force=False, here=here, via=via))[1]
    if here and app.known(history.run.workflow) is None:
        raise UnknownWorkflow(history.run.workflow, list(app.registry.workflows))
    _check_failed(history)
    yield from check_wanted(app, history, ended=not with_parent)
    lost: set[str] = set()
    for child in failed_children(history.live):
        if not (yield from _retry_child(app, child, by, via)):
            lost.add(child)

    def select(history: RunHistory) -> TakenBack:
        return _retry_cut(app, history, lost)

    def read() -> RunHistory:
        return read_history(app.core, run_id)

    return (yield from _begin(app, run_id, read, select, actor, force=False, here=here, is_retry=True))[1]


def _retry_child(app: AppCore, child: str, by: str | None, via: str) -> Plan[bool]:
    """Retry a child if it failed. Returns whether its parent can wait for it."""
    row: RunRow | None = yield lambda: app.core.port.run(child)
    if row is not None and row.status == FAILED:
        try:
            claimed = yield from retry(app, child, by, here=False, with_parent=True, via=via)
        except Conflict:
            row = yield lambda: app.core.port.run(child)
            if row is not None and row.status == FAILED:
                raise
        else:
            if claimed is not None:
                yield from release_ready(app, claimed)
    return row is not None and row.status != CANCELLED


def _check_failed(history: RunHistory) -> None:
    run = history.run
    if run.status == FAILED:
        return
    advice = {
        CANCELLED: "a cancellation is final; fork it to continue from an earlier position",
        COMPLETED: "roll it back or fork it to do something again",
    }
    then = advice.get(run.status, "resume it if nothing executes it")
    raise Conflict(f"run {run.run_id!r} is {run.status}, and only a failed run can be retried; {then}")


def _retry_cut(app: AppCore, history: RunHistory, lost: set[str]) -> TakenBack:
    """What the retry takes back. Conflict if that would undo an effect, or if no failure is recorded."""
    _check_failed(history)
    run_id = history.run.run_id
    cut = repair_cut(history.live, lost.__contains__)
    if cut is None:
        raise Conflict(f"run {run_id!r} has no recorded failure of a workflow, so there is nothing to retry")
    history.target(cut.to)
    taken = _take_back(app, history, cut)
    deleted = [each.run_id for each in taken.inside if each.run is None and not each.is_detached]
    if deleted:
        raise Conflict(
            f"run {run_id!r} cannot be retried: its failed child run {deleted[0]!r} is not in this store, so what "
            "it did is not known; start it under another id, or pass force=True to rollback, which starts it again"
        )
    undo = taken.undo
    effects = [*undo.undo, *undo.irreversible, *undo.in_doubt, *undo.compensated, *undo.let_go]
    if effects:
        raise Conflict(
            f"run {run_id!r} cannot be retried: effect {effects[0].key!r} was performed, and to continue before it "
            "would undo or repeat it; choose where to go back to with rollback_plan and rollback"
        )
    return taken
