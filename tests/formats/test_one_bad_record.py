"""One bad thing in a directory hides nothing good beside it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import holdfast
from holdfast import formats
from holdfast.errors import DamagedFile
from holdfast.formats import car, clawdia, folder, mur
from tests.formats.converted import tree
from tests.formats.sample_files import EXECUTION, before_step, covering, intent, paused, record

HUGE = "1e9999999999999999999"


@pytest.fixture
def runs(tmp_path: Path) -> clawdia.Directory:
    found = clawdia.Directory(tmp_path)
    found.append(record(1))
    found.save(covering(1))
    return found


def imported(system: str, place: Path) -> formats.Imported:
    with holdfast.open("memory:") as store:
        return formats.import_dir(system, place, store)


def test_a_number_out_of_all_bounds_is_damage_and_hides_no_other_file(tmp_path: Path) -> None:
    runs = car.Directory(tmp_path)
    runs.save(paused("good"))
    (tmp_path / "bad.json").write_text(json.dumps(paused("bad", wf_state={"x": "N"})).replace('"N"', HUGE))
    with pytest.raises(DamagedFile, match="out of range"):
        runs.load("bad")
    report = imported("car", tmp_path)
    assert (report.runs, [Path(p.place).name for p in report.damaged]) == (("good",), ["bad.json"])


def test_a_number_out_of_all_bounds_in_a_checkpoint_hides_no_other(runs: clawdia.Directory, tmp_path: Path) -> None:
    place = tmp_path / "runs" / runs.home("run.a") / "checkpoints" / "00000000000000000009-x.json"
    place.write_text(f'{{"a": {HUGE}}}')
    assert runs.load_latest("run.a") == covering(1)


def test_a_link_to_itself_hides_no_other_checkpoint(runs: clawdia.Directory, tmp_path: Path) -> None:
    (tmp_path / "runs" / runs.home("run.a") / "checkpoints" / "x.json").symlink_to("x.json")
    assert runs.list("run.a") == [covering(1)]
    assert len(runs.problems("run.a")) == 1


@pytest.mark.parametrize("what", ["file", "journal", "large", "closed"])
def test_a_bad_thing_among_the_runs_hides_no_run(
    runs: clawdia.Directory, tmp_path: Path, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "runs" / "other"
    if what == "file":
        other.write_bytes(b"x")
    elif what == "journal":
        (other / "journal.ndjson").mkdir(parents=True)
    elif what == "large":
        monkeypatch.setattr(folder, "STATE_READ_BYTES_MAX", 2000)
        other.mkdir()
        (other / "journal.ndjson").write_bytes(b"\0" * 5000)
    else:
        other.mkdir()
        listing = folder.Folder.names

        def refused(self: folder.Folder, *name: str) -> list[str]:
            if "other" in name:
                raise holdfast.errors.StorageFailed("no permission")
            return listing(self, *name)

        monkeypatch.setattr(folder.Folder, "names", refused)
    assert runs.runs() == ["run.a"]
    report = imported("clawdia", tmp_path)
    assert report.runs == ("run.a",)
    assert [p.place for p in report.damaged] == ([] if what == "file" else [str(other)])


def test_a_stray_file_of_the_name_of_a_run_is_no_directory_of_it(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "run.a").write_bytes(b"x")
    runs = clawdia.Directory(tmp_path)
    assert runs.append(record(1)) == "journal.1"
    assert runs.runs() == ["run.a"]


def test_a_torn_pause_does_not_hide_the_claimed_file_beside_it(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"run_')
    (tmp_path / "a.inflight").write_text(json.dumps(paused("a")))
    before = (tmp_path / "a.json").read_bytes(), (tmp_path / "a.inflight").read_bytes()
    with holdfast.open("memory:") as store:
        report = formats.import_dir("car", tmp_path, store)
        assert (report.runs, [Path(p.place).name for p in report.damaged]) == (("a",), ["a.json"])
        assert store.runs()[0].status == "paused"
    found = car.Directory(tmp_path).recover_orphaned()
    assert (int(found), sorted(Path(p.place).name for p in found.problems)) == (0, ["a.inflight", "a.json"])
    assert before == ((tmp_path / "a.json").read_bytes(), (tmp_path / "a.inflight").read_bytes())


def test_a_number_too_large_for_a_step_hides_no_step(tmp_path: Path) -> None:
    executions = mur.Directory(tmp_path)
    executions.save(before_step(0))
    (tmp_path / EXECUTION / "99999999999999999999.json").write_text("{}")
    assert executions.load_latest(EXECUTION) == before_step(0)
    assert executions.problems(EXECUTION) == []
    assert imported("mur", tmp_path).runs == (EXECUTION,)


def test_nothing_is_pruned_while_a_broken_line_may_be_an_intent(runs: clawdia.Directory, tmp_path: Path) -> None:
    runs.append(intent(2, "e"))
    runs.append(record(3))
    runs.save(covering(3, 2))
    journal = tmp_path / "runs" / runs.home("run.a") / "journal.ndjson"
    lines = journal.read_bytes().split(b"\n")
    journal.write_bytes(b"\n".join([lines[0], lines[1][:20], *lines[2:]]))
    with pytest.raises(DamagedFile, match="line 2"):
        clawdia.Directory(tmp_path).prune("run.a", clawdia.PrunePolicy(prune_covered_before=3))
    assert len(runs.list("run.a")) == 2
    policy = clawdia.PrunePolicy(prune_covered_before=3, preserve_before_pending=False)
    assert runs.prune("run.a", policy).pruned_count == 1


def test_problems_name_the_path_of_what_is_wrong(tmp_path: Path) -> None:
    (tmp_path / EXECUTION).mkdir()
    (tmp_path / EXECUTION / "0.json").write_text("{")
    assert {p.place for p in imported("mur", tmp_path).damaged} == {
        str(tmp_path / EXECUTION),
        str(tmp_path / EXECUTION / "0.json"),
    }
    agents = tmp_path / "agents"
    runs = clawdia.Directory(agents)
    runs.append(record(1))
    (home,) = (agents / "runs").iterdir()
    (home / "journal.ndjson").write_text(json.dumps(record(1)) + "\n" + json.dumps(intent(2, "a\nb")) + "\n")
    report = imported("clawdia", agents)
    assert (report.runs, [p.place for p in report.damaged]) == (("run.a",), [str(home)])
    assert len(tree(agents)) == 1
