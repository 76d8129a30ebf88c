"""Operations that change runs. Each is recorded with `via="api"` and the user's name, and carried out by a worker."""

from __future__ import annotations

from urllib.parse import quote

from holdfast.errors import InvalidAnswer, NotFound
from holdfast.inspect.status import pending_cancel
from holdfast.web import run_actions
from holdfast.web.api import requests, schemas
from holdfast.web.api.convert import Converter
from holdfast.web.api.failure import ApiError, encode
from holdfast.web.api.gate_reads import find_gate, gate_of
from holdfast.web.api.operation import PREFIX, Reply, run_of
from holdfast.web.mask import MASKED
from holdfast.web.run_actions import REFUSED, visible_plan, with_warning
from holdfast.web.run_places import masked_edit, parse_place, require_workflow
from holdfast.web.run_start import start as start_workflow
from holdfast.web.site import Context

VIA = "api"


def _accepted(c: Context, run_id: str, message: str) -> schemas.Accepted:
    return schemas.Accepted(run=Converter(c).run(c.app.handle(run_id).info()), message=message)


def _created(c: Context, run_id: str, message: str, *, is_new: bool = True) -> Reply:
    location = c.url(f"{PREFIX}/runs/{quote(run_id, safe='')}")
    return Reply(_accepted(c, run_id, message), 201 if is_new else 200, location)


def start_run(c: Context, body: requests.StartBody) -> Reply:
    """Start a run.

    With a `run_id` the call can be repeated: the same input returns the run that exists (200), other input is a 409.
    """
    begin = {"at": body.at, "after": body.after}
    started = start_workflow(c, body.workflow, body.input, run_id=body.run_id, metadata=body.metadata, begin=begin)
    message = "started" if started.is_new else "the run exists already, with the same input"
    return _created(c, started.run_id, with_warning(c, body.workflow, message), is_new=started.is_new)


def pause_run(c: Context) -> schemas.Accepted:
    """Ask a run to pause. It stops before its next call."""
    return _act(c, "pause")


def resume_run(c: Context) -> schemas.Accepted:
    """Continue a paused run, or one whose process died."""
    return _act(c, "resume")


def cancel_run(c: Context) -> schemas.Accepted:
    """Cancel a run and its unfinished children. Only a rollback can continue it."""
    return _act(c, "cancel")


def retry_run(c: Context) -> schemas.Accepted:
    """Continue a failed run from the call that failed. Finished work is kept."""
    return _act(c, "retry")


def _act(c: Context, action: run_actions.Action) -> schemas.Accepted:
    run_id = run_of(c)
    return _accepted(c, run_id, run_actions.act(c, action, run_id, via=VIA))


def answer_gate(c: Context, body: requests.AnswerBody) -> schemas.Accepted:
    """Answer a gate. The first answer counts; a later one is a 409 that names who answered."""
    return _answer(c, run_of(c), gate_of(c), body)


def answer_run(c: Context, body: requests.RunAnswerBody) -> schemas.Accepted:
    """Answer the open gate of a run, or the one that `gate` names."""
    return _answer(c, run_of(c), body.gate, body)


def _answer(
    c: Context, run_id: str, gate: str | None, body: requests.AnswerBody | requests.RunAnswerBody
) -> schemas.Accepted:
    if gate is not None:
        gate = find_gate(c, run_id, gate).gate
    workflow = c.app.handle(run_id).info().workflow
    cancel = pending_cancel(c.store, run_id)
    if cancel is not None and any(gate in (None, one.gate) for one in c.app.gates(run_id)):
        text = f"{cancel.by!r} has requested to cancel run {run_id!r}, which reads no answer after that"
        raise ApiError(409, text, code="cancel_requested")
    try:
        c.app.answer(
            run_id,
            body.answer,
            by=c.user.name,
            groups=c.user.groups,
            gate=gate,
            question=body.question,
            via=VIA,
            enqueue=True,
        )
    except NotFound as error:
        raise _without_children(c, run_id, error) from None
    except InvalidAnswer as error:
        chosen = find_gate(c, run_id, error.gate)
        refused = chosen.may_answer(c.user.name, c.user.groups) if chosen.state == "open" else None
        if refused is None:
            raise
        raise ApiError(403, str(error), code="may_not_answer", problems=[refused]) from None
    return _accepted(c, run_id, with_warning(c, workflow, "answered"))


def _without_children(c: Context, run_id: str, error: NotFound) -> NotFound:
    """An error about a gate that was not found. It may name gates of children, which not every user may see."""
    return error if c.user.sees_all else NotFound(f"run {run_id!r} has no open gate")


def reassign_gate(c: Context, body: requests.ReassignBody) -> schemas.Gate:
    """Change the people that may answer an open gate."""
    return _reassign(c, run_of(c), gate_of(c), body)


def reassign_run(c: Context, body: requests.RunReassignBody) -> schemas.Gate:
    """Change the people that may answer the open gate of a run, or the one that `gate` names."""
    return _reassign(c, run_of(c), body.gate, body)


def _reassign(c: Context, run_id: str, gate: str | None, body: requests.ReassignBody) -> schemas.Gate:
    groups = run_actions.reassigner_groups(c)
    meant = c.app.gates(run_id) if gate is None else [find_gate(c, run_id, gate)]
    for info in meant if groups is not None else ():
        if info.state == "open" and (refused := info.may_answer(c.user.name, groups or ())) is not None:
            raise ApiError(403, f"only an operator, or a person that may answer it, can reassign it: {refused}")
    gate = meant[0].gate if len(meant) == 1 else None
    try:
        changed = c.app.reassign(
            run_id, body.who, gate=gate, by=c.user.name, groups=groups, reason=body.reason, via=VIA
        )
    except NotFound as error:
        raise _without_children(c, run_id, error) from None
    return Converter(c).gate(changed)


def send_event(c: Context, body: requests.SendBody) -> schemas.Accepted:
    """Send an event to a run, which receives it with `run.wait_for`."""
    run_id = run_of(c)
    c.app.send(run_id, body.event, body.value, by=c.user.name, key=body.key, via=VIA, enqueue=True)
    return _accepted(c, run_id, f"sent {body.event!r}")


def _workflow_run(c: Context) -> str:
    """The run of the path; an error if no workflow executes it."""
    run_id = run_of(c)
    require_workflow(c, run_actions.read_run(c, run_id))
    return run_id


def get_rollback_plan(c: Context, query: requests.PlanQuery) -> schemas.Plan:
    """Show what a rollback would undo, what it cannot undo, and what would run again. Nothing is changed."""
    return Converter(c).plan(c.app.rollback_plan(_workflow_run(c), parse_place(query.to)))


def roll_back_run(c: Context, body: requests.RollbackBody) -> schemas.Accepted:
    """Roll a run back, undoing its effects in reverse order. A worker performs it, and then continues the run.

    Effects that cannot be undone are a 409 that lists them, unless `force` is set.
    """
    run_id, place = _workflow_run(c), body.to if isinstance(body.to, int) else parse_place(body.to)
    app, basis = run_actions.app_without_workflows(c), body.basis
    if not c.user.sees_all:
        plan = c.app.rollback_plan(run_id, place)
        if visible_plan(c, plan)[1]:
            raise ApiError(403, f"run {run_id!r} was not rolled back: {REFUSED}", code="hidden_effects")
        basis = basis or plan.basis
    app.rollback(run_id, place, by=c.user.name, force=body.force, basis=basis, via=VIA, enqueue=True)
    workflow = c.app.handle(run_id).info().workflow
    return _accepted(c, run_id, with_warning(c, workflow, "the rollback has begun; a worker performs it"))


def fork_run(c: Context, body: requests.ForkBody) -> Reply:
    """Start a new run from a point of another. Nothing is repeated or undone."""
    run_id = _workflow_run(c)
    if MASKED in encode([body.state, body.update]).decode():
        raise ApiError(422, f"{MASKED} stands for a value that is not shown; write the value itself", code="masked")
    at = parse_place(body.at) if isinstance(body.at, str) else body.at
    if c.site.mask and (body.state is not None or body.update):
        problem = masked_edit(c, run_id, at, body.state, body.update)
        if problem:
            raise ApiError(422, problem, code="masked")
    handle = c.app.fork(
        run_id,
        body.run_id,
        at=at,
        effects=body.effects,
        state=body.state,
        update=body.update,
        basis=body.basis,
        by=c.user.name,
        via=VIA,
        enqueue=True,
    )
    workflow = c.app.handle(run_id).info().workflow
    return _created(c, handle.run_id, with_warning(c, workflow, "forked; a worker continues it"))
