"""`holdfast rollback`: take a run back, undoing what it did since."""

from __future__ import annotations

from shlex import quote
from typing import TYPE_CHECKING, Any, Final

import click

from holdfast.cli import exits
from holdfast.cli.acting import by_option, enqueue_option, run_argument, tell
from holdfast.cli.commands.fork import place_of
from holdfast.cli.naming import run_adopted
from holdfast.cli.output import one_line
from holdfast.cli.session import Session
from holdfast.errors import Conflict, RollbackRefused
from holdfast.model.names import display_name
from holdfast.model.status import CANCELLED

if TYPE_CHECKING:
    from holdfast.model.plans import EffectPlan, RollbackPlan

_CALLS_SHOWN: Final = 20


@click.command()
@run_argument
@click.option("--to", metavar="PLACE", help="A position, ~2 or a checkpoint's id, or a call or stage: back before it.")
@click.option("--force", is_flag=True, help="Go back although something cannot be undone; that stays as it is.")
@click.option("--dry-run", is_flag=True, help="Only show what would be done.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@by_option
@enqueue_option
@click.pass_obj
def command(
    session: Session, run: str, to: str | None, force: bool, dry_run: bool, yes: bool, by: str | None, enqueue: bool
) -> int:
    """Take a run back, undoing what it did since.

    Shows what will be undone, what cannot be, and what will be done anew, and asks. Side effects are undone in reverse,
    each recorded, so that a rollback that was broken off is taken up where it was: without --to. Nothing is erased.
    A run that has ended, also one that was cancelled, goes on from there.
    Without an app that knows the workflow the rollback is begun, and a worker carries it out.

    \b
    Examples:
      holdfast rollback order-17 --to 12 --dry-run
      holdfast rollback order-17 --to pay#1 --app shop:app
      holdfast rollback order-17 --to ~1 --yes --by ana
      holdfast rollback order-17
    """
    app = session.app()
    run_id = run_adopted(session, run)
    info = app.handle(run_id).info()
    enqueue = enqueue or not app.knows(info.workflow)
    session.how_to_go_on = f"A rollback that has begun is taken up by: holdfast rollback {quote(run_id)}"
    if to is None:
        if dry_run:
            raise click.UsageError("say where to go back to with --to")
        app.rollback(run_id, by=by, force=force, enqueue=enqueue)
        tell(session, run_id, plan=None, dry_run=False)
        return exits.OK
    place = place_of(session, run_id, to)
    plan = app.rollback_plan(run_id, place)
    if not session.json:
        show_plan(session, plan)
        if info.status == CANCELLED:
            session.say(f"{one_line(run_id)} is cancelled; the rollback takes that back, and the run goes on")
    if plan.problems and not force:
        if dry_run and session.json:
            session.out.give({"run_id": run_id, "dry_run": True, "plan": plan_data(plan)})
            return exits.CONFLICT
        raise RollbackRefused(run_id, plan, plan.problems)
    if dry_run:
        if session.json:
            session.out.give({"run_id": run_id, "dry_run": True, "plan": plan_data(plan)})
        return exits.OK
    if not session.out.confirm(f"Take {run_id} back to position {plan.to}?", yes=yes):
        session.say("nothing was done")
        return exits.OK
    if app.rollback_plan(run_id, place) != plan:
        raise Conflict(f"run {run_id!r} has moved on since the plan was shown; look at it again")
    app.rollback(run_id, plan.to, by=by, force=force, enqueue=enqueue)
    tell(session, run_id, plan=plan_data(plan), dry_run=False)
    return exits.OK


def show_plan(session: Session, plan: RollbackPlan) -> None:
    """The plan as a table."""
    rows: list[tuple[str, str, str]] = []
    rows += [
        ("undo", display_name(each.key), f"by {each.undo}({_arguments(each)}){_of(plan, each)}") for each in plan.undo
    ]
    rows += [("cannot undo", display_name(each.key), each.tool + _of(plan, each)) for each in plan.irreversible]
    rows += [("in doubt", display_name(each.key), each.tool + _of(plan, each)) for each in plan.in_doubt]
    rows += [("undone since", display_name(each.key), each.tool) for each in plan.compensated]
    rows += [("not undone", display_name(each.key), each.tool + _of(plan, each)) for each in plan.detached_effects]
    rows += [("take back child", child, "") for child in plan.children]
    rows += [("child is missing", child, "what it did cannot be undone") for child in plan.missing]
    rows += [("leave detached child", child, "") for child in plan.detached]
    rows += [("run again", display_name(call), "") for call in plan.calls[:_CALLS_SHOWN]]
    session.say(f"{plan.run_id} back to position {plan.to}:")
    if rows:
        session.out.table(("WHAT", "NAME", "HOW"), rows)
    else:
        session.say("nothing is taken back")
    if len(plan.calls) > _CALLS_SHOWN:
        session.say(f"… and {len(plan.calls) - _CALLS_SHOWN} more calls run again")


def plan_data(plan: RollbackPlan) -> dict[str, Any]:
    """The plan as --json gives it."""
    return {
        "to": plan.to,
        "undo": plan.undo,
        "irreversible": plan.irreversible,
        "in_doubt": plan.in_doubt,
        "compensated": plan.compensated,
        "calls": plan.calls,
        "children": plan.children,
        "missing": plan.missing,
        "detached": plan.detached,
        "detached_effects": plan.detached_effects,
        "problems": plan.problems,
    }


def _of(plan: RollbackPlan, effect: EffectPlan) -> str:
    return "" if effect.run_id == plan.run_id else f" in {effect.run_id}"


def _arguments(effect: EffectPlan) -> str:
    named = [f"{name}={value!r}" for name, value in effect.keywords.items()]
    return ", ".join([*(repr(value) for value in (effect.result, *effect.arguments)), *named])
