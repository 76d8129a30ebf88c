"""`holdfast pause`: ask a run to stop before its next call."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from holdfast.cli.acting import act, by_option, enqueue_option, run_argument
from holdfast.cli.session import Session
from holdfast.errors import Conflict
from holdfast.inspect.inbox import pending_cancel

if TYPE_CHECKING:
    from holdfast.runtime.app import App


@click.command()
@run_argument
@by_option
@enqueue_option
@click.pass_obj
def command(session: Session, run: str, by: str | None, enqueue: bool) -> int:
    """Ask a run to stop before its next call.

    A run that is at work stops when it comes to its next step, effect or question. `holdfast resume` lets it go on.
    Refused with exit code 5 if a cancel of the run is pending.

    \b
    Examples:
      holdfast pause order-17
      holdfast pause @latest --by ana
    """

    def pause(app: App, run_id: str) -> None:
        cancel = pending_cancel(session.store(), run_id)
        if cancel is not None:
            raise Conflict(f"a cancel of run {run_id!r} by {cancel.by!r} is pending, so it is not paused")
        app.pause(run_id, by=by, enqueue=enqueue)

    return act(session, run, "the pause", pause)
