"""A process killed, or a disk failing, between any two steps of a change: it is as before or as after it, and whole."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import StorageError
from holdfast.files.os_files import SystemFiles
from holdfast.formats import brainwires, clawdia
from tests.faults.core.scratch import scratch
from tests.faults.directory.faulty_files import KINDS, FaultyFiles
from tests.faults.formats.power_cuts import Five, Picture
from tests.formats.processes import ended, forked
from tests.formats.sample_files import EXECUTION, before_step, covering, paused, record, scope

CHANGING = (
    "mkdir", "create", "open_for_append",
    "write", "overwrite", "truncate", "sync", "sync_directory", "rename", "unlink",
)  # fmt: skip


class Killing(SystemFiles):
    """The system's files, for a process that is killed before its n-th change."""

    def __init__(self, at: int) -> None:
        self._left = at
        for name in CHANGING:
            setattr(self, name, self._counted(getattr(self, name)))

    def _counted(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any) -> Any:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*args)

        return counted


class Faulty(FaultyFiles):
    """Files that fail as they are told, on a directory that is there already; nothing is counted."""

    def _grow(self, handle: int, data: bytes | bytearray) -> None:
        SystemFiles.write(self, handle, data)

    def truncate(self, handle: int, size: int) -> None:
        self._meet("truncate")
        SystemFiles.truncate(self, handle, size)

    def rename(self, old: str, new: str) -> None:
        self._meet("rename")
        SystemFiles.rename(self, old, new)

    def unlink(self, path: str) -> None:
        self._meet("unlink")
        SystemFiles.unlink(self, path)


def claimed_and_paused_again(five: Five) -> None:
    claimed = five.car.claim("a")
    assert claimed is not None
    five.car.save({**claimed, "iterations": 2})


OPERATIONS: dict[str, Callable[[Five], object]] = {
    "car save": lambda five: five.car.save(paused("a", iterations=7)),
    "car save new": lambda five: five.car.save(paused("b", wf_state={"text": "x" * 9000})),
    "car claim": lambda five: five.car.claim("a"),
    "car remove": lambda five: five.car.remove("a"),
    "simple save": lambda five: five.simple.save(scope("a", step=9)),
    "simple delete": lambda five: five.simple.delete("a"),
    "mark": lambda five: five.tasks.mark_step_complete("a", "u2", brainwires.side_effect("u2", "w"), result=2),
    "task delete": lambda five: five.tasks.delete_checkpoint("a"),
    "mur save": lambda five: five.mur.save(before_step(4)),
    "mur roll back": lambda five: five.mur.roll_back(EXECUTION, 1),
    "append": lambda five: five.clawdia.append(record(3, run_id="a")),
    "append first": lambda five: five.clawdia.append(record(1, run_id="b")),
    "checkpoint": lambda five: five.clawdia.save(covering(1, 2, "a", writer_id="x" * 5000)),
    "prune": lambda five: five.clawdia.prune("a", clawdia.PrunePolicy(prune_covered_before=9)),
}


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """In memory where that is possible: a kill asks nothing of the disk."""
    with scratch(fast=True) as place:
        yield place


def furnished(place: Path) -> Five:
    five = Five(place)
    five.car.save(paused("a"))
    five.simple.save(scope("a"))
    five.tasks.mark_step_complete("a", "u1", brainwires.side_effect("u1", "w"), result=1)
    for step in range(4):
        five.mur.save(before_step(step))
    for number in (1, 2):
        five.clawdia.append(record(number, run_id="a"))
        five.clawdia.save(covering(number, number, "a"))
    return five


def mixed(found: Picture, before: Picture, after: Picture) -> bool:
    """Whether everything is as it was before, or after."""
    names = {*found, *before, *after}
    same = [found.get(name) in (before.get(name), after.get(name)) for name in names]
    return all(same)


def without_times(picture: Picture) -> Picture:
    return {name: without_moment(value) for name, value in picture.items()}


def without_moment(value: Any) -> Any:
    """Moments differ from process to process."""
    if isinstance(value, dict):
        return {k: without_moment(v) for k, v in value.items() if k not in ("updated_at", "completed_at")}
    return [without_moment(part) for part in value] if isinstance(value, (list, tuple)) else value


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_process_killed_before_any_step_of_a_change_leaves_it_done_or_not_done(name: str, tmp_path: Path) -> None:
    furnished(tmp_path / "start").close()
    shutil.copytree(tmp_path / "start", tmp_path / "end")
    done = Five(tmp_path / "end")
    OPERATIONS[name](done)
    before, after = (without_times(Five(tmp_path / which).picture()) for which in ("start", "end"))
    done.close()
    for at in range(1, 100):
        place = tmp_path / "killed"
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(tmp_path / "start", place)
        status = ended(forked(lambda at=at, place=place: OPERATIONS[name](Five(place, Killing(at)))))  # type: ignore[misc]
        five = Five(place)
        assert mixed(without_times(five.picture()), before, after), f"killed before step {at}"
        five.go_on()
        five.close()
        if status == 0:
            break
        assert status == -signal.SIGKILL
    assert at > 2, "it was killed at some steps"
    assert status == 0, "and at last it was not"


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_failing_call_of_the_disk_is_an_error_of_ours_and_leaves_it_done_or_not_done(
    name: str, tmp_path: Path
) -> None:
    furnished(tmp_path / "start").close()
    shutil.copytree(tmp_path / "start", tmp_path / "end")
    OPERATIONS[name](Five(tmp_path / "end"))
    before, after = (without_times(Five(tmp_path / which).picture()) for which in ("start", "end"))
    hits = 0
    for kind in KINDS.values():
        for at in (1, 2, 3):
            place = tmp_path / "failed"
            shutil.rmtree(place, ignore_errors=True)
            shutil.copytree(tmp_path / "start", place)
            files = Faulty()
            five = Five(place, files)
            files.fail(kind, at, sticky=False)
            try:
                OPERATIONS[name](five)
            except StorageError:
                hits += 1
            finally:
                files.heal()
            assert mixed(without_times(Five(place).picture()), before, after), f"{kind.call} failed at {at}"
            OPERATIONS[name](five) if name not in ("car claim", "append first") else five.go_on()
            five.close()
    assert hits > 3


def test_a_claimed_run_is_under_one_of_its_names_at_every_moment(tmp_path: Path) -> None:
    for at in range(1, 60):
        place = tmp_path / str(at)
        furnished(place).close()
        status = ended(forked(lambda at=at, place=place: claimed_and_paused_again(Five(place, Killing(at)))))  # type: ignore[misc]
        runs = Five(place).car
        assert any((place / "car" / f"a{ending}").exists() for ending in (".json", ".inflight"))
        runs.recover_orphaned()
        found = runs.claim("a")
        assert found is not None
        assert found["iterations"] in (1, 2)
        if status == 0:
            assert found["iterations"] == 2
            break
    assert status == 0


def test_a_claim_that_failed_leaves_nobody_holding_the_run(tmp_path: Path) -> None:
    for kind in ("rename fails", "sync_directory fails", "write fails", "create fails"):
        place, files = tmp_path / kind, Faulty()
        furnished(place).close()
        runs = Five(place, files).car
        runs.save(paused("b"))
        runs.complete(runs.claim("b") or "b")  # what is made only once is there now
        files.fail(KINDS[kind], 1, sticky=False)
        with pytest.raises(StorageError):
            runs.claim("a")
        files.heal()
        assert runs.claim("a") == paused("a")
        runs.complete("a")
        assert runs.list() == []


def test_a_completion_whose_sync_failed_can_be_repeated(tmp_path: Path) -> None:
    files = Faulty()
    furnished(tmp_path).close()
    runs = Five(tmp_path, files).car
    assert runs.claim("a")
    files.fail(KINDS["sync_directory fails"], 1, sticky=False)
    with pytest.raises(StorageError, match="repeat the call"):
        runs.complete("a")
    before = files.calls["sync_directory"]
    runs.complete("a")
    assert files.calls["sync_directory"] == before + 1
    runs.complete("a")
