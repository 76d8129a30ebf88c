"""What earlier versions have stored is read by this one as it was written, and is sound."""

from __future__ import annotations

import contextlib
import json
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from langgraph.types import Command

import holdfast
from holdfast import App, formats
from holdfast.adapters.langgraph import HoldfastSaver
from holdfast.formats import car
from holdfast.testing import ManualClock, replay
from tests.adapters.langgraph.material import Delta, Plain, chat, config, said, texts
from tests.golden import foreign
from tests.golden.conftest import expected
from tests.golden.contents import differences, read_run, read_store
from tests.golden.coverage import gaps, read_names
from tests.golden.stores import ARCHIVED, Opened
from tests.golden.threads import approval, read_threads


def test_golden_data_has_every_kind_and_uses_every_column(version: Path, folder: Path) -> None:
    shutil.copy(version / "sqlite" / "runs.db", folder)
    assert gaps(folder / "runs.db", read_names(version)) == []


def test_a_golden_store_is_read_as_it_was_written(golden: Opened, version: Path) -> None:
    assert list(differences(expected(version)["runs"], read_store(golden.app))) == []


def test_a_golden_store_is_sound(golden: Opened) -> None:
    report = golden.store.verify()
    assert (report.problems, report.unused_chunks) == ([], 0)
    assert report.runs == len(golden.store.runs(limit=1000))


def test_every_golden_run_of_a_workflow_can_be_replayed(golden: Opened) -> None:
    runs = [run for run in golden.store.runs(limit=1000) if golden.app.knows(run.workflow)]
    assert len(runs) > 60
    for run in runs:
        if run.run_id == "graph-migrated":  # goes by another definition than the one that is registered
            with pytest.raises(holdfast.errors.DefinitionChanged):
                replay(golden.app, run.run_id)
        else:
            assert replay(golden.app, run.run_id).position == run.position
    assert {call[0] for call in golden.world.calls} == {"turn"}  # of plain Python, which runs again


@pytest.mark.parametrize("run_id", ARCHIVED)
def test_a_golden_archive_is_imported_as_it_was_written(version: Path, run_id: str) -> None:
    data = (version / "archives" / f"{run_id}.holdfast").read_bytes()
    with App(holdfast.open("memory:", clock=ManualClock())) as app, app.store:
        app.store.import_run(data)
        written = expected(version / "archives")["runs"][run_id]
        # An importer may add to an entry what only the run it came from could know otherwise.
        assert list(differences(written, read_run(app, run_id), may_grow="/data")) == []
        assert app.store.verify().ok


def test_golden_directories_of_other_systems_are_read_and_imported_as_they_were_written(
    version: Path, folder: Path
) -> None:
    copy = Path(shutil.copytree(version / "formats", folder / "formats"))
    assert list(differences(expected(copy), foreign.read_directories(copy))) == []


@pytest.mark.parametrize("system", foreign.SYSTEMS)
def test_a_golden_directory_of_another_system_is_written_back_as_it_was(
    version: Path, folder: Path, system: str
) -> None:
    copy = Path(shutil.copytree(version / "formats", folder / "formats")) / system
    with holdfast.open("memory:") as store:
        for run_id in formats.import_dir(system, copy, store).runs:
            if system == "clawdia" and version.name == "0.1.0":  # its records lack what Clawdia's own reader needs
                with pytest.raises(holdfast.InvalidInput, match="could not read journal record"):
                    formats.export_run(system, store, run_id, folder / "exported")
                continue
            formats.export_run(system, store, run_id, folder / "exported")
    if system == "clawdia" and version.name == "0.1.0":
        return
    written = [path for path in (folder / "exported").rglob("*") if path.is_file() and ".holdfast" not in path.parts]
    assert written
    for path in written:
        original = copy / path.relative_to(folder / "exported")
        assert _json_lines(path) == _json_lines(original.with_suffix(path.suffix)), path


def _json_lines(path: Path) -> object:
    text = path.read_text("utf-8")
    return [json.loads(line) for line in text.splitlines()] if path.suffix == ".ndjson" else json.loads(text)


def test_a_golden_directory_of_car_can_be_claimed_and_recovered(version: Path, folder: Path) -> None:
    copy = Path(shutil.copytree(version / "formats" / "car", folder / "car"))
    with contextlib.closing(car.Directory(copy)) as runs:
        claimed = runs.claim("waiting")
        assert claimed is not None
        runs.complete(claimed)
        runs.recover_orphaned()
        assert runs.list() == ["claimed", "weird.name"]


def without_removed_parents(threads: Any) -> Any:
    """What was read, as later versions tell it: a parent that was removed is not named any more."""
    for rows in threads.values():
        there = {row["config"]["checkpoint_id"] for row in rows}
        for row in rows:
            if row["parent"] is not None and row["parent"]["checkpoint_id"] not in there:
                row["parent"] = None
    return threads


def test_golden_threads_of_langgraph_are_read_as_they_were_written_and_go_on(version: Path, folder: Path) -> None:
    shutil.copy(version / "langgraph" / "threads.db", folder)
    with HoldfastSaver(f"sqlite:{folder / 'threads.db'}") as saver:
        wanted = without_removed_parents(expected(version / "langgraph")["threads"])
        assert list(differences(wanted, read_threads(saver))) == []
        assert saver.store.verify().ok
        for thread, state in (("plain", Plain), ("plain-pruned", Plain), ("delta", Delta), ("delta-pruned", Delta),
                              ("delta-copied", Delta)):  # fmt: skip
            graph = chat(saver, state)
            before = texts(graph.get_state(config(thread)).values["messages"])
            assert len(before) == 8
            after = texts(graph.invoke(said("and then?"), config(thread))["messages"])
            assert after == [*before, "and then?", "re: and then?"]
        done = approval(saver).invoke(Command(resume="yes"), config("interrupted"))
        assert done == {"order": "A-17", "approved": "yes", "note": "beside A-17"}


def test_golden_threads_have_bodies_of_both_compressions(version: Path, folder: Path) -> None:
    with contextlib.closing(sqlite3.connect(shutil.copy(version / "langgraph" / "threads.db", folder))) as db:
        found = {row[0] for row in db.execute("SELECT DISTINCT substr(body, 1, 1) FROM chunks")}
    assert found >= {b"\x01", b"\x02"}
