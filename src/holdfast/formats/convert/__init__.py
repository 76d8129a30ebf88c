"""Import of other systems' directories into runs, and export.

Each run is imported in one commit. An import only reads its source; sources that are damaged, or already in the store,
are listed at the end and do not affect the others, so an interrupted import can be repeated. An export never replaces a
file with other content unless `replace` is given.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from holdfast.drivers import Plan, forbid_in_loop
from holdfast.errors import DamagedData, HoldfastError, InvalidInput, RunExists, StorageError
from holdfast.formats.convert.brainwires_converter import BrainwiresConverter
from holdfast.formats.convert.car_converter import CarConverter, register_car
from holdfast.formats.convert.clawdia_converter import ClawdiaConverter
from holdfast.formats.convert.mur_converter import MurConverter
from holdfast.formats.convert.run_parts import FORMAT, Converter, WholeRun, commit_of, is_of_lines, is_written_already
from holdfast.formats.convert.simple_agents_converter import SimpleAgentsConverter
from holdfast.formats.folder import Folder, check_path
from holdfast.ids import check_id
from holdfast.model.commit import Commit, Outcome
from holdfast.model.views import Problem, View
from holdfast.operations.context import require_committed
from holdfast.operations.read import known_run
from holdfast.operations.store import Store
from holdfast.operations.views import metadata_pairs, run_info
from holdfast.store.journal_prune import PRUNED

CONVERTERS: Final[dict[str, Converter]] = {
    "car": CarConverter(),
    "simple_agents": SimpleAgentsConverter(),
    "brainwires": BrainwiresConverter(),
    "mur": MurConverter(),
    "clawdia": ClawdiaConverter(),
}
Progress = Callable[[int, int, str], None]
"""Called with the number of imported sources, their total, and the place of the last one."""


class Imported(View, frozen=True, kw_only=True):
    """The result of an import."""

    system: str
    runs: tuple[str, ...]
    """The runs that were created."""
    existing: tuple[str, ...]
    """Runs that were already in the store, and were left unchanged."""
    damaged: tuple[Problem, ...]
    """Files that could not be imported, with the reason. They were left unchanged."""


def import_dir(
    system: str, path: str | os.PathLike[str], store: Store, *, progress: Progress | None = None
) -> Imported:
    """Import a directory of another system as runs. The directory is only read.

    `system` is "car", "simple_agents", "brainwires", "mur" or "clawdia". A paused CAR workflow becomes a run that waits
    at a gate; a Brainwires log becomes the run's effects; a MUR execution a history of checkpoints; a Clawdia journal
    entries with the checkpoints that cover them. Runs that do not wait at a gate are paused: an import starts nothing.

    Example:
        report = formats.import_dir("car", "workflow-runs", store)
        report.runs, report.damaged
    """
    forbid_in_loop("import_dir")
    converter = _converter(system)
    root = check_path(path)
    _check_store(store)
    if progress is not None and not callable(progress):
        raise InvalidInput(f"progress must be a function, not {progress!r}")
    if not os.path.isdir(root):
        raise InvalidInput(f"there is no directory {root!r} to import from")
    core = store.access.core
    sources = converter.sources(os.path.abspath(root))
    created: list[str] = []
    existing: list[str] = []
    damaged: list[Problem] = []
    for number, source in enumerate(sources, start=1):
        try:
            commit = commit_of(core, system, source.read(core, damaged))
        except HoldfastError as error:
            damaged.append(_problem(source.place, error))
        else:
            _create(store, commit, source.place, created, existing, damaged)
        if progress is not None:
            progress(number, len(sources), source.place)
    return Imported(system=system, runs=tuple(created), existing=tuple(existing), damaged=tuple(damaged))


def _create(
    store: Store, commit: Commit, place: str, created: list[str], existing: list[str], damaged: list[Problem]
) -> None:
    try:
        require_committed(store.access, commit, store.access.run(_commit_plan(commit)))
        created.append(commit.run_id)
    except RunExists:
        if commit.run_id in created:
            damaged.append(Problem(place=place, reason=f"run {commit.run_id!r} was already imported from another file"))
        else:
            _add_existing(store, commit, place, existing, damaged)
    except StorageError:  # the store failed, and would fail for the next source as well
        raise
    except HoldfastError as error:
        damaged.append(_problem(place, error))


def _add_existing(store: Store, commit: Commit, place: str, existing: list[str], damaged: list[Problem]) -> None:
    """List a run whose id is in the store: as existing if it was imported before, else as a problem."""
    found = run_info(known_run(store.access.core, commit.run_id)).metadata
    if dict(metadata_pairs(dict(found))).get(FORMAT) == dict(commit.metadata or ()).get(FORMAT):
        existing.append(commit.run_id)
    else:
        reason = f"the store has another run {commit.run_id!r}, which was not imported from this system"
        damaged.append(Problem(place=place, reason=reason))


def _commit_plan(commit: Commit) -> Plan[Outcome]:
    return (yield commit)  # type: ignore[no-any-return]


def _problem(place: str, error: HoldfastError) -> Problem:
    if isinstance(error, DamagedData):
        return Problem(place=error.place, reason=error.reason)
    return Problem(place=place, reason=str(error))


def export_run(
    system: str, store: Store, run_id: str, path: str | os.PathLike[str], *, replace: bool = False
) -> list[Path]:
    """Write a run as files of another system durably. Return the paths of the files.

    The run must be one of that system: imported from it, or saved with its checkpoints as states. A file with the same
    content is kept; one with other content raises Conflict, unless `replace` is given. Even then a CAR run that a live
    process of this library has claimed is not replaced, marks of Brainwires are merged, later steps of MUR are moved
    aside, and a journal of Clawdia only gets the records that it lacks.

    Example:
        formats.export_run("car", store, "run-1", "exported")
    """
    forbid_in_loop("export_run")
    converter = _converter(system)
    check_id("run_id", run_id)
    _check_store(store)
    folder = Folder(path)
    whole = _whole_run(store, run_id)
    files = converter.files(whole)
    try:
        with folder.hold():
            files = converter.merge_with_existing(folder, whole, files, replace=replace)
            new = [file for file in files if not (file.is_written or is_written_already(folder, file, replace=replace))]
            for file in new:
                folder.put(file.data, *file.name, limited=not is_of_lines(file))
    finally:
        folder.close()
    return [Path(folder.at(*file.name)) for file in files]


def _check_store(store: object) -> None:
    if not isinstance(store, Store):
        raise InvalidInput(f"store must be the result of holdfast.open, or the store of an App, not {store!r}")


def _converter(system: object) -> Converter:
    if not isinstance(system, str) or system not in CONVERTERS:
        raise InvalidInput(f"system must be one of {', '.join(CONVERTERS)}, not {system!r}")
    return CONVERTERS[system]


def _whole_run(store: Store, run_id: str) -> WholeRun:
    core = store.access.core
    row = known_run(core, run_id)
    infos = [info for info in store.history(run_id) if not info.lane]
    loaded = [store.load(run_id, checkpoint_id=info.checkpoint_id) for info in infos]
    entries = [entry for entry in store.journal(run_id) if entry.kind != PRUNED] if row.position else []
    gates = core.gates_of(row.run, "answered")
    return WholeRun(
        run=run_info(row),
        checkpoints=[checkpoint for checkpoint in loaded if checkpoint is not None],
        entries=entries,
        effects=store.effects(run_id),
        answered=bool(gates),
    )


__all__ = ["Imported", "export_run", "import_dir", "register_car"]
