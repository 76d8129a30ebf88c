"""The runs a command is about: those that are named, or all of a kind."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from holdfast.cli.naming import run_named
from holdfast.limits import RUNS_PAGE_MAX
from holdfast.verbs.reading import known_run
from holdfast.verbs.shown import run_info

if TYPE_CHECKING:
    from holdfast.cli.session import Session
    from holdfast.model.views import RunInfo


def selected(
    session: Session, named: tuple[str, ...], *, every: bool, workflow: str | None = None,
    status: tuple[str, ...] | None = None, older_than: dt.timedelta | None = None, whole: bool = False,
) -> list[RunInfo]:  # fmt: skip
    """The runs, oldest first. Wrong usage if none are named and not all are wanted. `whole`: as in `run_named`."""
    if bool(named) == every:
        raise click.UsageError("name runs, or give --all")
    if workflow is not None and not every:
        raise click.UsageError("--workflow goes with --all")
    if every:
        runs = list(all_runs(session, workflow, status))[::-1]
    else:
        core = session.store()._place.core
        runs = [run_info(known_run(core, run_named(session, name, whole=whole))) for name in dict.fromkeys(named)]
        runs = [info for info in runs if status is None or info.status in status]
    if older_than is None:
        return runs
    before = dt.datetime.now(dt.UTC) - older_than
    return [info for info in runs if info.updated_at < before]


def all_runs(session: Session, workflow: str | None, status: tuple[str, ...] | None) -> Iterator[RunInfo]:
    """All runs of a workflow and of these statuses, newest first; damaged ones are left out."""
    after: str | None = None
    while True:
        page = session.store().runs(
            status=status, workflow=workflow, limit=RUNS_PAGE_MAX, after=after, damaged="skip"
        )  # fmt: skip
        yield from page
        after = page.cursor
        if after is None:
            return
