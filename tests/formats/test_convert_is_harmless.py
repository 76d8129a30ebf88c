"""Importing and exporting do no harm: not to the store, not to what is held, not to what was done there since."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

import holdfast
from holdfast import App, Conflict, InvalidAnswer, InvalidInput, Store, formats
from holdfast.errors import InvalidId, NameTaken
from holdfast.formats import brainwires, car, clawdia, mur
from holdfast.formats.convert.car_converter import CarConverter
from holdfast.formats.convert.run_parts import entry
from tests.formats.converted import there_and_back, tree
from tests.formats.sample_files import EXECUTION, before_step, covering, ending, paused, raw, record, scope


def task(task_id: str, *tool_use_ids: str, **more: Any) -> dict[str, Any]:
    log = [{**brainwires.side_effect(name, "m"), **more} for name in tool_use_ids]
    return {
        **brainwires.new_checkpoint(task_id, "a"),
        "completed_tool_ids": list(tool_use_ids),
        "side_effects_log": log,
        "step_index": len(log),
    }


def put(path: Path, content: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))


# --- into the store --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [5, None, "pruned", "step", "started", {"a": 1}, "x\ny"])
def test_a_field_named_kind_in_a_foreign_record_is_not_the_entrys_kind(
    store: Store, tmp_path: Path, kind: object
) -> None:
    for name in ("a", "t", "z"):
        put(tmp_path / "in" / f"{name}.json", task(name, "u", **({"kind": kind} if name == "t" else {})))
    report = there_and_back("brainwires", tmp_path / "in", store, tmp_path / "out")
    assert (set(report.runs), report.damaged) == ({"a", "t", "z"}, ())
    assert [found.kind for found in store.journal("t")] == ["started", "side_effect"]
    assert store.is_done("t", "u")
    assert tree(tmp_path / "out") == tree(tmp_path / "in")


@pytest.mark.parametrize("kind", [5, None, "", "pruned", "step", "started", "asked"])
def test_an_imported_entry_is_of_no_kind_that_the_engine_reads(store: Store, kind: object) -> None:
    with pytest.raises(InvalidInput):
        entry(store.access.core, {"kind": kind})


def test_another_run_of_the_same_id_is_not_passed_off_as_imported(store: Store, tmp_path: Path) -> None:
    car.Directory(tmp_path).save(paused())
    store.save("run-1", {"unrelated": 1})
    report = formats.import_dir("car", tmp_path, store)
    assert (report.runs, report.existing) == ((), ())
    assert [problem.place for problem in report.damaged] == [str(tmp_path / "run-1.json")]


@pytest.mark.parametrize(
    ("loop_state", "status"),
    [
        ("terminal:timed_out", "failed"), ("terminal:error", "failed"), ("terminal:cancelled", "cancelled"),
        ("terminal", "completed"), ("Completed", "completed"), ("running", "paused"),
    ],
)  # fmt: skip
def test_a_run_that_ended_badly_is_not_imported_as_completed(
    store: Store, tmp_path: Path, loop_state: str, status: str
) -> None:
    clawdia.Directory(tmp_path).save(covering(0, loop_state=loop_state), 0)
    formats.import_dir("clawdia", tmp_path, store)
    assert store.runs()[0].status == status


@pytest.mark.parametrize(("said", "status"), [("failed", "failed"), ("completed", "completed"), ("lost", "failed")])
def test_a_run_whose_journal_says_that_it_ended_has_ended(store: Store, tmp_path: Path, said: str, status: str) -> None:
    runs = clawdia.Directory(tmp_path)
    runs.append(record(1))
    runs.append(ending(2, said))
    runs.save(covering(1))
    formats.import_dir("clawdia", tmp_path, store)
    assert store.runs()[0].status == status


def test_gates_take_what_car_takes(app: App, tmp_path: Path) -> None:
    fields = [
        {"name": "cfg", "field_type": "json"},
        {"name": "tags", "field_type": "multi_select", "options": ["a", "b"]},
        {"name": "other", "field_type": "hologram"},
    ]
    for name in ("one", "two"):
        car.Directory(tmp_path).save(paused(name, fields=fields))
    formats.import_dir("car", tmp_path, app.store)
    for wrong in ({"tags": ["c"]}, {"tags": "a"}):
        with pytest.raises(InvalidAnswer):
            app.answer("one", wrong, by="ana", enqueue=True)
    app.answer("one", {"cfg": {"a": [1]}, "tags": ["a", "b"], "other": {"x": 1}}, by="ana", enqueue=True)
    app.answer("two", {"cfg": 5, "tags": [], "other": "text"}, by="ana", enqueue=True)


# --- equal JSON ------------------------------------------------------------------------------------------------------


def test_what_a_file_leaves_out_or_writes_out_comes_back_so(store: Store, tmp_path: Path) -> None:
    short = {name: value for name, value in paused("q").items() if name not in ("wf_state", "fields")}
    put(tmp_path / "car" / "q.json", short)
    put(tmp_path / "mur" / EXECUTION / "0.json", before_step(0))
    put(tmp_path / "mur" / EXECUTION / "1.json", before_step(1, execution=EXECUTION.upper()))
    odd = covering(0, turn_id=None, pending_approvals=[])
    put(tmp_path / "clawdia" / "runs" / "run.a" / "checkpoints" / f"{0:020}-checkpoint.1.json", odd)
    put(tmp_path / "brainwires" / "t.json", {**task("t", "u"), "completed_tool_ids": ["u", "u"]})
    for system in ("car", "mur", "clawdia", "brainwires"):
        there_and_back(system, tmp_path / system, store, tmp_path / "out" / system)
        assert tree(tmp_path / "out" / system) == tree(tmp_path / system)
        for run in store.runs():
            if run.metadata["format"] == system:
                formats.export_run(system, store, run.run_id, tmp_path / system)


# --- what is held, and what has gone on ------------------------------------------------------------------------------


def test_a_claim_made_while_an_export_is_under_way_is_respected(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = car.Directory(tmp_path)
    runs.save(paused())
    formats.import_dir("car", tmp_path, store)
    files = CarConverter.files

    def claiming(self: CarConverter, *given: Any) -> Any:
        found = files(self, *given)
        assert runs.claim("run-1") is not None
        return found

    monkeypatch.setattr(CarConverter, "files", claiming)
    with pytest.raises(Conflict, match="claimed"):
        formats.export_run("car", store, "run-1", tmp_path)
    assert not (tmp_path / "run-1.json").exists()


def test_nothing_is_taken_from_a_claimant_that_lives(store: Store, tmp_path: Path) -> None:
    runs = car.Directory(tmp_path)
    runs.save(paused())
    claimed = runs.claim("run-1")
    formats.import_dir("car", tmp_path, store)
    formats.export_run("car", store, "run-1", tmp_path, replace=True)  # it says the same, and is left
    assert car.Directory(tmp_path).recover_orphaned() == 0
    store.save("run-1", paused(iterations=2))
    with pytest.raises(Conflict, match="a live process"):
        formats.export_run("car", store, "run-1", tmp_path, replace=True)
    assert claimed is not None
    runs.complete(claimed)
    assert list(tmp_path.glob("run-1*")) == []


def test_an_ended_run_is_not_exported_as_one_that_waits(app: App, tmp_path: Path) -> None:
    car.Directory(tmp_path).save(paused())
    formats.import_dir("car", tmp_path, app.store)
    app.workflow(lambda run, checkpoint: run.ask(checkpoint["prompt"], None), name="car")  # type: ignore[call-overload]
    app.cancel("run-1")
    with pytest.raises(InvalidInput, match="cancelled"):
        formats.export_run("car", app.store, "run-1", tmp_path / "out")


def rolled_back(app: App, place: Path, *, goes_on: bool) -> None:
    executions = mur.Directory(place)
    for step in range(3):
        executions.save(before_step(step))
    formats.import_dir("mur", place, app.store)

    @app.workflow(name="mur")
    def steps(run: holdfast.Run, checkpoint: dict[str, Any]) -> Any:
        run.step(dict, key="step 0")
        run.ask("shall it go on?", None)
        run.step(lambda: {"step_name": "new"}, key="step 1")
        return run.ask("and now?", None)

    assert app.rollback(EXECUTION, to="step-1").status() == "waiting"
    if goes_on:
        assert app.answer(EXECUTION, True, by="ana").status() == "waiting"


def test_a_rollback_takes_effect_where_it_is_exported_to(app: App, tmp_path: Path) -> None:
    rolled_back(app, tmp_path, goes_on=False)
    before = tree(tmp_path)
    with pytest.raises(Conflict, match="aside"):
        formats.export_run("mur", app.store, EXECUTION, tmp_path)
    assert tree(tmp_path) == before
    formats.export_run("mur", app.store, EXECUTION, tmp_path, replace=True)
    assert mur.Directory(tmp_path).steps(EXECUTION) == [0, 1]
    assert [raw(path) for path in tmp_path.rglob("rolled_back/*/*/2.json")] == [before_step(2)]


def test_an_execution_that_has_gone_on_here_is_not_exported_as_it_was(app: App, tmp_path: Path) -> None:
    rolled_back(app, tmp_path, goes_on=True)
    with pytest.raises(InvalidInput, match="has continued"):
        formats.export_run("mur", app.store, EXECUTION, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_marks_made_there_since_are_kept_by_an_export(store: Store, tmp_path: Path) -> None:
    tasks = brainwires.Directory(tmp_path)
    tasks.save_checkpoint({**task("t", "u1"), "more": 1})
    formats.import_dir("brainwires", tmp_path, store)
    tasks.mark_step_complete("t", "u2", brainwires.side_effect("u2", "m"), result=1)
    store.mark_done("t", "u3", tool="m")
    with pytest.raises(Conflict):
        formats.export_run("brainwires", store, "t", tmp_path)
    formats.export_run("brainwires", store, "t", tmp_path, replace=True)
    found = tasks.load_checkpoint("t")
    assert found is not None
    assert sorted(found["completed_tool_ids"]) == ["u1", "u2", "u3"]
    assert sorted(line["tool_use_id"] for line in found["side_effects_log"]) == ["u1", "u2", "u3"]
    assert (found["step_index"], found["more"], tasks.result("t", "u2")) == (3, 1, 1)
    formats.export_run("brainwires", store, "t", tmp_path, replace=True)
    assert tasks.load_checkpoint("t") == found


def test_another_tasks_file_is_not_replaced(store: Store, tmp_path: Path) -> None:
    store.save("a/b", task("a/b"))
    put(tmp_path / "a_b.json", task("a_b"))
    with pytest.raises(NameTaken):
        formats.export_run("brainwires", store, "a/b", tmp_path, replace=True)
    assert raw(tmp_path / "a_b.json")["task_id"] == "a_b"


@pytest.mark.parametrize(
    ("system", "state"),
    [
        ("car", paused("original")), ("simple_agents", scope("original")), ("brainwires", task("original")),
        ("clawdia", covering(0, run_id="original")),
    ],
)  # fmt: skip
def test_a_fork_is_not_written_over_the_file_of_its_original(
    store: Store, tmp_path: Path, system: str, state: dict[str, Any]
) -> None:
    store.save("copy", state)
    with pytest.raises(InvalidInput, match="original"):
        formats.export_run(system, store, "copy", tmp_path / "out")
    assert not (tmp_path / "out").exists()


# --- wrong calls -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", [{"x": 1}, {"completed_tool_ids": 5}, {**task("t"), "step_index": "1"}, [1]])
def test_an_ordinary_run_with_effects_is_no_task(store: Store, tmp_path: Path, state: Any) -> None:
    store.save("t", state)
    store.mark_done("t", "u", tool="m")
    with pytest.raises(InvalidInput):
        formats.export_run("brainwires", store, "t", tmp_path / "out")


def test_calls_with_the_wrong_things_are_refused(app: App, tmp_path: Path) -> None:
    store, wrong = app.store, cast(Any, app)
    runs = car.Directory(tmp_path)
    runs.save(paused())
    claimed = runs.claim("run-1")
    calls: list[Callable[[], object]] = [
        lambda: runs.save(paused(), claimed=cast(Any, dict(claimed or {}))),
        lambda: formats.import_dir("car", tmp_path, wrong),
        lambda: formats.export_run("car", wrong, "run-1", tmp_path),
        lambda: formats.import_dir("car", cast(Any, None), store),
        lambda: formats.import_dir("car", cast(Any, b"/tmp"), store),
        lambda: formats.import_dir("car", "a\0b", store),
        lambda: formats.import_dir("car", tmp_path, store, progress=cast(Any, 5)),
        lambda: formats.export_run("car", store, "run-1", cast(Any, None)),
        lambda: car.Directory(cast(Any, 5)),
    ]
    for call in calls:
        with pytest.raises(InvalidInput):
            call()
    with pytest.raises(InvalidId):
        brainwires.Memory().result(cast(Any, []), "u")
