"""`schedules`: list the schedules of a store."""

from __future__ import annotations

import click

from holdfast.cli.session import Session
from holdfast.inspect.views import as_data


@click.command("schedules")
@click.pass_obj
def schedules_command(session: Session) -> None:
    """List schedules, with their next ticks and last runs.

    A schedule is the run `schedule/NAME`: pause, resume and cancel work as on any run.

    \b
    Examples:
      holdfast schedules
      holdfast pause schedule/nightly
      holdfast schedules --json
    """
    from holdfast.runtime.schedules import schedules_of

    found = schedules_of(session.store().access.core)
    if session.json:
        session.out.give({"schedules": as_data(found)})
        return
    if not found:
        session.out.note("no schedules; app.schedule() makes one")
        return
    rows = [
        (
            one.name,
            one.when,
            one.workflow,
            one.status,
            session.out.time(one.next) if one.next is not None else "",
            f"{one.last_run} ({one.last_status})" if one.last_run is not None else "",
        )
        for one in found
    ]
    session.out.table(("NAME", "WHEN", "WORKFLOW", "STATUS", "NEXT", "LAST RUN"), rows)
