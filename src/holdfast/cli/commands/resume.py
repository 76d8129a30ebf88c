"""`holdfast resume`: let a paused run go on, or take up one whose process died."""

from __future__ import annotations

from shlex import quote
from typing import Any

import click

from holdfast.cli import exits
from holdfast.cli.acting import code_of_standing, enqueue_option, standing, tell, waits_for_answer
from holdfast.cli.naming import adopt, offered_runs, run_adopted
from holdfast.cli.selecting import selected
from holdfast.cli.session import Session
from holdfast.errors import HoldfastError
from holdfast.model.status import PAUSED


@click.command()
@click.argument("run", metavar="RUN", required=False, shell_complete=offered_runs)
@click.option("--all", "every", is_flag=True, help="All paused runs.")
@click.option("--workflow", metavar="NAME", help="With --all: only runs of this workflow.")
@enqueue_option
@click.pass_obj
def command(session: Session, run: str | None, every: bool, workflow: str | None, enqueue: bool) -> int:
    """Let a paused run go on, or take up one whose process died.

    With an app that knows the workflow the run goes on here until it next waits or ends; otherwise it is made ready for
    a worker. Ends with exit code 3 if the run then waits for an answer, with 1 if it has failed.

    \b
    Examples:
      holdfast resume order-17 --app shop:app
      holdfast resume --all
      holdfast resume --all --workflow refund --enqueue
    """
    if every == (run is not None):
        raise click.UsageError("name a run, or give --all")
    if workflow is not None and not every:
        raise click.UsageError("--workflow goes with --all")
    if run is None:
        return _all(session, workflow, enqueue=enqueue)
    app = session.app()
    run_id = run_adopted(session, run)
    session.how_to_go_on = f"`holdfast resume {quote(run_id)}` goes on from where the run stands."
    app.resume(run_id, enqueue=enqueue)
    return tell_and_judge(session, run_id)


def tell_and_judge(session: Session, run_id: str) -> int:
    """Say where a run stands; the exit code tells whether it waits for an answer or has failed."""
    found = tell(session, run_id)
    if waits_for_answer(found):
        return exits.WAITING
    return code_of_standing(found)


def _all(session: Session, workflow: str | None, *, enqueue: bool) -> int:
    app = session.app()
    session.how_to_go_on = "`holdfast resume --all` goes on with the others."
    paused = selected(session, (), every=True, workflow=workflow, status=(PAUSED,))
    done: list[dict[str, Any]] = []
    with session.out.progress("resuming", len(paused)) as progress:
        for info in paused:
            try:
                adopt(session, info.run_id)
                app.resume(info.run_id, enqueue=enqueue)
                done.append({**standing(session, info.run_id), "error": None})
            except HoldfastError as error:  # one run's trouble is not the others'
                done.append({**standing(session, info.run_id), "error": str(error)})
            progress.advance()
    if session.json:
        session.out.give({"runs": done})
    else:
        rows = [(each["run_id"], each["status"], each["error"] or "") for each in done]
        if rows:
            session.out.table(("RUN", "STATUS", "ERROR"), rows, status=1)
        else:
            session.say("no run is paused")
    return exits.ERROR if any(each["error"] for each in done) else exits.OK
