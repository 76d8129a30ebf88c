"""`holdfast pause`: ask a run to stop before its next call."""

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
    """Ask a run to stop before its next call.

    A run that is at work stops when it comes to its next step, effect or question. `holdfast resume` lets it go on.

    \b
    Examples:
      holdfast pause order-17
      holdfast pause @latest --by ana
    """
    return act(session, run, lambda app, run_id: app.pause(run_id, by=by, enqueue=enqueue))
