"""Brainwires' file calls between ours, in every order: what is kept, and the two orders that nobody can help.

The original marks by reading, writing to a temporary file and renaming it; it saves by the last two; it deletes by one
unlink. It takes no lock.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import StorageBusy
from holdfast.files.os_files import Identity, SystemFiles
from holdfast.formats import brainwires
from holdfast.formats.brainwires import task_directory
from tests.formats import originals
from tests.formats.interleaving import Outcome, Steps, every_interleaving, finish
from tests.formats.sample_files import raw

TASK = "task-a"
FILE = "task-a.json"
LATER = int(time.time()) + 10_000
"""A date that is never in the past of the test: a record with it can have been made again in the same second."""


def effect(tool_use_id: str, completed_at: int = LATER) -> dict[str, Any]:
    return {**brainwires.side_effect(tool_use_id, "write_file", "a.txt"), "completed_at": completed_at}


class Unsynced(SystemFiles):
    """No power is cut here."""

    def sync(self, handle: int) -> None:
        pass

    def sync_directory(self, path: str) -> None:
        pass


# --- the original ----------------------------------------------------------------------------------------------------


def their_mark(place: Path, tool_use_id: str, record: dict[str, Any] | None = None) -> Steps[str]:
    yield
    path = place / FILE
    found = json.loads(path.read_text("utf-8")) if path.exists() else brainwires.new_checkpoint(TASK, "unknown")
    found["completed_tool_ids"] = sorted({*found["completed_tool_ids"], tool_use_id})
    found["side_effects_log"].append(record or effect(tool_use_id, 1))
    found["step_index"] += 1
    yield from _their_write(place, found)
    return "marked"


def their_save(place: Path) -> Steps[str]:
    yield from _their_write(place, {**brainwires.new_checkpoint(TASK, "theirs"), "completed_tool_ids": ["use-9"]})
    return "saved"


def _their_write(place: Path, content: dict[str, Any]) -> Steps[None]:
    yield
    temporary = place / f"{FILE}.tmp"
    temporary.write_text(json.dumps(content, indent=2), "utf-8")
    now = time.time_ns()
    os.utime(temporary, ns=(now, now))  # some kernels date files only by every fourth millisecond
    yield
    os.replace(temporary, place / FILE)


def their_delete(place: Path) -> Steps[str]:
    yield
    (place / FILE).unlink(missing_ok=True)
    return "deleted"


def their_delete_and_mark(place: Path, tool_use_id: str, record: dict[str, Any]) -> Steps[str]:
    yield from their_delete(place)
    return (yield from their_mark(place, tool_use_id, record))


# --- what both left --------------------------------------------------------------------------------------------------


def begun(place: Path) -> None:
    """One call is marked by the original, long ago."""
    finish(their_mark(place, "use-0"))


def completed(place: Path) -> set[str] | None:
    """The marks in the file, or None if there is none; it is always whole."""
    return set(raw(place / FILE)["completed_tool_ids"]) if (place / FILE).exists() else None


def comes_right_before_our_rename(outcome: Outcome, call: int) -> bool:
    """Whether ours had no call between this one of the original and its rename."""
    at = outcome.trace.index(f"original: call {call}")
    return outcome.trace[at + 1 : at + 2] == (f"ours: rename to {FILE}",)


def is_read_before_and_written_after_our_rename(outcome: Outcome) -> bool:
    """Whether the original read what ours then replaced, and wrote after that."""
    ours = outcome.trace.index(f"ours: rename to {FILE}")
    return outcome.trace.index("original: call 1") < ours < outcome.trace.index("original: call 3")


def our_mark(place: Path, files: SystemFiles) -> bool:
    tasks = brainwires.Directory(place, files=files)
    return tasks.mark_step_complete(TASK, "use-1", effect("use-1"), result="ours")


@pytest.mark.parametrize("prepare", [begun, lambda place: None], ids=["begun", "new"])
def test_a_mark_of_theirs_that_can_be_seen_when_ours_is_written_is_not_lost(
    tmp_path: Path, prepare: Callable[[Path], None]
) -> None:
    lost = {"ours": 0, "theirs": 0, "none": 0}

    def check(place: Path, outcome: Outcome) -> None:
        assert outcome.ours is True
        found = completed(place)
        assert found is not None
        result = brainwires.Directory(place).result(TASK, "use-1")
        if outcome.is_dead:
            assert found >= {"use-1"}
            assert result == "ours"
            return
        assert outcome.theirs == "marked"
        assert prepare is not begun or "use-0" in found
        assert result == ("ours" if "use-1" in found else None)
        if {"use-1", "use-2"} <= found:
            lost["none"] += 1
        elif "use-1" in found:
            lost["theirs"] += 1
            assert comes_right_before_our_rename(outcome, 3)
        else:
            lost["ours"] += 1
            assert is_read_before_and_written_after_our_rename(outcome)

    every_interleaving(
        tmp_path, prepare, our_mark, lambda place: their_mark(place, "use-2"), check, may_die=True
    )  # fmt: skip
    assert lost["theirs"] > 0, "the order in which nothing of ours comes between was not tried"
    assert lost["ours"] > 0, "the order in which they read before and write after was not tried"
    assert lost["none"] > lost["ours"]


def test_the_same_call_marked_by_both_is_marked_and_answered_by_whose_mark_it_is(tmp_path: Path) -> None:
    answers = set()

    def check(place: Path, outcome: Outcome) -> None:
        found = raw(place / FILE)
        assert set(found["completed_tool_ids"]) == {"use-0", "use-1"}
        is_ours = effect("use-1") in found["side_effects_log"]
        result = brainwires.Directory(place).result(TASK, "use-1")
        assert result == ("ours" if is_ours else None)
        answers.add((outcome.ours, is_ours))

    every_interleaving(tmp_path, begun, our_mark, lambda place: their_mark(place, "use-1"), check)
    assert answers >= {(True, True), (False, False)}


def test_a_task_they_delete_while_ours_marks_is_not_brought_back(tmp_path: Path) -> None:
    def check(place: Path, outcome: Outcome) -> None:
        assert outcome.ours is True
        found = completed(place)
        if found is not None and "use-0" in found:
            assert comes_right_before_our_rename(outcome, 1)
        else:
            assert found in (None, {"use-1"})

    every_interleaving(tmp_path, begun, our_mark, their_delete, check)


def test_a_save_of_theirs_is_marked_by_ours_or_takes_its_place(tmp_path: Path) -> None:
    def check(place: Path, outcome: Outcome) -> None:
        assert outcome.ours is True
        found = completed(place)
        if found == {"use-0", "use-1"}:
            assert comes_right_before_our_rename(outcome, 2)
        else:
            assert found in ({"use-9"}, {"use-9", "use-1"})

    every_interleaving(tmp_path, begun, our_mark, their_save, check)


THEIRS: dict[str, Callable[[Path], Steps[str]]] = {
    "mark": lambda place: their_mark(place, "use-2"),
    "save": their_save,
    "delete": their_delete,
}


@pytest.mark.parametrize("theirs", THEIRS)
def test_what_ours_loads_was_there_at_one_moment(tmp_path: Path, theirs: str) -> None:
    later = {"mark": {"use-0", "use-2"}, "save": {"use-9"}, "delete": None}[theirs]

    def check(place: Path, outcome: Outcome) -> None:
        found = outcome.ours and set(outcome.ours["completed_tool_ids"])
        assert found in ({"use-0"}, later)
        assert completed(place) == later

    every_interleaving(
        tmp_path, begun, lambda place, files: brainwires.Directory(place, files=files).load_checkpoint(TASK),
        THEIRS[theirs], check,
    )  # fmt: skip


@pytest.mark.parametrize("theirs", THEIRS)
def test_a_save_and_a_delete_of_ours_leave_a_whole_file_or_none(tmp_path: Path, theirs: str) -> None:
    later = {"mark": {"use-0", "use-2"}, "save": {"use-9"}, "delete": None}[theirs]
    saved = {**brainwires.new_checkpoint(TASK, "ours"), "completed_tool_ids": ["use-5"]}
    more = [{"use-5", "use-2"}] if theirs == "mark" else []

    def check_saved(place: Path, outcome: Outcome) -> None:
        assert outcome.ours is None
        assert completed(place) in [{"use-5"}, later, *more]

    def check_deleted(place: Path, outcome: Outcome) -> None:
        assert outcome.ours is None
        assert completed(place) in [None, later, {"use-2"}]

    every_interleaving(
        tmp_path, begun, lambda place, files: brainwires.Directory(place, files=files).save_checkpoint(saved),
        THEIRS[theirs], check_saved,
    )  # fmt: skip
    every_interleaving(
        tmp_path, begun, lambda place, files: brainwires.Directory(place, files=files).delete_checkpoint(TASK),
        THEIRS[theirs], check_deleted,
    )  # fmt: skip


# --- results ---------------------------------------------------------------------------------------------------------


def answered(place: Path) -> None:
    """Ours has marked a call, with a result."""
    tasks = brainwires.Directory(place, files=Unsynced())
    tasks.mark_step_complete(TASK, "use-1", effect("use-1"), result="ours")
    tasks.close()


@pytest.mark.parametrize("record", [effect("use-1", 1), effect("use-1")], ids=["another record", "the same record"])
def test_a_task_that_they_delete_and_make_again_does_not_answer_with_the_old_result(
    tmp_path: Path, record: dict[str, Any]
) -> None:
    def check(place: Path, outcome: Outcome) -> None:
        assert outcome.theirs == "marked"
        assert outcome.ours in ("ours", None)
        assert outcome.ours is None or outcome.trace[0].startswith("ours:"), "it was deleted before ours looked"
        tasks = brainwires.Directory(place, files=Unsynced())
        assert brainwires.is_completed(tasks.load_checkpoint(TASK), "use-1")
        assert tasks.result(TASK, "use-1") is None
        assert tasks.mark_step_complete(TASK, "use-2", effect("use-2"), result=2)
        assert tasks.result(TASK, "use-2") == 2

    every_interleaving(
        tmp_path, answered, lambda place, files: brainwires.Directory(place, files=files).result(TASK, "use-1"),
        lambda place: their_delete_and_mark(place, "use-1", record), check,
    )  # fmt: skip


def test_results_of_ours_outlive_marks_of_theirs_and_saves_of_ours(tmp_path: Path) -> None:
    tasks = brainwires.Directory(tmp_path)
    answered(tmp_path)
    finish(their_mark(tmp_path, "use-2"))
    assert tasks.result(TASK, "use-1") == "ours"
    assert tasks.mark_step_complete(TASK, "use-3", effect("use-3"), result=3)
    finish(their_mark(tmp_path, "use-4"))
    found = tasks.load_checkpoint(TASK)
    assert found is not None
    tasks.save_checkpoint({**found, "agent_id": "another"})
    assert [tasks.result(TASK, f"use-{number}") for number in (1, 2, 3, 4)] == ["ours", None, 3, None]
    tasks.save_checkpoint({**found, "side_effects_log": []})
    assert [tasks.result(TASK, f"use-{number}") for number in (1, 3)] == ["ours", 3]
    tasks.save_checkpoint({**found, "completed_tool_ids": ["use-3"], "side_effects_log": []})
    assert [tasks.result(TASK, f"use-{number}") for number in (1, 3)] == [None, 3]


def test_results_of_a_directory_that_was_copied_are_there_if_their_task_is_older_than_a_second(tmp_path: Path) -> None:
    tasks = brainwires.Directory(tmp_path)
    tasks.mark_step_complete(TASK, "use-1", effect("use-1", 1), result="ours")
    data = (tmp_path / FILE).read_bytes()
    (tmp_path / FILE).unlink()
    (tmp_path / FILE).write_bytes(data)
    os.utime(tmp_path / FILE, (1, 1))
    assert tasks.result(TASK, "use-1") == "ours"


def test_a_result_whose_mark_never_came_to_be_is_not_given_for_a_mark_of_theirs(tmp_path: Path) -> None:
    answered(tmp_path)
    before = (tmp_path / FILE).read_bytes()
    tasks = brainwires.Directory(tmp_path)
    tasks.mark_step_complete(TASK, "use-2", effect("use-2"), result="never marked")
    (tmp_path / FILE).write_bytes(before)  # as a crash before the rename leaves it
    originals.brainwires_mark(tmp_path, TASK, "use-2")
    assert brainwires.is_completed(tasks.load_checkpoint(TASK), "use-2")
    assert tasks.result(TASK, "use-2") is None


def test_results_of_release_0_1_0_are_still_given(tmp_path: Path) -> None:
    tasks = brainwires.Directory(tmp_path)
    answered(tmp_path)
    (results,) = (tmp_path / ".holdfast" / "results").iterdir()
    line = json.loads(results.read_text())
    results.write_text(json.dumps({name: line[name] for name in ("task_id", "tool_use_id", "result")}) + "\n")
    assert tasks.result(TASK, "use-1") == "ours"
    assert tasks.mark_step_complete(TASK, "use-2", effect("use-2"), result=2)
    assert [tasks.result(TASK, "use-1"), tasks.result(TASK, "use-2")] == ["ours", 2]


class _Restless(SystemFiles):
    """Every time ours has written, the original marks once more."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self.count = 0

    def identity(self, path: str) -> Identity | None:
        if path.endswith("new"):
            self.count += 1
            originals.brainwires_mark(self._place, TASK, f"theirs-{self.count}")
        return super().identity(path)


def test_a_file_that_the_original_changes_all_the_time_is_reported_as_busy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_directory, "ATTEMPTS_MAX", 5)
    files = _Restless(tmp_path)
    with pytest.raises(StorageBusy, match="during all 5 attempts"):
        our_mark(tmp_path, files)
    assert completed(tmp_path) == {f"theirs-{number + 1}" for number in range(5)}
    assert list((tmp_path / ".holdfast").glob("new")) == []
    assert our_mark(tmp_path, SystemFiles())
