"""`export` and `import`: runs as archives or as files of other systems.

Archives are written durably, and files are replaced only on request.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import quote

import click

from holdfast import errors
from holdfast.cli import exit_codes
from holdfast.cli.exit_codes import CannotAsk
from holdfast.cli.output import one_line, size
from holdfast.cli.run_args import complete_files, complete_runs
from holdfast.cli.run_reads import find_run
from holdfast.cli.session import Session
from holdfast.errors.store import close_matches, did_you_mean
from holdfast.files.durable import put_file
from holdfast.files.os_files import SystemFiles

SYSTEMS: Final = ("car", "simple_agents", "brainwires", "mur", "clawdia")


@click.command()
@click.argument("runs", metavar="RUN...", nargs=-1, required=True, shell_complete=complete_runs)
@click.option(
    "-o", "--output", metavar="FILE", help="The file, a directory for several runs, or - for standard output."
)
@click.option("--to", "system", nargs=2, metavar="SYSTEM DIR", help=f"Write files of {', '.join(SYSTEMS)}.")
@click.option("--replace", is_flag=True, help="Replace existing files.")
@click.pass_obj
def export_command(
    session: Session, runs: tuple[str, ...], output: str | None, system: tuple[str, str] | None, replace: bool
) -> int:
    """Write runs to an archive or as another system's files.

    An archive holds one run with its checkpoints, journal, side effects, open gates, timers and state, without its
    claim; any store can import it. Without -o it is written to the current directory and named after the run.

    \b
    Examples:
      holdfast export order-17
      holdfast export order-17 order-18 -o archives/
      holdfast export order-17 -o - | ssh other holdfast import -
      holdfast export run-1 --to car workflow-runs
    """
    if system is not None and output is not None:
        raise click.UsageError("--to already names a directory; leave out -o")
    if output == STANDARD_STREAM and (len(runs) > 1 or session.json):
        raise click.UsageError("standard output can hold one archive and no JSON")
    store = session.store()
    ids = [find_run(session, name) for name in dict.fromkeys(runs)]
    if system is not None:
        return _export_files(session, ids, system, replace=replace)
    if output == STANDARD_STREAM:
        write_to_standard_output(store.export_run(ids[0]))
        return exit_codes.OK
    done: list[_Export] = []
    with session.out.progress("exporting", len(ids)) as progress:
        for run_id in ids:
            data = store.export_run(run_id)
            path = archive_path(run_id, output, many=len(ids) > 1)
            write_archive(path, data, replace=replace)
            done.append(_Export(run_id, [str(path)], len(data)))
            progress.advance()
    return _report_export(session, "holdfast", done)


class _Export(NamedTuple):
    run_id: str
    files: list[str]
    bytes: int


def _export_files(session: Session, ids: list[str], system: tuple[str, str], *, replace: bool) -> int:
    from holdfast.formats import export_run

    name, folder = system
    done: list[_Export] = []
    with session.out.progress("exporting", len(ids)) as progress:
        for run_id in ids:
            paths = export_run(name, session.store(), run_id, folder, replace=replace)
            written = sum(path.stat().st_size for path in paths)
            done.append(_Export(run_id, [str(path) for path in paths], written))
            progress.advance()
    return _report_export(session, name, done)


def _report_export(session: Session, system: str, done: list[_Export]) -> int:
    if session.json:
        session.out.give({"system": system, "runs": [each._asdict() for each in done]})
    for each in () if session.json else done:
        for path in each.files:
            session.say(path)
        session.out.note(f"{each.run_id}: {size(each.bytes)}")
    return exit_codes.OK


_ARCHIVE_MAGIC: Final = b"holdfast run "
"""The first bytes of archives of every version."""


@click.command()
@click.argument("sources", metavar="FILE... | SYSTEM DIR", nargs=-1, required=True, shell_complete=complete_files)
@click.option("--as", "new", metavar="RUN", help="A new id for the run.")
@click.pass_obj
def import_command(session: Session, sources: tuple[str, ...], new: str | None) -> int:
    """Read runs from an archive or from another system's files.

    Each archive becomes a run with its original id; an existing run of that id is a conflict and is not changed. A
    directory of car, simple_agents, brainwires, mur or clawdia becomes ordinary runs. The directory is only read,
    unusable files are listed, and runs that were imported before are skipped, so the import may be repeated.

    \b
    Examples:
      holdfast import order-17.holdfast
      holdfast import order-17.holdfast --as order-17-copy
      holdfast import car workflow-runs
    """
    if sources[0] in SYSTEMS and len(sources) == 2 and not os.path.isfile(sources[0]):
        if new is not None:
            raise click.UsageError("--as requires one archive")
        return _import_directory(session, *sources)
    if len(sources) == 2 and os.path.isdir(sources[1]) and not os.path.exists(sources[0]):
        hint = did_you_mean(close_matches(sources[0], SYSTEMS)) or f"the systems are {', '.join(SYSTEMS)}"
        raise click.UsageError(f"unknown system {sources[0]!r}; {hint}")
    if new is not None and len(sources) > 1:
        raise click.UsageError("--as requires one archive")
    done: list[dict[str, str | None]] = []
    first: errors.HoldfastError | None = None
    with session.out.progress("importing", len(sources)) as progress:
        for source in sources:
            run_id, error = _import_archive(session, source, new)
            first = first or error
            done.append({"file": source, "run_id": run_id, "error": None if error is None else str(error)})
            progress.advance()
    if first is not None and len(sources) == 1:
        raise first
    if session.json:
        session.out.give({"system": "holdfast", "runs": done})
    for each in () if session.json else done:
        session.say(f"{each['file']}: {each['run_id'] or each['error']}")
    return exit_codes.OK if first is None else exit_codes.code_of(first)


def _import_archive(session: Session, source: str, new: str | None) -> tuple[str | None, errors.HoldfastError | None]:
    """Import an archive; return the id of the run, or the error of this archive. An error of the store is raised."""
    try:
        data = read_archive(source)
        if not data.startswith(_ARCHIVE_MAGIC):  # before a store is created for it
            return None, DamagedArchive(source, "is not an archive; `holdfast export` writes archives")
        return session.store(create=True).import_run(data, run_id=new).run_id, None
    except errors.StorageError:
        raise
    except errors.DamagedData as error:
        return None, _with_file_name(source, error)
    except errors.HoldfastError as error:
        return None, error


class DamagedArchive(errors.DamagedData):
    """A file is not an archive, or is damaged. The hints for a damaged store do not apply to it."""

    def __init__(self, place: str, reason: str) -> None:
        errors.HoldfastError.__init__(self, f"{place} {reason}")
        self.place = place
        self.reason = reason


def _with_file_name(source: str, error: errors.DamagedData) -> errors.HoldfastError:
    """Add the file name to an error about an archive; return an error about the store unchanged."""
    if error.place != "the archive":
        return error
    if isinstance(error, errors.UnsupportedFormat):
        return errors.UnsupportedFormat(source, error.reason)
    return DamagedArchive(source, f"is damaged: {error.reason}; export the run again")


def _import_directory(session: Session, system: str, folder: str) -> int:
    from holdfast.formats import import_dir

    if not os.path.isdir(folder):
        raise click.UsageError(f"directory {folder!r} does not exist")
    store = session.store(create=True)
    session.how_to_continue = "Repeat the command to import the rest."
    with session.out.progress("importing", None) as progress:
        found = import_dir(system, folder, store, progress=lambda done, total, _: progress.reach(done, total))
    if session.json:
        facts = {"runs": found.runs, "existing": found.existing, "damaged": found.damaged}
        session.out.give({"system": system, **facts})
    else:
        for run_id in found.runs:
            session.say(run_id)
        session.out.note(f"{len(found.runs)} imported, {len(found.existing)} existed already")
        if not (found.runs or found.existing or found.damaged):
            others = ", ".join(other for other in SYSTEMS if other != system)
            session.out.note(one_line(f"{folder} has no files of {system}; other systems: {others}"))
        for problem in found.damaged:
            session.out.note(f"{problem.place}: {problem.reason}")
    return exit_codes.ERROR if found.damaged else exit_codes.OK


ENDING: Final = ".holdfast"
STANDARD_STREAM: Final = "-"
_NAME_BYTES_MAX: Final = 200


def file_name(run_id: str) -> str:
    """Return a file name for the archive of a run. Special characters are escaped."""
    name = quote(run_id, safe=" @+=,~")
    if name.startswith("."):
        name = f"%2E{name[1:]}"
    if len(name) > _NAME_BYTES_MAX:
        raise errors.InvalidInput(f"the id of run {run_id!r} is too long for a file name; pass a name with -o")
    return name + ENDING


def archive_path(run_id: str, output: str | None, *, many: bool) -> Path:
    """Return the path of a run's archive: `output` itself, or a file in it if it is a directory."""
    if output is None:
        return Path(file_name(run_id))
    path = Path(output)
    if path.is_dir() or many or output.endswith(os.sep):
        return path / file_name(run_id)
    return path


def write_archive(path: Path, data: bytes, *, replace: bool) -> None:
    """Write a file durably. Conflict if it exists and may not be replaced."""
    files, place = SystemFiles(), os.path.abspath(path)
    part = os.path.join(os.path.dirname(place), f".{path.name}.{os.getpid()}.part")
    try:
        if not replace and files.identity(place) is not None:
            raise FileExistsError
        path.parent.mkdir(parents=True, exist_ok=True)
        put_file(files, part, place, data, replace=replace)
        files.sync_directory(os.path.dirname(place))
    except FileExistsError as error:
        raise errors.Conflict(f"{path} exists; choose another file, or pass --replace") from error
    except OSError as error:
        raise errors.StorageFailed(f"{path} cannot be written: {error.strerror}") from error


def write_to_standard_output(data: bytes) -> None:
    """Write an archive to standard output, unless that is a terminal."""
    if sys.stdout.isatty():
        raise CannotAsk("an archive is not text; redirect it to a file or a pipe, or pass -o FILE")
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def read_archive(name: str) -> bytes:
    """Read an archive; `-` is standard input."""
    try:
        return sys.stdin.buffer.read() if name == STANDARD_STREAM else Path(name).read_bytes()
    except OSError as error:
        raise errors.InvalidInput(f"{name} cannot be read: {error.strerror}") from error
