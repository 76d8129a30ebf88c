"""Brainwires' verbs, on its files and in memory."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from holdfast import Conflict, InvalidInput
from holdfast.errors import DamagedFile, InvalidId, NameTaken, Unstorable
from holdfast.formats import brainwires
from holdfast.formats.brainwires.task_records import deno_name, rust_name
from tests.formats import originals
from tests.formats.sample_files import SAMPLES, raw

Tasks = brainwires.Directory | brainwires.Memory


@pytest.fixture(params=["directory", "memory"])
def tasks(request: pytest.FixtureRequest, tmp_path: Path) -> Tasks:
    return brainwires.Directory(tmp_path / "tasks") if request.param == "directory" else brainwires.Memory()


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "tasks"


def effect(tool_use_id: str = "use-1", **more: Any) -> dict[str, Any]:
    return {**brainwires.side_effect(tool_use_id, "write_file", "src/main.rs", reversible=True), **more}


def test_a_checkpoint_is_saved_loaded_and_deleted(tasks: Tasks) -> None:
    assert tasks.load_checkpoint("task-a") is None
    checkpoint = brainwires.new_checkpoint("task-a", "agent-1")
    tasks.save_checkpoint(checkpoint)
    assert tasks.load_checkpoint("task-a") == checkpoint
    tasks.delete_checkpoint("task-a")
    tasks.delete_checkpoint("task-a")
    tasks.delete_checkpoint("never-existed")
    assert tasks.load_checkpoint("task-a") is None


def test_a_mark_makes_the_checkpoint_and_is_made_once(tasks: Tasks) -> None:
    assert tasks.mark_step_complete("fresh-task", "use-99", effect("use-99"))
    assert not tasks.mark_step_complete("fresh-task", "use-99", effect("use-99"))
    found = tasks.load_checkpoint("fresh-task")
    assert found is not None
    assert brainwires.is_completed(found, "use-99")
    assert not brainwires.is_completed(found, "use-2")
    assert not brainwires.is_completed(None, "use-99")
    assert (found["step_index"], found["agent_id"], len(found["side_effects_log"])) == (1, "unknown", 1)


def test_what_a_caller_keeps_is_not_what_the_store_keeps(tasks: Tasks) -> None:
    checkpoint = brainwires.new_checkpoint("task-a", "agent-1")
    tasks.save_checkpoint(checkpoint)
    checkpoint["completed_tool_ids"].append("use-1")
    found = tasks.load_checkpoint("task-a")
    assert found is not None
    assert found["completed_tool_ids"] == []
    found["completed_tool_ids"].append("use-2")
    assert (tasks.load_checkpoint("task-a") or {})["completed_tool_ids"] == []


def test_marks_that_are_wrong_are_refused(tasks: Tasks) -> None:
    for wrong in (effect(tool_name=1), effect(completed_at="now"), {}, effect("use-2")):
        with pytest.raises(InvalidInput):
            tasks.mark_step_complete("task-a", "use-1", wrong)
    with pytest.raises(Unstorable):
        tasks.mark_step_complete("task-a", "use-1", effect(), result=object())
    for task_id in ("", "x\0", "y" * 600, 5):
        with pytest.raises(InvalidId):
            tasks.mark_step_complete(task_id, "use-1", effect())  # type: ignore[arg-type]
    assert tasks.load_checkpoint("task-a") is None


def test_results_are_kept_beside_and_go_with_their_task(tasks: Tasks) -> None:
    tasks.mark_step_complete("task-a", "use-1", effect(), result={"sent": [1, None]})
    tasks.mark_step_complete("task-a", "use-2", effect("use-2"))
    tasks.mark_step_complete("task-b", "use-1", effect(), result="b")
    assert tasks.result("task-a", "use-1") == {"sent": [1, None]}
    assert tasks.result("task-a", "use-2") is None
    assert tasks.result("task-b", "use-1") == "b"
    assert tasks.result("task-c", "use-1") is None
    tasks.delete_checkpoint("task-a")
    tasks.mark_step_complete("task-a", "use-1", effect())
    assert tasks.result("task-a", "use-1") is None


def test_the_file_is_byte_for_byte_what_the_original_writes(place: Path, tmp_path: Path) -> None:
    shutil.copytree(SAMPLES / "seed2-brainwires", tmp_path / "theirs")
    theirs, ours = brainwires.Directory(tmp_path / "theirs"), brainwires.Directory(place)
    for task_id, name in (("task-a", "task-a"), ("task-b", "task-b"), ("proj/task.1 final", "proj_task_1_final")):
        found = theirs.load_checkpoint(task_id)
        assert found is not None
        ours.save_checkpoint(found)
        assert (place / f"{name}.json").read_bytes() == (tmp_path / "theirs" / f"{name}.json").read_bytes()
    assert sorted(path.name for path in place.iterdir() if path.is_file()) == sorted(
        path.name for path in (SAMPLES / "seed2-brainwires").iterdir()
    )


def test_unknown_fields_survive_a_mark(place: Path) -> None:
    place.mkdir()
    odd = {**brainwires.new_checkpoint("task-a", "a"), "newer": {"n": 2**70}}
    odd["side_effects_log"] = [{**effect("use-0"), "cost": 1.5}]
    odd["completed_tool_ids"] = ["use-0"]
    (place / "task-a.json").write_text(json.dumps(odd))
    tasks = brainwires.Directory(place)
    assert not tasks.mark_step_complete("task-a", "use-0", effect("use-0"))
    assert raw(place / "task-a.json") == odd
    assert tasks.mark_step_complete("task-a", "use-1", effect(completed_at=7))
    found = raw(place / "task-a.json")
    assert (found["newer"], found["side_effects_log"][0]) == (odd["newer"], odd["side_effects_log"][0])
    assert found["side_effects_log"][1] == effect(completed_at=7)
    assert found["step_index"] == 1


def test_names_are_those_of_the_rust_program_and_those_of_its_twin_are_found(place: Path) -> None:
    assert rust_name("proj/task.1 final") == deno_name("proj/task.1 final") == "proj_task_1_final"
    assert (rust_name("täsk"), deno_name("täsk")) == ("täsk", "t_sk")
    assert rust_name("हिन्दी-Ⅻ½²Ⓐ") == "हिन_दी-Ⅻ½²Ⓐ"
    assert rust_name("a\u0301\u0345€🎉") == "a_\u0345__"
    assert deno_name("🎉") == "__"
    place.mkdir()
    (place / "t_sk.json").write_text(json.dumps(brainwires.new_checkpoint("täsk", "deno")))
    tasks = brainwires.Directory(place)
    assert tasks.mark_step_complete("täsk", "use-1", effect())
    assert raw(place / "t_sk.json")["step_index"] == 1
    assert not (place / "täsk.json").exists()
    (place / "täsk.json").write_text(json.dumps(brainwires.new_checkpoint("täsk", "rust")))
    with pytest.raises(Conflict, match="two checkpoints"):
        tasks.load_checkpoint("täsk")


def test_a_torn_or_foreign_file_does_not_hide_the_twins_good_one(place: Path) -> None:
    place.mkdir()
    good = brainwires.new_checkpoint("täsk", "deno")
    (place / "t_sk.json").write_text(json.dumps(good))
    (place / "täsk.json").write_text("{")
    assert brainwires.Directory(place).load_checkpoint("täsk") == good
    (place / "täsk.json").write_text(json.dumps(brainwires.new_checkpoint("other", "x")))
    assert brainwires.Directory(place).load_checkpoint("täsk") == good


def test_a_torn_file_is_damage_until_a_save_replaces_it(place: Path) -> None:
    tasks = brainwires.Directory(place)
    place.mkdir()
    (place / "task-a.json").write_text('{"task_id"')
    for verb in (tasks.load_checkpoint, lambda t: tasks.mark_step_complete(t, "use-1", effect())):
        with pytest.raises(DamagedFile):
            verb("task-a")
    assert (place / "task-a.json").read_text() == '{"task_id"'
    tasks.save_checkpoint(brainwires.new_checkpoint("task-a", "a"))
    assert tasks.mark_step_complete("task-a", "use-1", effect())


def test_ids_that_become_one_name_are_told_apart(place: Path) -> None:
    tasks = brainwires.Directory(place)
    tasks.save_checkpoint(brainwires.new_checkpoint("proj/task.1", "a"))
    for verb in (
        tasks.load_checkpoint,
        lambda t: tasks.save_checkpoint(brainwires.new_checkpoint(t, "b")),
        lambda t: tasks.mark_step_complete(t, "use-1", effect()),
    ):
        with pytest.raises(NameTaken, match=r"belongs to 'proj/task.1', not to 'proj_task_1'"):
            verb("proj_task_1")
    tasks.delete_checkpoint("proj_task_1")
    assert tasks.load_checkpoint("proj/task.1") is not None


def test_the_original_goes_on_with_what_ours_wrote_and_ours_with_its(place: Path) -> None:
    tasks = brainwires.Directory(place)
    tasks.mark_step_complete("task-a", "use-1", effect())
    originals.brainwires_mark(place, "task-a", "use-2")
    assert tasks.mark_step_complete("task-a", "use-3", effect("use-3"))
    assert raw(place / "task-a.json")["completed_tool_ids"] == ["use-1", "use-2", "use-3"]
    assert not (place / "task-a.json.tmp").exists()


def test_the_default_path_is_the_originals(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert brainwires.Directory.default_path() == tmp_path / ".brainwires" / "workflow"
    tasks = brainwires.Directory.with_default_path()
    tasks.save_checkpoint(brainwires.new_checkpoint("t", "a"))
    assert (tmp_path / ".brainwires" / "workflow" / "t.json").exists()


def test_a_name_no_file_can_have_is_refused(place: Path) -> None:
    with pytest.raises(InvalidId, match="255"):
        brainwires.Directory(place).save_checkpoint(brainwires.new_checkpoint("x" * 300, "a"))
    assert not place.exists()


def test_a_result_of_before_is_not_taken_for_that_of_a_call_marked_anew(tasks: Tasks) -> None:
    tasks.mark_step_complete("task-a", "use-1", effect(), result="old")
    tasks.save_checkpoint(brainwires.new_checkpoint("task-a", "a"))
    assert tasks.result("task-a", "use-1") is None
    tasks.mark_step_complete("task-a", "use-1", effect())
    assert tasks.result("task-a", "use-1") is None


@pytest.mark.parametrize("verb", ["mark", "save"])
def test_a_torn_end_of_the_results_does_not_fail_the_next_change(place: Path, verb: str) -> None:
    tasks = brainwires.Directory(place)
    tasks.mark_step_complete("a", "u1", brainwires.side_effect("u1", "tool"), result=1)
    tasks.close()
    (results,) = (place / ".holdfast" / "results").iterdir()
    with results.open("ab") as file:
        file.write(b'{"task_id":"a"')
    again = brainwires.Directory(place)
    checkpoint = again.load_checkpoint("a")
    assert checkpoint is not None
    if verb == "mark":
        assert again.mark_step_complete("a", "u2", brainwires.side_effect("u2", "tool"), result=2)
        assert again.result("a", "u2") == 2
    else:
        again.save_checkpoint({**checkpoint, "agent_id": "another"})
    assert again.result("a", "u1") == 1
