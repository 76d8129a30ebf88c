"""Into ordinary runs and back: what each system's files become, and that they come out as they went in."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import App, Conflict, InvalidAnswer, InvalidInput, RunNotFound, Store, formats
from holdfast.formats import brainwires, car, clawdia, mur
from holdfast.formats.clawdia.places import segment
from tests.formats.making import EXECUTION, SAMPLES, before_step, covering, intent, outcome, paused, raw, record, scope

FOLDERS = {
    "car": "seed0-car",
    "simple_agents": "seed1-simple-agents",
    "brainwires": "seed2-brainwires",
    "mur": "seed3-mur/.mur/commander/checkpoints",
    "clawdia": "seed4-agent-sdk",
}
COUNTS = {"car": 3, "simple_agents": 1, "brainwires": 3, "mur": 1, "clawdia": 1}


@pytest.fixture(params=["memory", "sqlite", "dir"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    url = "memory:" if request.param == "memory" else f"{request.param}:{tmp_path / 'store'}"
    with holdfast.open(url) as opened:
        yield opened


@pytest.fixture
def app() -> Iterator[App]:
    with holdfast.open("memory:") as opened:
        yield App(opened)


def tree(place: Path) -> dict[str, Any]:
    """Every file of the original's, by its name, as JSON."""
    found: dict[str, Any] = {}
    for path in sorted(place.rglob("*")):
        name = str(path.relative_to(place))
        if path.is_file() and not name.startswith(".holdfast"):
            text = path.read_text("utf-8")
            found[name] = (
                [json.loads(line) for line in text.splitlines()] if name.endswith("ndjson") else json.loads(text)
            )
    return found


def there_and_back(system: str, place: Path, store: Store, target: Path) -> formats.Imported:
    report = formats.import_dir(system, place, store)
    for run_id in report.runs:
        formats.export_run(system, store, run_id, target)
    assert store.verify().problems == []
    return report


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


# --- CAR -------------------------------------------------------------------------------------------------------------


FIELDS = [
    {"name": "decision", "label": "What now?", "field_type": "select", "options": ["ship", "drop"], "required": True},
    {"name": "note", "field_type": "textarea"},
    {"name": "amount", "field_type": "number"},
]


def test_a_paused_workflow_appears_as_a_gate_that_can_be_answered(app: App, tmp_path: Path) -> None:
    car.Directory(tmp_path).save(paused(fields=FIELDS, wf_state={"draft": "…"}, completed_stage_ids=["draft"]))
    formats.import_dir("car", tmp_path, app.store)
    (gate,) = app.gates()
    assert (gate.run_id, gate.prompt, gate.state) == ("run-1", "approve?", "open")
    assert [(field.name, field.label, field.kind, field.required) for field in gate.form.fields] == [
        ("decision", "What now?", "choice", True),
        ("note", "Note", "text", False),
        ("amount", "Amount", "number", False),
    ]
    assert gate.show["state"] == {"draft": "…"}
    for wrong in ({}, {"decision": "keep"}, {"decision": "ship", "amount": "much"}):
        with pytest.raises(InvalidAnswer):
            app.answer("run-1", wrong, by="ana", here=False)
    answer = {"decision": "ship", "amount": 2.5, "extra": "as in CAR, more may be said"}
    app.answer("run-1", answer, by="ana", here=False)
    assert app.handle("run-1").status() == "ready"
    with pytest.raises(holdfast.AlreadyAnswered):
        app.answer("run-1", answer, by="ben", here=False)

    @app.workflow(name="car")
    def go_on(run: holdfast.Run, checkpoint: dict[str, Any]) -> Any:
        given = run.ask(checkpoint["prompt"], None)
        return {**checkpoint["wf_state"], checkpoint["output_key"]: given}

    assert app.resume("run-1").result() == {"draft": "…", "approval": answer}
    with pytest.raises(InvalidInput, match="has gone on"):
        formats.export_run("car", app.store, "run-1", tmp_path / "out")


def test_a_claimed_workflow_is_paused_until_somebody_resumes_it(app: App, tmp_path: Path) -> None:
    formats.import_dir("car", SAMPLES / "seed0-car", app.store)
    assert app.handle("run-2").status() == "paused"
    app.answer("run-2", {}, by="ana", here=False)
    assert app.handle("run-2").status() == "paused", "whoever claimed it may still be at it"
    app.workflow(lambda run, checkpoint: run.ask("", None), name="car")  # type: ignore[call-overload]


def test_of_a_claim_and_a_new_pause_only_the_pause_is_imported(app: App, tmp_path: Path) -> None:
    runs = car.Directory(tmp_path)
    runs.save(paused())
    runs.claim("run-1")
    runs.save(paused(iterations=2))
    report = formats.import_dir("car", tmp_path, app.store)
    assert (report.runs, report.existing, report.damaged) == (("run-1",), (), ())
    assert app.handle("run-1").status() == "waiting"
    runs.complete("run-1")
    car.Directory(tmp_path / "out").save(paused(iterations=3))
    with pytest.raises(Conflict, match="something else"):
        formats.export_run("car", app.store, "run-1", tmp_path / "out")


def test_finished_stages_are_in_the_journal(app: App, tmp_path: Path) -> None:
    result = {"stage_id": "s", "stage_name": "S", "status": "succeeded", "output": {"type": "x"}, "duration_ms": 1.5}
    car.Directory(tmp_path).save(paused(stage_results=[result]))
    formats.import_dir("car", tmp_path, app.store)
    assert [entry.kind for entry in app.store.journal("run-1")] == ["started", "stage", "asked"]
    found = app.store.load("run-1")
    assert found is not None
    assert (found.next_node, found.step) == ("gate", 1)
    assert found.created_at.isoformat() == "2026-08-18T09:41:07.123456+00:00"


# --- SimpleAgents ----------------------------------------------------------------------------------------------------


def test_a_checkpoint_of_simple_agents_is_a_run_at_its_step(store: Store) -> None:
    formats.import_dir("simple_agents", SAMPLES / "seed1-simple-agents", store)
    found = store.load("run-1")
    assert found is not None
    assert (found.step, found.next_node, store.runs()[0].workflow) == (3, "tool", "wf")
    assert found.state["scope_snapshot"]["input"]["big"] == 9007199254740993


def test_later_generations_of_simple_agents_come_along(app: App, tmp_path: Path) -> None:
    failed = {
        "workflow_path": "w.yaml", "failed_node_id": "llm", "completed_trace": ["a"], "completed_outputs": {"a": 1},
        "globals": {}, "original_messages": [], "step_timings": [], "token_totals": {"input_tokens": 1},
    }  # fmt: skip
    request = {"prompt": "Which?", "input_type": "choice", "options": [{"value": "x", "label": "An X"}, "y"]}
    asking = {"status": "awaiting_human_input", "outputs": {"a": 1}, "trace": ["a"], "human_request": request}
    for name, content in (("failed", failed), ("asking", asking)):
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
    before = tree(tmp_path)
    there_and_back("simple_agents", tmp_path, app.store, tmp_path / "out")
    assert tree(tmp_path / "out") == before
    (gate,) = app.gates()
    assert (gate.prompt, [choice.label for choice in gate.form.fields[0].choices]) == ("Which?", ["An X", "y"])
    with pytest.raises(InvalidAnswer):
        app.answer("asking", "z", by="ana", here=False)
    app.answer("asking", "x", by="ana", here=False)
    found = app.store.load("failed")
    assert found is not None
    assert found.next_node == "llm"


# --- Brainwires ------------------------------------------------------------------------------------------------------


def test_a_log_is_the_ledger_of_its_run(store: Store, tmp_path: Path) -> None:
    formats.import_dir("brainwires", SAMPLES / "seed2-brainwires", store)
    effects = store.effects("task-b")
    assert [(e.key, e.tool, e.target, e.reversible, e.state) for e in effects] == [
        ("use-1", "write_file", "src/main.rs", True, "done"),
        ("use-2", "send_mail", None, True, "done"),
    ]
    assert effects[0].created_at.timestamp() == 1794769251
    assert store.is_done("task-b", "use-1")
    assert not store.mark_done("task-b", "use-1")
    assert store.mark_done("task-b", "use-3", tool="pay", target="A-17", result=1)
    assert store.mark_intent("task-b", "use-4")
    (path,) = formats.export_run("brainwires", store, "task-b", tmp_path)
    found = brainwires.Directory(tmp_path).load_checkpoint("task-b")
    assert found is not None
    assert found["step_index"] == 3
    assert set(found["completed_tool_ids"]) == {"use-1", "use-2", "use-3"}, "what is in doubt is not done"
    last = found["side_effects_log"][-1]
    assert (last["tool_use_id"], last["tool_name"], last["target"], last["reversible"]) == (
        "use-3",
        "pay",
        "A-17",
        False,
    )
    assert path == tmp_path / "task-b.json"


def test_a_log_with_repeated_and_bare_marks_goes_in_and_out_as_it_is(store: Store, tmp_path: Path) -> None:
    odd = brainwires.new_checkpoint("task", "a")
    twice = brainwires.side_effect("use-1", "pay", "t" * 2000)
    odd |= {"completed_tool_ids": ["use-1", "bare"], "side_effects_log": [twice, {**twice, "x": 1}], "step_index": 2}
    (tmp_path / "task.json").write_text(json.dumps(odd))
    there_and_back("brainwires", tmp_path, store, tmp_path / "out")
    assert raw(tmp_path / "out" / "task.json") == odd
    assert [(effect.key, effect.target) for effect in store.effects("task")] == [("use-1", None), ("bare", None)]


def test_a_run_of_ours_can_become_a_task_of_theirs(store: Store, tmp_path: Path) -> None:
    store.mark_done("fresh", "use-1", tool="pay")
    formats.export_run("brainwires", store, "fresh", tmp_path)
    found = brainwires.Directory(tmp_path).load_checkpoint("fresh")
    assert found is not None
    assert (found["agent_id"], found["completed_tool_ids"]) == ("unknown", ["use-1"])


# --- MUR -------------------------------------------------------------------------------------------------------------


def test_an_execution_is_a_history_one_can_roll_back_in(app: App, tmp_path: Path) -> None:
    executions = mur.Directory(tmp_path / "in")
    for step in range(4):
        executions.save(before_step(step))
    formats.import_dir("mur", tmp_path / "in", app.store)
    assert [info.step for info in app.store.history(EXECUTION)] == [0, 1, 2, 3]
    found = app.store.load(EXECUTION, step=2)
    assert found is not None
    assert found.state == before_step(2)
    done: list[int] = []

    @app.workflow(name="mur")
    def deploy(run: holdfast.Run, first: dict[str, Any]) -> list[Any]:
        def perform(step: int) -> dict[str, Any]:
            done.append(step)
            return {"step_name": f"s{step}", "success": True, "output": "anew"}

        return [run.step(lambda step=step: perform(step), key=f"step {step}")["output"] for step in range(5)]

    assert app.rollback_plan(EXECUTION, to="step-2").calls == ("step 2",)
    app.rollback(EXECUTION, to="step-2")
    assert app.handle(EXECUTION).result() == ["ok", "ok", "anew", "anew", "anew"]
    assert done == [2, 3, 4], "steps before it were not done again"


def test_after_a_rollback_what_is_exported_ends_there(app: App, tmp_path: Path) -> None:
    executions = mur.Directory(tmp_path / "in")
    for step in range(4):
        executions.save(before_step(step))
    formats.import_dir("mur", tmp_path / "in", app.store)
    app.workflow(lambda run, first: run.ask("wait"), name="mur")  # type: ignore[call-overload]
    app.rollback(EXECUTION, to="step-1")
    formats.export_run("mur", app.store, EXECUTION, tmp_path / "out")
    assert mur.Directory(tmp_path / "out").steps(EXECUTION) == [0, 1]
    assert mur.Directory(tmp_path / "out").load_latest(EXECUTION) == before_step(1)


def test_good_steps_come_along_and_damaged_ones_are_listed(store: Store, tmp_path: Path) -> None:
    executions = mur.Directory(tmp_path / "in")
    for step in range(3):
        executions.save(before_step(step))
    torn = tmp_path / "in" / EXECUTION / "1.json"
    torn.write_text("{")
    report = formats.import_dir("mur", tmp_path / "in", store)
    assert report.runs == (EXECUTION,)
    assert [problem.place for problem in report.damaged] == [str(torn)]
    assert torn.read_text() == "{"
    assert [info.step for info in store.history(EXECUTION)] == [0, 2]


# --- Clawdia ---------------------------------------------------------------------------------------------------------


def test_a_journal_is_entries_with_checkpoints_that_cover_them(store: Store, tmp_path: Path) -> None:
    runs = clawdia.Directory(tmp_path / "in")
    for one in (record(1, "run"), intent(2, "mail"), outcome(3, "mail"), intent(6, "pay"), record(7, "odd_kind")):
        runs.append(one)
    for number in (1, 3, 7):
        runs.save(covering(number, number))
    there_and_back("clawdia", tmp_path / "in", store, tmp_path / "out")
    assert tree(tmp_path / "out") == tree(tmp_path / "in")
    entries = {entry.position: entry for entry in store.journal("run.a")}
    assert {at: entry.kind for at, entry in entries.items()} == {
        1: "run", 2: "effect_intent", 3: "effect_result", 4: "pruned", 6: "effect_intent", 7: "record",
    }  # fmt: skip
    assert entries[6]["record"] == intent(6, "pay")
    assert [(info.checkpoint_id, info.covers) for info in store.history("run.a")] == [
        ("checkpoint.1", 1), ("checkpoint.3", 3), ("checkpoint.7", 7),
    ]  # fmt: skip
    found = store.load("run.a", at="journal.6")
    assert found is not None
    assert found.state == covering(3, 3)
    assert [(effect.key, effect.state) for effect in store.effects("run.a")] == [("mail", "done"), ("pay", "in_doubt")]


@pytest.mark.parametrize(
    ("state", "status"),
    [("running", "paused"), ("completed", "completed"), ("terminal:failed", "failed"), ("Cancelled", "cancelled"),
     ("terminal", "completed")],
)  # fmt: skip
def test_a_run_that_ended_there_has_ended_here(store: Store, tmp_path: Path, state: str, status: str) -> None:
    clawdia.Directory(tmp_path).save(covering(1, loop_state=state), 1)
    formats.import_dir("clawdia", tmp_path, store)
    assert store.runs()[0].status == status


def test_a_torn_tail_and_a_broken_checkpoint_cost_nothing_else(store: Store, tmp_path: Path) -> None:
    runs = clawdia.Directory(tmp_path)
    runs.append(record(1))
    runs.save(covering(1))
    home = tmp_path / "runs" / segment("run.a")
    (home / "checkpoints" / "x.json").write_text("{")
    (home / "journal.ndjson").write_bytes((home / "journal.ndjson").read_bytes() + b'{"torn')
    (tmp_path / "runs" / "dead" / "checkpoints").mkdir(parents=True)
    (tmp_path / "runs" / "dead" / "checkpoints" / "y.json").write_text("")
    report = formats.import_dir("clawdia", tmp_path, store)
    assert report.runs == ("run.a",)
    assert sorted(Path(problem.place).name for problem in report.damaged) == ["dead", "x.json"]
    assert [entry.position for entry in store.journal("run.a")] == [1]


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
    with pytest.raises(holdfast.InvalidId):
        formats.export_run("car", store, run_id, tmp_path / "out")
    store.save("mine", scope(run_id), metadata={"file": "../../evil.json"})
    with pytest.raises(holdfast.InvalidId):
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
    with pytest.raises(holdfast.BlockingCall):
        asyncio.run(_in_a_loop(store))
