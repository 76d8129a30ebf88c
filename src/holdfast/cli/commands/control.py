"""`pause`, `cancel`, `resume`, `retry`, `send` and `delete`: control one run."""

from __future__ import annotations

from shlex import quote
from typing import TYPE_CHECKING

import click

from holdfast.cli import exit_codes, run_args, run_reads
from holdfast.cli.output import one_line, size
from holdfast.cli.prompts import parse_json, read_json
from holdfast.cli.session import Session
from holdfast.errors import Conflict, HoldfastError
from holdfast.inspect.deletion import DeletionPlan, Removal, plan_deletion
from holdfast.inspect.status import pending_cancel
from holdfast.model.rows import FAILED, PAUSED, STATUSES, TERMINAL
from holdfast.operations.read import known_run

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.model.views import RunInfo
    from holdfast.runtime.app import App


@click.command()
@run_args.run_argument
@run_args.by_option
@run_args.enqueue_option
@click.pass_obj
def pause_command(session: Session, run: str, by: str | None, enqueue: bool) -> int:
    """Ask a run to stop before its next call.

    A run that is executing stops before its next step, effect or question. `holdfast resume` continues it. Refused
    with exit code 5 if a cancel of the run is pending.

    \b
    Examples:
      holdfast pause order-17
      holdfast pause @latest --by ana
    """

    def pause(app: App, run_id: str) -> None:
        cancel = pending_cancel(session.store(), run_id)
        if cancel is not None:
            raise Conflict(f"run {run_id!r} was not paused: a cancel by {cancel.by!r} is pending")
        app.pause(run_id, by=by, enqueue=enqueue, via="cli")

    return run_args.act(session, run, "the pause", pause)


@click.command()
@run_args.many_options("unfinished")
@run_args.by_option
@run_args.enqueue_option
@click.option("--yes", "-y", is_flag=True, help="With --all: do not ask.")
@click.pass_obj
def cancel_command(
    session: Session, run: str | None, many: run_args.Many, by: str | None, enqueue: bool, yes: bool
) -> int:
    """Cancel a run.

    Its code is interrupted at its next call and has some time to clean up; its children are cancelled as well. Its
    effects are not undone; `holdfast rollback` undoes effects. A cancelled run continues only after a rollback.

    \b
    Examples:
      holdfast cancel order-17
      holdfast cancel order-17 --by ana --app shop:app
      holdfast cancel --all --workflow refund --meta team=a
    """

    def cancel(app: App, run_id: str) -> object:
        return app.cancel(run_id, by=by, enqueue=enqueue, via="cli")

    if run is not None:
        return run_args.act(session, run, "the cancel", cancel)
    todo = many.runs(session, tuple(sorted(STATUSES - TERMINAL)))
    if todo and not session.out.confirm(f"Cancel {len(todo)} run{'s' if len(todo) > 1 else ''}?", yes=yes):
        session.say("nothing was done")
        return exit_codes.OK
    return _act_on_all(session, todo, "unfinished", cancel)


@click.command()
@run_args.many_options("paused")
@run_args.by_option
@run_args.enqueue_option
@click.pass_obj
def resume_command(session: Session, run: str | None, many: run_args.Many, by: str | None, enqueue: bool) -> int:
    """Continue a paused run, or one whose process died.

    With an app that has the workflow, the run continues here until it waits or ends; otherwise it is made ready for a
    worker. The exit code is 3 if the run then waits for an answer, 1 if it has failed.

    \b
    Examples:
      holdfast resume order-17 --app shop:app
      holdfast resume --all
      holdfast resume --all --workflow refund --enqueue
    """

    def resume(app: App, run_id: str) -> object:
        return app.resume(run_id, by=by, enqueue=enqueue, via="cli")

    if run is None:
        session.how_to_continue = "`holdfast resume --all` continues with the other runs."
        return _act_on_all(session, many.runs(session, (PAUSED,)), "paused", resume)
    app = session.app()
    run_id = run_args.find_and_adopt(session, run)
    session.how_to_continue = f"`holdfast resume {quote(run_id)}` continues the run."
    resume(app, run_id)
    return report_with_code(session, run_id)


def report_with_code(session: Session, run_id: str) -> int:
    """Report the status of a run; the exit code is 3 if it waits for an answer, 1 if it has failed."""
    found = run_args.report_status(session, run_id)
    if run_args.waits_for_answer(found):
        return exit_codes.WAITING
    return run_args.exit_code_of(found)


class _Done(run_args.StatusFacts):
    error: str | None


def _act_on_all(session: Session, runs: list[RunInfo], which: str, does: Callable[[App, str], object]) -> int:
    """Do something to each run and list them; the exit code is 1 if it failed for one of them."""
    app = session.app()
    done: list[_Done] = []
    with session.out.progress(f"{which} runs", len(runs)) as progress:
        for info in runs:
            try:
                run_args.adopt(session, info.run_id)
                does(app, info.run_id)
                done.append({**run_args.status_facts(session, info.run_id), "error": None})
            except HoldfastError as error:  # reported for this run; the others continue
                done.append({**run_args.status_facts(session, info.run_id), "error": str(error)})
            progress.advance()
    if session.json:
        session.out.give({"runs": done})
    else:
        rows = [(each["run_id"], each["status"], each["error"] or "") for each in done]
        if rows:
            session.out.table(("RUN", "STATUS", "ERROR"), rows, status=1)
        else:
            session.say(f"no run is {which}")
    return exit_codes.ERROR if any(each["error"] for each in done) else exit_codes.OK


@click.command()
@run_args.many_options("failed")
@run_args.by_option
@run_args.enqueue_option
@click.pass_obj
def retry_command(session: Session, run: str | None, many: run_args.Many, by: str | None, enqueue: bool) -> int:
    """Continue a failed run with the call that failed.

    Fix the cause first. The failed call is executed again, an effect with its original idempotency key; finished work
    is kept, and nothing is undone. A failed child run is retried as well. With an app that has the workflow, the run
    continues here until it waits or ends; otherwise it is made ready for a worker. The exit code is 3 if the run then
    waits for an answer, 1 if it has failed again.

    \b
    Examples:
      holdfast retry order-17 --app shop:app
      holdfast retry order-17 --enqueue
      holdfast retry --all --workflow refund --enqueue
    """

    def retry(app: App, run_id: str) -> object:
        later = enqueue or not app.knows(app.handle(run_id).info().workflow)
        return app.retry(run_id, by=by, enqueue=later, via="cli")

    if run is None:
        session.how_to_continue = "`holdfast retry --all` continues with the other runs."
        return _act_on_all(session, many.runs(session, (FAILED,)), "failed", retry)
    app = session.app()
    run_id = run_args.find_and_adopt(session, run)
    session.how_to_continue = f"`holdfast retry {quote(run_id)}` continues the run."
    retry(app, run_id)
    return report_with_code(session, run_id)


@click.command()
@run_args.run_argument
@click.argument("event", metavar="EVENT")
@click.argument("value", metavar="[JSON]", required=False)
@click.option("--file", metavar="FILE", help="A JSON file with the value; - reads standard input.")
@click.option("--key", metavar="KEY", help="Idempotency key: an event with the same key is sent only once.")
@run_args.by_option
@run_args.enqueue_option
@click.pass_obj
def send_command(
    session: Session,
    run: str,
    event: str,
    value: str | None,
    file: str | None,
    key: str | None,
    by: str | None,
    enqueue: bool,
) -> int:
    """Send an event to a run.

    The run receives it with run.wait_for(EVENT), now or later. The value is JSON, null by default. With an app that has
    the workflow, the run continues here; the exit code is 1 if it then fails.

    \b
    Examples:
      holdfast send order-17 shipped
      holdfast send order-17 shipped '{"parcel": 3}' --key parcel-3
    """
    if value is not None and file is not None:
        raise click.UsageError("pass the value or --file, not both")
    if file is not None:
        data = read_json(file)
    else:
        data = None if value is None else parse_json(value, f"the value {value!r}")

    def send(app: App, run_id: str) -> None:
        app.send(run_id, event, data, by=by, key=key, enqueue=enqueue, via="cli")

    return run_args.act(session, run, "the event", send)


@click.command()
@run_args.run_argument
@click.option("--force", is_flag=True, help="Delete it despite the problems shown; a claimed run is never deleted.")
@click.option("--dry-run", is_flag=True, help="Only show what would be removed.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@click.pass_obj
def delete_command(session: Session, run: str, force: bool, dry_run: bool, yes: bool) -> int:
    """Remove a run.

    Its journal, checkpoints, gates, inbox and ledger of effects are removed; nothing is undone. Forks keep the state
    they share with it, and child runs are kept. Refused with exit code 5 while another process has claimed the run.
    Refused without --force if the run has not ended, an effect is in doubt, another run needs it, or one of its
    messages is not delivered.

    \b
    Examples:
      holdfast delete order-17
      holdfast delete order-17 --dry-run
      holdfast delete order-17 --yes --json
    """
    run_id = run_reads.find_run(session, run, whole=True)
    plan = plan_deletion(session.store(), run_id)
    if not session.json:
        _show_deletion(session, plan)
    if plan.problems and not force and not dry_run:
        raise Conflict(f"run {run_id!r} was not deleted: {'; '.join(plan.problems)}; --force deletes it anyway")
    if dry_run:
        _give_deletion(session, plan, dry_run=True)
        return exit_codes.CONFLICT if plan.problems and not force else exit_codes.OK
    if not session.out.confirm(f"Delete run {run_id}? This cannot be undone.", yes=yes):
        session.say("nothing was done")
        return exit_codes.OK
    _delete(session, plan, force=force)
    if not session.json:
        session.say(f"deleted {one_line(run_id)}: {_count_text(plan)}")
    _give_deletion(session, plan, dry_run=False)
    return exit_codes.OK


def _delete(session: Session, plan: DeletionPlan, *, force: bool) -> None:
    """Delete the run; Conflict if it has changed since the plan was made."""
    store, run_id = session.store(), plan.run.run_id
    row = known_run(store.access.core, run_id)
    if row.commit_id != plan.commit_id:
        raise Conflict(f"run {run_id!r} has changed since the plan was shown; run the command again")
    Removal(store, [row]).remove(row, force=force)


def _show_deletion(session: Session, plan: DeletionPlan) -> None:
    run = plan.run
    workflow = one_line(run.workflow) or "(no workflow)"
    session.say(f"{one_line(run.run_id)}  {session.out.status(run.status)}  {workflow}: {_count_text(plan)}")
    for name, run_ids in (("fork", plan.forks), ("child run", plan.children)):
        if run_ids:
            session.say(f"{len(run_ids)} {name}{'s are' if len(run_ids) > 1 else ' is'} kept")
    for problem in plan.problems:
        session.say(one_line(f"! {problem}"))


def _count_text(plan: DeletionPlan) -> str:
    words = [
        "1 checkpoint" if plan.checkpoints == 1 else f"{plan.checkpoints} checkpoints",
        "1 journal entry" if plan.entries == 1 else f"{plan.entries} journal entries",
        "1 effect" if plan.effects == 1 else f"{plan.effects} effects",
    ]
    return f"{', '.join(words)}, about {size(plan.bytes_freed)}"


def _give_deletion(session: Session, plan: DeletionPlan, *, dry_run: bool) -> None:
    if session.json:
        session.out.give(
            {
                "run_id": plan.run.run_id,
                "workflow": plan.run.workflow,
                "status": plan.run.status,
                "dry_run": dry_run,
                "deleted": not dry_run,
                "checkpoints_removed": plan.checkpoints,
                "entries_removed": plan.entries,
                "effects_removed": plan.effects,
                "bytes_freed": plan.bytes_freed,
                "forks": plan.forks,
                "children": plan.children,
                "problems": plan.problems,
            }
        )
