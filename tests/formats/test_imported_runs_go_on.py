"""Imported SimpleAgents and Brainwires runs are continued here, from where the originals would resume."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import App, formats
from holdfast.errors import InvalidInput, ResultLost
from holdfast.formats import brainwires, car, mur, simple_agents
from holdfast.inspect.timeline import timeline
from tests.cli.processes import command
from tests.formats.sample_files import SAMPLES, paused

GRAPH: dict[str, Any] = {
    "id": "wf", "start": "begin", "max_iterations": 10,
    "stages": [
        {"id": "begin", "type": "call", "function": "begin"},
        {"id": "tool", "type": "call", "function": "tool", "with": {"seen": "{{ stage.begin.answer.found }}"}},
        {"id": "end", "type": "end", "result": {"tool": "{{ stage.tool.answer }}", "for": "{{ input.k }}"}},
    ],
    "edges": [{"from": "begin", "to": "tool"}, {"from": "tool", "to": "end"}],
}  # fmt: skip
CHECKPOINT: dict[str, Any] = {
    "run_id": "s-1", "workflow_name": "wf", "step": 3, "next_node_id": "tool",
    "scope_snapshot": {"input": {"k": "v"}, "node_outputs": {"begin": {"found": 7}}, "last_llm_output": "hm"},
}  # fmt: skip
FAILED: dict[str, Any] = {
    "workflow_path": "flows/wf.yaml", "failed_node_id": "tool", "completed_trace": ["begin"],
    "completed_outputs": {"begin": {"found": 7}}, "globals": {"lang": "en"}, "original_messages": [{"role": "user"}],
    "step_timings": [], "token_totals": {},
}  # fmt: skip


@pytest.fixture(params=["memory:", "sqlite:runs.db"])
def app(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[App]:
    monkeypatch.chdir(tmp_path)
    with App(request.param) as app:
        yield app


def _simple_agents(app: App, *checkpoints: dict[str, Any]) -> None:
    with closing(simple_agents.Directory("simple")) as directory:
        for checkpoint in checkpoints:
            directory.save(checkpoint)
    assert formats.import_dir("simple_agents", "simple", app.store).runs


def _functions(app: App) -> list[Any]:
    calls: list[Any] = []

    def begin() -> dict[str, Any]:
        calls.append("begin")
        return {"found": 0}

    def tool(seen: Any) -> str:
        calls.append(("tool", seen))
        return f"used {seen}"

    app.function(begin)
    app.function(tool)
    return calls


def test_a_graph_continues_at_the_next_node_with_the_whole_scope(app: App) -> None:
    _simple_agents(app, CHECKPOINT)
    calls = _functions(app)
    app.graph(GRAPH)
    app.resume("s-1")
    assert app.handle("s-1").result() == {"tool": "used 7", "for": "v"}
    assert calls == [("tool", 7)], "what was done before is not done again"


def test_the_number_of_stages_done_counts_on(app: App) -> None:
    _simple_agents(app, {**CHECKPOINT, "step": 10})
    _functions(app)
    app.graph(GRAPH)
    app.resume("s-1")
    with pytest.raises(holdfast.RunFailed, match="max_iterations"):
        app.handle("s-1").result()


def test_a_workflow_of_code_gets_where_to_continue(app: App) -> None:
    _simple_agents(app, CHECKPOINT)
    seen: list[Any] = []

    @app.workflow(name="wf")
    def wf(run: holdfast.Run, given: dict[str, Any], *, resume: dict[str, Any] | None = None) -> str:
        seen.append((given, resume))
        return str(run.step(lambda: "did the rest", name="rest"))

    app.resume("s-1")
    assert app.handle("s-1").result() == "did the rest"
    assert seen == [({"k": "v"}, {"at": "tool", "step": 3, "scope": CHECKPOINT["scope_snapshot"]})]
    assert app.start(wf, {"k": "new"}).result() == "did the rest"
    assert seen[-1] == ({"k": "new"}, None)


def test_a_workflow_that_cannot_continue_does_not_begin_anew(app: App) -> None:
    _simple_agents(app, CHECKPOINT)
    calls: list[Any] = []

    @app.workflow(name="wf")
    def wf(run: holdfast.Run, given: dict[str, Any]) -> None:
        calls.append(given)

    app.resume("s-1")
    with pytest.raises(holdfast.HoldfastError, match="resume"):
        app.handle("s-1").result()
    assert not calls


def test_a_graph_without_the_node_pauses_the_run(app: App) -> None:
    _simple_agents(app, {**CHECKPOINT, "next_node_id": "gone"})
    calls = _functions(app)
    app.graph(GRAPH)
    with pytest.raises(holdfast.errors.RunError, match="'gone'"):
        app.resume("s-1")
    assert app.handle("s-1").info().status == "paused"
    assert not calls


def test_the_second_generation_continues_at_the_failed_node(app: App) -> None:
    Path("simple").mkdir()
    (Path("simple") / "f-1.json").write_bytes(formats.schema.write_json(FAILED))
    formats.import_dir("simple_agents", "simple", app.store)
    calls = _functions(app)
    app.graph({**GRAPH, "stages": [*GRAPH["stages"][:2], {"id": "end", "type": "end"}]})
    app.resume("f-1")
    result = app.handle("f-1").result()
    assert calls == [("tool", 7)]
    assert result["globals"] == {"lang": "en"}
    assert result["input"] == {"messages": [{"role": "user"}]}


def test_a_run_that_went_on_here_is_not_exported(app: App) -> None:
    _simple_agents(app, CHECKPOINT)
    _functions(app)
    app.graph(GRAPH)
    formats.export_run("simple_agents", app.store, "s-1", "before")
    app.resume("s-1")
    app.handle("s-1").result()
    with pytest.raises(InvalidInput, match="has continued in Holdfast"):
        formats.export_run("simple_agents", app.store, "s-1", "after")


def test_a_graph_is_not_started_at_a_node_of_ones_own(app: App) -> None:
    _functions(app)
    app.graph(GRAPH)
    with pytest.raises(InvalidInput, match="resume="):
        app.start("wf", {"k": 1}, resume={"at": "tool", "step": 0, "scope": {}})


# --- Brainwires ------------------------------------------------------------------------------------------------------


@dataclass
class Receipt:
    number: int


def _task(app: App) -> None:
    with closing(brainwires.Directory("tasks")) as tasks:
        effect = brainwires.side_effect("use-1", "send_mail", "ana@example.org")
        tasks.mark_step_complete("task-a", "use-1", effect)
    assert formats.import_dir("brainwires", "tasks", app.store).runs == ("task-a",)


def test_a_task_continues_without_repeating_what_is_marked(app: App) -> None:
    _task(app)
    sent: list[str] = []

    @app.workflow(name="brainwires")
    def agent(run: holdfast.Run, checkpoint: dict[str, Any]) -> list[Any]:
        done = [run.effect(sent.append, use, key=use) for use in ("use-1", "use-2")]
        return [checkpoint["task_id"], *done]

    app.resume("task-a")
    assert app.handle("task-a").result() == ["task-a", None, None]
    assert sent == ["use-2"]
    formats.export_run("brainwires", app.store, "task-a", "tasks", replace=True)
    with closing(brainwires.Directory("tasks")) as tasks:
        found = tasks.load_checkpoint("task-a")
    assert found is not None
    assert found["completed_tool_ids"] == ["use-1", "use-2"]


def test_a_typed_result_that_the_original_did_not_keep_is_called_lost(app: App) -> None:
    _task(app)
    sent: list[str] = []

    def send(to: str) -> Receipt:
        sent.append(to)
        return Receipt(len(sent))

    @app.workflow(name="brainwires")
    def agent(run: holdfast.Run, checkpoint: dict[str, Any]) -> str:
        try:
            run.effect(send, "ana", key="use-1")
        except ResultLost:
            return "it was done"
        return "?"

    app.resume("task-a")
    assert app.handle("task-a").result() == "it was done"
    assert not sent


def test_a_task_continues_in_an_async_workflow(app: App) -> None:
    _task(app)
    sent: list[str] = []

    async def send(use: str) -> str:
        sent.append(use)
        return use

    @app.workflow(name="brainwires")
    async def agent(run: holdfast.AsyncRun, checkpoint: dict[str, Any]) -> list[Any]:
        return [await run.effect(send, use, key=use) for use in ("use-1", "use-2")]

    async def resumed() -> Any:
        return await (await app.aio.resume("task-a")).result()

    assert asyncio.run(resumed()) == [None, "use-2"]
    assert sent == ["use-2"]


def test_an_effect_marked_by_hand_is_not_performed(app: App) -> None:
    """What `store.mark_done` says of a run's effect counts, with its result."""
    sent: list[str] = []

    @app.workflow
    def wf(run: holdfast.Run) -> Any:
        run.ask("go?", bool)
        return run.effect(sent.append, "x", key="k")

    app.start(wf, run_id="r")
    app.store.mark_done("r", "k", result={"by": "hand"})
    assert app.answer("r", True).result() == {"by": "hand"}
    assert not sent


@pytest.mark.parametrize("how", ["fork", "copy"])
def test_a_fork_or_copy_does_not_repeat_what_was_marked_by_hand(app: App, how: str) -> None:
    sent: list[str] = []

    @app.workflow
    def wf(run: holdfast.Run) -> Any:
        run.ask("go?", bool)
        return run.effect(sent.append, "x", key="k")

    app.start(wf, run_id="r")
    if how == "fork":
        app.fork("r", "other", at="ask#1")
    app.store.mark_done("r", "k", result={"by": "hand"})
    if how == "copy":
        app.store.copy("r", "other")
    assert app.answer("other", True).result() == {"by": "hand"}
    assert not sent


def test_a_fork_asks_about_what_was_begun_by_hand(app: App) -> None:
    sent: list[str] = []

    @app.workflow
    def wf(run: holdfast.Run) -> Any:
        run.ask("go?", bool)
        return run.effect(sent.append, "x", key="k")

    app.start(wf, run_id="r")
    app.fork("r", "other", at="ask#1")
    app.store.mark_intent("r", "k")
    app.answer("other", True)
    assert [gate.purpose for gate in app.gates("other")] == ["in_doubt"]
    assert not sent


def test_a_fork_of_an_imported_task_does_not_repeat_what_is_marked(app: App) -> None:
    _task(app)
    sent: list[str] = []

    @app.workflow(name="brainwires")
    def agent(run: holdfast.Run, checkpoint: dict[str, Any]) -> str:
        run.ask("go?", bool)
        run.effect(sent.append, "use-1", key="use-1")
        return "done"

    app.resume("task-a")
    app.fork("task-a", "fork", at="ask#1")
    assert app.answer("fork", True).result() == "done"
    assert not sent


# --- what `show` advises ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("system", ["simple_agents", "brainwires", "mur", "clawdia"])
def test_show_advises_no_command_that_fails(system: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = {"simple_agents": "seed1-simple-agents", "brainwires": "seed2-brainwires", "mur": "seed3-mur",
             "clawdia": "seed4-agent-sdk"}  # fmt: skip
    Path("flows.py").write_text(
        "import holdfast\napp = holdfast.App('sqlite:runs.db')\n"
        "for name in ('wf', 'brainwires', 'clawdia'):\n"
        "    app.workflow(name=name)(lambda run, *args, resume=None: 'went on')\n"
    )
    with holdfast.open("sqlite:runs.db") as store:
        formats.import_dir(system, SAMPLES / names[system], store)
        advice = [(run.run_id, timeline(store, run.run_id).standing.commands) for run in store.runs()]
    assert advice
    for run_id, commands in advice:
        for words in commands:
            done = command(*words[1:], "--store", "sqlite:runs.db", "--app", "flows:app", cwd=tmp_path)
            assert done.code == 0, (run_id, words, done.err)


def test_a_run_without_a_workflow_is_not_made_ready(app: App) -> None:
    """No worker could take it, and whoever saves it finds it as it was."""
    app.store.save("mine", {"n": 1}, status="paused")
    with pytest.raises(holdfast.errors.RunError, match="was not started by a workflow"):
        app.resume("mine")
    assert app.handle("mine").info().status == "paused"


# --- modes -----------------------------------------------------------------------------------------------------------


def _mode(path: str | Path) -> int:
    return stat.S_IMODE(os.stat(path).st_mode)


def test_a_file_that_is_written_again_keeps_its_mode(tmp_path: Path) -> None:
    with closing(simple_agents.Directory(tmp_path)) as directory:
        directory.save(CHECKPOINT)
        assert _mode(tmp_path / "s-1.json") == 0o600
        os.chmod(tmp_path / "s-1.json", 0o640)
        directory.save({**CHECKPOINT, "step": 4})
    assert _mode(tmp_path / "s-1.json") == 0o640


def test_a_marked_task_keeps_its_mode(tmp_path: Path) -> None:
    with closing(brainwires.Directory(tmp_path)) as tasks:
        effect = brainwires.side_effect("use-1", "send_mail", None)
        tasks.mark_step_complete("task-a", "use-1", effect)
        os.chmod(tmp_path / "task-a.json", 0o664)
        tasks.mark_step_complete("task-a", "use-2", effect | {"tool_use_id": "use-2"})
    assert _mode(tmp_path / "task-a.json") == 0o664


def test_a_claimed_run_that_pauses_again_keeps_its_mode(tmp_path: Path) -> None:
    with car.Directory(tmp_path) as runs:
        runs.save(paused())
        os.chmod(tmp_path / "run-1.json", 0o640)
        claimed = runs.claim("run-1")
        assert claimed is not None
        runs.save({**claimed, "iterations": 9}, claimed=claimed)
        runs.complete(claimed)
    assert _mode(tmp_path / "run-1.json") == 0o640


def test_a_step_that_is_saved_again_keeps_its_mode(tmp_path: Path) -> None:
    execution = "6f1f1a7e-2f0b-4c3e-9a55-0f6d2b1c7d10"
    with closing(mur.Directory(tmp_path)) as executions:
        executions.save(mur.new_checkpoint(execution, 0, {}, []))
        path = tmp_path / execution / "0.json"
        os.chmod(path, 0o640)
        executions.save(mur.new_checkpoint(execution, 0, {"again": "yes"}, []))
    assert _mode(path) == 0o640
