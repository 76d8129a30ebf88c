"""What the files of each system become: gates, effects, a history, entries with checkpoints that cover them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import App, Conflict, InvalidAnswer, InvalidInput, Store, formats
from holdfast.formats import brainwires, car, clawdia, mur
from holdfast.formats.clawdia.run_directory import segment
from tests.formats.converted import there_and_back, tree
from tests.formats.sample_files import EXECUTION, SAMPLES, before_step, covering, intent, outcome, paused, raw, record

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
            app.answer("run-1", wrong, by="ana", enqueue=True)
    answer = {"decision": "ship", "amount": 2.5, "extra": "as in CAR, more may be said"}
    app.answer("run-1", answer, by="ana", enqueue=True)
    assert app.handle("run-1").status() == "ready"
    with pytest.raises(holdfast.AlreadyAnswered):
        app.answer("run-1", answer, by="ben", enqueue=True)

    @app.workflow(name="car")
    def go_on(run: holdfast.Run, checkpoint: dict[str, Any]) -> Any:
        given = run.ask(checkpoint["prompt"], None)
        return {**checkpoint["wf_state"], checkpoint["output_key"]: given}

    assert app.resume("run-1").result() == {"draft": "…", "approval": answer}
    with pytest.raises(InvalidInput, match="has continued"):
        formats.export_run("car", app.store, "run-1", tmp_path / "out")


def test_a_claimed_workflow_is_paused_until_somebody_resumes_it(app: App, tmp_path: Path) -> None:
    formats.import_dir("car", SAMPLES / "seed0-car", app.store)
    assert app.handle("run-2").status() == "paused"
    app.answer("run-2", {}, by="ana", enqueue=True)
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
    with pytest.raises(Conflict, match="other content"):
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
        app.answer("asking", "z", by="ana", enqueue=True)
    app.answer("asking", "x", by="ana", enqueue=True)
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
    for one in (record(1, "run"), intent(2, "mail"), outcome(3, "mail"), intent(6, "pay"), record(7, "telemetry")):
        runs.append(one)
    for number in (1, 3, 7):
        runs.save(covering(number, number))
    there_and_back("clawdia", tmp_path / "in", store, tmp_path / "out")
    assert tree(tmp_path / "out") == tree(tmp_path / "in")
    entries = {entry.position: entry for entry in store.journal("run.a")}
    assert {at: entry.kind for at, entry in entries.items()} == {
        1: "run", 2: "effect_intent", 3: "effect_result", 4: "pruned", 6: "effect_intent", 7: "telemetry",
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


def test_two_files_of_one_task_are_not_taken_for_one_that_was_there(store: Store, tmp_path: Path) -> None:
    for name in ("täsk", "t_sk"):
        (tmp_path / f"{name}.json").write_text(json.dumps(brainwires.new_checkpoint("täsk", name)))
    report = formats.import_dir("brainwires", tmp_path, store)
    assert (report.runs, report.existing) == (("täsk",), ())
    assert [Path(problem.place).name for problem in report.damaged] == ["täsk.json"]
