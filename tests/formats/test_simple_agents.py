"""SimpleAgents' verbs on its files."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import holdfast
from holdfast import InvalidInput, formats
from holdfast.errors import DamagedFile, InvalidId, NameTaken, Unstorable, WorkflowConflict
from holdfast.formats import simple_agents
from tests.formats.sample_files import SAMPLES, raw, scope


@pytest.fixture
def runs(tmp_path: Path) -> simple_agents.Directory:
    return simple_agents.Directory(tmp_path / "runs")


def test_a_checkpoint_is_saved_loaded_and_deleted(runs: simple_agents.Directory, tmp_path: Path) -> None:
    assert runs.load("run-1") is None
    runs.delete("run-1")
    assert not (tmp_path / "runs").exists()
    runs.save(scope())
    assert runs.load("run-1") == scope()
    runs.delete("run-1")
    runs.delete("run-1")
    assert runs.load("run-1") is None


def test_the_file_is_byte_for_byte_what_the_original_writes(runs: simple_agents.Directory, tmp_path: Path) -> None:
    sample = SAMPLES / "seed1-simple-agents"
    shutil.copytree(sample, tmp_path / "theirs")
    found = simple_agents.Directory(tmp_path / "theirs").load("run-1")
    assert found is not None
    assert found == raw(sample / "run-1.json")
    runs.save({**found, "unknown": 2**70})
    runs.save(found)
    assert (tmp_path / "runs" / "run-1.json").read_bytes() == (sample / "run-1.json").read_bytes()


@pytest.mark.parametrize("run_id", ["", "../outside", "/etc/passwd", "a/../b", "x\0", "y" * 400])
def test_hostile_ids_are_refused_by_every_verb(runs: simple_agents.Directory, tmp_path: Path, run_id: str) -> None:
    (tmp_path / "outside.json").write_text("mine")
    for verb in (runs.load, runs.delete):
        with pytest.raises(InvalidId):
            verb(run_id)
    with pytest.raises(InvalidId):
        runs.save(scope(run_id))
    assert (tmp_path / "outside.json").read_text() == "mine"


def test_what_the_original_could_not_read_is_refused(runs: simple_agents.Directory) -> None:
    without = scope()
    del without["scope_snapshot"]
    for wrong in (without, scope(step=-1), scope(step=1.5), scope(next_node_id=None), "text"):
        with pytest.raises(InvalidInput):
            runs.save(wrong)  # type: ignore[arg-type]
    with pytest.raises(Unstorable):
        runs.save(scope(scope_snapshot={"x": float("nan")}))
    assert runs.load("run-1") is None
    runs.save(scope(scope_snapshot=2**80))
    assert runs.load("run-1") == scope(scope_snapshot=2**80), "the scope may be anything"


@pytest.mark.parametrize("field", ["workflow_name", "next_node_id"])
def test_an_empty_name_that_the_original_wrote_is_saved_and_exported_again(
    runs: simple_agents.Directory, tmp_path: Path, field: str
) -> None:
    there = scope(**{field: ""})
    with pytest.raises(InvalidInput, match=f"`{field}` of the checkpoint of run 'run-1' is empty"):
        runs.save(there)
    runs.save(scope("other"))
    path = tmp_path / "runs" / "run-1.json"
    path.write_text(json.dumps(there))
    found = runs.load("run-1")
    assert found is not None
    runs.save({**found, "step": 4})
    assert raw(path) == {**there, "step": 4}
    with holdfast.open("memory:") as store:
        formats.import_dir("simple_agents", tmp_path / "runs", store)
        formats.export_run("simple_agents", store, "run-1", tmp_path / "exported")
    assert raw(tmp_path / "exported" / "run-1.json") == {**there, "step": 4}
    path.write_bytes(b"{")
    with pytest.raises(InvalidInput):
        runs.save(there)


def test_a_file_of_another_run_is_not_loaded_nor_overwritten(runs: simple_agents.Directory, tmp_path: Path) -> None:
    runs.save(scope("other"))
    (tmp_path / "runs" / "other.json").rename(tmp_path / "runs" / "run-1.json")
    with pytest.raises(NameTaken):
        runs.load("run-1")
    with pytest.raises(NameTaken):
        runs.save(scope("run-1"))
    runs.delete("run-1")
    assert raw(tmp_path / "runs" / "run-1.json") == scope("other")


def test_a_torn_file_is_damage_until_a_save_replaces_it(runs: simple_agents.Directory, tmp_path: Path) -> None:
    runs.save(scope())
    path = tmp_path / "runs" / "run-1.json"
    path.write_bytes(path.read_bytes()[:20])
    with pytest.raises(DamagedFile):
        runs.load("run-1")
    runs.save(scope(step=4))
    assert runs.load("run-1") == scope(step=4)
    path.write_bytes(b"{")
    runs.delete("run-1")
    assert not path.exists()


def test_a_checkpoint_of_one_workflow_is_not_gone_on_with_as_another(runs: simple_agents.Directory) -> None:
    runs.save(scope())
    with pytest.raises(WorkflowConflict):
        runs.load("run-1", workflow_name="other")
    with pytest.raises(WorkflowConflict):
        runs.save(scope(workflow_name="other"))
    assert runs.load("run-1", workflow_name="wf") == scope()
