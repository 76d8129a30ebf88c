"""`list`: runs, newest first."""

from __future__ import annotations

import functools
from collections.abc import Callable

from holdfast.cli.format import value_text
from holdfast.cli.output import one_line
from holdfast.cli.session import Session
from holdfast.cli.verb import Option, verb
from holdfast.errors import DamagedData
from holdfast.limits import RUNS_PAGE_MAX
from holdfast.model.rows import AT_WORK, READY, STATUSES
from holdfast.model.views import RunInfo, RunList


@verb(
    Option(
        "--status",
        "statuses",
        "Only runs of this status; may be repeated.",
        multiple=True,
        choices=tuple(sorted(STATUSES)),
    ),
    Option("--workflow", "workflow", "Only runs of this workflow.", metavar="NAME"),
    Option(
        "--meta",
        "metas",
        'Only runs with this metadata. VALUE is JSON, or text: n=1 is a number, n="1" a text.',
        multiple=True,
        metavar="KEY=VALUE",
    ),
    Option("--prefix", "prefix", "Only runs whose ids begin with this.", default="", metavar="TEXT"),
    Option("--limit", "limit", "The maximum number.", default=50, at_least=1, at_most=RUNS_PAGE_MAX),
    Option("--after", "after", "Start after this cursor, from an earlier page.", metavar="CURSOR"),
    Option("--all", "everything", "List all runs.", is_flag=True),
)
def list_command(
    session: Session,
    statuses: tuple[str, ...],
    workflow: str | None,
    metas: tuple[str, ...],
    prefix: str,
    limit: int,
    after: str | None,
    everything: bool,
) -> None:
    """List runs, newest first, by status, workflow or metadata.

    \b
    Examples:
      holdfast list --status waiting
      holdfast list --workflow refund --meta team=a --limit 10
      holdfast list --all --json
    """
    read = functools.partial(
        session.reads().runs,
        status=list(statuses) or None,
        workflow=workflow,
        prefix=prefix,
        metadata=dict(_pair(meta) for meta in metas) or None,
        limit=RUNS_PAGE_MAX if everything else limit,
    )
    page = _page(session, read, after)
    runs = list(page)
    while everything and page.cursor is not None:
        page = _page(session, read, page.cursor)
        runs += page
    if session.json:
        from holdfast.inspect.views import as_data

        session.out.give({"runs": as_data(runs), "cursor": page.cursor})
        return
    if not runs:
        session.out.note("no matching runs" if statuses or metas or workflow or prefix or after else "no runs")
        return
    _table(session, runs)
    if any(run.status in (READY, *AT_WORK) for run in runs):
        _note_cancels(session, runs)
    if page.cursor is not None:
        session.out.note(f"there may be more: --after {page.cursor}, or --all")


def _note_cancels(session: Session, runs: list[RunInfo]) -> None:
    from holdfast.cli.run_reads import note_cancel
    from holdfast.inspect.status import pending_cancel

    for run in runs:
        cancel = pending_cancel(session.reads(), run.run_id) if run.status in (READY, *AT_WORK) else None
        if cancel is not None:
            note_cancel(session, run.run_id, cancel)


def _page(session: Session, read: Callable[..., RunList], after: str | None) -> RunList:
    """Read a page; a damaged run is noted and does not hide the others."""
    try:
        return read(after=after)
    except DamagedData as damage:
        found = read(after=after, damaged="skip")  # raises again if the store itself is damaged
        text = (
            f"holdfast: {damage.place} is damaged: {damage.reason}; it is left out; `holdfast verify` reports details"
        )
        for line in session.out.wrapped(one_line(text)):
            session.out.note(line)
        return found


def _pair(meta: str) -> tuple[str, object]:
    key, sign, text = meta.partition("=")
    if not sign or not key:
        from click import UsageError

        raise UsageError(f"--meta takes KEY=VALUE, not {meta!r}")
    from holdfast.cli.prompts import json_or_text

    return key, json_or_text(text)


def _table(session: Session, runs: list[RunInfo]) -> None:
    rows = [
        (run.run_id, run.status, run.workflow or "-", session.out.time(run.updated_at), _metadata(run)) for run in runs
    ]
    session.out.table(("RUN", "STATUS", "WORKFLOW", "UPDATED", "METADATA"), rows, status=1)


def _metadata(run: RunInfo) -> str:
    return " ".join(f"{key}={value_text(value, 40)}" for key, value in run.metadata.items())
