"""`holdfast worker`: move ready runs on until told to stop."""

from __future__ import annotations

import logging
import sys

import click

from holdfast.cli import exits
from holdfast.cli.session import Session


@click.command()
@click.option("--concurrency", type=click.IntRange(min=1), default=8, show_default=True, help="Runs at a time.")
@click.option("--limit", "limits", multiple=True, metavar="WORKFLOW=N", help="At most N runs of a workflow at a time.")
@click.option("--workflow", "workflows", multiple=True, metavar="NAME", help="Only runs of this workflow.")
@click.option("--until-idle", is_flag=True, help="End as soon as nothing is ready and nothing is under way.")
@click.option("--fail", is_flag=True, help="Exit with code 1 if a run failed.")
@click.option(
    "--drain", type=click.FloatRange(min=0), default=10.0, show_default=True, metavar="SECONDS",
    help="When told to stop: how long what is under way may take to come to its next call.",
)  # fmt: skip
@click.pass_obj
def command(
    session: Session, concurrency: int, limits: tuple[str, ...], workflows: tuple[str, ...], until_idle: bool,
    fail: bool, drain: float,
) -> int:  # fmt: skip
    """Move ready runs on until told to stop.

    Any number of workers may share a store. On SIGTERM or Ctrl-C a worker lets what is under way come to its next call
    and gives it back; another may go on with it. It also wakes sleepers and takes over from dead processes. A run that
    fails is logged on standard error, with the line of your code; at its end the worker says how many failed.

    \b
    Examples:
      holdfast worker --app shop:app
      holdfast worker --app shop:app --concurrency 4 --limit refund=1
      holdfast worker --app shop:app --until-idle --fail
    """
    if session.app_named() is None:
        raise click.UsageError("a worker needs an app that knows the workflows: --app module:name")
    logging.basicConfig(
        stream=sys.stderr, level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    app = session.app(create=True)
    worker = app.worker(
        concurrency=concurrency, limits=_limits(limits), workflows=list(workflows) or None, drain_s=drain
    )  # fmt: skip
    where = session.where()
    session.out.note(f"working on {where.shown if where else app.store.url}; Ctrl-C stops")
    worker.run(until_idle=until_idle)
    if session.json:
        session.out.give({"moved": worker.moved, "failed": worker.failed, "until_idle": until_idle})
    else:
        session.say(f"moved runs on {worker.moved} times")
        if worker.failed:
            failed = "1 run failed" if worker.failed == 1 else f"{worker.failed} runs failed"
            session.say(session.out.styled(f"{failed}; holdfast list --status failed", fg="red"))
    return exits.ERROR if fail and worker.failed else exits.OK


def _limits(texts: tuple[str, ...]) -> dict[str, int]:
    found: dict[str, int] = {}
    for text in texts:
        name, _, number = text.rpartition("=")
        if not name or not (number.isascii() and number.isdigit()):
            raise click.UsageError(f"--limit {text!r}: write WORKFLOW=N")
        found[name] = int(number)
    return found
