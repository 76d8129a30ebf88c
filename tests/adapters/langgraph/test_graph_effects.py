"""Effects in the nodes of a graph that a run executes: performed once, also if the process dies between the nodes."""

from __future__ import annotations

import operator
import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.graph import END, START, StateGraph
from langgraph.types import Send, interrupt

import holdfast
from holdfast.adapters.langgraph import HoldfastSaver, run_graph


class State(TypedDict, total=False):
    done: Annotated[list[str], operator.add]
    order: str


PAID: list[str] = []


def pay(order: str) -> str:
    PAID.append(order)
    if "GRAPH_LOG" in os.environ:
        with Path(os.environ["GRAPH_LOG"]).open("a") as file:
            file.write(order + "\n")
        if order == "B":
            os.kill(os.getpid(), 9)
    return f"paid {order}"


async def pay_a(state: State) -> State:
    run: Any = holdfast.current_run()
    return {"done": [await run.effect(pay, "A", key="pay A")]}


async def pay_b(state: State) -> State:
    run: Any = holdfast.current_run()
    return {"done": [await run.effect(pay, "B", key="pay B")]}


def close(state: State) -> State:
    return {"done": [interrupt("Close?")]}


def make_app(url: str, *nodes: Any) -> holdfast.App:
    """An app with a workflow that executes nodes one after the other."""
    app = holdfast.App(url)
    graph = StateGraph(State)
    names = [node.__name__ for node in nodes]
    for node in nodes:
        graph.add_node(node.__name__, node)
    for before, after in zip([START, *names], [*names, END], strict=True):
        graph.add_edge(before, after)
    compiled = graph.compile(checkpointer=HoldfastSaver(app.store))

    @app.workflow
    async def refund(run: holdfast.AsyncRun) -> list[str]:
        return list((await run_graph(run, compiled, {"done": []}))["done"])

    return app


@pytest.fixture(autouse=True)
def _paid() -> None:
    PAID.clear()


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory:" if request.param == "memory" else f"sqlite:{tmp_path}/runs.db"


def test_an_effect_of_a_node_is_not_missed_after_a_later_interrupt(url: str) -> None:
    with make_app(url, pay_a, close, pay_b) as app:
        app.start("refund", run_id="r")
        handle = app.answer("r", "yes")
        assert handle.result() == ["paid A", "yes", "paid B"]
        assert PAID == ["A", "B"]


def test_a_payment_of_a_killed_node_is_in_doubt_and_one_before_it_is_not_repeated(tmp_path: Path) -> None:
    log, url = tmp_path / "log", f"sqlite:{tmp_path}/runs.db"
    code = (
        "import sys; from tests.adapters.langgraph import test_graph_effects as t\n"
        "t.make_app(sys.argv[1], t.pay_a, t.pay_b, t.close).start('refund', run_id='r')\n"
    )
    environment = {**os.environ, "GRAPH_LOG": str(log)}
    root = Path(__file__).parents[3]
    ran = subprocess.run([sys.executable, "-c", code, url], cwd=root, env=environment, check=False, timeout=240)
    assert ran.returncode == -9
    with make_app(url, pay_a, pay_b, close) as app:
        app.resume("r")
        assert [gate.prompt for gate in app.gates("r")] == ["Did pay happen? The process died during the call."]
        app.answer("r", {"outcome": "happened", "result": "paid B"})
        assert app.answer("r", "yes").result() == ["paid A", "paid B", "yes"]
    assert (log.read_text().split(), PAID) == (["A", "B"], [])


@pytest.mark.parametrize("verb", ["effect", "step", "now", "ask"])
def test_a_call_without_a_key_is_refused_in_a_node(url: str, verb: str) -> None:
    """After a crash only some nodes run again, so the first call of a name would be another one's."""

    async def act(state: State) -> State:
        run: Any = holdfast.current_run()
        await getattr(run, verb)(*{"effect": [pay, "A"], "step": [pay, "A"], "ask": ["Pay?", bool]}.get(verb, []))
        return {}

    with make_app(url, act) as app:
        with pytest.raises(holdfast.RunFailed, match=f"run.{verb} was called inside .*'graph turn'"):
            app.start("refund", run_id="r").result()
        assert PAID == []


def test_effects_of_parallel_nodes_are_performed_once(url: str) -> None:
    async def pay_each(state: State) -> State:
        run: Any = holdfast.current_run()
        order = state["order"]
        if not interrupt(f"Pay {order}?"):
            return {"done": [f"not {order}"]}
        return {"done": [await run.effect(pay, order, key=f"pay {order}")]}

    app = holdfast.App(url)
    graph = StateGraph(State)
    graph.add_node("each", pay_each)
    graph.add_node("close", close)
    graph.add_conditional_edges(START, lambda _: [Send("each", {"order": order}) for order in "AC"], ["each"])
    graph.add_edge("each", "close")
    graph.add_edge("close", END)
    compiled = graph.compile(checkpointer=HoldfastSaver(app.store))

    @app.workflow
    async def refund(run: holdfast.AsyncRun) -> list[str]:
        return list((await run_graph(run, compiled, {"done": []}))["done"])

    with app:
        app.start(refund, run_id="r")
        for gate in reversed(app.gates("r")):  # in the other order
            app.answer("r", "yes", gate=gate.gate)
        assert app.answer("r", "bye").result() == ["paid A", "paid C", "bye"]
    assert sorted(PAID) == ["A", "C"]
