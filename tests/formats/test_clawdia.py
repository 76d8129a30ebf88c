"""Clawdia's verbs, on its files and in memory."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from holdfast import Conflict, InvalidInput
from holdfast.errors import DamagedFile, InvalidCursor, InvalidId, NameTaken
from holdfast.formats import clawdia
from holdfast.formats.clawdia.run_directory import segment
from tests.formats import originals
from tests.formats.sample_files import SAMPLES, covering, intent, outcome, raw, record

Runs = clawdia.Directory | clawdia.Memory
HOME = segment("run.a")


@pytest.fixture(params=["directory", "memory"])
def runs(request: pytest.FixtureRequest, tmp_path: Path) -> Runs:
    return clawdia.Directory(tmp_path / "root") if request.param == "directory" else clawdia.Memory()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "root"


def ids(checkpoints: list[dict[str, Any]]) -> list[str]:
    return [checkpoint["checkpoint_id"] for checkpoint in checkpoints]


def test_checkpoints_are_saved_loaded_listed_and_replaced(runs: Runs) -> None:
    assert runs.load_latest("run.a") is None
    for number, seq in ((2, 3), (1, 1), (3, 3)):
        found = runs.save(covering(seq, number), latest_journal_seq=3)
        assert (found.checkpoint_ref, found.covers_journal_seq) == (f"checkpoint.{number}", seq)
    assert ids(runs.list("run.a")) == ["checkpoint.1", "checkpoint.2", "checkpoint.3"]
    assert runs.load_latest("run.a") == covering(3, 3)
    assert runs.load_at_or_before("run.a", "journal.2") == covering(1, 1)
    assert runs.load_at_or_before("run.a", 0) is None
    assert runs.load_latest("run.b") is None
    runs.save(covering(2, 1), latest_journal_seq=3)
    assert ids(runs.list("run.a")) == ["checkpoint.1", "checkpoint.2", "checkpoint.3"]
    assert runs.load_at_or_before("run.a", 1) is None


def test_a_checkpoint_covers_no_more_than_the_journal_has(runs: Runs) -> None:
    with pytest.raises(InvalidInput, match="ends at 4"):
        runs.save(covering(5), latest_journal_seq=4)
    with pytest.raises(InvalidInput, match="ends at 0"):
        runs.save(covering(1))
    runs.append(record(1))
    runs.save(covering(1))
    assert ids(runs.list("run.a")) == ["checkpoint.1"]


def test_what_has_no_value_is_left_out_as_the_original_does(runs: Runs) -> None:
    runs.save(covering(0, turn_id=None, pending_approvals=[], attempt_id="t", newer=None), 0)
    assert runs.load_latest("run.a") == covering(0, attempt_id="t", newer=None)


def test_equal_order_has_one_winner(runs: Runs) -> None:
    for name in ("b", "c", "a"):
        runs.save({**covering(1), "checkpoint_id": name}, 1)
    assert ids(runs.list("run.a")) == ["a", "b", "c"]


def test_what_the_original_could_not_read_is_refused(runs: Runs) -> None:
    wrong: list[Any] = [
        covering(1, checkpoint_seq=-1), covering(1, state_hash=None), covering(1, run_id="x\ny"), covering(2**65),
        covering(1, pending_side_effects=[{"effect_id": "e"}]), [],
    ]  # fmt: skip
    for checkpoint in wrong:
        with pytest.raises(InvalidInput):
            runs.save(checkpoint, 2**64 - 1)
    bad: list[Any] = [record(1, run_id=""), record(1, payload=None), record(1, journal_schema_version=2), {}, None]
    for one in bad:
        with pytest.raises(InvalidInput):
            runs.append(one)
    assert runs.list("run.a") == []
    assert runs.records("run.a") == []


def test_records_are_appended_once_and_in_order(runs: Runs) -> None:
    assert runs.append(record(1)) == "journal.1"
    assert runs.append(record(4)) == "journal.4"
    assert runs.append(record(4)) == "journal.4"
    assert runs.append(record(1)) == "journal.1"
    with pytest.raises(Conflict, match="must be above the last"):
        runs.append({**record(3), "record_id": "new"})
    with pytest.raises(Conflict, match="other content"):
        runs.append({**record(4), "agent_id": "another"})
    assert runs.append({**record(None), "record_id": "next"}) == "journal.5"
    assert runs.append({**record(None), "record_id": "next"}) == "journal.5"
    assert [r["journal_seq"] for r in runs.records("run.a")] == [1, 4, 5]
    assert [r["journal_seq"] for r in runs.records("run.a", after="journal.1")] == [4, 5]
    assert runs.latest_journal_seq("run.a") == 5
    assert runs.records("run.b") == []


def test_pruning_follows_its_policy_and_reports(runs: Runs) -> None:
    for number in range(1, 6):
        runs.save(covering(number, number, loop_state="completed" if number == 2 else "running"), 5)
    report = runs.prune("run.a", clawdia.PrunePolicy(prune_covered_before=4))
    assert (report.pruned_count, report.retained_count) == (2, 3)
    assert report.preserved_terminal_checkpoint == "checkpoint.2"
    assert ids(runs.list("run.a")) == ["checkpoint.2", "checkpoint.4", "checkpoint.5"]
    report = runs.prune("run.a", clawdia.PrunePolicy(prune_covered_before=5, preserve_latest_terminal=False))
    assert (report.pruned_count, report.retained_count, report.preserved_terminal_checkpoint) == (2, 1, None)
    assert runs.prune("run.b", clawdia.PrunePolicy(prune_covered_before=9)).retained_count == 0


def test_pruning_keeps_the_newest_checkpoint_before_each_pending_effect(runs: Runs) -> None:
    runs.append(record(1))
    runs.append(intent(2, "done"))
    runs.append(outcome(3, "done"))
    runs.append(intent(5, "pending"))
    runs.append(record(9))
    for number in (1, 4, 6, 9):
        runs.save(covering(number, number))
    report = runs.prune("run.a", clawdia.PrunePolicy(prune_covered_before=9))
    assert report.preserved_before_pending == ("checkpoint.4",)
    assert ids(runs.list("run.a")) == ["checkpoint.4", "checkpoint.9"]


def test_without_a_journal_the_checkpoints_tell_what_is_pending(runs: Runs) -> None:
    pending = [{"effect_id": "e", "intent_record_id": "r", "unsafe_pending_reason": "?"}]
    for number in range(1, 6):
        runs.save(covering(number, number, pending_side_effects=pending if number > 2 else []), 5)
    assert runs.prune("run.a", clawdia.PrunePolicy(prune_covered_before=5)).preserved_before_pending == (
        "checkpoint.2",
    )
    assert ids(runs.list("run.a")) == ["checkpoint.2", "checkpoint.5"]


@pytest.mark.parametrize(
    "cursor", ["", "garbage", "journal.", "journal.x", "run.7", "-7", "journal.-1", "1" * 600, -1, True, None]
)
def test_a_malformed_cursor_is_an_error(runs: Runs, cursor: Any) -> None:
    for verb in (runs.load_at_or_before, runs.records):
        with pytest.raises(InvalidCursor):
            verb("run.a", cursor)


def test_names_are_the_originals(root: Path) -> None:
    runs = clawdia.Directory(root)
    assert segment("run.file.store") == "run.file.store-3f6a79c4bb0e"
    assert segment("checkpoint.file.2") == "checkpoint.file.2-45c8ab18ce4d"
    runs.append(record(1, run_id="run.file.store"))
    runs.save(covering(1, run_id="run.file.store", checkpoint_id="checkpoint.file.2"))
    home = root / "runs" / "run.file.store-3f6a79c4bb0e"
    path = home / "checkpoints" / "00000000000000000001-checkpoint.file.2-45c8ab18ce4d.json"
    assert raw(path) == covering(1, run_id="run.file.store", checkpoint_id="checkpoint.file.2")
    assert originals.clawdia_records(home / "journal.ndjson") == [record(1, run_id="run.file.store")]
    hostile = "../../x/" + "y" * 300
    runs.save(covering(0, run_id=hostile, checkpoint_id="../../../etc"), 0)
    assert runs.load_latest(hostile) == covering(0, run_id=hostile, checkpoint_id="../../../etc")
    assert {path.name for path in root.parent.iterdir()} == {"root"}
    assert runs.runs() == [hostile, "run.file.store"]
    for bad in ("", "x\0", 5):
        with pytest.raises(InvalidId):
            runs.list(bad)  # type: ignore[arg-type]


def test_directories_named_by_the_id_alone_are_found_and_kept(root: Path) -> None:
    shutil.copytree(SAMPLES / "seed4-agent-sdk", root)
    runs = clawdia.Directory(root)
    assert runs.runs() == ["run.a"]
    assert [c["covers_journal_seq"] for c in runs.list("run.a")] == [1, 3, 4]
    assert runs.load_at_or_before("run.a", "journal.3") == raw(
        root / "runs" / "run.a" / "checkpoints" / "00000000000000000003-checkpoint.run.a.2.json"
    )
    runs.save(covering(5, 9, checkpoint_id="checkpoint.run.a.9"), 5)
    runs.append(record(6))
    assert sorted(path.name for path in (root / "runs" / "run.a").iterdir()) == ["checkpoints", "journal.ndjson"]
    assert (root / "runs" / "run.a" / "checkpoints" / "00000000000000000005-checkpoint.run.a.9.json").exists()
    assert not (root / "runs" / HOME).exists()


def test_what_two_releases_left_of_one_run_is_read_together(root: Path) -> None:
    runs = clawdia.Directory(root)
    runs.append(record(1))
    runs.save(covering(1))
    (root / "runs" / HOME).rename(root / "runs" / "run.a")
    later = clawdia.Directory(root)
    (root / "runs" / HOME / "checkpoints").mkdir(parents=True)
    (root / "runs" / HOME / "checkpoints" / "x.json").write_text(json.dumps(covering(2, 2)))
    assert ids(later.list("run.a")) == ["checkpoint.1", "checkpoint.2"]
    assert later.append(record(2)) == "journal.2"
    assert [r["journal_seq"] for r in later.records("run.a")] == [1, 2]
    with pytest.raises(Conflict):
        later.append({**record(1), "record_id": "again"})


def test_files_of_others_in_a_runs_directory_are_no_runs_of_their_own(root: Path) -> None:
    runs = clawdia.Directory(root)
    runs.append(record(1))
    path = root / "runs" / HOME / "journal.ndjson"
    path.write_bytes(path.read_bytes() + json.dumps(record(2, run_id="other")).encode() + b"\n")
    assert runs.runs() == ["run.a"]
    assert [r["journal_seq"] for r in clawdia.Directory(root).records("run.a")] == [1]
    (root / "runs" / HOME).rename(root / "runs" / "moved")
    assert runs.runs() == []
    assert runs.unreadable() == [str(root / "runs" / "moved")]


def test_a_checkpoint_saved_again_leaves_one_file(root: Path) -> None:
    runs = clawdia.Directory(root)
    runs.save(covering(1), 5)
    runs.save(covering(4), 5)
    assert [c["covers_journal_seq"] for c in originals.clawdia_checkpoints(root / "runs" / HOME / "checkpoints")] == [4]


def test_damaged_checkpoints_hide_nothing_and_are_left_alone(root: Path) -> None:
    runs = clawdia.Directory(root)
    for number in (1, 2):
        runs.save(covering(number, number), 9)
    home = root / "runs" / HOME / "checkpoints"
    (home / "00000000000000000003-torn.json").write_text('{"checkpoint_id"')
    (home / "00000000000000000004-foreign.json").write_text(json.dumps(covering(4, 4, run_id="other")))
    (home / "00000000000000000005-note.tmp").write_text("no json")
    assert runs.load_latest("run.a") == covering(2, 2)
    assert [Path(p.place).name for p in runs.problems("run.a")] == [
        "00000000000000000003-torn.json",
        "00000000000000000004-foreign.json",
    ]
    assert runs.prune("run.a", clawdia.PrunePolicy(prune_covered_before=9)).pruned_count == 1
    assert len(list(home.iterdir())) == 4


def test_a_broken_record_in_the_middle_is_damage_and_nothing_is_appended_behind_it(root: Path) -> None:
    runs = clawdia.Directory(root)
    for number in (1, 2, 3):
        runs.append(record(number))
    path = root / "runs" / HOME / "journal.ndjson"
    lines = path.read_bytes().split()
    path.write_bytes(b"\n".join([lines[0], lines[1][:30], lines[2], b""]))
    with pytest.raises(DamagedFile, match="line 2"):
        runs.records("run.a")
    assert [r["journal_seq"] for r in runs.records("run.a", damaged="skip")] == [1, 3]
    with pytest.raises(DamagedFile, match="line 2"):
        runs.append(record(4))
    assert len(runs.problems("run.a")) == 1


def test_a_record_this_version_does_not_know_is_not_taken_for_a_torn_one(root: Path) -> None:
    runs = clawdia.Directory(root)
    runs.append(record(1))
    path = root / "runs" / HOME / "journal.ndjson"
    path.write_bytes(path.read_bytes() + b'{"newer": true}\n')
    with pytest.raises(DamagedFile):
        runs.append(record(2))
    assert path.read_bytes().endswith(b'{"newer": true}\n')


def test_the_journal_is_not_read_again_for_every_record(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = clawdia.Directory(root)
    runs.append(record(1))
    reads: list[object] = []
    folder = runs._folder
    monkeypatch.setattr(folder, "read", lambda *name: reads.append(name))
    for number in range(2, 50):
        runs.append(record(number))
    assert reads == []
    monkeypatch.undo()
    assert clawdia.Directory(root).append(record(50)) == "journal.50"
    assert runs.append(record(51)) == "journal.51", "what others appended is noticed"


def test_replaying(runs: Runs) -> None:
    assert clawdia.replay([]).resume_allowed
    runs.append(record(1))
    runs.append(intent(2, "a"))
    found = clawdia.replay(runs.records("run.a"))
    assert (found.status, found.resume_allowed, found.unsafe) == ("repair_needed", False, ("a",))
    runs.append(outcome(3, "a", "timed_out"))
    assert clawdia.replay(runs.records("run.a")).unsafe == ("a",)
    runs.append({**outcome(4, "a"), "record_id": "late"})
    payload = {"type": "checkpoint", **covering(4)}
    runs.append(record(5, "checkpoint", payload=payload))
    found = clawdia.replay(runs.records("run.a"))
    assert (found.resume_allowed, found.latest_journal_seq, found.latest_checkpoint) == (True, 5, payload)
    everything = runs.records("run.a")
    assert clawdia.replay([*everything, everything[2]]) == found, "the same record again is no news"
    with pytest.raises(DamagedFile):
        clawdia.replay([*everything, {**record(2), "record_id": "late"}])


def test_a_checkpoint_of_another_run_under_this_name_is_not_overwritten(root: Path) -> None:
    runs = clawdia.Directory(root)
    path = root / "runs" / "run.a" / "checkpoints" / "00000000000000000001-checkpoint.1.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(covering(1, run_id="other")))
    (path.parent / "own.json").write_text(json.dumps(covering(0, 9)))
    with pytest.raises(NameTaken):
        runs.save(covering(1), 1)
    assert raw(path) == covering(1, run_id="other")
