"""`holdfast cancel`: cancel a run for good."""

from __future__ import annotations

import click

from holdfast.cli.acting import act, by_option, enqueue_option, run_argument
from holdfast.cli.session import Session


@click.command()
@run_argument
@by_option
@enqueue_option
@click.pass_obj
def command(session: Session, run: str, by: str | None, enqueue: bool) -> int:
    """Cancel a run for good.

    Its code is told at its next call and gets some time to tidy up; its children are cancelled with it. What it has
    done is not undone: that is what `holdfast rollback` is for. Only a rollback lets a cancelled run go on.

    \b
    Examples:
      holdfast cancel order-17
      holdfast cancel order-17 --by ana --app shop:app
    """
    return act(session, run, "the cancel", lambda app, run_id: app.cancel(run_id, by=by, enqueue=enqueue))
