"""Graphs behave as they do on LangGraph's own saver: what they return, what their state and history say."""

from __future__ import annotations

import asyncio
import operator
import subprocess
import sys
from collections.abc import Callable
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import entrypoint, task
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, Send, interrupt

from holdfast.adapters.langgraph import HoldfastSaver
from tests.adapters.langgraph.material import Delta, Plain, chat, config, said, texts
from tests.adapters.langgraph.sync_and_async_caller import Caller


class Work(TypedDict):
    """State with several kinds of channels."""

    log: Annotated[list[str], operator.add]
    answer: Any


def _simple(saver: Any) -> Any:
    graph: Any = StateGraph(Work)
    graph.add_node("first", lambda _: {"log": ["first"]})
    graph.add_node("ask", lambda _: {"answer": interrupt("well?"), "log": ["asked"]})
    graph.add_node("last", lambda state: {"log": [f"last {state['answer']}"]})
    graph.add_edge(START, "first")
    graph.add_edge("first", "ask")
    graph.add_edge("ask", "last")
    graph.add_edge("last", END)
    return graph.compile(checkpointer=saver)


def _parallel(saver: Any) -> Any:
    graph: Any = StateGraph(Work)
    graph.add_node("plan", lambda _: Command(goto=[Send("work", {"log": [], "answer": n}) for n in range(5)]))
    graph.add_node("work", lambda state: {"log": [f"work {state['answer']}"]})
    graph.add_node("gather", lambda state: {"answer": len(state["log"])})
    graph.add_edge(START, "plan")
    graph.add_edge("work", "gather")
    graph.add_edge("gather", END)
    return graph.compile(checkpointer=saver)


def _nested(saver: Any) -> Any:
    inner: Any = StateGraph(Work)
    inner.add_node("ask", lambda _: {"log": [f"inner {interrupt('inside?')}"]})
    inner.add_edge(START, "ask")
    inner.add_edge("ask", END)
    graph: Any = StateGraph(Work)
    graph.add_node("before", lambda _: {"log": ["before"]})
    graph.add_node("inner", inner.compile())
    graph.add_edge(START, "before")
    graph.add_edge("before", "inner")
    graph.add_edge("inner", END)
    return graph.compile(checkpointer=saver)


def _interrupted(caller: Caller, make: Callable[[Any], Any], saver: Any, thread: str) -> list[Any]:
    graph = make(saver)
    got = caller.run(graph, {"log": ["begin"], "answer": None}, config(thread))
    seen = [got["log"], [i.value for i in got.get("__interrupt__", ())], caller.state(graph, config(thread)).next]
    if "__interrupt__" in got:
        got = caller.run(make(saver), Command(resume="yes"), config(thread))
        seen += [got, caller.state(graph, config(thread)).next]
    return [
        *seen,
        [(one.metadata["source"], one.metadata["step"], one.values, one.next) for one in _history(graph, thread)],
    ]


def _history(graph: Any, thread: str) -> list[Any]:
    return list(graph.get_state_history({"configurable": {"thread_id": thread}}))


@pytest.mark.parametrize("make", [_simple, _parallel, _nested])
def test_interrupts_sends_and_subgraphs(caller: Caller, thread: str, make: Callable[[Any], Any]) -> None:
    ours = _interrupted(caller, make, caller.saver, thread)
    theirs = _interrupted(caller, make, InMemorySaver(), thread)
    assert ours == theirs


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
@pytest.mark.parametrize("state", [Plain, Delta])
def test_every_durability(caller: Caller, thread: str, durability: str, state: type) -> None:
    seen = []
    for saver in (caller.saver, InMemorySaver()):
        graph = chat(saver, state)
        for turn in range(10):
            caller.run(graph, said(f"m{turn}"), config(thread), durability=durability)
        seen.append(
            [
                (one.metadata.get("source"), one.metadata.get("step"), texts(one.values.get("messages", [])))
                for one in _history(graph, thread)
            ]
        )
    assert seen[0] == seen[1]


def test_time_travel_and_manual_updates(saver: HoldfastSaver, thread: str) -> None:
    seen: list[list[Any]] = []
    for place in (saver, InMemorySaver()):
        graph = chat(place)
        for turn in range(3):
            graph.invoke(said(f"m{turn}"), config(thread))
        middle = _history(graph, thread)[4].config
        changed = graph.update_state(middle, {"messages": [HumanMessage("edited", id="e")]}, as_node="agent")
        graph.invoke(None, changed)
        graph.invoke(said("on"), config(thread))
        removed = graph.get_state(config(thread)).values["messages"][0].id
        graph.update_state(config(thread), {"messages": [RemoveMessage(removed)]})
        history = _history(graph, thread)
        seen.append(
            [
                (one.metadata.get("source"), one.metadata.get("step"), texts(one.values.get("messages", [])))
                for one in history
            ]
        )
        ids = {one.config["configurable"]["checkpoint_id"]: at for at, one in enumerate(history)}
        seen[-1].append(
            [
                ids.get((one.parent_config or {"configurable": {"checkpoint_id": ""}})["configurable"]["checkpoint_id"])
                for one in history
            ]
        )
    assert seen[0] == seen[1]


def test_the_functional_interface(saver: HoldfastSaver, thread: str) -> None:
    calls = []

    @task
    def double(number: int) -> int:
        calls.append(number)
        return 2 * number

    @entrypoint(checkpointer=saver)
    def flow(number: int, *, previous: Any = None) -> Any:
        done = [double(n).result() for n in range(number)]
        return {"sum": sum(done), "ok": interrupt("ok?"), "previous": previous}

    assert "__interrupt__" in flow.invoke(3, config(thread))
    assert flow.invoke(Command(resume=True), config(thread)) == {"sum": 6, "ok": True, "previous": None}
    assert calls == [0, 1, 2], "what was done before the interrupt is not done again"
    flow.invoke(1, config(thread))
    assert flow.invoke(Command(resume=False), config(thread))["previous"]["sum"] == 6


def test_a_node_that_failed_does_not_take_its_neighbours_work_along(caller: Caller, thread: str) -> None:
    """What a finished task wrote is there when the others are tried again."""
    calls: list[str] = []

    def good(_: Work) -> dict[str, Any]:
        calls.append("good")
        return {"log": ["good"]}

    def bad(_: Work) -> dict[str, Any]:
        calls.append("bad")
        if calls.count("bad") == 1:
            raise ConnectionError
        return {"log": ["bad"]}

    graph: Any = StateGraph(Work)
    graph.add_node("good", good)
    graph.add_node("bad", bad)
    for name in ("good", "bad"):
        graph.add_edge(START, name)
        graph.add_edge(name, END)
    made = graph.compile(checkpointer=caller.saver)
    with pytest.raises(ConnectionError):
        caller.run(made, {"log": []}, config(thread), durability="sync")
    found = caller.run(made, None, config(thread))
    assert sorted(found["log"]) == ["bad", "good"]
    assert calls.count("bad") == 2
    assert calls.count("good") in (1, 2)


def test_a_blocking_graph_works_where_an_event_loop_runs(saver: HoldfastSaver, thread: str) -> None:
    """As in a notebook."""

    async def cell() -> Any:
        return chat(saver).invoke(said("hi"), config(thread))

    assert texts(asyncio.run(cell())["messages"]) == ["hi", "re: hi"]
    assert texts(asyncio.run(chat(saver).ainvoke(said("again"), config(thread)))["messages"])[2:] == [
        "again",
        "re: again",
    ]


def test_savers_share_a_store_and_one_may_be_closed(thread: str) -> None:
    with HoldfastSaver("memory:") as first:
        with HoldfastSaver(first.store) as second:
            chat(second).invoke(said("hi"), config(thread))
        assert len(chat(first).get_state(config(thread)).values["messages"]) == 2
        assert "memory:" in repr(first)


def test_message_changed_by_a_node_in_place_is_what_is_stored(caller: Caller, thread: str) -> None:
    """A node that returns a message it was given, changed, means the changed one."""

    def edit(state: Plain) -> dict[str, Any]:
        first = state["messages"][0]
        first.content = "edited"
        return {"messages": [first, AIMessage("done")]}

    graph: Any = StateGraph(Plain)
    graph.add_node("edit", edit)
    graph.add_edge(START, "edit")
    graph.add_edge("edit", END)
    made = graph.compile(checkpointer=caller.saver)
    for turn in range(12):
        caller.run(made, said(f"m{turn}"), config(thread))
    values = caller.state(made, config(thread)).values["messages"]
    assert texts(values)[:3] == ["edited", "done", "m1"]
    assert caller.get_tuple(config(thread)).checkpoint["channel_values"]["messages"] == values


def test_importing_the_adapter_is_not_part_of_importing_holdfast() -> None:
    code = (
        "import holdfast, sys; sys.exit(any(m.split('.')[0] in ('langgraph', 'langchain_core') for m in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
