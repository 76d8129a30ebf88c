"""`holdfast delete`: remove one run for good."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from holdfast.cli import exits
from holdfast.cli.acting import run_argument
from holdfast.cli.naming import run_named
from holdfast.cli.output import one_line, size
from holdfast.cli.session import Session
from holdfast.errors import Conflict
from holdfast.inspect.deletion import Removal, plan_deletion
from holdfast.verbs.reading import known_run

if TYPE_CHECKING:
    from holdfast.inspect.deletion import DeletionPlan


@click.command()
@run_argument
@click.option("--force", is_flag=True, help="Delete it although something speaks against it. Never one that is held.")
@click.option("--dry-run", is_flag=True, help="Only show what would be removed.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@click.pass_obj
def command(session: Session, run: str, force: bool, dry_run: bool, yes: bool) -> int:
    """Remove one run for good.

    Its journal, checkpoints, gates, inbox and ledger of effects are removed; nothing is undone. Forks keep the state
    they share with it, and child runs stay. Refused with exit code 5 while another process holds the run, and, unless
    --force is given, if it has not ended, an effect is in doubt, another run still needs it, or a message of it is not
    delivered.

    \b
    Examples:
      holdfast delete order-17
      holdfast delete order-17 --dry-run
      holdfast delete order-17 --yes --json
    """
    run_id = run_named(session, run, whole=True)
    plan = plan_deletion(session.store(), run_id)
    if not session.json:
        _show(session, plan)
    if plan.problems and not force and not dry_run:
        raise Conflict(f"run {run_id!r} was not deleted: {'; '.join(plan.problems)}; --force deletes it all the same")
    if dry_run:
        _give(session, plan, dry_run=True)
        return exits.CONFLICT if plan.problems and not force else exits.OK
    if not session.out.confirm(f"Delete run {run_id} for good?", yes=yes):
        session.say("nothing was done")
        return exits.OK
    _delete(session, plan, force=force)
    if not session.json:
        session.say(f"deleted {one_line(run_id)}: {_counted(plan)}")
    _give(session, plan, dry_run=False)
    return exits.OK


def _delete(session: Session, plan: DeletionPlan, *, force: bool) -> None:
    """Delete the run as it was when the plan was made."""
    store, run_id = session.store(), plan.run.run_id
    row = known_run(store._place.core, run_id)
    if row.commit_id != plan.commit_id:
        raise Conflict(f"run {run_id!r} has changed since the plan was shown; look at it again")
    Removal(store, [row]).remove(row, force=force)


def _show(session: Session, plan: DeletionPlan) -> None:
    run = plan.run
    workflow = one_line(run.workflow) or "(no workflow)"
    session.say(f"{one_line(run.run_id)}  {session.out.status(run.status)}  {workflow}: {_counted(plan)}")
    for name, run_ids in (("fork", plan.forks), ("child run", plan.children)):
        if run_ids:
            session.say(f"{len(run_ids)} {name}{'s stay' if len(run_ids) > 1 else ' stays'}")
    for problem in plan.problems:
        session.say(one_line(f"! {problem}"))


def _counted(plan: DeletionPlan) -> str:
    counted = ((plan.checkpoints, "checkpoint"), (plan.entries, "journal entry"), (plan.effects, "effect"))
    words = [f"{number} {word if number == 1 else _plural(word)}" for number, word in counted]
    return f"{', '.join(words)}, about {size(plan.bytes_freed)}"


def _plural(word: str) -> str:
    return f"{word[:-1]}ies" if word.endswith("y") else f"{word}s"


def _give(session: Session, plan: DeletionPlan, *, dry_run: bool) -> None:
    if session.json:
        session.out.give({
            "run_id": plan.run.run_id, "workflow": plan.run.workflow, "status": plan.run.status, "dry_run": dry_run,
            "deleted": not dry_run, "checkpoints_removed": plan.checkpoints, "entries_removed": plan.entries,
            "effects_removed": plan.effects, "bytes_freed": plan.bytes_freed, "forks": plan.forks,
            "children": plan.children, "problems": plan.problems,
        })  # fmt: skip
