"""Removal of checkpoints does not change kept ones: delta channels, branches, other threads."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import HumanMessage

from holdfast.adapters.langgraph import HoldfastSaver
from holdfast.errors import DamagedData, InvalidInput, NotFound, RunClaimed, RunExists
from tests.adapters.langgraph.material import (
    Delta,
    Plain,
    chat,
    checkpoint,
    config,
    delta_described,
    described,
    id_of,
    said,
    texts,
)
from tests.adapters.langgraph.sync_and_async_caller import Caller


def _talk(caller: Caller, graph: Any, thread: str, turns: int, run: str = "") -> list[Any]:
    """Some turns. LangGraph takes a call with the run id of the one before for its repetition, so each has its own."""
    for turn in range(turns):
        more = {"metadata": {"run_id": f"{thread}-{run}-{turn}"}} if run else {}
        caller.run(graph, said(f"m{turn}"), {"configurable": {"thread_id": thread}, **more})
    return texts(caller.state(graph, config(thread)).values["messages"])


def _runs(thread: str, run: str, turns: int = 3) -> list[str]:
    return [f"{thread}-{run}-{turn}" for turn in range(turns)]


def _history(caller: Caller, graph: Any, thread: str) -> list[list[Any]]:
    """Return the messages at every checkpoint of the graph."""
    found = []
    for one in caller.list(config(thread)):
        values = caller.state(graph, one.config).values
        found.append(texts(values.get("messages", [])))
    return found


@pytest.mark.parametrize("state", [Plain, Delta])
def test_pruned_threads_have_the_same_state_and_continue(caller: Caller, thread: str, state: type) -> None:
    """The newest checkpoint of a delta graph is rarely one that holds the whole value."""
    graph = chat(caller.saver, state)
    for round_ in range(4):
        before = _talk(caller, graph, thread, 3)
        assert len(before) == 6 * (round_ + 1)
        caller.prune([thread], strategy="keep_latest")
        assert len(caller.list(config(thread))) == 1
        fresh = HoldfastSaver(caller.saver.store)
        for saver in (caller.saver, fresh):
            assert texts(chat(saver, state).get_state(config(thread)).values["messages"]) == before
    assert caller.saver.store.verify().ok


def test_pruning_keeps_a_waiting_interrupt(caller: Caller, thread: str) -> None:
    at = caller.put(config(thread), checkpoint({"a": 1}), described(), {"a": 1})
    last = caller.put(at, checkpoint({"a": 2}, version=2), described(1), {"a": 2})
    caller.put_writes(last, [("__interrupt__", ["?"])], "t")
    caller.prune([thread])
    (found,) = caller.list(config(thread))
    assert found.pending_writes == [("t", "__interrupt__", ["?"])]
    assert found.parent_config is None


@pytest.mark.parametrize("state", [Plain, Delta])
def test_removing_the_checkpoints_of_runs_leaves_the_others_as_they_were(
    caller: Caller, thread: str, state: type
) -> None:
    graph = chat(caller.saver, state)
    for run in ("a", "b", "c", "d"):
        _talk(caller, graph, thread, 3, run)
    by_run = {one.checkpoint["id"]: one.metadata["run_id"][-3] for one in caller.list(config(thread))}
    assert len(by_run) == 36
    before = {
        id_of(one.config): texts(caller.state(graph, one.config).values.get("messages", []))
        for one in caller.list(config(thread))
    }
    caller.delete_for_runs(_runs(thread, "b") + _runs(thread, "d"))
    left = caller.list(config(thread))
    assert {id_of(one.config) for one in left} == {name for name, run in by_run.items() if run in "ac"}
    for one in left:
        assert texts(caller.state(graph, one.config).values.get("messages", [])) == before[id_of(one.config)]
    newest = texts(caller.state(graph, config(thread)).values["messages"])
    assert newest == before[id_of(left[0].config)]
    assert _talk(caller, graph, thread, 1)[: len(newest)] == newest
    assert caller.saver.store.verify().ok


def test_removing_all_runs_of_a_thread_leaves_it_empty(caller: Caller, thread: str) -> None:
    graph = chat(caller.saver)
    _talk(caller, graph, thread, 2, "only")
    caller.delete_for_runs(_runs(thread, "only"))
    assert caller.get_tuple(config(thread)) is None
    assert caller.list(config(thread)) == []
    assert _talk(caller, graph, thread, 1) == ["m0", "re: m0"]


def test_a_branch_keeps_what_it_needs_of_a_removed_trunk(caller: Caller, thread: str) -> None:
    graph = chat(caller.saver, Delta)
    _talk(caller, graph, thread, 3, "trunk")
    middle = caller.list(config(thread))[4].config
    for branch in ("x", "y"):
        caller.run(graph, said(branch), {**middle, "metadata": {"run_id": f"{thread}-{branch}"}})
    before = {
        id_of(one.config): texts(caller.state(graph, one.config).values.get("messages", []))
        for one in caller.list(config(thread))
    }
    caller.delete_for_runs(_runs(thread, "trunk"))
    assert caller.list(config(thread))
    for one in caller.list(config(thread)):
        assert texts(caller.state(graph, one.config).values.get("messages", [])) == before[id_of(one.config)]


def test_a_missing_ancestor_is_an_error_and_never_an_empty_value(saver: HoldfastSaver, thread: str) -> None:
    graph = chat(saver, Delta)
    for turn in range(2):
        graph.invoke(said(f"m{turn}"), config(thread))
    ids = [one.checkpoint["id"] for one in saver.list(config(thread))]
    saver.store.port.prune(thread, lambda rows, _: [row.number for row in rows if row.checkpoint_id in ids[2:]])
    with pytest.raises(DamagedData, match="parent"):
        HoldfastSaver(saver.store).get_delta_channel_history(config=config(thread), channels=["messages"])
    with pytest.raises(DamagedData, match="parent"):
        graph.get_state(config(thread))
    with pytest.raises(DamagedData, match="parent"):  # and pruning does not hide the damage
        saver.prune([thread])


def test_a_thread_that_continues_from_a_checkpoint_being_pruned_is_detected(saver: HoldfastSaver, thread: str) -> None:
    root = saver.put(config(thread), checkpoint({"a": 1}), described(), {"a": 1})
    saver.put(root, checkpoint({"a": 2}, version=2), described(1), {"a": 2})
    port = saver.store.port
    prune = port.prune
    late: list[Any] = []

    def slow_prune(run_id: str, choose: Any, *, reopen: bool = False) -> Any:
        if not late:  # another caller continues from the root between plan and removal
            late.append(saver.put(root, checkpoint({}, channel_versions={"d": 1}), delta_described(2), {"d": 1}))
        return prune(run_id, choose, reopen=reopen)

    port.prune = slow_prune  # type: ignore[method-assign]
    saver.prune([thread])
    (found,) = saver.list(config(thread))
    assert found.config == late[0]
    assert saver.get_delta_channel_history(config=late[0], channels=["d"]) == {"d": {"writes": []}}


def test_delta_history_is_that_of_langgraphs_own_walk(caller: Caller, thread: str) -> None:
    """The base class walks from tuple to tuple; ours must find the same, on branches too."""
    graph = chat(caller.saver, Delta)
    _talk(caller, graph, thread, 9)
    caller.run(graph, said("branch"), caller.list(config(thread))[7].config)
    base = HoldfastSaver.__mro__[1]
    for one in caller.list(config(thread)):
        asked = {"config": one.config, "channels": ["messages", "__start__", "nobody"]}
        assert caller.get_delta_channel_history(**asked) == base.get_delta_channel_history(caller.saver, **asked)  # type: ignore[attr-defined]
    assert caller.get_delta_channel_history(config=config(thread), channels=[]) == {}
    assert caller.get_delta_channel_history(config=config("nobody"), channels=["a"]) == {"a": {"writes": []}}


def test_delta_writes_are_oldest_first_and_seeds_end_the_walk(caller: Caller, thread: str) -> None:
    first = caller.put(config(thread), checkpoint({"a": "seed"}), described(), {"a": 1})
    caller.put_writes(first, [("a", 1)], "t2", "~2")
    caller.put_writes(first, [("a", 0), ("b", "b0")], "t9", "~1")
    second = caller.put(first, checkpoint({}, channel_versions={"a": 2, "b": 1}), described(1), {"a": 2, "b": 1})
    caller.put_writes(second, [("a", 2)], "t")
    third = caller.put(second, checkpoint({}, channel_versions={"a": 3, "b": 1}), described(2), {"a": 3})
    caller.put_writes(third, [("a", "pending")], "t")
    assert caller.get_delta_channel_history(config=third, channels=["a", "b"]) == {
        "a": {"writes": [("t9", "a", 0), ("t2", "a", 1), ("t", "a", 2)], "seed": "seed"},
        "b": {"writes": [("t9", "b", "b0")]},
    }


def test_a_copied_thread_is_a_thread_of_its_own(caller: Caller, thread: str) -> None:
    graph = chat(caller.saver, Delta)
    said_so = _talk(caller, graph, thread, 3)
    history = _history(caller, graph, thread)
    caller.copy_thread(thread, f"{thread}-copy")
    assert _history(caller, graph, f"{thread}-copy") == history
    assert _talk(caller, graph, f"{thread}-copy", 1)[: len(said_so)] == said_so
    assert _history(caller, graph, thread) == history
    caller.delete_thread(thread)
    assert len(caller.state(graph, config(f"{thread}-copy")).values["messages"]) == len(said_so) + 2
    with pytest.raises(NotFound, match="nobody"):
        caller.copy_thread("nobody", f"{thread}-2")
    caller.copy_thread(f"{thread}-copy", f"{thread}-3")
    with pytest.raises(RunExists):
        caller.copy_thread(f"{thread}-copy", f"{thread}-3")


def test_a_claimed_thread_is_not_deleted(caller: Caller, thread: str) -> None:
    caller.put(config(thread), checkpoint(), described(), {})
    with caller.saver.claim(thread), pytest.raises(RunClaimed):
        caller.delete_thread(thread)
    caller.delete_thread(thread)
    caller.delete_thread(thread)
    assert caller.get_tuple(config(thread)) is None


def test_a_deleted_thread_starts_empty(caller: Caller, thread: str) -> None:
    long = [HumanMessage("x" * 500, id=str(n)) for n in range(30)]
    for _ in range(2):
        caller.put(config(thread), checkpoint({"messages": long}), described(), {"messages": 1})
        assert caller.get_tuple(config(thread)).checkpoint["channel_values"]["messages"] == long
        caller.delete_thread(thread)


def test_a_single_id_is_not_taken_for_a_list_of_letters(caller: Caller) -> None:
    caller.put(config("x"), checkpoint(), described(run_id="x"), {})
    for call in (
        lambda: caller.prune("xyz"),
        lambda: caller.prune("xyz", strategy="delete"),
        lambda: caller.delete_for_runs("xyz"),
        lambda: caller.retain(last=1, thread_ids="xyz"),
    ):
        with pytest.raises(InvalidInput, match=r"\['xyz'\]"):
            call()  # type: ignore[no-untyped-call]
    assert caller.get_tuple(config("x")) is not None
    caller.delete_thread("x")


@pytest.mark.parametrize("strategy", ["", "keep_all", None])
def test_an_unknown_strategy_is_refused(caller: Caller, thread: str, strategy: Any) -> None:
    with pytest.raises(InvalidInput, match="keep_latest"):
        caller.prune([thread], strategy=strategy)
