"""`holdfast import`: read runs from an archive or from another system's files."""

from __future__ import annotations

import os
from difflib import get_close_matches
from typing import Any, Final

import click

from holdfast.cli import archives, exits
from holdfast.cli.acting import offered_files
from holdfast.cli.commands.export import SYSTEMS
from holdfast.cli.output import one_line
from holdfast.cli.session import Session
from holdfast.errors import DamagedData, HoldfastError, StorageError, UnsupportedFormat

_BEGINNING: Final = b"holdfast run "
"""All archives begin so, of whatever version."""


@click.command()
@click.argument("sources", metavar="FILE... | SYSTEM DIR", nargs=-1, required=True, shell_complete=offered_files)
@click.option("--as", "new", metavar="RUN", help="The run's id here, if it is to have another one.")
@click.pass_obj
def command(session: Session, sources: tuple[str, ...], new: str | None) -> int:
    """Read runs from an archive or from another system's files.

    Each archive becomes a run of its old id; one that is there already is a conflict and stays as it is. A directory of
    car, simple_agents, brainwires, mur or clawdia becomes ordinary runs; it is only read, what cannot be used is
    listed, and what was imported before is left alone, so it may be repeated.

    \b
    Examples:
      holdfast import order-17.holdfast
      holdfast import order-17.holdfast --as order-17-copy
      holdfast import car workflow-runs
    """
    if sources[0] in SYSTEMS and len(sources) == 2 and not os.path.isfile(sources[0]):
        if new is not None:
            raise click.UsageError("--as goes with one archive")
        return _directory(session, *sources)
    if len(sources) == 2 and os.path.isdir(sources[1]) and not os.path.exists(sources[0]):
        near = get_close_matches(sources[0], SYSTEMS, 1, 0.5)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(SYSTEMS)}"
        raise click.UsageError(f"there is no system {sources[0]!r} to import from; {hint}")
    if new is not None and len(sources) > 1:
        raise click.UsageError("--as goes with one archive")
    done: list[dict[str, Any]] = []
    first: HoldfastError | None = None
    with session.out.progress("importing", len(sources)) as progress:
        for source in sources:
            run_id, error = _one(session, source, new)
            first = first or error
            done.append({"file": source, "run_id": run_id, "error": None if error is None else str(error)})
            progress.advance()
    if first is not None and len(sources) == 1:
        raise first
    if session.json:
        session.out.give({"system": "holdfast", "runs": done})
    for each in () if session.json else done:
        session.say(f"{each['file']}: {each['run_id'] or each['error']}")
    return exits.OK if first is None else exits.code_of(first)


def _one(session: Session, source: str, new: str | None) -> tuple[str | None, HoldfastError | None]:
    """Import an archive: the run's id, or what is wrong. A store that fails would fail for the next as well."""
    try:
        data = archives.read(source)
        if not data.startswith(_BEGINNING):  # no store is made for it
            return None, DamagedArchive(source, "is no archive; `holdfast export` makes them")
        return session.store(create=True).import_run(data, run_id=new).run_id, None
    except StorageError:
        raise
    except DamagedData as error:
        return None, _named(source, error)
    except HoldfastError as error:
        return None, error


class DamagedArchive(DamagedData):
    """A file is no archive, or not as it was written. What helps against damage in a store is of no use for it."""

    def __init__(self, place: str, reason: str) -> None:
        HoldfastError.__init__(self, f"{place} {reason}")
        self.place = place
        self.reason = reason


def _named(source: str, error: DamagedData) -> HoldfastError:
    """Damage of an archive, by the name of its file; damage of the store stays what it is."""
    if error.place != "the archive":
        return error
    if isinstance(error, UnsupportedFormat):
        return UnsupportedFormat(source, error.reason)
    return DamagedArchive(source, f"is damaged: {error.reason}; export the run again")


def _directory(session: Session, system: str, folder: str) -> int:
    from holdfast.formats import import_dir

    if not os.path.isdir(folder):
        raise click.UsageError(f"there is no directory {folder!r} to import from")
    store = session.store(create=True)
    session.how_to_go_on = "The same command goes on with what is not imported yet."
    with session.out.progress("importing", None) as progress:
        found = import_dir(system, folder, store, progress=lambda done, total, _: progress.reach(done, total))
    if session.json:
        session.out.give(
            {"system": system, "runs": found.runs, "existing": found.existing, "damaged": found.damaged}
        )  # fmt: skip
    else:
        for run_id in found.runs:
            session.say(run_id)
        session.out.note(f"{len(found.runs)} imported, {len(found.existing)} were there already")
        if not (found.runs or found.existing or found.damaged):
            session.out.note(one_line(f"{folder} has nothing that {system} writes; other systems: {_others(system)}"))
        for problem in found.damaged:
            session.out.note(f"{problem.place}: {problem.reason}")
    return exits.ERROR if found.damaged else exits.OK


def _others(system: str) -> str:
    return ", ".join(other for other in SYSTEMS if other != system)
