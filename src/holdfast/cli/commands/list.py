"""`holdfast list`: runs, newest first."""

from __future__ import annotations

import json
from typing import Any

import click

from holdfast.cli.naming import note_cancel
from holdfast.cli.output import one_line
from holdfast.cli.session import Session
from holdfast.cli.showing import value_text
from holdfast.errors import DamagedData
from holdfast.inspect.inbox import pending_cancel
from holdfast.inspect.plain import as_data
from holdfast.limits import RUNS_PAGE_MAX
from holdfast.model.status import AT_WORK, READY, STATUSES
from holdfast.model.views import RunInfo, RunList


@click.command()
@click.option(
    "--status",
    "statuses",
    multiple=True,
    type=click.Choice(sorted(STATUSES)),
    help="Of this status; may be given several times.",
)
@click.option("--workflow", metavar="NAME", help="Of this workflow.")
@click.option(
    "--meta",
    "metas",
    multiple=True,
    metavar="KEY=VALUE",
    help='With this metadata. What is JSON counts as such: n=1 is a number, n="1" a text.',
)
@click.option("--prefix", default="", metavar="TEXT", help="Whose ids begin so.")
@click.option("--limit", default=50, show_default=True, type=click.IntRange(1, RUNS_PAGE_MAX), help="How many at most.")
@click.option("--after", metavar="CURSOR", help="Go on behind an earlier page; its last line says how.")
@click.option("--all", "everything", is_flag=True, help="All there are, however many.")
@click.pass_obj
def command(
    session: Session,
    statuses: tuple[str, ...],
    workflow: str | None,
    metas: tuple[str, ...],
    prefix: str,
    limit: int,
    after: str | None,
    everything: bool,
) -> None:
    """List runs: newest first, by status, workflow or metadata.

    \b
    Examples:
      holdfast list --status waiting
      holdfast list --workflow refund --meta team=a --limit 10
      holdfast list --all --json
    """
    query: dict[str, Any] = {
        "status": list(statuses) or None, "workflow": workflow, "prefix": prefix,
        "metadata": dict(_pair(meta) for meta in metas) or None, "limit": RUNS_PAGE_MAX if everything else limit,
    }  # fmt: skip
    page = _page(session, query, after)
    runs = list(page)
    while everything and page.cursor is not None:
        page = _page(session, query, page.cursor)
        runs += page
    if session.json:
        session.out.give({"runs": as_data(runs), "cursor": page.cursor})
        return
    if not runs:
        session.out.note("no such runs" if statuses or metas or workflow or prefix or after else "no runs")
        return
    _table(session, runs)
    for run in runs:
        cancel = pending_cancel(session.store(), run.run_id) if run.status in (READY, *AT_WORK) else None
        if cancel is not None:
            note_cancel(session, run.run_id, cancel)
    if page.cursor is not None:
        session.out.note(f"there may be more: --after {page.cursor}, or --all")


def _page(session: Session, query: dict[str, Any], after: str | None) -> RunList:
    """A page; one damaged run must not hide all others."""
    try:
        return session.store().runs(**query, after=after)
    except DamagedData as damage:
        found = session.store().runs(**query, after=after, damaged="skip")  # a store that is damaged itself fails again
        told = f"{damage.place} is damaged: {damage.reason}"
        for line in session.out.wrapped(one_line(f"holdfast: {told}; it is left out, `holdfast verify` tells more")):
            session.out.note(line)
        return found


def _pair(meta: str) -> tuple[str, Any]:
    key, sign, text = meta.partition("=")
    if not sign or not key:
        raise click.UsageError(f"--meta takes KEY=VALUE, not {meta!r}")
    try:
        return key, json.loads(text)
    except ValueError:
        return key, text


def _table(session: Session, runs: list[RunInfo]) -> None:
    rows = [
        (run.run_id, run.status, run.workflow or "-", session.out.time(run.updated_at), _more(run))
        for run in runs
    ]  # fmt: skip
    session.out.table(("RUN", "STATUS", "WORKFLOW", "UPDATED", "METADATA"), rows, status=1)


def _more(run: RunInfo) -> str:
    return " ".join(f"{key}={value_text(value, 40)}" for key, value in run.metadata.items())
