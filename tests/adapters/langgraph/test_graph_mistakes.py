"""Mistakes with `run_graph`, and a missing extra: each has an error that says what to do."""

from __future__ import annotations

import subprocess
import sys
from typing import Any, TypedDict

import pytest
from langgraph.graph import END, START, StateGraph
from langgraph.types import interrupt

import holdfast
from holdfast.adapters.langgraph import HoldfastSaver, run_graph


class State(TypedDict):
    answer: str


def ask(_: State) -> State:
    return {"answer": interrupt("Pay?")}


def make_builder() -> Any:
    builder: Any = StateGraph(State)
    builder.add_node("ask", ask)
    builder.add_edge(START, "ask")
    builder.add_edge("ask", END)
    return builder


def fail_with(work: Any) -> str:
    with holdfast.App("memory:") as app:
        app.workflow(name="work")(work)
        handle = app.start("work", run_id="r")
        with pytest.raises(holdfast.RunFailed) as failed:
            handle.result()
    return str(failed.value)


def test_a_guarded_graph_runs_inside_a_workflow() -> None:
    saver = HoldfastSaver("memory:")
    graph = saver.guard(make_builder().compile(checkpointer=saver))
    with holdfast.App(saver.store) as app:

        @app.workflow
        async def work(run: holdfast.AsyncRun) -> Any:
            return (await run_graph(run, graph, {"answer": ""}))["answer"]

        app.start(work, run_id="r")
        assert app.answer("r", "yes").result() == "yes"


def test_a_graph_that_is_not_awaited_fails_the_run() -> None:
    graph = make_builder().compile(checkpointer=HoldfastSaver("memory:"))
    begin: Any = run_graph

    async def work(run: holdfast.AsyncRun) -> str:
        begin(run, graph, {"answer": ""})
        return "done"

    assert "await is missing before run_graph('LangGraph')" in fail_with(work)


def test_a_workflow_that_is_not_async_is_refused() -> None:
    graph = make_builder().compile(checkpointer=HoldfastSaver("memory:"))
    assert "run_graph needs an `async def` workflow" in fail_with(lambda run: run_graph(run, graph, {"answer": ""}))


def test_a_graph_that_is_not_compiled_is_refused() -> None:
    async def work(run: holdfast.AsyncRun) -> Any:
        return await run_graph(run, make_builder(), {"answer": ""})

    assert "needs a compiled graph, not StateGraph; call compile(checkpointer=saver)" in fail_with(work)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"prompt": "Pay?", "feelds": {}}, "the unknown option 'feelds'; it may return prompt, fields, approvals"),
        ({"fields": str}, "no 'prompt'"),
        ("Pay?", "must return a dict of options of run.ask, not str"),
    ],
)
def test_a_wrong_description_of_an_interrupt_is_refused(options: Any, problem: str) -> None:
    graph = make_builder().compile(checkpointer=HoldfastSaver("memory:"))

    async def work(run: holdfast.AsyncRun) -> Any:
        return await run_graph(run, graph, {"answer": ""}, describe=lambda _: options)

    assert problem in fail_with(work)


@pytest.mark.parametrize("missing", ["langgraph", "langchain_core"])
def test_an_import_without_the_framework_names_the_extra(missing: str) -> None:
    code = f"import sys; sys.modules[{missing!r}] = None; import holdfast.adapters.langgraph"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert 'pip install "holdfast[langgraph]"' in ran.stderr
