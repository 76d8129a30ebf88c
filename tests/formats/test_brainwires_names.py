"""Which file a Brainwires task has: as today's Rust names it, and as older programs did."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from holdfast import Conflict, Store, formats
from holdfast.formats import brainwires
from holdfast.formats.brainwires.task_records import (
    UNICODE_VERSION,
    deno_name,
    has_older_names,
    is_alphanumeric,
    is_older_name,
    rust_name,
)
from tests.formats.sample_files import raw

OF_RUST_1_95 = "fc3fe22d15b8790317ac2f497a306c09b63125a232a1db1691d0edb6f5e14d6b"
"""SHA-256 over one byte per code point, 1 if `char::is_alphanumeric` of Rust 1.95 is true, 0 if not or a surrogate."""

GARAY = "\U00010d50"
"""A letter of Unicode 16, which older programs replace."""


def test_the_table_is_that_of_rust() -> None:
    found = bytes(is_alphanumeric(chr(point)) for point in range(0x110000))
    assert hashlib.sha256(found).hexdigest() == OF_RUST_1_95
    assert UNICODE_VERSION == (17, 0, 0)


@pytest.mark.parametrize(
    ("char", "is_kept"),
    [
        ("a", True), ("Z", True), ("0", True), ("-", True), ("_", True), (".", False), (" ", False), ("/", False),
        ("ä", True), ("漢", True), ("한", True), ("Ⅻ", True), ("½", True), ("²", True), ("٣", True),
        ("\u093f", True),  # a vowel sign: Alphabetic, and not `isalnum` to Python
        ("\u094d", False),  # the virama, which is not Alphabetic
        ("\u0345", True), ("\u0301", False), ("Ⓐ", True), ("🅰", True), ("🎉", False), ("€", False), ("‿", False),
        (GARAY, True), ("\U00033479", True), ("\U000323b0", True), ("\u088f", True), ("\u1c89", True),
        ("\ue000", False), ("\U0010ffff", False),
    ],
)  # fmt: skip
def test_a_character_is_kept_if_rust_keeps_it(char: str, is_kept: bool) -> None:
    assert rust_name(f"x{char}y") == (f"x{char}y" if is_kept else "x_y")


def test_a_new_task_gets_the_name_that_rust_gives_it(tmp_path: Path) -> None:
    brainwires.Directory(tmp_path).save_checkpoint(brainwires.new_checkpoint(f"a{GARAY}.b", "a"))
    assert [path.name for path in tmp_path.glob("*.json")] == [f"a{GARAY}_b.json"]


def test_names_of_older_programs_are_known() -> None:
    task_id = f"{GARAY}ä\u093f.x"
    assert has_older_names(task_id)
    assert not has_older_names("täsk 漢字.1")
    assert all(is_older_name(name, task_id) for name in ("_ä\u093f_x", f"{GARAY}ä__x", "_ä__x"))
    others = (rust_name(task_id), deno_name(task_id), "_ä\u093f.x", "_ä\u093f_y", "__\u093f_x", "_ä\u093f_xx", "_ä")
    assert not any(is_older_name(name, task_id) for name in others)


def _put_older(place: Path, task_id: str, name: str, *done: str) -> None:
    place.mkdir(exist_ok=True)
    log = [{**brainwires.side_effect(use, "t"), "completed_at": 7} for use in done]
    checkpoint = {**brainwires.new_checkpoint(task_id, "a"), "completed_tool_ids": list(done), "side_effects_log": log}
    (place / name).write_text(json.dumps(checkpoint))


def test_a_file_with_an_older_name_is_found_and_gets_todays_when_it_is_written(tmp_path: Path) -> None:
    task_id, today = f"a{GARAY}b", f"a{GARAY}b.json"
    tasks = brainwires.Directory(tmp_path)
    _put_older(tmp_path, task_id, "a_b.json", "use-1")
    assert brainwires.is_completed(tasks.load_checkpoint(task_id), "use-1")
    assert not tasks.mark_step_complete(task_id, "use-1", brainwires.side_effect("use-1", "t"))
    assert (tmp_path / "a_b.json").exists()
    assert tasks.mark_step_complete(task_id, "use-2", brainwires.side_effect("use-2", "t"), result=2)
    assert not (tmp_path / "a_b.json").exists()
    assert raw(tmp_path / today)["completed_tool_ids"] == ["use-1", "use-2"]
    assert tasks.result(task_id, "use-2") == 2
    (tmp_path / today).rename(tmp_path / "a_b.json")
    tasks.save_checkpoint(brainwires.new_checkpoint(task_id, "b"))
    assert [path.name for path in tmp_path.glob("*.json")] == [today]
    (tmp_path / today).rename(tmp_path / "a_b.json")
    tasks.delete_checkpoint(task_id)
    assert not list(tmp_path.glob("*.json"))


def test_a_file_with_an_older_name_that_is_another_tasks_is_left_alone(tmp_path: Path) -> None:
    task_id = f"a{GARAY}b"
    _put_older(tmp_path, "a.b", "a_b.json", "use-1")
    tasks = brainwires.Directory(tmp_path)
    assert tasks.load_checkpoint(task_id) is None
    assert tasks.mark_step_complete(task_id, "use-1", brainwires.side_effect("use-1", "t"))
    tasks.delete_checkpoint(task_id)
    assert raw(tmp_path / "a_b.json")["task_id"] == "a.b"


def test_a_file_keeps_its_older_name_if_todays_is_another_tasks(tmp_path: Path) -> None:
    task_id, other, today = f"{GARAY}.", f"{GARAY}/", f"{GARAY}_.json"
    _put_older(tmp_path, task_id, "__.json", "use-1")
    _put_older(tmp_path, other, today, "use-9")
    tasks = brainwires.Directory(tmp_path)
    assert tasks.mark_step_complete(task_id, "use-2", brainwires.side_effect("use-2", "t"))
    tasks.save_checkpoint({**(tasks.load_checkpoint(task_id) or {}), "agent_id": "b"})
    assert raw(tmp_path / "__.json")["completed_tool_ids"] == ["use-1", "use-2"]
    assert raw(tmp_path / today)["task_id"] == other


def test_two_files_of_one_task_are_a_conflict_whatever_their_names(tmp_path: Path) -> None:
    task_id = f"a{GARAY}{GARAY}b"
    _put_older(tmp_path, task_id, "a__b.json", "use-1")
    _put_older(tmp_path, task_id, f"a{GARAY}{GARAY}b.json", "use-2")
    with pytest.raises(Conflict, match="two checkpoints"):
        brainwires.Directory(tmp_path).load_checkpoint(task_id)


def test_a_file_with_an_older_name_is_imported_and_exported_to_its_place(store: Store, tmp_path: Path) -> None:
    task_id = f"a{GARAY}b"
    _put_older(tmp_path, task_id, "a_b.json", "use-1")
    report = formats.import_dir("brainwires", tmp_path, store)
    assert (report.runs, report.damaged) == ((task_id,), ())
    store.mark_done(task_id, "use-2", tool="t")
    formats.export_run("brainwires", store, task_id, tmp_path, replace=True)
    found = brainwires.Directory(tmp_path).load_checkpoint(task_id)
    assert found is not None
    assert found["completed_tool_ids"] == ["use-1", "use-2"]
    formats.export_run("brainwires", store, task_id, tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").glob("*.json")] == [f"a{GARAY}b.json"]
