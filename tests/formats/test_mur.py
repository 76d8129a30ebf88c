"""MUR's verbs on its files."""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path

import pytest

from holdfast import InvalidInput, NotFound
from holdfast.errors import DamagedFile, InvalidId, WorkflowConflict
from holdfast.formats import mur
from tests.formats import originals
from tests.formats.sample_files import EXECUTION, SAMPLES, before_step, raw


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "checkpoints"


@pytest.fixture
def executions(place: Path) -> mur.Directory:
    return mur.Directory(place)


def test_save_load_latest_and_cleanup(executions: mur.Directory, place: Path) -> None:
    assert executions.load_latest(EXECUTION) is None
    executions.cleanup(EXECUTION)
    assert not place.exists()
    for step in range(12):
        assert executions.save(before_step(step)) == place / EXECUTION / f"{step}.json"
    assert executions.load(EXECUTION, 3) == before_step(3)
    assert executions.load(uuid.UUID(EXECUTION), 3) == before_step(3)
    assert executions.load_latest(EXECUTION.upper()) == before_step(11)
    with pytest.raises(NotFound):
        executions.load(EXECUTION, 12)
    executions.cleanup(EXECUTION)
    executions.cleanup(EXECUTION)
    assert not (place / EXECUTION).exists()
    assert executions.executions() == []


def test_the_file_is_byte_for_byte_what_the_original_writes(executions: mur.Directory, place: Path) -> None:
    sample = SAMPLES / "seed3-mur" / ".mur" / "commander" / "checkpoints"
    theirs = mur.Directory(sample)
    for step in (0, 1, 2, 10):
        found = theirs.load(EXECUTION, step)
        executions.save(found)
        assert (place / EXECUTION / f"{step}.json").read_bytes() == (sample / EXECUTION / f"{step}.json").read_bytes()
    assert theirs.load_latest(EXECUTION) == raw(sample / EXECUTION / "10.json")
    assert not (sample / ".holdfast").exists(), "a directory that is only read stays as it is"


@pytest.mark.parametrize("execution", ["", "../x", "not-a-uuid", "/etc", "..", f"{EXECUTION}/..", 7])
def test_what_is_no_uuid_is_refused_by_every_verb(executions: mur.Directory, place: Path, execution: str) -> None:
    verbs = (executions.load_latest, executions.cleanup, executions.steps, executions.problems)
    for verb in verbs:
        with pytest.raises(InvalidId):
            verb(execution)
    with pytest.raises(InvalidInput):
        executions.save(before_step(0, execution))
    for step in (-1, True, "1", 2**64):
        with pytest.raises(InvalidInput):
            executions.load(EXECUTION, step)  # type: ignore[arg-type]
    assert not place.exists()


def test_damaged_and_foreign_files_are_passed_over_and_listed(executions: mur.Directory, place: Path) -> None:
    for step in range(3):
        executions.save(before_step(step))
    home = place / EXECUTION
    (home / "3.json").write_text('{"execution_id"')
    shutil.copy(home / "2.json", home / "4.json")
    (home / "5.json").write_text((home / "2.json").read_text().replace(EXECUTION, str(uuid.uuid4())))
    assert executions.load_latest(EXECUTION) == before_step(2)
    assert [Path(problem.place).name for problem in executions.problems(EXECUTION)] == ["3.json", "4.json", "5.json"]
    for step in (3, 4, 5):
        with pytest.raises(DamagedFile):
            executions.load(EXECUTION, step)
    for step in range(3):
        (home / f"{step}.json").write_text("")
    with pytest.raises(DamagedFile):
        executions.load_latest(EXECUTION)


def test_going_back_makes_an_earlier_step_the_latest_for_the_original_too(
    executions: mur.Directory, place: Path
) -> None:
    for step in range(6):
        executions.save(before_step(step))
    assert executions.roll_back(EXECUTION, 2) == before_step(2)
    assert executions.load_latest(EXECUTION) == before_step(2)
    assert originals.mur_latest(place / EXECUTION) == 2
    executions.save(before_step(3, variables={"key": "other"}))
    executions.roll_back(EXECUTION, 0)
    aside = place / ".holdfast" / "rolled_back" / EXECUTION
    assert sorted(str(path.relative_to(aside)) for path in aside.rglob("*.json")) == [
        "1/3.json", "1/4.json", "1/5.json", "2/1.json", "2/2.json", "2/3.json",
    ]  # fmt: skip
    with pytest.raises(NotFound):
        executions.roll_back(EXECUTION, 5)
    executions.cleanup(EXECUTION)
    assert not aside.exists()


def test_going_back_to_a_damaged_step_changes_nothing(executions: mur.Directory, place: Path) -> None:
    for step in range(3):
        executions.save(before_step(step))
    (place / EXECUTION / "1.json").write_text("{")
    with pytest.raises(DamagedFile):
        executions.roll_back(EXECUTION, 1)
    assert executions.steps(EXECUTION) == [0, 1, 2]


def test_another_workflow_than_the_one_told_is_refused(executions: mur.Directory) -> None:
    executions.save(before_step(0), workflow="deploy-v1")
    executions.save(before_step(1))
    for step in (1, 2):
        with pytest.raises(WorkflowConflict):
            executions.save(before_step(step), workflow="deploy-v2")
    with pytest.raises(WorkflowConflict):
        executions.load_latest(EXECUTION, workflow="deploy-v2")
    with pytest.raises(WorkflowConflict):
        executions.load(EXECUTION, 0, workflow="deploy-v2")
    assert executions.load_latest(EXECUTION, workflow="deploy-v1") == before_step(1)
    assert executions.load_latest(EXECUTION) == before_step(1)


def test_cleanup_does_not_follow_a_link_out_of_the_directory(
    executions: mur.Directory, place: Path, tmp_path: Path
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "precious").write_text("kept")
    place.mkdir()
    (place / EXECUTION).symlink_to(tmp_path / "mine")
    executions.cleanup(EXECUTION)
    assert not (place / EXECUTION).exists()
    assert (tmp_path / "mine" / "precious").read_text() == "kept"


def test_the_default_path_is_the_originals(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    path = mur.Directory().save(mur.new_checkpoint(EXECUTION, 0, {}, []))
    assert path == tmp_path / ".mur" / "commander" / "checkpoints" / EXECUTION / "0.json"
