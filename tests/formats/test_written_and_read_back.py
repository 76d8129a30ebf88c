"""What is acknowledged is there and can be read again, and what cannot be is refused before it is written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast import Conflict, InvalidInput
from holdfast.errors import DamagedFile, LimitExceeded, StorageFailed
from holdfast.files.os_files import SystemFiles
from holdfast.formats import brainwires, car, clawdia, folder, mur, simple_agents
from holdfast.formats.clawdia.run_directory import Journal, segment
from tests.formats.sample_files import EXECUTION, before_step, paused, raw, record, scope

EFFECT = brainwires.side_effect("u", "tool")


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder, "STATE_READ_BYTES_MAX", 5000)


@pytest.mark.usefixtures("small")
def test_a_journal_may_grow_beyond_what_a_file_may_have(tmp_path: Path) -> None:
    runs = clawdia.Directory(tmp_path)
    for number in range(1, 31):
        runs.append(record(number))
    (journal,) = tmp_path.rglob("journal.ndjson")
    assert journal.stat().st_size > 5000
    again = clawdia.Directory(tmp_path)
    assert len(again.records("run.a")) == 30
    assert (again.append(record(31)), again.runs()) == ("journal.31", ["run.a"])


@pytest.mark.usefixtures("small")
def test_a_long_torn_end_is_kept_beside(tmp_path: Path) -> None:
    clawdia.Directory(tmp_path).append(record(1))
    (journal,) = tmp_path.rglob("journal.ndjson")
    whole = journal.read_bytes()
    journal.write_bytes(whole + b"\0" * 9000)
    runs = clawdia.Directory(tmp_path)
    runs.append(record(2))
    assert len(runs.records("run.a")) == 2
    (torn,) = (tmp_path / ".holdfast" / "torn").iterdir()
    assert torn.read_bytes() == b"\0" * 9000


@pytest.mark.usefixtures("small")
def test_a_whole_line_too_long_to_be_read_is_damage_and_not_cut_off(tmp_path: Path) -> None:
    clawdia.Directory(tmp_path).append(record(1))
    (journal,) = tmp_path.rglob("journal.ndjson")
    journal.write_bytes(journal.read_bytes() + b'"' + b"x" * 9000 + b'"\n')
    before = journal.read_bytes()
    runs = clawdia.Directory(tmp_path)
    assert [problem.place for problem in runs.problems("run.a")] == [f"{journal} line 3"]
    with pytest.raises(DamagedFile):
        runs.append(record(2))
    assert journal.read_bytes() == before


@pytest.mark.usefixtures("small")
def test_what_could_not_be_read_again_is_not_written(tmp_path: Path) -> None:
    large = {"x": "a" * 6000}
    calls: list[Callable[[], object]] = [
        lambda: car.Directory(tmp_path).save(paused(wf_state=large)),
        lambda: simple_agents.Directory(tmp_path).save(scope(scope_snapshot=large)),
        lambda: mur.Directory(tmp_path).save(before_step(0, variables=large)),
        lambda: clawdia.Directory(tmp_path).append(record(1, newer=large)),
        lambda: brainwires.Directory(tmp_path).mark_step_complete("t", "u", EFFECT, result=large),
    ]
    for call in calls:
        with pytest.raises(LimitExceeded, match="5000"):
            call()
    assert [path for path in tmp_path.rglob("*") if path.is_file() and path.name != "lock"] == []


@pytest.mark.usefixtures("small")
def test_a_task_too_large_for_its_file_keeps_the_marks_it_has(tmp_path: Path) -> None:
    tasks = brainwires.Directory(tmp_path)
    done = 0
    try:
        for done in range(200):
            tasks.mark_step_complete("t", f"u{done}", brainwires.side_effect(f"u{done}", "m"))
    except LimitExceeded:
        pass
    found = tasks.load_checkpoint("t")
    assert found is not None
    assert 5 < len(found["completed_tool_ids"]) == done < 100


def test_a_record_is_not_taken_for_another_runs_of_the_same_id(tmp_path: Path) -> None:
    runs = clawdia.Directory(tmp_path)
    runs.append(record(1))
    other = segment("run.a")
    assert runs.append(record(1, run_id=other)) == "journal.1"
    assert [r["run_id"] for r in clawdia.Directory(tmp_path).records(other)] == [other]
    assert (runs.latest_journal_seq(other), len(runs.records("run.a"))) == (1, 1)


def test_a_record_that_is_known_but_not_found_is_not_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = clawdia.Directory(tmp_path)
    runs.append(record(1))
    monkeypatch.setattr(Journal, "read", lambda self: ([], []))
    with pytest.raises(Conflict):
        runs.append(record(1))


@pytest.mark.parametrize("kind", ["files", "memory"])
def test_the_same_record_with_a_tuple_is_the_same(tmp_path: Path, kind: str) -> None:
    runs = clawdia.Directory(tmp_path) if kind == "files" else clawdia.Memory()
    odd = record(1, newer={"t": (1, 2)})
    assert runs.append(odd) == runs.append(odd) == "journal.1"
    with pytest.raises(Conflict):
        runs.append(record(1, newer={"t": (1, 3)}))


# --- "repeat the call" -----------------------------------------------------------------------------------------------


class Unsyncing(SystemFiles):
    """Fails to sync directories on demand, and counts."""

    fails = False
    count = 0

    def sync_directory(self, path: str) -> None:
        if self.fails:
            raise OSError(5, "EIO")
        self.count += 1
        super().sync_directory(path)


REPEATED: dict[str, tuple[Callable[..., Any], Callable[[Any], Any], Callable[[Any], Any], Any]] = {
    "mark": (brainwires.Directory, lambda t: None, lambda t: t.mark_step_complete("t", "u", EFFECT), True),
    "append": (clawdia.Directory, lambda t: None, lambda t: t.append(record(1)), "journal.1"),
    "delete": (
        brainwires.Directory, lambda t: t.mark_step_complete("t", "u", EFFECT), lambda t: t.delete_checkpoint("t"), None
    ),
    "simple": (simple_agents.Directory, lambda t: t.save(scope()), lambda t: t.delete("run-1"), None),
    "remove": (car.Directory, lambda t: t.save(paused()), lambda t: t.remove("run-1"), None),
    "cleanup": (mur.Directory, lambda t: t.save(before_step(0)), lambda t: t.cleanup(EXECUTION), None),
}  # fmt: skip


@pytest.mark.parametrize("verb", REPEATED)
def test_to_repeat_the_call_after_a_failed_sync_makes_it_durable(tmp_path: Path, verb: str) -> None:
    (tmp_path / ".holdfast").mkdir()
    (tmp_path / "runs" / segment("run.a")).mkdir(parents=True)
    make, prepare, call, answer = REPEATED[verb]
    files = Unsyncing()
    directory = make(tmp_path, files=files)
    prepare(directory)
    files.fails = True
    with pytest.raises(StorageFailed, match="repeat the call"):
        call(directory)
    with pytest.raises(StorageFailed):
        call(directory)
    files.fails, files.count = False, 0
    assert call(directory) == answer
    assert files.count > 0


def test_to_repeat_a_rollback_after_a_failed_sync_makes_it_durable(tmp_path: Path) -> None:
    class Failing(Unsyncing):
        def sync_directory(self, path: str) -> None:
            if self.fails and path == str(tmp_path / EXECUTION):
                raise OSError(5, "EIO")
            self.count += path == str(tmp_path / EXECUTION)

    files = Failing()
    executions = mur.Directory(tmp_path, files=files)
    for step in range(2):
        executions.save(before_step(step))
    files.fails, files.count = True, 0
    for _ in range(2):
        with pytest.raises(StorageFailed, match="repeat the call"):
            executions.roll_back(EXECUTION, 0)
    files.fails = False
    assert (executions.roll_back(EXECUTION, 0), files.count) == (before_step(0), 1)


def test_a_mark_that_another_made_is_not_claimed_after_an_error(tmp_path: Path) -> None:
    files = Unsyncing()
    first = brainwires.Directory(tmp_path, files=files)
    first.mark_step_complete("t", "other", brainwires.side_effect("other", "m"))
    files.fails = True
    with pytest.raises(StorageFailed):
        first.mark_step_complete("t", "u", EFFECT)
    files.fails = False
    second = brainwires.Directory(tmp_path)
    second.delete_checkpoint("t")
    assert second.mark_step_complete("t", "u", {**EFFECT, "target": "another"})
    assert not first.mark_step_complete("t", "u", EFFECT)


def test_a_directory_that_is_not_there_is_not_made_by_removing_from_it(tmp_path: Path) -> None:
    car.Directory(tmp_path / "x").remove("run-1")
    simple_agents.Directory(tmp_path / "x").delete("run-1")
    brainwires.Directory(tmp_path / "x").delete_checkpoint("t")
    mur.Directory(tmp_path / "x").cleanup(EXECUTION)
    assert not (tmp_path / "x").exists()


def test_a_record_that_a_dead_writer_left_is_synced_before_it_is_acknowledged(tmp_path: Path) -> None:
    class Counting(SystemFiles):
        synced = 0

        def sync(self, handle: int) -> None:
            self.synced += 1
            super().sync(handle)

    clawdia.Directory(tmp_path).append(record(1))
    files = Counting()
    assert clawdia.Directory(tmp_path, files=files).append(record(1)) == "journal.1"
    directories = len(("root", "runs", "run.a"))
    assert files.synced == directories + 1


def test_a_journal_whose_first_record_failed_gets_its_name_durably(tmp_path: Path) -> None:
    class Failing(Unsyncing):
        breaks = True

        def sync(self, handle: int) -> None:
            if self.breaks and tmp_path.joinpath("runs").is_dir() and list(tmp_path.rglob("journal.ndjson")):
                self.breaks = False
                raise OSError(5, "EIO")
            super().sync(handle)

    files = Failing()
    runs = clawdia.Directory(tmp_path, files=files)
    with pytest.raises(StorageFailed):
        runs.append(record(1))
    assert not files.breaks
    files.count = 0
    assert (runs.append(record(1)), files.count) == ("journal.1", 1)


def test_a_directory_that_is_a_file_is_an_error_and_not_empty(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x")
    for call in (
        lambda: car.Directory(tmp_path / "f").load("run-1"),
        lambda: simple_agents.Directory(tmp_path / "f").load("run-1"),
        lambda: clawdia.Directory(tmp_path / "f").records("run.a"),
    ):
        with pytest.raises(StorageFailed):
            call()


# --- small things ----------------------------------------------------------------------------------------------------


def test_a_torn_checkpoint_of_a_task_can_be_deleted(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text("{")
    brainwires.Directory(tmp_path).delete_checkpoint("t")
    assert not (tmp_path / "t.json").exists()


@pytest.mark.parametrize(
    "wrong", [{"step_index": 2**32}, {"step_index": -1}, {"updated_at": 2**63}, {"updated_at": -(2**63) - 1}]
)
def test_numbers_the_original_has_no_room_for_are_refused(tmp_path: Path, wrong: dict[str, Any]) -> None:
    for tasks in (brainwires.Directory(tmp_path), brainwires.Memory()):
        with pytest.raises(InvalidInput):
            tasks.save_checkpoint({**brainwires.new_checkpoint("t", "a"), **wrong})
        with pytest.raises(InvalidInput):
            tasks.mark_step_complete("t", "u", {**EFFECT, "completed_at": 2**63})
        tasks.save_checkpoint({**brainwires.new_checkpoint("t", "a"), "step_index": 2**32 - 1, "updated_at": 2**63 - 1})


def test_an_older_aside_is_never_overwritten(tmp_path: Path) -> None:
    executions = mur.Directory(tmp_path)
    executions.save(before_step(0))
    asides = tmp_path / ".holdfast" / "rolled_back" / EXECUTION
    for number in (1, 2):
        executions.save(before_step(1, variables={"v": str(number)}))
        executions.roll_back(EXECUTION, 0)
    (asides / "1" / "1.json").unlink()
    (asides / "1").rmdir()
    executions.save(before_step(1, variables={"v": "3"}))
    executions.roll_back(EXECUTION, 0)
    assert {path.parent.name: raw(path)["variables"]["v"] for path in asides.rglob("*.json")} == {"2": "2", "3": "3"}


def test_a_cleanup_that_was_killed_is_finished_by_the_next_and_hinders_no_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    executions = mur.Directory(tmp_path)
    for step in range(2):
        executions.save(before_step(step), workflow="v1")

    def die(self: folder.Folder, *name: str) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(folder.Folder, "remove_tree", die)
        with pytest.raises(KeyboardInterrupt):
            executions.cleanup(EXECUTION)
    again = mur.Directory(tmp_path)
    assert again.load_latest(EXECUTION, workflow="v2") is None
    again.save(before_step(0), workflow="v2")
    again.cleanup(EXECUTION)
    again.cleanup(EXECUTION)
    left = [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()]
    assert left == [".holdfast/lock"]
    assert list((tmp_path / ".holdfast").glob("removed-*")) == []
