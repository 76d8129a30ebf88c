"""Every public name of the engine has an example, and it runs."""

from __future__ import annotations

import inspect
import sqlite3
import textwrap
from pathlib import Path
from typing import Any

import pytest

import holdfast
import holdfast.graphs
import holdfast.testing
from holdfast.engine.effect_outcome import Happened
from holdfast.runtime.app_control import Controlling
from holdfast.runtime.async_app import AsyncApp, AsyncHandle
from holdfast.runtime.graph_workflows import Declaring
from tests.docs.test_documents import example_of

GRAPH_VERBS = ("load", "from_data", "as_data", "verify", "mermaid", "dry_run", "json_schema")


def public(cls: type) -> list[str]:
    """The names a class offers."""
    return [name for name, value in vars(cls).items() if not name.startswith("_") and callable(value)]


def prepared() -> dict[str, Any]:
    """An app with what the examples speak of."""
    app = holdfast.App("memory:")

    @app.workflow
    def refund(run: Any, order: str) -> str:
        answer = run.ask("Refund?", {"approve": bool})
        return f"{order}: {answer['approve']}"

    @app.workflow
    def greet(run: Any, name: str) -> str:
        return str(run.step(str.upper, name))

    @app.workflow
    def triage(run: Any, ticket: str) -> int:
        return len(ticket)

    app.start(refund, "A-17", run_id="order-17")
    app.start(refund, "B", run_id="order-20")
    handle = app.handle("order-17")
    return {"holdfast": holdfast, "app": app, "refund": refund, "greet": greet, "handle": handle}


@pytest.mark.parametrize("name", [*public(holdfast.App), *public(Controlling)])
def test_every_verb_of_an_app_has_an_example_and_it_runs(name: str, tmp_path: Path, monkeypatch: Any) -> None:
    if name == "close":
        return
    names = prepared() if name != "workflow" else {"app": holdfast.App("memory:")}
    run_example(getattr(holdfast.App, name), names, tmp_path, monkeypatch)


@pytest.mark.parametrize("name", public(Declaring))
def test_every_verb_about_declared_workflows_has_an_example_and_it_runs(
    name: str, tmp_path: Path, monkeypatch: Any
) -> None:
    run_example(getattr(holdfast.App, name), prepared(), tmp_path, monkeypatch)


@pytest.mark.parametrize("name", [name for name in vars(holdfast.Graph) if name in GRAPH_VERBS])
def test_every_verb_of_a_graph_has_an_example_and_it_runs(name: str, tmp_path: Path, monkeypatch: Any) -> None:
    stages = [{"type": "set", "id": "hello", "values": {"text": "Hello {{ input.name }}"}}]
    names = {**prepared(), "graph": holdfast.Graph.from_data({"id": "greet-2", "stages": stages}), "Path": Path}
    run_example(getattr(holdfast.Graph, name), names, tmp_path, monkeypatch)


def test_the_parts_of_a_graph_have_examples_that_run(tmp_path: Path, monkeypatch: Any) -> None:
    names = {"app": holdfast.App("memory:"), "holdfast": holdfast, **vars(holdfast.graphs)}
    for thing in (holdfast.graphs, holdfast.Graph, holdfast.graphs.Condition, holdfast.graphs.Edge):
        run_example(thing, names, tmp_path, monkeypatch)


@pytest.mark.parametrize("name", public(holdfast.Handle))
def test_every_verb_of_a_handle_has_an_example_and_it_runs(name: str, tmp_path: Path, monkeypatch: Any) -> None:
    run_example(getattr(holdfast.Handle, name), prepared(), tmp_path, monkeypatch)


@pytest.mark.parametrize("thing", [holdfast, holdfast.App, holdfast.Handle, holdfast.Worker, holdfast.Retry, Happened,
                                   holdfast.Run, holdfast.AsyncRun, holdfast.testing.replay],
                         ids=lambda thing: thing.__name__)  # fmt: skip
def test_what_else_is_public_has_an_example_and_it_runs(thing: Any, tmp_path: Path, monkeypatch: Any) -> None:
    names = {**prepared(), "Retry": holdfast.Retry, "Happened": Happened}
    if thing in (holdfast.Run, holdfast.AsyncRun):
        names["app"] = holdfast.App("memory:")
    run_example(thing, names, tmp_path, monkeypatch)


@pytest.mark.parametrize("name", public(holdfast.Run))
def test_every_call_of_a_run_has_an_example_and_it_runs(name: str, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    names = prepared()
    example = example_of(getattr(holdfast.Run, name))
    assert example.strip(), f"Run.{name} has no example"
    source = "def flow(run):\n" + textwrap.indent(example, "    ")
    exec(compile(source, name, "exec"), {**names, "sqlite3": sqlite3}, names)
    handle = names["app"].start(names["app"].workflow(names["flow"]), run_id="example")
    assert handle.status() in ("completed", "waiting"), handle.result()


def test_what_is_awaited_has_the_names_and_arguments_of_what_blocks() -> None:
    pairs: list[tuple[type, type]] = [
        (holdfast.App, AsyncApp), (holdfast.Handle, AsyncHandle), (holdfast.Run, holdfast.AsyncRun)
    ]  # fmt: skip
    apart = {"workflow", "undo", "upgrade", "knows", "worker", "close", "aio", "function", "graph", "registry"}
    for blocking, awaiting in pairs:
        names = {name for cls in blocking.__mro__[:3] for name in public(cls)} - apart
        assert names == set(public(awaiting)) - apart
        for name in names:
            theirs = list(inspect.signature(getattr(blocking, name)).parameters)
            assert list(inspect.signature(getattr(awaiting, name)).parameters) == theirs, name


def run_example(thing: Any, names: dict[str, Any], tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    example = example_of(thing)
    assert example.strip(), f"{thing} has no example"
    exec(compile(example, str(thing), "exec"), names)
