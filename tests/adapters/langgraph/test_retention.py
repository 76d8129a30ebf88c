"""Retention by age, count and idleness."""

from __future__ import annotations

import contextvars
import datetime as dt
from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt

from holdfast.adapters.langgraph import HoldfastSaver
from holdfast.errors import InvalidInput
from holdfast.operations.store import Store
from holdfast.store.memory import MemoryStore
from holdfast.testing import ManualClock
from tests.adapters.langgraph.material import (
    Delta,
    Plain,
    chat,
    checkpoint,
    config,
    delta_described,
    described,
    said,
    texts,
)
from tests.adapters.langgraph.sync_and_async_caller import Caller

# --- retention -------------------------------------------------------------------------------------------------------


def _ten_days() -> tuple[HoldfastSaver, ManualClock]:
    """A thread with a checkpoint a day, on two namespaces."""
    clock = ManualClock()
    saver = HoldfastSaver(Store(MemoryStore(clock), clock=clock))
    parents = {"": config("t"), "sub": config("t", "sub")}
    for day in range(10):
        for name, parent in parents.items():
            parents[name] = saver.put(
                parent, checkpoint({}, channel_versions={"d": day}), delta_described(day), {"d": day}
            )
            saver.put_writes(parents[name], [("d", day)], "t")
        clock.advance(24 * 3600)
    return saver, clock


def _steps(saver: HoldfastSaver, namespace: str = "") -> list[int]:
    return [one.metadata["step"] for one in saver.list(config("t", namespace))]


@pytest.mark.parametrize(
    ("rule", "left"),
    [
        ({"last": 3}, [9, 8, 7]),
        ({"newer_than": dt.timedelta(days=4, hours=1)}, [9, 8, 7, 6]),
        ({"newer_than": 3600.0}, [9]),
        ({"last": 2, "newer_than": dt.timedelta(days=5, hours=1)}, [9, 8, 7, 6, 5]),
        ({"last": 6, "newer_than": dt.timedelta(days=1)}, [9, 8, 7, 6, 5, 4]),
    ],
)
def test_retention_by_count_and_age(rule: dict[str, Any], left: list[int]) -> None:
    saver, _ = _ten_days()
    before = saver.get_delta_channel_history(config=config("t"), channels=["d"])
    planned = saver.retain(**rule, dry_run=True)
    assert _steps(saver) == list(range(10))[::-1]
    done = saver.retain(**rule)
    assert (planned.checkpoints, planned.threads) == (done.checkpoints, done.threads) == (19 - 2 * len(left), 1)
    assert _steps(saver) == left
    assert _steps(saver, "sub") == [*left, left[-1] - 1]  # a replay of the oldest that stays begins with that
    assert saver.get_delta_channel_history(config=config("t"), channels=["d"]) == before
    assert saver.retain(**rule).checkpoints == 0


def test_idle_threads_are_removed_whole_and_others_not() -> None:
    saver, clock = _ten_days()
    saver.put(config("young"), checkpoint(), described(), {})
    clock.advance(24 * 3600)
    assert saver.retain(idle=dt.timedelta(days=1, hours=12), dry_run=True).threads_removed == 1
    assert saver.get_tuple(config("t")) is not None
    assert saver.retain(idle=dt.timedelta(days=1, hours=12), thread_ids=["young", "nobody"]).threads_removed == 0
    before = saver.store.stats().state_bytes
    done = saver.retain(idle=dt.timedelta(days=1, hours=12))
    assert (done.threads_removed, done.bytes_freed) == (1, before - saver.store.stats().state_bytes)
    assert done.bytes_freed > 0
    assert saver.get_tuple(config("t")) is None
    assert saver.get_tuple(config("young")) is not None


def test_folding_a_thread_does_not_count_as_using_it() -> None:
    clock = ManualClock()
    saver = HoldfastSaver(Store(MemoryStore(clock), clock=clock))
    for text in ("a", "b"):
        chat(saver, Delta).invoke(said(text), config("t"))
    used = saver.store.runs()[0].updated_at
    clock.advance(24 * 3600)
    assert saver.retain(last=1).checkpoints > 0
    assert texts(chat(saver, Delta).get_state(config("t")).values["messages"]) == ["a", "re: a", "b", "re: b"]
    assert saver.store.runs()[0].updated_at == used
    assert saver.retain(idle=3600.0).threads_removed == 1


def test_an_idle_thread_that_continues_meanwhile_is_kept() -> None:
    saver, clock = _ten_days()
    clock.advance(24 * 3600)
    port = saver.store.port
    delete = port.delete_run

    def late(run_id: str, seen: bytes | None = None, family: frozenset[int] | None = None) -> Any:
        saver.put(config("t"), checkpoint(), described(77), {})
        return delete(run_id, seen, family)

    port.delete_run = late  # type: ignore[method-assign]
    assert saver.retain(idle=3600.0).threads_removed == 0
    assert _steps(saver)[0] == 77


def test_a_claimed_thread_is_pruned_by_its_owner_and_skipped_by_others() -> None:
    saver, _ = _ten_days()
    saver.put(config("zz"), checkpoint(), described(0), {})
    saver.put(config("zz"), checkpoint(), described(1), {})
    with saver.claim("t"):
        other = contextvars.Context().run(saver.retain, last=1)
        assert (other.checkpoints, len(other.skipped)) == (1, 1)
        assert other.skipped[0].startswith("t: ")
        assert saver.retain(last=1).checkpoints == 17
    assert _steps(saver) == [9]


def test_subgraphs_of_removed_checkpoints_are_removed(caller: Caller, thread: str) -> None:
    """Every call of a subgraph has a namespace of its own; one that remembers has the same each time, and stays."""
    inner: Any = StateGraph(Plain)
    inner.add_node("talk", lambda _: {"messages": [AIMessage("inside")]})
    inner.add_edge(START, "talk")
    inner.add_edge("talk", END)
    graph: Any = StateGraph(Plain)
    graph.add_node("forgets", inner.compile())
    graph.add_node("remembers", inner.compile(checkpointer=True))
    graph.add_edge(START, "forgets")
    graph.add_edge("forgets", "remembers")
    graph.add_edge("remembers", END)
    made = graph.compile(checkpointer=caller.saver)
    for turn in range(5):
        caller.run(made, said(f"m{turn}"), config(thread))
    everywhere: Any = {"configurable": {"thread_id": thread}}
    assert len({one.config["configurable"]["checkpoint_ns"] for one in caller.list(everywhere)}) > 5
    caller.retain(last=1, thread_ids=[thread])
    left = {one.config["configurable"]["checkpoint_ns"] for one in caller.list(everywhere)}
    assert left == {"", "remembers"}
    parents = {"": caller.get_tuple(config(thread)).config["configurable"]["checkpoint_id"]}
    nested = caller.put(config(thread, "task:1|remembers"), checkpoint(), described(parents=parents), {})
    caller.run(made, said("again"), config(thread))
    before = caller.state(made, config(thread)).values
    caller.retain(last=1, thread_ids=[thread])
    assert caller.get_tuple(nested) is None, "what remembers inside a task remembers as long as the task"
    assert caller.state(made, config(thread)).values == before
    caller.run(made, said("on"), config(thread))


def test_a_waiting_subgraph_is_kept_by_retention(caller: Caller, thread: str) -> None:
    inner: Any = StateGraph(Plain)
    inner.add_node("ask", lambda _: {"messages": [AIMessage(interrupt("?"))]})
    inner.add_edge(START, "ask")
    inner.add_edge("ask", END)
    graph: Any = StateGraph(Plain)
    graph.add_node("inner", inner.compile())
    graph.add_edge(START, "inner")
    graph.add_edge("inner", END)
    made = graph.compile(checkpointer=caller.saver)
    caller.run(made, said("m"), config(thread))
    caller.retain(last=1, newer_than=0, thread_ids=[thread])
    found = caller.run(made, Command(resume="answered"), config(thread))
    assert texts(found["messages"])[-1] == "answered"


def test_a_claimed_idle_thread_is_kept() -> None:
    saver, clock = _ten_days()
    clock.advance(24 * 3600)
    with saver.claim("t", lease=30):
        assert saver.retain(idle=3600.0).threads_removed == 0


@pytest.mark.parametrize("wrong", [{}, {"last": 0}, {"last": True}, {"newer_than": -1}, {"idle": "1d"}, {"last": "3"}])
def test_retention_needs_a_rule_that_makes_sense(saver: HoldfastSaver, wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        saver.retain(**wrong)
