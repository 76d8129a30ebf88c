"""Into ordinary runs and back: what each system's files become, and that they come out as they went in."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path

import pytest

import holdfast
from holdfast import App, Conflict, InvalidInput, Store, formats
from holdfast.errors import RunNotFound
from holdfast.formats import car
from tests.formats.converted import there_and_back, tree
from tests.formats.sample_files import EXECUTION, SAMPLES, paused, raw, scope

FOLDERS = {
    "car": "seed0-car",
    "simple_agents": "seed1-simple-agents",
    "brainwires": "seed2-brainwires",
    "mur": "seed3-mur/.mur/commander/checkpoints",
    "clawdia": "seed4-agent-sdk",
}
COUNTS = {"car": 3, "simple_agents": 1, "brainwires": 3, "mur": 1, "clawdia": 1}


@pytest.mark.parametrize("system", FOLDERS)
def test_what_is_imported_and_exported_is_equal_json_under_the_same_names(
    system: str, store: Store, tmp_path: Path
) -> None:
    place = SAMPLES / FOLDERS[system]
    before = tree(place)
    report = there_and_back(system, place, store, tmp_path / "out")
    assert (len(report.runs), report.existing, report.damaged) == (COUNTS[system], (), ())
    assert tree(tmp_path / "out") == before
    assert tree(place) == before
    assert not list(place.rglob(".holdfast")), "the source is only read"


@pytest.mark.parametrize("system", FOLDERS)
def test_importing_again_leaves_what_is_there(system: str, store: Store) -> None:
    first = formats.import_dir(system, SAMPLES / FOLDERS[system], store)
    again = formats.import_dir(system, SAMPLES / FOLDERS[system], store)
    assert (again.runs, set(again.existing), again.damaged) == ((), set(first.runs), ())


def test_progress_is_told(store: Store) -> None:
    told: list[tuple[int, int, str]] = []
    formats.import_dir("car", SAMPLES / "seed0-car", store, progress=lambda *now: told.append(now))
    assert [(done, total) for done, total, _ in told] == [(1, 3), (2, 3), (3, 3)]
    assert told[0][2].endswith("run-1.json")


def test_a_home_directory_will_do(store: Store) -> None:
    assert formats.import_dir("mur", SAMPLES / "seed3-mur", store).runs == (EXECUTION,)


def test_nothing_is_set_in_motion_by_being_imported(app: App) -> None:
    for system, folder in FOLDERS.items():
        if system != "simple_agents":  # it has a run of the same id as CAR's
            formats.import_dir(system, SAMPLES / folder, app.store)
    assert app.store.claim_ready("w", limit=100) == []
    assert {run.status for run in app.store.runs()} == {"waiting", "paused"}


# --- what can be wrong -----------------------------------------------------------------------------------------------


def test_damaged_files_are_listed_at_the_end_and_left_alone(store: Store, tmp_path: Path) -> None:
    runs = car.Directory(tmp_path)
    for name in ("a", "b", "c"):
        runs.save(paused(name))
    (tmp_path / "a.json").write_text('{"run_id"')
    (tmp_path / "d.json").write_text(json.dumps(paused("another")))
    (tmp_path / "e.json").mkdir()
    (tmp_path / "f.json").write_text(json.dumps({**paused("f"), "created_at": "not a moment"}))
    report = formats.import_dir("car", tmp_path, store)
    assert set(report.runs) == {"b", "c", "f"}
    assert sorted(Path(problem.place).name for problem in report.damaged) == ["a.json", "d.json", "e.json"]
    assert all(problem.reason for problem in report.damaged)
    assert (tmp_path / "a.json").read_text() == '{"run_id"'


def test_wrong_calls_are_refused(store: Store, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="car, simple_agents"):
        formats.import_dir("temporal", tmp_path, store)
    with pytest.raises(InvalidInput, match="no directory"):
        formats.import_dir("car", tmp_path / "missing", store)
    with pytest.raises(RunNotFound):
        formats.export_run("car", store, "missing", tmp_path)
    store.save("plain", {"messages": []})
    for system in FOLDERS:
        with pytest.raises(InvalidInput):
            formats.export_run(system, store, "plain", tmp_path / system)
        assert not (tmp_path / system).exists()


@pytest.mark.parametrize("run_id", ["../../x", "/etc/x", "a/b"])
def test_a_hostile_id_leads_nowhere_on_export(store: Store, tmp_path: Path, run_id: str) -> None:
    store.save(run_id, paused(run_id))
    with pytest.raises(holdfast.errors.InvalidId):
        formats.export_run("car", store, run_id, tmp_path / "out")
    store.save("mine", scope(run_id), metadata={"file": "../../evil.json"})
    with pytest.raises(holdfast.errors.InvalidId):
        formats.export_run("simple_agents", store, "mine", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_export_replaces_nothing_unless_it_is_told_to(store: Store, tmp_path: Path) -> None:
    formats.import_dir("car", SAMPLES / "seed0-car", store)
    out = tmp_path / "out"
    shutil.copytree(SAMPLES / "seed0-car", out)
    formats.export_run("car", store, "run-1", out)
    car.Directory(out).save({**raw(out / "run-1.json"), "iterations": 9})
    with pytest.raises(Conflict, match=r"run-1\.json"):
        formats.export_run("car", store, "run-1", out)
    formats.export_run("car", store, "run-1", out, replace=True)
    assert raw(out / "run-1.json") == raw(SAMPLES / "seed0-car" / "run-1.json")
    (out / "weird.name.inflight").write_text("{}")
    with pytest.raises(Conflict, match="claimed"):
        formats.export_run("car", store, "weird.name", out)


def test_numbers_and_fields_no_other_program_knows_come_out_as_they_went_in(store: Store, tmp_path: Path) -> None:
    odd = paused(wf_state={"big": 2**200, "neg": -(2**70), "f": 1.0, "deep": [[[{"ü": None}]]]}, newer={"x": 1e300})
    (tmp_path / "run-1.json").write_text(json.dumps(odd).replace("1e+300", "0.12345678901234567890123"))
    before = (tmp_path / "run-1.json").read_text()
    there_and_back("car", tmp_path, store, tmp_path / "out")
    after = (tmp_path / "out" / "run-1.json").read_text()
    assert json.loads(after, parse_float=str) == json.loads(before, parse_float=str)


async def _in_a_loop(store: Store) -> None:
    formats.import_dir("car", SAMPLES / "seed0-car", store)


def test_inside_an_event_loop_it_is_refused(store: Store) -> None:
    with pytest.raises(holdfast.errors.BlockingCall):
        asyncio.run(_in_a_loop(store))
