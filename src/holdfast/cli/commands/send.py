"""`holdfast send`: send an event to a run."""

from __future__ import annotations

import click

from holdfast.cli.acting import act, by_option, enqueue_option, run_argument
from holdfast.cli.answers import parse_json, read_json
from holdfast.cli.session import Session


@click.command()
@run_argument
@click.argument("event", metavar="EVENT")
@click.argument("value", metavar="[JSON]", required=False)
@click.option("--file", metavar="FILE", help="The value as a JSON file; - reads standard input.")
@click.option("--key", metavar="KEY", help="Sent again with the same key, it is no second event.")
@by_option
@enqueue_option
@click.pass_obj
def command(
    session: Session, run: str, event: str, value: str | None, file: str | None, key: str | None, by: str | None,
    enqueue: bool,
) -> int:  # fmt: skip
    """Send an event to a run.

    The run gets it by run.wait_for(EVENT), now or when it comes there. The value is JSON; without one it is null. With
    an app that knows the workflow the run goes on here; the exit code is 1 if it then fails.

    \b
    Examples:
      holdfast send order-17 shipped
      holdfast send order-17 shipped '{"parcel": 3}' --key parcel-3
    """
    if value is not None and file is not None:
        raise click.UsageError("give the value or --file, not both")
    if file is not None:
        data = read_json(file)
    else:
        data = None if value is None else parse_json(value, f"the value {value!r}")
    return act(
        session, run, "the event", lambda app, run_id: app.send(run_id, event, data, by=by, key=key, enqueue=enqueue)
    )
