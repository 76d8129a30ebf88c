"""`holdfast retry`: let a failed run go on from what failed."""

from __future__ import annotations

from shlex import quote

import click

from holdfast.cli.acting import by_option, enqueue_option, run_argument
from holdfast.cli.commands.resume import tell_and_judge
from holdfast.cli.naming import run_adopted
from holdfast.cli.session import Session


@click.command()
@run_argument
@by_option
@enqueue_option
@click.pass_obj
def command(session: Session, run: str, by: str | None, enqueue: bool) -> int:
    """Let a failed run go on from what failed.

    Fix the cause first. The call that failed is executed again, an effect under the idempotency key it had; finished
    work is kept, and nothing is undone. A failed child run is retried as well. With an app that knows the workflow the
    run goes on here until it next waits or ends; otherwise it is made ready for a worker. Ends with exit code 3 if the
    run then waits for an answer, with 1 if it has failed again.

    \b
    Examples:
      holdfast retry order-17 --app shop:app
      holdfast retry order-17 --enqueue
    """
    app = session.app()
    run_id = run_adopted(session, run)
    enqueue = enqueue or not app.knows(app.handle(run_id).info().workflow)
    session.how_to_go_on = f"`holdfast retry {quote(run_id)}` goes on from where the run stands."
    app.retry(run_id, by=by, enqueue=enqueue)
    return tell_and_judge(session, run_id)
