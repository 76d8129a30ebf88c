"""CAR's verbs on CAR's files."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from holdfast import Conflict, InvalidInput
from holdfast.errors import ClaimLost, DamagedFile, InvalidId, NameTaken, WorkflowConflict
from holdfast.formats import car
from tests.formats import originals
from tests.formats.processes import dead_claim, ended, forked
from tests.formats.sample_files import SAMPLES, paused, raw


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "runs"


@pytest.fixture
def runs(place: Path) -> car.Directory:
    return car.Directory(place)


def names(place: Path) -> list[str]:
    return sorted(path.name for path in place.iterdir() if path.name != ".holdfast")


def test_save_load_remove(runs: car.Directory, place: Path) -> None:
    assert runs.load("missing") is None
    assert not place.exists(), "a directory that is only read is not made"
    runs.save(paused())
    assert runs.load("run-1") == paused()
    assert runs.list() == ["run-1"]
    runs.remove("run-1")
    assert runs.load("run-1") is None
    runs.remove("run-1")
    assert runs.list() == []


def test_a_claim_is_exactly_once(runs: car.Directory) -> None:
    runs.save(paused("run-x"))
    assert runs.claim("run-x") == paused("run-x")
    assert runs.list() == []
    assert runs.claim("run-x") is None
    runs.complete("run-x")
    runs.complete("run-x")
    assert runs.claim("run-x") is None


def test_what_a_dead_process_had_claimed_can_be_claimed_again(runs: car.Directory, place: Path) -> None:
    runs.save(paused("crashed"))
    dead_claim(place, "crashed")
    assert runs.claim("crashed") is None
    assert runs.recover_orphaned() == 1
    assert runs.claim("crashed") is not None
    runs.complete("crashed")
    runs.save(paused("both"))
    (place / "both.inflight").write_text("stale")
    assert runs.recover_orphaned() == 0
    assert not (place / "both.inflight").exists()
    assert runs.claim("both") is not None


def test_the_file_is_byte_for_byte_what_the_original_writes(runs: car.Directory, place: Path) -> None:
    for sample in ("run-1.json", "weird.name.json"):
        shutil.copy(SAMPLES / "seed0-car" / sample, place.parent / sample)
        found = car.Directory(place.parent).load(sample.removesuffix(".json"))
        assert found is not None
        assert found == raw(SAMPLES / "seed0-car" / sample)
        runs.save(found)
        assert (place / sample).read_bytes() == (SAMPLES / "seed0-car" / sample).read_bytes()


def test_unknown_fields_big_numbers_and_nanoseconds_survive_a_rewrite(runs: car.Directory, place: Path) -> None:
    place.mkdir()
    odd = paused(wf_state={"n": 2**80, "f": 1.0}, later={"x": [None]}, created_at="2026-08-18T09:41:07.123456789Z")
    odd["workflow"]["newer"] = {"y": -(2**70)}
    (place / "run-1.json").write_text(json.dumps(odd))
    claimed = runs.claim("run-1")
    assert claimed is not None
    runs.save({**claimed, "iterations": 2})
    runs.complete(claimed)
    assert raw(place / "run-1.json") == {**odd, "iterations": 2}


def test_missing_lists_are_empty_and_are_written(runs: car.Directory, place: Path) -> None:
    short = paused()
    for name in ("fields", "wf_state", "stage_results", "completed_stage_ids"):
        del short[name]
    runs.save(short)
    assert raw(place / "run-1.json") == paused()


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"run_id": 7}, "run_id"), ({"workflow": {}}, "workflow"), ({"wf_state": []}, "wf_state"),
        ({"iterations": -1}, "iterations"), ({"iterations": 2**65}, "iterations"),
        ({"prior_duration_ms": "x"}, "prior"), ({"fields": [{"label": "no name"}]}, "fields"),
    ],
)  # fmt: skip
def test_what_the_original_could_not_read_is_refused_before_anything_is_written(
    runs: car.Directory, place: Path, change: dict[str, Any], named: str
) -> None:
    with pytest.raises(InvalidInput, match=named):
        runs.save({**paused(), **change})
    assert not place.exists()


@pytest.mark.parametrize(
    "run_id", ["", "../x", "/etc/app", "a/b", "a\\b", "..", ".", "x\0y", "x\ny", "x" * 300, 7, None]
)
def test_hostile_ids_are_refused_by_every_verb(runs: car.Directory, place: Path, run_id: str) -> None:
    for verb in (runs.load, runs.claim, runs.complete, runs.remove):
        with pytest.raises(InvalidId):
            verb(run_id)
    with pytest.raises(InvalidInput):
        runs.save(paused(run_id))
    assert not place.exists()


def test_a_damaged_file_is_reported_and_never_renamed(runs: car.Directory, place: Path) -> None:
    place.mkdir()
    (place / "torn.json").write_text('{"run_id": "torn"')
    with pytest.raises(DamagedFile, match=re.escape(str(place / "torn.json"))):
        runs.claim("torn")
    assert (place / "torn.json").exists()
    (place / "stuck.inflight").write_text("{")
    runs.save(paused("good"))
    dead_claim(place, "good")
    found = runs.recover_orphaned()
    assert found == 1
    assert [problem.place for problem in found.problems] == [str(place / "stuck.inflight")]
    assert (place / "stuck.inflight").exists()
    assert runs.list() == ["good", "torn"]


def test_a_torn_new_checkpoint_does_not_cost_the_claimed_one(runs: car.Directory, place: Path) -> None:
    runs.save(paused())
    dead_claim(place, "run-1")
    (place / "run-1.json").write_text('{"run_')
    found = runs.recover_orphaned()
    assert found == 0
    assert [Path(problem.place).name for problem in found.problems] == ["run-1.json", "run-1.inflight"]
    assert raw(place / "run-1.inflight") == paused()


def test_a_file_of_another_run_under_this_name_is_not_taken_for_it(runs: car.Directory, place: Path) -> None:
    runs.save(paused("Run-1"))
    (place / "Run-1.json").rename(place / "run-1.json")
    for verb in (runs.load, runs.claim):
        with pytest.raises(NameTaken, match=r"'Run-1', not to 'run-1'"):
            verb("run-1")
    with pytest.raises(NameTaken):
        runs.save(paused("run-1"))
    runs.remove("run-1")
    assert raw(place / "run-1.json") == paused("Run-1")
    (place / "run-1.json").write_text("{")
    runs.remove("run-1")
    assert names(place) == []


def test_a_directory_or_pipe_in_the_place_of_a_file_is_damage(runs: car.Directory, place: Path) -> None:
    place.mkdir()
    os.mkfifo(place / "pipe.json")
    (place / "folder.json").mkdir()
    for run_id in ("pipe", "folder"):
        with pytest.raises(DamagedFile, match="regular"):
            runs.load(run_id)


def test_who_no_longer_holds_a_run_can_neither_save_nor_complete_it(runs: car.Directory, place: Path) -> None:
    runs.save(paused())
    claimed = runs.claim("run-1")
    assert claimed is not None
    assert originals.car_recovered(place) == 1  # a program that knows no owners
    other = car.Directory(place)
    again = other.claim("run-1")
    assert again is not None
    with pytest.raises(ClaimLost):
        runs.save(paused(iterations=2))
    with pytest.raises(ClaimLost):
        runs.complete("run-1")
    assert raw(place / "run-1.inflight") == paused()
    other.save(paused(iterations=3))
    other.complete(again)
    assert raw(place / "run-1.json")["iterations"] == 3
    assert names(place) == ["run-1.json"]


def test_completing_after_the_next_pause_was_claimed_is_no_mistake_and_takes_nothing(
    runs: car.Directory, place: Path
) -> None:
    runs.save(paused())
    first = runs.claim("run-1")
    runs.save(paused(iterations=2))
    second = runs.claim("run-1")  # another thread of the same process
    assert first is not None
    assert second is not None
    runs.complete(first)
    assert raw(place / "run-1.inflight")["iterations"] == 2
    runs.complete(second)
    assert names(place) == []


def test_a_claim_is_known_by_what_claim_gave_whatever_object_it_is_given_to(place: Path) -> None:
    car.Directory(place).save(paused())
    claimed = car.Directory(place).claim("run-1")
    assert claimed is not None
    with pytest.raises(Conflict):
        car.Directory(place).save(paused(iterations=2))
    with pytest.raises(InvalidInput):
        car.Directory(place).save(paused("run-2"), claimed=claimed)
    car.Directory(place).save(paused(iterations=2), claimed=claimed)
    car.Directory(place).complete(claimed)
    car.Directory(place).complete(claimed)
    assert names(place) == ["run-1.json"]
    assert len(list((place / ".holdfast" / "owners").iterdir())) == 1, "one sign of life for the whole process"


def test_who_closes_gives_up_what_it_holds_though_its_process_lives(runs: car.Directory, place: Path) -> None:
    other = car.Directory(place)
    for name in ("a", "b"):
        runs.save(paused(name))
    assert runs.claim("a")
    assert other.claim("b")
    assert other.recover_orphaned() == 0
    runs.close()
    assert other.recover_orphaned(foreign=False) == 1
    assert other.list() == ["a"]
    other.complete("b")


def test_directories_that_are_forgotten_keep_no_files_open(place: Path) -> None:
    car.Directory(place).save(paused())
    before = len(os.listdir("/proc/self/fd"))
    for number in range(20):
        car.Directory(place).save(paused(f"run-{number}"))
        assert car.Directory(place).claim(f"run-{number}")
    assert len(os.listdir("/proc/self/fd")) <= before + 2


def test_only_who_claimed_a_run_may_save_it_or_complete_it(runs: car.Directory, place: Path) -> None:
    runs.save(paused())
    assert runs.claim("run-1")
    other = car.Directory(place)
    with pytest.raises(Conflict, match="a live process"):
        other.save(paused())
    with pytest.raises(ClaimLost):
        other.complete("run-1")
    assert names(place) == ["run-1.inflight"]
    runs.close()
    assert other.recover_orphaned() == 1, "who closed the directory holds nothing"


def test_a_claim_of_the_original_is_completed_by_nobody_else(runs: car.Directory, place: Path) -> None:
    runs.save(paused())
    assert originals.car_claim(place, "run-1") == paused()
    assert runs.claim("run-1") is None
    with pytest.raises(ClaimLost, match="an unknown program"):
        runs.complete("run-1")
    assert runs.recover_orphaned(foreign=False) == 0
    assert runs.recover_orphaned() == 1


def test_a_claim_by_the_original_after_ours_is_not_taken_for_ours(runs: car.Directory, place: Path) -> None:
    runs.save(paused())
    claimed = runs.claim("run-1")
    assert claimed is not None
    runs.save(paused(iterations=2))
    assert originals.car_claim(place, "run-1")["iterations"] == 2
    runs.complete(claimed)
    assert raw(place / "run-1.inflight")["iterations"] == 2


def test_the_original_sees_what_ours_does_and_nothing_of_what_is_beside(runs: car.Directory, place: Path) -> None:
    runs.save(paused("a"))
    runs.save(paused("b"))
    assert runs.claim("a")
    assert originals.car_listed(place) == ["b"]
    assert originals.car_claim(place, "b") == paused("b")
    originals.car_complete(place, "b")
    assert originals.car_recovered(place) == 1
    assert originals.car_listed(place) == ["a"]


def test_temporary_files_of_dead_writers_are_swept_and_others_are_not(runs: car.Directory, place: Path) -> None:
    runs.save(paused())
    old, new, foreign = place / f".run-1.{'0' * 32}.tmp", place / f".run-2.{'1' * 32}.tmp", place / ".mine.tmp"
    for path in (old, new, foreign):
        path.write_text("{")
    for path in (old, foreign):
        os.utime(path, (time.time() - 7200, time.time() - 7200))
    runs.recover_orphaned()
    assert [path.exists() for path in (old, new, foreign)] == [False, True, True]


def test_signs_of_the_dead_are_not_kept_for_ever(runs: car.Directory, place: Path) -> None:
    for number in range(5):
        runs.save(paused(f"run-{number}"))
        dead_claim(place, f"run-{number}")
    assert len(list((place / ".holdfast" / "owners").iterdir())) == 5
    assert runs.recover_orphaned() == 5
    assert list((place / ".holdfast" / "claims").iterdir()) == []
    runs.recover_orphaned()
    assert list((place / ".holdfast").glob("owners/*")) == []


def test_another_definition_is_not_put_under_a_run(runs: car.Directory) -> None:
    runs.save(paused())
    changed = paused()
    changed["workflow"]["stages"] = [{"id": "new", "name": "New", "step": {"type": "proposal"}}]
    with pytest.raises(WorkflowConflict):
        runs.save(changed)
    assert runs.claim("run-1")
    with pytest.raises(WorkflowConflict):
        runs.save(changed)


def test_files_are_for_their_owner_alone(runs: car.Directory, place: Path) -> None:
    runs.save(paused())
    assert (place / "run-1.json").stat().st_mode & 0o777 == 0o600


def test_a_forked_child_neither_ends_its_parents_claims_nor_keeps_them_alive(runs: car.Directory, place: Path) -> None:
    runs.save(paused())
    assert runs.claim("run-1")

    def child() -> None:
        with pytest.raises(ClaimLost):
            runs.complete("run-1")
        assert runs.recover_orphaned() == 0, "the parent lives"
        runs.save(paused("run-2"))
        assert runs.claim("run-2")

    assert ended(forked(child)) == 0
    assert car.Directory(place).recover_orphaned() == 1, "the child's, which has ended"
    runs.complete("run-1")
    assert names(place) == ["run-2.json"]
