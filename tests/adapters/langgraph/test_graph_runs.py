"""Guarded graphs, and graphs inside workflows."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypedDict

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt

import holdfast
from holdfast.adapters.langgraph import GuardedGraph, HoldfastSaver, run_graph
from holdfast.errors import InvalidInput, RunClaimed
from holdfast.inspect.threads import open_interrupts, waiting_threads


class State(TypedDict, total=False):
    orders: list[str]
    a: str
    b: str
    done: str


CALLS: list[str] = []


def _note(what: str) -> None:
    CALLS.append(what)
    if "GRAPH_LOG" in os.environ:
        with Path(os.environ["GRAPH_LOG"]).open("a") as file:
            file.write(what + "\n")


def look(state: State) -> State:
    _note("look")
    return {"orders": ["A", "B"]}


def ask_a(state: State) -> State:
    return {"a": interrupt({"pay": "A"})}


def ask_b(state: State) -> State:
    return {"b": interrupt("Pay B?")}


def pay(state: State) -> State:
    _note("pay")
    if os.environ.get("GRAPH_KILL"):
        os.kill(os.getpid(), 9)
    return {"done": f"{state['a']} {state['b']}"}


def build(saver: Any) -> Any:
    graph = StateGraph(State)
    for node in (look, ask_a, ask_b, pay):
        graph.add_node(node.__name__, node)
    graph.add_edge(START, "look")
    graph.add_edge("look", "ask_a")
    graph.add_edge("look", "ask_b")
    graph.add_edge(["ask_a", "ask_b"], "pay")
    graph.add_edge("pay", END)
    return graph.compile(checkpointer=saver)


def make_app(url: str) -> holdfast.App:
    app = holdfast.App(url)
    graph = build(HoldfastSaver(app.store))

    @app.workflow
    async def refund(run: holdfast.AsyncRun) -> str:
        return str((await run_graph(run, graph, {"orders": []}))["done"])

    return app


@pytest.fixture(autouse=True)
def _calls() -> None:
    CALLS.clear()


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory:" if request.param == "memory" else f"sqlite:{tmp_path}/runs.db"


def _answer(app: holdfast.App, words: dict[str, str], run_id: str = "r") -> None:
    for gate in app.gates(run_id):
        app.answer(run_id, words[gate.prompt], gate=gate.gate)


def test_parallel_interrupts_are_gates_of_the_run(url: str) -> None:
    with make_app(url) as app:
        app.start("refund", run_id="r")
        assert sorted(gate.prompt for gate in app.gates("r")) == ["Pay B?", '{"pay": "A"}']
        _answer(app, {'{"pay": "A"}': "yes", "Pay B?": "no"})
        assert app.handle("r").result() == "yes no"
        assert CALLS == ["look", "pay"]


def test_an_interrupt_of_a_driven_thread_is_listed_once(url: str) -> None:
    with make_app(url) as app:
        app.start("refund", run_id="r")
        (thread,) = waiting_threads(app.store)
        assert open_interrupts(app.store.access.core, thread) == []
        assert len(app.gates()) == 2


def test_answers_from_another_process_continue_the_graph(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path}/runs.db"
    with make_app(url) as app:
        app.start("refund", run_id="r")
    with holdfast.App(url) as other:  # does not know the workflow
        _answer(other, {'{"pay": "A"}': "yes", "Pay B?": "yes"})
        assert other.handle("r").status() == "ready"
    with make_app(url) as app:
        assert app.resume("r").result() == "yes yes"
    assert CALLS == ["look", "pay"]


def test_a_killed_graph_continues_from_its_last_checkpoint(tmp_path: Path) -> None:
    log, url = tmp_path / "log", f"sqlite:{tmp_path}/runs.db"
    code = (
        "import sys; from tests.adapters.langgraph import test_graph_runs as t\n"
        "app = t.make_app(sys.argv[1]); app.start('refund', run_id='r')\n"
        "t._answer(app, {'{\"pay\": \"A\"}': 'yes', 'Pay B?': 'no'})\n"
    )
    environment = {**os.environ, "GRAPH_LOG": str(log), "GRAPH_KILL": "1"}
    root = Path(__file__).parents[3]
    ran = subprocess.run([sys.executable, "-c", code, url], cwd=root, env=environment, check=False, timeout=240)
    assert ran.returncode == -9
    assert log.read_text().split() == ["look", "pay"]
    with make_app(url) as app:
        assert app.resume("r").result() == "yes no"
    assert CALLS == ["pay"]  # the interrupted node runs again, nothing else does


@pytest.mark.parametrize("at", range(1, 9))
def test_a_graph_that_dies_between_any_two_saves_is_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    class Died(BaseException):
        pass

    count = 0

    def dying(name: str) -> Any:
        save = getattr(HoldfastSaver, name)

        async def put(self: HoldfastSaver, *args: Any, **more: Any) -> Any:
            nonlocal count
            count += 1
            if count > at:
                raise Died
            return await save(self, *args, **more)

        return put

    url = f"sqlite:{tmp_path}/runs.db"
    with monkeypatch.context() as patch, make_app(url) as app:
        app.start("refund", run_id="r")
        for name in ("aput", "aput_writes"):
            patch.setattr(HoldfastSaver, name, dying(name))
        with contextlib.suppress(BaseException):
            _answer(app, {'{"pay": "A"}': "yes", "Pay B?": "no"})
    with make_app(url) as app:
        handle = app.handle("r")
        if handle.status() == "failed":
            handle = app.retry("r")
        assert app.resume("r").result() == "yes no" if handle.status() != "completed" else handle.result() == "yes no"
        assert "look" not in CALLS[1:], "a finished node does not run again"


def test_one_node_may_ask_twice(url: str) -> None:
    def ask_twice(state: State) -> State:
        return {"a": interrupt("first?"), "b": interrupt("second?")}

    app = holdfast.App(url)
    graph = StateGraph(State)
    graph.add_node("ask", ask_twice)
    graph.add_edge(START, "ask")
    compiled = graph.compile(checkpointer=HoldfastSaver(app.store))

    @app.workflow
    async def twice(run: holdfast.AsyncRun) -> dict[str, Any]:
        return await run_graph(run, compiled, {"orders": []})

    with app:
        app.start(twice, run_id="r")
        _answer(app, {"first?": "1"})
        _answer(app, {"second?": "2"})
        assert app.handle("r").result() == {"orders": [], "a": "1", "b": "2"}


def test_each_turn_of_a_loop_has_a_thread_of_its_own(url: str) -> None:
    app = holdfast.App(url)
    graph = build(HoldfastSaver(app.store))

    @app.workflow
    async def twice(run: holdfast.AsyncRun) -> list[str]:
        run.state.setdefault("found", [])
        async for turn in run.loop():
            run.state["found"].append((await run_graph(run, graph, {"orders": []}))["done"])
            if turn == 2:
                return list(run.state["found"])
        return []

    with app:
        app.start(twice, run_id="r")
        _answer(app, {'{"pay": "A"}': "1", "Pay B?": "1"})
        _answer(app, {'{"pay": "A"}': "2", "Pay B?": "2"})
        assert app.handle("r").result() == ["1 1", "2 2"]
        assert CALLS == ["look", "pay"] * 2


def test_parallel_nodes_of_a_claimed_thread_save_through_the_claim(url: str) -> None:
    with HoldfastSaver(url) as saver:
        graph = build(saver)
        with saver.claim("t"):  # LangGraph saves the writes of parallel nodes from threads without a context
            graph.invoke({"orders": []}, _CONFIG)
        assert len(graph.get_state(_CONFIG).interrupts) == 2


def test_describe_makes_the_form_of_an_interrupt(url: str) -> None:
    app = holdfast.App(url)
    graph = build(HoldfastSaver(app.store))

    @app.workflow
    async def refund(run: holdfast.AsyncRun) -> str:
        def describe(value: Any) -> dict[str, Any]:
            return {"prompt": f"Pay {value}?", "fields": bool, "who": ["ana"]}

        return str((await run_graph(run, graph, {"orders": []}, describe=describe))["done"])

    with app:
        app.start(refund, run_id="r")
        for gate in app.gates("r"):
            assert gate.who == ("ana",)
            app.answer("r", True, gate=gate.gate, by="ana")
        assert app.handle("r").result() == "True True"


def test_a_thread_with_a_history_gets_its_input_once(url: str) -> None:
    def count(state: State) -> State:
        return {"orders": [*state["orders"], "seen"]}

    app = holdfast.App(url)
    graph = StateGraph(State)
    graph.add_node("count", count)
    graph.add_edge(START, "count")
    compiled = graph.compile(checkpointer=HoldfastSaver(app.store))
    config: Any = {"configurable": {"thread_id": "t"}}
    compiled.invoke({"orders": ["old"]}, config)

    @app.workflow
    async def again(run: holdfast.AsyncRun) -> list[str]:
        found = await run_graph(run, compiled, {"orders": ["new"]}, config)
        await run.ask("Go on?", bool)  # the graph is not executed by the replay
        return list(found["orders"])

    with app:
        app.start(again, run_id="r")
        app.answer("r", True)
        assert app.handle("r").result() == ["new", "seen"]


def test_a_graph_without_a_checkpointer_is_refused(url: str) -> None:
    app = holdfast.App(url)

    @app.workflow
    async def refund(run: holdfast.AsyncRun) -> object:
        return await run_graph(run, build(None), {})

    with app, pytest.raises(holdfast.RunFailed, match="compile it with checkpointer=saver"):
        app.start(refund).result()


# --- guarded graphs --------------------------------------------------------------------------------------------------


class _Slow:
    """A graph whose node waits."""

    def __init__(self, saver: HoldfastSaver) -> None:
        self.begun, self.go_on = threading.Event(), threading.Event()

        def wait(state: State) -> State:
            self.begun.set()
            assert self.go_on.wait(240)
            return {"done": "yes"}

        graph = StateGraph(State)
        graph.add_node("wait", wait)
        graph.add_edge(START, "wait")
        self.graph = saver.guard(graph.compile(checkpointer=saver))


@pytest.fixture
def saver(url: str) -> Iterator[HoldfastSaver]:
    with HoldfastSaver(url) as found:
        yield found


_CONFIG: Any = {"configurable": {"thread_id": "t"}}


def test_a_guarded_graph_refuses_a_second_call_of_its_thread(saver: HoldfastSaver) -> None:
    slow = _Slow(saver)
    first = threading.Thread(target=slow.graph.invoke, args=({"orders": []}, _CONFIG))
    first.start()
    assert slow.begun.wait(240)
    with pytest.raises(RunClaimed):
        slow.graph.invoke({"orders": []}, _CONFIG)
    with pytest.raises(RunClaimed):
        next(slow.graph.stream({"orders": []}, _CONFIG))
    with pytest.raises(RunClaimed):
        slow.graph.update_state(_CONFIG, {"done": "no"})
    with pytest.raises(RunClaimed):
        asyncio.run(slow.graph.ainvoke({"orders": []}, _CONFIG))
    slow.go_on.set()
    first.join()
    assert slow.graph.get_state(_CONFIG).values["done"] == "yes"
    assert slow.graph.invoke({"orders": []}, _CONFIG)["done"] == "yes"


def test_the_claim_ends_with_the_stream(saver: HoldfastSaver) -> None:
    graph = saver.guard(build(saver))
    items = list(graph.stream({"orders": []}, _CONFIG))
    assert "__interrupt__" in json.dumps(items, default=str)

    async def rest() -> list[Any]:
        found = [item async for item in graph.astream(None, _CONFIG)]
        await graph.aupdate_state(_CONFIG, {"a": "x"}, as_node="ask_a")
        return found

    assert asyncio.run(rest())
    with saver.claim("t"):
        pass


def test_a_graph_of_another_checkpointer_is_not_guarded(saver: HoldfastSaver) -> None:
    with pytest.raises(InvalidInput, match="checkpointer=saver"):
        saver.guard(build(InMemorySaver()))
    assert isinstance(saver.guard(build(saver)), GuardedGraph)


def test_a_guarded_graph_needs_a_thread_id(saver: HoldfastSaver) -> None:
    with pytest.raises(InvalidInput, match="thread_id"):
        saver.guard(build(saver)).invoke(Command(resume=1))
