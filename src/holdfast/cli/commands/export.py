"""`holdfast export`: write runs to an archive or as another system's files."""

from __future__ import annotations

from typing import Any, Final

import click

from holdfast.cli import archives, exits
from holdfast.cli.naming import offered_runs, run_named
from holdfast.cli.output import size
from holdfast.cli.session import Session

SYSTEMS: Final = ("car", "simple_agents", "brainwires", "mur", "clawdia")


@click.command()
@click.argument("runs", metavar="RUN...", nargs=-1, required=True, shell_complete=offered_runs)
@click.option(
    "-o", "--output", metavar="FILE", help="The file, a directory for several runs, or - for standard output."
)
@click.option("--to", "system", nargs=2, metavar="SYSTEM DIR", help=f"As files of {', '.join(SYSTEMS)}.")
@click.option("--replace", is_flag=True, help="Replace files that are there.")
@click.pass_obj
def command(
    session: Session, runs: tuple[str, ...], output: str | None, system: tuple[str, str] | None, replace: bool
) -> int:
    """Write runs to an archive or as another system's files.

    An archive holds one run with its checkpoints, journal, side effects, open questions, timers and state; any store
    can import it. Without -o it becomes a file in the current directory, named after the run. Claims stay behind.

    \b
    Examples:
      holdfast export order-17
      holdfast export order-17 order-18 -o archives/
      holdfast export order-17 -o - | ssh other holdfast import -
      holdfast export run-1 --to car workflow-runs
    """
    if system is not None and output is not None:
        raise click.UsageError("--to names a directory already; leave out -o")
    if output == archives.STANDARD and (len(runs) > 1 or session.json):
        raise click.UsageError("standard output takes one archive and nothing else")
    store = session.store()
    ids = [run_named(session, name) for name in dict.fromkeys(runs)]
    if system is not None:
        return _as_files(session, ids, system, replace=replace)
    if output == archives.STANDARD:
        archives.write_standard(store.export_run(ids[0]))
        return exits.OK
    done: list[dict[str, Any]] = []
    with session.out.progress("exporting", len(ids)) as progress:
        for run_id in ids:
            data = store.export_run(run_id)
            path = archives.target(run_id, output, many=len(ids) > 1)
            archives.write(path, data, replace=replace)
            done.append({"run_id": run_id, "files": [str(path)], "bytes": len(data)})
            progress.advance()
    return _told(session, "holdfast", done)


def _as_files(session: Session, ids: list[str], system: tuple[str, str], *, replace: bool) -> int:
    from holdfast.formats import export_run

    name, folder = system
    done: list[dict[str, Any]] = []
    with session.out.progress("exporting", len(ids)) as progress:
        for run_id in ids:
            paths = export_run(name, session.store(), run_id, folder, replace=replace)
            found = sum(path.stat().st_size for path in paths)
            done.append({"run_id": run_id, "files": [str(path) for path in paths], "bytes": found})
            progress.advance()
    return _told(session, name, done)


def _told(session: Session, system: str, done: list[dict[str, Any]]) -> int:
    if session.json:
        session.out.give({"system": system, "runs": done})
    for each in () if session.json else done:
        for path in each["files"]:
            session.say(path)
        session.out.note(f"{each['run_id']}: {size(each['bytes'])}")
    return exits.OK
