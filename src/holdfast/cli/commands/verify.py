"""`holdfast verify`: read everything there is, and check it."""

from __future__ import annotations

import sys

import click

from holdfast.cli import exits
from holdfast.cli.output import one_line
from holdfast.cli.session import Session
from holdfast.inspect.plain import as_data
from holdfast.verbs.checking import verified


@click.command()
@click.pass_obj
def command(session: Session) -> int:
    """Check every stored byte and report damage.

    Nothing is repaired, changed or hidden. Safe while others write. Exit code 1 if something is wrong.

    \b
    Examples:
      holdfast verify
      holdfast verify --store dir:/var/lib/runs --json
    """
    store = session.store()
    total = sum(store.stats().runs.values()) if sys.stderr.isatty() and not session.json else None
    with session.out.progress("verifying", total) as progress:
        report = verified(store._place.core, progress.advance)
    if session.json:
        session.out.give({"ok": report.ok, **as_data(report)})
        return exits.OK if report.ok else exits.ERROR
    for problem in report.problems:
        session.say(one_line(f"{problem.place}: {problem.reason}"))
    counted = f"{report.runs} runs, {report.checkpoints} checkpoints, {report.entries} entries, {report.chunks} chunks"
    said = "nothing is wrong" if report.ok else f"{len(report.problems)} problems"
    session.say(f"{said}; looked at {counted}")
    if report.unused_chunks:
        session.say(f"{report.unused_chunks} chunks are not needed any more; the next prune of their runs frees them")
    return exits.OK if report.ok else exits.ERROR
