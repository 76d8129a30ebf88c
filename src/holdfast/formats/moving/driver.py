"""`import_dir` and `export_run`: one run after the other, each whole or not at all.

An import only reads its source. What cannot be read, or is there already, is listed at the end and keeps nothing else
from coming along; so an import that was broken off is simply begun again. An export never puts a file in the place of
one that says something else.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from holdfast.errors import DamagedData, HoldfastError, InvalidInput, RunExists, StorageError
from holdfast.formats.folder import Folder, check_path
from holdfast.formats.moving.brainwires import BrainwiresMover
from holdfast.formats.moving.car import CarMover
from holdfast.formats.moving.clawdia import ClawdiaMover
from holdfast.formats.moving.mur import MurMover
from holdfast.formats.moving.parts import FORMAT, Mover, Whole, commit_of
from holdfast.formats.moving.present import is_of_lines, is_there
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
from holdfast.verbs.values import metadata_pairs
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
    root = check_path(path)
    _check_store(store)
    if progress is not None and not callable(progress):
        raise InvalidInput(f"progress must be something to call, not {progress!r}")
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
            _note_existing(store, commit, place, existing, damaged)
    except StorageError:  # the store failed, and would fail for the next as well
        raise
    except HoldfastError as error:
        damaged.append(_problem(place, error))


def _note_existing(store: Store, commit: Commit, place: str, existing: list[str], damaged: list[Problem]) -> None:
    """A run of this id is there: the one that was imported before, or one that has nothing to do with it."""
    found = run_info(known_run(store._place.core, commit.run_id)).metadata
    if dict(metadata_pairs(dict(found))).get(FORMAT) == dict(commit.metadata or ()).get(FORMAT):
        existing.append(commit.run_id)
    else:
        reason = f"the store has another run {commit.run_id!r}, which did not come from this system"
        damaged.append(Problem(place=place, reason=reason))


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
    the same is left; one that says something else is a Conflict, unless `replace` is given. Even then nothing is taken
    from one of ours that has claimed a CAR run and lives, marks of Brainwires are put together, later steps of MUR are
    put aside, and a journal of Clawdia only gets the records that it lacks.

    Example:
        formats.export_run("car", store, "run-1", "exported")
    """
    forbid_in_loop("export_run")
    mover = _mover(system)
    check_id("run_id", run_id)
    _check_store(store)
    folder = Folder(path)
    whole = _whole(store, run_id)
    files = mover.files(whole)
    try:
        with folder.held():
            files = mover.facing(folder, whole, files, replace=replace)
            new = [file for file in files if not (file.is_written or is_there(folder, file, replace=replace))]
            for file in new:
                folder.put(file.data, *file.name, limited=not is_of_lines(file))
    finally:
        folder.close()
    return [Path(folder.at(*file.name)) for file in files]


def _check_store(store: object) -> None:
    if not isinstance(store, Store):
        raise InvalidInput(f"store must be what holdfast.open gives (of an App, its store), not {store!r}")


def _mover(system: object) -> Mover:
    if not isinstance(system, str) or system not in MOVERS:
        raise InvalidInput(f"system must be one of {', '.join(MOVERS)}, not {system!r}")
    return MOVERS[system]


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
