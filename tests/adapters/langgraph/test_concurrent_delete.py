"""Removal beside running graphs, other removals, and threads that are deleted and recreated."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from langchain_core.messages import HumanMessage

from holdfast.adapters.langgraph import HoldfastSaver
from holdfast.errors import DamagedData, ParentRemoved
from holdfast.model.rows import AttachmentRow, CheckpointRow
from tests.adapters.langgraph.material import Delta, chat, checkpoint, config, delta_described, described, id_of, said
from tests.adapters.langgraph.sync_and_async_caller import Caller


def _interrupting(saver: HoldfastSaver, act: Any) -> None:
    """Let `act` happen once, between the plan of a removal and the removal."""
    port = saver.store.port
    done: list[int] = []
    prune = port.prune

    def late(run_id: str, choose: Any, *, reopen: bool = False) -> Any:
        if not done:
            done.append(1)
            act()
        return prune(run_id, choose, reopen=reopen)

    port.prune = late  # type: ignore[method-assign]


def _chain(saver: HoldfastSaver, thread: str, count: int) -> list[Any]:
    parents = [config(thread)]
    for step in range(count):
        parents.append(
            saver.put(parents[-1], checkpoint({"n": step}), described(step, run_id=f"{thread}-{step}"), {"n": 1})
        )
    return parents[1:]


def test_the_newest_is_kept_although_another_process_removes_kept_checkpoints(
    saver: HoldfastSaver, thread: str
) -> None:
    made = _chain(saver, thread, 4)
    _interrupting(saver, lambda: HoldfastSaver(saver.store).delete_for_runs([f"{thread}-3"]))
    saver.prune([thread])
    assert [one.config for one in saver.list(config(thread))] == [made[2]]


def test_a_thread_recreated_meanwhile_is_not_changed(saver: HoldfastSaver, thread: str) -> None:
    """The numbers of its checkpoints start again, so they do not identify a checkpoint."""
    _chain(saver, thread, 4)
    new: list[Any] = []

    def reset() -> None:
        saver.delete_thread(thread)
        new.extend(_chain(saver, thread, 4))

    _interrupting(saver, reset)
    saver.delete_for_runs([f"{thread}-{step}" for step in range(3)])
    assert [one.config for one in saver.list(config(thread))] == new[::-1]


def test_a_thread_deleted_meanwhile_does_not_reappear(saver: HoldfastSaver, thread: str) -> None:
    first = saver.put(config(thread), checkpoint({}, channel_versions={"d": 1}), delta_described(0), {"d": 1})
    saver.put_writes(first, [("d", 1)], "t")
    saver.put(first, checkpoint({}, channel_versions={"d": 2}), delta_described(1), {"d": 2})
    port = saver.store.port
    read = port.rows

    def late(kind: Any, *about: Any, **keys: Any) -> Any:
        found = read(kind, *about, **keys)
        if kind is CheckpointRow:
            HoldfastSaver(saver.store).delete_thread(thread)
        return found

    port.rows = late  # type: ignore[method-assign]
    saver.prune([thread])
    assert port.run(thread) is None


def test_a_delta_checkpoint_is_not_saved_without_its_parent(caller: Caller, thread: str) -> None:
    """It could never be read. The running graph gets an error, and the thread does not change."""
    first = caller.put(config(thread), checkpoint({}, channel_versions={"d": 1}), delta_described(0), {"d": 1})
    second = caller.put(
        first, checkpoint({}, channel_versions={"d": 2}), delta_described(1) | {"run_id": thread}, {"d": 2}
    )
    caller.delete_for_runs([thread])
    with pytest.raises(ParentRemoved, match="parent"):
        caller.put(second, checkpoint({}, channel_versions={"d": 3}), delta_described(2), {"d": 3})
    assert caller.get_tuple(config(thread)).config == first
    caller.put(second, checkpoint({"d": 1}, version=3), described(2), {"d": 3})  # with its value it needs no ancestor


def test_the_metadata_of_langgraph_names_the_delta_channels(saver: HoldfastSaver, thread: str) -> None:
    """Folds depend on this. If it fails, pruning with this LangGraph would lose values of delta channels."""
    graph = chat(saver, Delta)
    for turn in range(9):
        graph.invoke(said(f"m{turn}"), config(thread))
    graph.update_state(config(thread), {"messages": [HumanMessage("x")]})
    for one in saver.list(config(thread)):
        counted = one.metadata.get("counters_since_delta_snapshot", {})
        if "messages" in one.checkpoint["channel_versions"]:
            assert ("messages" in counted) != ("messages" in one.checkpoint["channel_values"])


def test_many_delta_channels_are_folded_like_few(saver: HoldfastSaver, thread: str) -> None:
    """LangGraph's metadata of so many channels is too long to be searched."""
    names = [f"channel-{n:03}" for n in range(300)]
    parent = config(thread)
    versions: dict[str, Any] = dict.fromkeys(names, 1)
    for step in range(3):
        counted = described(step, counters_since_delta_snapshot=dict.fromkeys(names, (1, 1)))
        parent = saver.put(parent, checkpoint({}, channel_versions=versions), counted, versions)
        saver.put_writes(parent, [(name, step) for name in names], f"task-{step}")
    before = saver.get_delta_channel_history(config=parent, channels=names)
    assert before[names[0]]["writes"] == [("task-0", names[0], 0), ("task-1", names[0], 1)]
    saver.prune([thread])
    assert saver.get_delta_channel_history(config=parent, channels=names) == before


def test_what_was_removed_is_not_kept_in_a_fold_without_need(saver: HoldfastSaver, thread: str) -> None:
    graph = chat(saver)
    for text in ("my secret", "hello"):
        graph.invoke(said(text), config(thread))
    newest = saver.get_tuple(config(thread))
    assert newest is not None
    saver.prune([thread])
    assert "delta" not in saver.store.attachments(thread, id_of(newest.config))


def test_a_plain_thread_with_a_missing_ancestor_is_pruned(saver: HoldfastSaver, thread: str) -> None:
    made = _chain(saver, thread, 4)
    saver.store.port.prune(thread, lambda rows, _: [rows[0].number])
    saver.prune([thread])
    assert [one.config for one in saver.list(config(thread))] == made[-1:]


def test_graphs_and_retention_run_beside_each_other(url: str, thread: str) -> None:
    """Threads with stores of their own, as processes have them."""
    stop = threading.Event()
    problems: list[str] = []

    def retaining() -> None:
        with HoldfastSaver(url) as other:
            while not stop.is_set():
                report = other.retain(last=1, thread_ids=[thread])
                problems.extend(report.skipped)

    helpers = [threading.Thread(target=retaining) for _ in range(2)]
    for helper in helpers:
        helper.start()
    try:
        with HoldfastSaver(url) as saver:
            graph = chat(saver, Delta)
            for turn in range(25):
                said_so = graph.invoke(said(f"m{turn}"), config(thread))["messages"]
                assert len(said_so) == 2 * turn + 2
    finally:
        stop.set()
        for helper in helpers:
            helper.join()
    assert problems == []


def test_a_walk_detects_that_an_ancestor_was_removed_meanwhile(saver: HoldfastSaver, thread: str) -> None:
    """A checkpoint is removed with its writes: one whose row was read before must not appear without writes."""
    first = saver.put(config(thread), checkpoint({}, channel_versions={"d": 1}), delta_described(0), {"d": 1})
    saver.put_writes(first, [("d", "kept")], "t")
    second = saver.put(first, checkpoint({}, channel_versions={"d": 2}), delta_described(1), {"d": 2})
    port = saver.store.port
    done: list[int] = []
    read = port.rows

    def late(kind: Any, *about: Any, **keys: Any) -> Any:
        if kind is AttachmentRow and not done:
            done.append(1)
            HoldfastSaver(saver.store).prune([thread])
        return read(kind, *about, **keys)

    port.rows = late  # type: ignore[method-assign]
    found = saver.get_delta_channel_history(config=second, channels=["d"])
    assert found == {"d": {"writes": [("t", "d", "kept")]}}
    assert done


def test_a_listed_checkpoint_has_its_writes_or_is_not_listed(saver: HoldfastSaver, thread: str) -> None:
    for parent in _chain(saver, thread, 3):
        saver.put_writes(parent, [("a", 1)], "t")
    port = saver.store.port
    done: list[int] = []
    read = port.rows

    def late(kind: Any, *about: Any, **keys: Any) -> Any:
        if kind is AttachmentRow and not done:
            done.append(1)
            HoldfastSaver(saver.store).prune([thread])
        return read(kind, *about, **keys)

    port.rows = late  # type: ignore[method-assign]
    assert [len(one.pending_writes or ()) for one in saver.list(config(thread))] == [1]


def test_a_cycle_of_parents_is_reported(saver: HoldfastSaver, thread: str) -> None:
    put = checkpoint({}, channel_versions={"d": 1})
    saver.put(config(thread, "", put["id"]), put, described(), {"d": 1})
    with pytest.raises(DamagedData, match="lead back"):
        saver.get_delta_channel_history(config=config(thread), channels=["d"])


def test_a_copy_has_the_writes_that_count_in_the_original(caller: Caller, thread: str) -> None:
    at = caller.put(config(thread), checkpoint(), described(), {})
    caller.put_writes(at, [("x", "first"), ("y", "first")], "t")
    caller.put_writes(at, [("x", "second")], "t")
    caller.copy_thread(thread, f"{thread}-copy")
    assert caller.get_tuple(config(f"{thread}-copy")).pending_writes == caller.get_tuple(at).pending_writes


def test_a_copy_of_a_claimed_thread_is_never_ready_for_a_worker(
    saver: HoldfastSaver, thread: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    saver.put(config(thread), checkpoint(), described(), {})
    seen = []
    with saver.claim(thread):
        commit = saver.store.port.commit

        def watched(commits: Any) -> Any:
            done = commit(commits)
            row = saver.store.port.run(f"{thread}-copy")
            seen.append(row.status if row else None)
            return done

        monkeypatch.setattr(saver._core.committer, "_apply", watched)
        saver.copy_thread(thread, f"{thread}-copy")
    assert seen[0] == "waiting"
