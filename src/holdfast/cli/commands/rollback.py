"""`rollback` and `fork`: roll a run back, or start a new run from an earlier place."""

from __future__ import annotations

import secrets
from shlex import quote
from typing import TYPE_CHECKING, Final

import click

from holdfast.cli import exit_codes, run_args
from holdfast.cli.output import one_line
from holdfast.cli.prompts import json_or_text
from holdfast.cli.session import Session
from holdfast.errors import Conflict, RollbackRefused
from holdfast.ids import display_name
from holdfast.inspect.refs import checkpoint_of
from holdfast.model.rows import CANCELLED
from holdfast.runtime.replay_input import first_entry
from holdfast.store.checksum import verify_run

if TYPE_CHECKING:
    from holdfast.model.rollback_plan import EffectPlan, RollbackPlan
    from holdfast.runtime.app_control import Effects


_CALLS_SHOWN: Final = 20


@click.command()
@run_args.run_argument
@click.option("--to", metavar="PLACE", help="A position, ~2, the id of a checkpoint, or a call or stage: to before it.")
@click.option(
    "--force", is_flag=True, help="Roll back although some effects cannot be undone; these are left as they are."
)
@click.option("--dry-run", is_flag=True, help="Only show what would be done.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@run_args.by_option
@run_args.enqueue_option
@click.pass_obj
def rollback_command(
    session: Session, run: str, to: str | None, force: bool, dry_run: bool, yes: bool, by: str | None, enqueue: bool
) -> int:
    """Roll a run back and undo its later effects.

    Shows what will be undone, what cannot be, and what will run again, and asks. Side effects are undone in reverse
    order and each is recorded, so an interrupted rollback can be continued: repeat it without --to. Nothing is erased.
    A run that has ended or was cancelled continues from there. Without an app that has the workflow, the rollback is
    only requested, and a worker carries it out.

    \b
    Examples:
      holdfast rollback order-17 --to 12 --dry-run
      holdfast rollback order-17 --to pay#1 --app shop:app
      holdfast rollback order-17 --to ~1 --yes --by ana
      holdfast rollback order-17
    """
    app = session.app()
    run_id = run_args.find_and_adopt(session, run)
    info = app.handle(run_id).info()
    enqueue = enqueue or not app.knows(info.workflow)
    session.how_to_continue = f"An interrupted rollback continues with: holdfast rollback {quote(run_id)}"
    if to is None:
        if dry_run:
            raise click.UsageError("name the place to return to with --to")
        app.rollback(run_id, by=by, force=force, enqueue=enqueue, via="cli")
        run_args.report_status(session, run_id, plan=None, dry_run=False)
        return exit_codes.OK
    place = place_of(session, run_id, to)
    plan = app.rollback_plan(run_id, place)
    if not session.json:
        show_plan(session, plan)
        if info.status == CANCELLED:
            session.say(f"{one_line(run_id)} is cancelled; after the rollback it continues")
    if plan.problems and not force:
        if dry_run and session.json:
            session.out.give({"run_id": run_id, "dry_run": True, "plan": plan_data(plan)})
            return exit_codes.CONFLICT
        raise RollbackRefused(run_id, plan, plan.problems)
    if dry_run:
        if session.json:
            session.out.give({"run_id": run_id, "dry_run": True, "plan": plan_data(plan)})
        return exit_codes.OK
    if not session.out.confirm(f"Roll {run_id} back to position {plan.to}?", yes=yes):
        session.say("nothing was done")
        return exit_codes.OK
    if app.rollback_plan(run_id, place) != plan:
        raise Conflict(f"run {run_id!r} has changed since the plan was shown; run the command again")
    app.rollback(run_id, plan.to, by=by, force=force, enqueue=enqueue, via="cli")
    run_args.report_status(session, run_id, plan=plan_data(plan), dry_run=False)
    return exit_codes.OK


def show_plan(session: Session, plan: RollbackPlan) -> None:
    """Print the plan as a table."""
    rows: list[tuple[str, str, str]] = []
    rows += [
        ("undo", display_name(each.key), f"by {each.undo}({_argument_text(each)}){_run_note(plan, each)}")
        for each in plan.undo
    ]
    rows += [("cannot undo", display_name(each.key), each.tool + _run_note(plan, each)) for each in plan.irreversible]
    rows += [("in doubt", display_name(each.key), each.tool + _run_note(plan, each)) for each in plan.in_doubt]
    rows += [("undone since", display_name(each.key), each.tool) for each in plan.compensated]
    rows += [
        ("not undone", display_name(each.key), each.tool + _run_note(plan, each)) for each in plan.detached_effects
    ]
    rows += [("roll back child", child, "") for child in plan.children]
    rows += [("missing child", child, "its effects cannot be undone") for child in plan.missing]
    rows += [("leave detached child", child, "") for child in plan.detached]
    rows += [("run again", display_name(call), "") for call in plan.calls[:_CALLS_SHOWN]]
    session.say(f"roll {plan.run_id} back to position {plan.to}:")
    if rows:
        session.out.table(("WHAT", "NAME", "HOW"), rows)
    else:
        session.say("nothing to undo")
    if len(plan.calls) > _CALLS_SHOWN:
        session.say(f"… and {len(plan.calls) - _CALLS_SHOWN} more calls run again")
    for warning in plan.warnings:
        session.say(one_line(warning))


def plan_data(plan: RollbackPlan) -> dict[str, object]:
    """Return the plan as --json reports it."""
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
        "forks": plan.forks,
        "problems": plan.problems,
    }


def _run_note(plan: RollbackPlan, effect: EffectPlan) -> str:
    return "" if effect.run_id == plan.run_id else f" in {effect.run_id}"


def _argument_text(effect: EffectPlan) -> str:
    named = [f"{name}={value!r}" for name, value in effect.keywords.items()]
    return ", ".join([*(repr(value) for value in (effect.result, *effect.arguments)), *named])


@click.command()
@run_args.run_argument
@click.argument("new", metavar="[NEW]", required=False)
@click.option(
    "--at", metavar="PLACE", help="A journal position, a checkpoint's id, or a call: the fork begins before it."
)
@click.option(
    "--effects",
    type=click.Choice(["reuse", "perform", "ask"]),
    default="reuse",
    show_default=True,
    help="For side effects that were performed since: reuse the outcome, perform them again, or ask.",
)
@click.option(
    "--set",
    "changes",
    metavar="PATH=VALUE",
    multiple=True,
    help="Change the state that the fork starts with. VALUE is JSON, or text; may be repeated.",
)
@run_args.enqueue_option
@click.pass_obj
def fork_command(
    session: Session,
    run: str,
    new: str | None,
    at: str | None,
    effects: Effects,
    changes: tuple[str, ...],
    enqueue: bool,
) -> int:
    """Start a new run from a checkpoint or position of another.

    RUN~2 forks from two checkpoints before the newest, RUN@42 from position 42 of the journal, RUN alone from its end.
    Nothing is repeated or undone. When the fork reaches a side effect that was performed since, it reuses the recorded
    outcome, performs the effect again, or asks.

    \b
    Examples:
      holdfast fork order-17
      holdfast fork order-17@12 order-17b --effects ask
      holdfast fork order-17 --at pay#1 --app shop:app
      holdfast fork order-17 --at pay --set order.amount=30
    """
    update = dict(_parse_assignment(change) for change in changes)
    app = session.app()
    spot = run_args.locate(session, run)
    if at is not None and (spot.at is not None or spot.checkpoint_id is not None):
        raise click.UsageError(f"{run} already names a place; leave out --at")
    if not _is_workflow(session, spot.run_id):
        if update:
            raise click.UsageError(f"{spot.run_id} is not a run of a workflow, so --set has no effect on it")
        made = _fork_states(session, spot, at, new)
    else:
        run_args.adopt(session, spot.run_id)
        place: int | str | None = spot.at if at is None else place_of(session, spot.run_id, at)
        handle = app.fork(
            spot.run_id,
            new,
            at=place,
            checkpoint_id=spot.checkpoint_id,
            effects=effects,
            update=update or None,
            enqueue=enqueue,
            via="cli",
        )
        made = handle.run_id
    session.how_to_continue = f"The fork {made} was created."
    run_args.report_status(session, made, forked_from=app.handle(made).info().forked_from)
    return exit_codes.OK


def _parse_assignment(text: str) -> tuple[str, object]:
    """Parse PATH=VALUE; a value that is not JSON is text."""
    path, equals, value = text.partition("=")
    if not equals or not path:
        raise click.UsageError(f"--set takes PATH=VALUE, such as order.amount=30, not {text}")
    return path, json_or_text(value)


def place_of(session: Session, run_id: str, text: str) -> int | str:
    """Parse a place in a run: a position, `~2`, the id of a checkpoint, or the name of a stage or call."""
    if text.isascii() and text.isdigit():
        return int(text)
    if text.startswith("~"):
        found = checkpoint_of(session.store(), f"{run_id}{text}").checkpoint
        assert found is not None, "checkpoint_of raises if it does not exist"
        return found.checkpoint_id
    return text


def _is_workflow(session: Session, run_id: str) -> bool:
    """Return whether a workflow executes the run; otherwise a program only saves states to it."""
    store = session.store()
    row = store.port.run(run_id)
    return row is not None and bool(first_entry(store.access.core, verify_run(row)).get("workflow"))


def _fork_states(session: Session, spot: run_args.RunRef, at: str | None, new: str | None) -> str:
    place = spot.at if at is None else place_of(session, spot.run_id, at)
    is_position = isinstance(place, int)
    made = session.store().fork(
        spot.run_id,
        new if new is not None else f"{spot.run_id}-{secrets.token_hex(4)}",
        at=place if is_position else None,
        checkpoint_id=spot.checkpoint_id if place is None or is_position else str(place),
    )
    return made.run_id
