"""`import_dir` and `export_run`: one run after the other, each whole or not at all.

An import only reads its source. What cannot be read, or is there already, is listed at the end and keeps nothing else
from coming along; so an import that was broken off is simply begun again. An export never puts a file in the place of
one that says something else.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from holdfast.errors import Conflict, DamagedData, DamagedFile, HoldfastError, InvalidInput, RunExists, StorageError
from holdfast.formats.folder import Folder
from holdfast.formats.lossless import read_json
from holdfast.formats.moving.brainwires import BrainwiresMover
from holdfast.formats.moving.car import CarMover
from holdfast.formats.moving.clawdia import ClawdiaMover
from holdfast.formats.moving.mur import MurMover
from holdfast.formats.moving.parts import File, Mover, Whole, commit_of
from holdfast.formats.moving.simple_agents import SimpleAgentsMover
from holdfast.ids import check_id
from holdfast.limits import NUMBER_MAX
from holdfast.model.commit import Commit, Outcome
from holdfast.model.views import Problem, View
from holdfast.store.pruning import PRUNED
from holdfast.verbs.plans import Plan, forbid_in_loop, run_plan
from holdfast.verbs.reading import known_run
from holdfast.verbs.shown import run_info
from holdfast.verbs.store import Store
from holdfast.verbs.writing import committed

MOVERS: Final[dict[str, Mover]] = {
    "car": CarMover(),
    "simple_agents": SimpleAgentsMover(),
    "brainwires": BrainwiresMover(),
    "mur": MurMover(),
    "clawdia": ClawdiaMover(),
}

Progress = Callable[[int, int, str], None]
"""Called with how many are done, how many there are, and the place of the one that was just looked at."""


class Imported(View, frozen=True, kw_only=True):
    """What an import did."""

    system: str
    runs: tuple[str, ...]
    """The runs that were made."""
    existing: tuple[str, ...]
    """Runs that were in the store already, and were left as they are."""
    damaged: tuple[Problem, ...]
    """Files that could not be imported, with the reason. They were left as they are."""


def import_dir(
    system: str, path: str | os.PathLike[str], store: Store, *, progress: Progress | None = None
) -> Imported:
    """Make ordinary runs of all that is in a directory of another system. The directory is only read.

    `system` is "car", "simple_agents", "brainwires", "mur" or "clawdia". A paused CAR workflow becomes a run that waits
    at a gate; a Brainwires log the run's effects; a MUR execution a history of checkpoints; a Clawdia journal entries
    with the checkpoints that cover them. What was not at a gate is paused: nothing is set in motion by being imported.

    Example:
        report = formats.import_dir("car", "workflow-runs", store)
        report.runs, report.damaged
    """
    forbid_in_loop("import_dir")
    mover = _mover(system)
    root = os.fspath(path)
    if not os.path.isdir(root):
        raise InvalidInput(f"there is no directory {root!r} to import from")
    core = store._place.core
    sources = mover.sources(os.path.abspath(root))
    made: list[str] = []
    existing: list[str] = []
    damaged: list[Problem] = []
    for number, source in enumerate(sources, start=1):
        try:
            commit = commit_of(core, system, source.read(core, damaged))
        except HoldfastError as error:
            damaged.append(_problem(source.place, error))
        else:
            _make(store, commit, source.place, made, existing, damaged)
        if progress is not None:
            progress(number, len(sources), source.place)
    return Imported(system=system, runs=tuple(made), existing=tuple(existing), damaged=tuple(damaged))


def _make(
    store: Store, commit: Commit, place: str, made: list[str], existing: list[str], damaged: list[Problem]
) -> None:
    try:
        committed(store._place, commit, run_plan(store._place, _once(commit)))
        made.append(commit.run_id)
    except RunExists:
        if commit.run_id in made:
            damaged.append(Problem(place=place, reason=f"run {commit.run_id!r} came from another file already"))
        else:
            existing.append(commit.run_id)
    except StorageError:  # the store failed, and would fail for the next as well
        raise
    except HoldfastError as error:
        damaged.append(_problem(place, error))


def _once(commit: Commit) -> Plan[Outcome]:
    return (yield commit)  # type: ignore[no-any-return]


def _problem(place: str, error: HoldfastError) -> Problem:
    if isinstance(error, DamagedData):
        return Problem(place=error.place, reason=error.reason)
    return Problem(place=place, reason=str(error))


def export_run(
    system: str, store: Store, run_id: str, path: str | os.PathLike[str], *, replace: bool = False
) -> list[Path]:
    """Write a run as files of another system, durably. Gives the files.

    The run must be one of that system's: imported from it, or saved with its checkpoints as states. A file that says
    the same is left; one that says something else is a Conflict, unless `replace` is given.

    Example:
        formats.export_run("car", store, "run-1", "exported")
    """
    forbid_in_loop("export_run")
    mover = _mover(system)
    check_id("run_id", run_id)
    folder = Folder(path)
    files = mover.files(_whole(store, run_id), folder)
    with folder.held():
        new = [file for file in files if not _is_there(folder, file, replace=replace)]
        for file in new:
            folder.put(file.data, *file.name)
    folder.close()
    return [Path(folder.at(*file.name)) for file in files]


def _mover(system: object) -> Mover:
    if not isinstance(system, str) or system not in MOVERS:
        raise InvalidInput(f"system must be one of {', '.join(MOVERS)}, not {system!r}")
    return MOVERS[system]


def _is_there(folder: Folder, file: File, *, replace: bool) -> bool:
    """Whether the file is there and says the same. Lines are compared one by one, since they are no single value."""
    found = folder.read(*file.name)
    if found is None or replace:
        return False
    place = folder.at(*file.name)
    try:
        same = _said(found, place) == _said(file.data, place)
    except DamagedFile:
        same = False
    if not same:
        raise Conflict(f"{place} is there and says something else; export to another directory, or give replace=True")
    return True


def _said(data: bytes, place: str) -> list[Any]:
    if place.endswith(".ndjson"):
        return [read_json(line, place) for line in data.split(b"\n") if line.strip()]
    return [read_json(data, place)]


def _whole(store: Store, run_id: str) -> Whole:
    core = store._place.core
    row = known_run(core, run_id)
    infos = [info for info in store.history(run_id) if not info.lane]
    loaded = [store.load(run_id, checkpoint_id=info.checkpoint_id) for info in infos]
    entries = [entry for entry in store.journal(run_id) if entry.kind != PRUNED] if row.position else []
    gates = core.port.gates(row.run, "answered", NUMBER_MAX)
    return Whole(
        run_info(row), [checkpoint for checkpoint in loaded if checkpoint is not None], entries,
        store.effects(run_id), bool(gates),
    )  # fmt: skip
