"""Saves of a graph and its subgraphs arrive in any order, which does not determine their age."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, Send

from tests.adapters.langgraph.conftest import SQL, url_of
from tests.adapters.langgraph.landing import LandingSaver, Notes, Shop, line, name_of, noting, orders
from tests.adapters.langgraph.material import checkpoint, config, described
from tests.adapters.langgraph.sync_and_async_caller import Caller
from tests.today import matrix_params

PARTS = 3
DURABILITY = ("async", "sync", "exit")


@pytest.fixture(params=matrix_params(SQL, daily=[SQL[::3], SQL[1:3]]))
def caller(request: pytest.FixtureRequest, folder: Path) -> Iterator[Caller]:
    """A saver whose saves can be ordered, and a way to call it."""
    store, kind = request.param
    with LandingSaver(url_of(store, folder)) as saver:
        saver.land([])
        caller = Caller(saver, kind)
        yield caller
        caller.close()


def _lanes(caller: Caller, thread: str) -> set[str]:
    everywhere: Any = {"configurable": {"thread_id": thread}}
    return {name_of(one.config["configurable"]["checkpoint_ns"]) for one in caller.list(everywhere)}


# --- time travel -----------------------------------------------------------------------------------------------------


def _remembering(saver: Any) -> Any:
    inner = line(("talk", noting("talk")), checkpointer=True)
    return line(("before", noting("before")), ("inner", inner), ("after", noting("after")), checkpointer=saver)


async def _history(graph: Any, thread: str) -> list[Any]:
    return [found async for found in graph.aget_state_history(config(thread))]


def _travel(run: Any, history: Any, graph: Any, thread: str) -> list[Any]:
    """What a replay gives from before the subgraph's second call."""
    for turn in range(3):
        run(graph, {"notes": [f"turn {turn}"]}, config(thread))
    before_call = [found for found in history(graph, thread) if found.next == ("inner",)]
    assert len(before_call) == 3
    return run(graph, None, before_call[1].config)["notes"]  # type: ignore[no-any-return]


def test_a_replay_gives_a_subgraph_its_state_of_then_however_saves_landed(caller: Caller, thread: str) -> None:
    expected = _travel(
        lambda graph, given, where: graph.invoke(given, where),
        lambda graph, name: list(graph.get_state_history(config(name))), _remembering(InMemorySaver()), thread,
    )  # fmt: skip
    saver = caller.saver
    assert isinstance(saver, LandingSaver)
    graph = _remembering(saver)

    def run(graph: Any, given: Any, where: Any) -> Any:
        saver.land(order if given is not None else [])
        found = caller.run(graph, given, where)
        saver.land([])
        return found

    def history(graph: Any, name: str) -> list[Any]:
        if caller.kind == "blocking":
            return list(graph.get_state_history(config(name)))
        return asyncio.run(_history(graph, name))

    for at, order in enumerate(orders(root=2, inner=2)):
        assert _travel(run, history, graph, f"{thread}-{at}") == expected, order


@pytest.mark.parametrize("durability", DURABILITY)
def test_a_replay_of_nested_and_repeated_subgraphs_is_as_with_langgraphs_own_saver(
    caller: Caller, thread: str, durability: str
) -> None:
    """Two levels with memory, beside a subgraph that is called separately for each task."""

    def made(saver: Any) -> Any:
        inmost = line(("talk", noting("t")), checkpointer=True)
        inner = line(("inmost", inmost), ("say", noting("s")), checkpointer=True)
        graph: Any = StateGraph(Notes)
        graph.add_node("inner", inner)
        graph.add_node("inn", line(("talk", noting("u"))))
        graph.add_node("end", noting("e"))
        graph.add_edge(START, "inner")
        graph.add_edge(START, "inn")
        graph.add_edge(["inner", "inn"], "end")
        graph.add_edge("end", END)
        return graph.compile(checkpointer=saver)

    def travel(saver: Any, run: Any) -> list[Any]:
        graph = made(saver)
        for turn in range(3):
            run(graph, {"notes": [f"turn {turn}"]}, config(thread), durability=durability)
        return [
            run(graph, None, found.config, durability=durability)["notes"]
            for found in list(graph.get_state_history(config(thread)))
        ]

    own = InMemorySaver()
    expected = travel(own, lambda graph, given, where, **how: graph.invoke(given, where, **how))
    assert travel(caller.saver, caller.run) == expected


def test_before_compares_ids_across_namespaces(caller: Caller, thread: str) -> None:
    """Also if the clock went back in between: ids decide, and the largest comes first."""
    ids = [f"1f0c3{n:03d}-0000-6000-8000-000000000000" for n in range(9)]
    for at, namespace in ((4, "sub"), (5, "sub"), (3, ""), (1, "sub"), (2, "sub"), (6, "")):
        caller.put(config(thread, namespace), checkpoint(id=ids[at]), described(at), {})

    def steps(found: list[Any]) -> list[int]:
        return [one.metadata["step"] for one in found]

    assert steps(caller.list(config(thread, "sub"), before=config(thread, "", ids[3]))) == [2, 1]
    assert steps(caller.list(config(thread, "sub"), before=config(thread, "", ids[6]), limit=1)) == [5]
    replay: Any = {"configurable": {"checkpoint_id": ids[6]}}
    assert steps(caller.list(config(thread, "sub"), before=replay)) == [5, 4, 2, 1]
    assert steps(caller.list(config(thread, "sub"), before=replay, filter={"step": 4})) == [4]
    assert steps(caller.list(config(thread, "none"), before=replay)) == []
    everywhere: Any = {"configurable": {"thread_id": thread}}
    assert steps(caller.list(everywhere)) == [6, 5, 4, 3, 2, 1]
    assert steps(caller.list(everywhere, before=config(thread, "sub", ids[5]))) == [4, 3, 2, 1]
    assert steps(caller.list(everywhere, before=config(thread, "", ids[7]), limit=2)) == [6, 5]
    # In one namespace "older" is what was saved earlier, as "newest" is what was saved last.
    assert steps(caller.list(config(thread, "sub"))) == [2, 1, 5, 4]
    assert steps(caller.list(config(thread, "sub"), before=config(thread, "sub", ids[1]))) == [5, 4]
    one: Any = {"configurable": {"checkpoint_id": ids[1]}}
    assert steps(caller.list(config(thread, "sub"), before=one)) == [5, 4]


def test_a_list_of_all_namespaces_is_read_in_pages_by_id(caller: Caller, thread: str) -> None:
    ids = [f"1f0c3{n:03d}-0000-6000-8000-000000000000" for n in range(250)]
    for at in [*range(1, 250, 2), *range(0, 250, 2)]:
        for namespace in ("", "sub"):
            caller.put(config(thread, namespace), checkpoint(id=ids[at]), described(at), {})
    everywhere: Any = {"configurable": {"thread_id": thread}}
    found = [one.metadata["step"] for one in caller.list(everywhere)]
    assert found == [at for at in reversed(range(250)) for _ in range(2)]
    below = caller.list(everywhere, before=config(thread, "none", ids[7]))
    assert [one.metadata["step"] for one in below] == [6, 6, 5, 5, 4, 4, 3, 3, 2, 2, 1, 1, 0, 0]


# --- retention beside an interrupted subgraph ------------------------------------------------------------------------


def _interrupted(shop: Shop, shape: str, saver: Any) -> tuple[Any, list[list[str]], int]:
    """A graph that waits inside a subgraph, the orders its saves can land in, and how often it pays."""
    before, after = ("before", noting("before")), ("after", noting("after"))
    if shape == "one":
        return line(before, ("inner", shop.till()), after, checkpointer=saver), list(orders(root=2, inner=2)), 1
    if shape == "remembering":
        made = line(before, ("inner", shop.till(checkpointer=True)), after, checkpointer=saver)
        return made, list(orders(root=2, inner=2)), 1
    if shape == "nested":
        outer = line(("first", noting("first")), ("inmost", shop.till()))
        made = line(("outer", outer), after, checkpointer=saver)
        return made, list(orders(root=1, outer=2, outer_inmost=2)), 1
    graph: Any = StateGraph(Notes)
    graph.add_node("a", shop.till("a"))
    graph.add_node("aa", shop.till("aa"))
    graph.add_edge(START, "a")
    graph.add_edge(START, "aa")
    graph.add_edge("a", END)
    graph.add_edge("aa", END)
    return graph.compile(checkpointer=saver), list(orders(root=1, a=2, aa=2)), 2


@pytest.mark.torture(daily=1, by="part")
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("verb", ["retain", "prune"])
@pytest.mark.parametrize("shape", ["one", "remembering", "nested", "parallel"])
def test_an_interrupted_subgraph_continues_after_a_cleanup(
    caller: Caller, thread: str, shape: str, verb: str, part: int
) -> None:
    """For every order of the graph's save, the subgraph's save and the cleanup."""
    saver = caller.saver
    assert isinstance(saver, LandingSaver)

    def clean(name: str) -> None:
        saver.retain(last=1, thread_ids=[name]) if verb == "retain" else saver.prune([name])

    _, every, _ = _interrupted(Shop(), shape, saver)
    for at, order in enumerate(every[part::PARTS]):
        shop, name = Shop(), f"{thread}-{at}"
        graph, _, payments = _interrupted(shop, shape, saver)
        saver.land(order, lambda _, name=name: clean(name))  # type: ignore[misc]
        caller.run(graph, {"notes": []}, config(name))
        saver.land([])
        clean(name)
        waiting = [one.id for task in caller.state(graph, config(name)).tasks for one in task.interrupts]
        assert len(waiting) == payments, order
        caller.run(graph, Command(resume=dict.fromkeys(waiting, "yes")), config(name))
        assert sum(shop.paid.values()) == payments, order
        clean(name)
        assert _lanes(caller, name) == ({"", "inner"} if shape == "remembering" else {""}), order


class _DiedError(Exception):
    """The process died: this save and all that follow it did not happen."""


def test_a_thread_continues_if_its_process_died_before_the_graphs_own_save(caller: Caller, thread: str) -> None:
    saver, shop = caller.saver, Shop()
    assert isinstance(saver, LandingSaver)
    graph, _, _ = _interrupted(shop, "one", saver)

    def die(place: int) -> None:
        if place == 2:  # the input and both saves of the subgraph have landed
            raise _DiedError

    saver.land(["", "inner", "inner", ""], die)
    with pytest.raises((_DiedError, AssertionError)):
        caller.run(graph, {"notes": []}, config(thread))
    saver.land([])
    caller.retain(last=1, thread_ids=[thread])
    assert _lanes(caller, thread) == {"", "inner"}, "it is not known that the graph's checkpoint will never be saved"
    caller.run(graph, None, config(thread))
    caller.prune([thread])
    found = caller.run(graph, Command(resume="yes"), config(thread))
    assert found["notes"] == ["before0", "before0", "paid one", "yes", "after4"]


@pytest.mark.parametrize("durability", DURABILITY)
@pytest.mark.parametrize("shape", ["one", "remembering", "nested", "parallel"])
def test_an_interrupted_subgraph_is_kept_with_every_durability(
    caller: Caller, thread: str, shape: str, durability: str
) -> None:
    shop = Shop()
    graph, _, payments = _interrupted(shop, shape, caller.saver)
    caller.run(graph, {"notes": []}, config(thread), durability=durability)
    caller.retain(last=1, thread_ids=[thread])
    caller.prune([thread])
    waiting = [one.id for task in caller.state(graph, config(thread)).tasks for one in task.interrupts]
    caller.run(graph, Command(resume=dict.fromkeys(waiting, "yes")), config(thread), durability=durability)
    assert sum(shop.paid.values()) == payments


def test_a_waiting_call_among_many_is_kept_and_finished_ones_are_removed(caller: Caller, thread: str) -> None:
    shop = Shop()
    graph: Any = StateGraph(Notes)
    graph.add_node("plain", line(("talk", noting("talk"))))
    graph.add_node("till", shop.till())
    graph.add_conditional_edges(START, lambda _: [Send("plain", {"notes": []}) for _ in range(3)])
    graph.add_edge("plain", "till")
    graph.add_edge("till", END)
    made = graph.compile(checkpointer=caller.saver)
    caller.run(made, {"notes": []}, config(thread))
    assert _lanes(caller, thread) == {"", "plain", "till"}
    caller.retain(last=1, thread_ids=[thread])
    assert _lanes(caller, thread) == {"", "till"}
    caller.run(made, Command(resume="yes"), config(thread))
    assert shop.paid["one"] == 1


def test_a_subgraph_is_kept_as_long_as_the_checkpoint_it_was_called_from(caller: Caller, thread: str) -> None:
    """Namespaces that begin like others are others; a call whose graph is not saved yet may still be needed."""
    roots = [caller.put(config(thread), checkpoint(), described(step), {}) for step in range(3)]
    ids = [one["configurable"]["checkpoint_id"] for one in roots]

    def call(namespace: str, **parents: str) -> None:
        known = {"" if name == "root" else name.replace("_", ":"): value for name, value in parents.items()}
        caller.put(config(thread, namespace), checkpoint(), described(parents=known), {})

    call("n:1", root=ids[0])
    call("n:11", root=ids[2])
    call("n:1|m:2", root=ids[0], n_1="unknown")
    call("n:11|m:2", root=ids[2], n_11="unknown")
    call("n:1|remembers", root=ids[0])
    call("n:12", root="not saved yet")
    call("n:13")
    caller.put(config(thread, "n:14"), checkpoint(), described(parents={"": ["odd"], "\0": ids[0]}), {})
    call("remembers", root=ids[0])
    call("remembers|n:3", root=ids[0])
    long = "n:1|" + "|".join(f"m:{'0' * 60}{n}" for n in range(40))
    caller.put(
        config(thread, long), checkpoint(),
        described(parents={f"{'x' * 90}:{n}": "id" for n in range(20)} | {"": ids[0]}), {},
    )  # fmt: skip
    kept = {"", "n:11", "n:11|m:2", "n:12", "n:13", "n:14", "remembers"}
    caller.retain(last=1, thread_ids=[thread])
    everywhere: Any = {"configurable": {"thread_id": thread}}
    assert {one.config["configurable"]["checkpoint_ns"] for one in caller.list(everywhere)} == kept
    caller.put(config(thread, "", "not saved yet"), checkpoint(), described(4), {})
    caller.prune([thread])
    left = {one.config["configurable"]["checkpoint_ns"] for one in caller.list(everywhere)}
    assert left == {"", "n:12", "n:13", "n:14", "remembers"}


def test_a_replay_from_a_kept_checkpoint_finds_the_subgraphs_state_after_retention(caller: Caller, thread: str) -> None:
    """A subgraph that remembers may have many more checkpoints than the graph; `last` counts each namespace's own."""
    inner = line(*[(f"talk{n}", noting("t")) for n in range(5)], checkpointer=True)
    graph = line(("inner", inner), checkpointer=caller.saver)
    for turn in range(4):
        caller.run(graph, {"notes": [f"turn {turn}"]}, config(thread))
    before = {one.checkpoint["id"]: _replayed(caller, thread, one) for one in caller.list(config(thread))}
    caller.retain(last=7, thread_ids=[thread])
    after = {one.checkpoint["id"]: _replayed(caller, thread, one) for one in caller.list(config(thread))}
    assert len(after) == 7
    assert all(found == before[name] and found for name, found in after.items())


def _replayed(caller: Caller, thread: str, found: Any) -> Any:
    """What the subgraph begins with, as LangGraph asks for it."""
    before: Any = {"configurable": {"checkpoint_id": found.checkpoint["id"]}}
    return [one.checkpoint for one in caller.list(config(thread, "inner"), before=before, limit=1)]


# --- parents that were removed ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["retain", "prune", "delete_for_runs"])
def test_a_checkpoint_whose_parent_was_removed_has_none(caller: Caller, thread: str, verb: str) -> None:
    found = config(thread)
    for step in range(3):
        run_id = f"{thread}-{step}"
        found = caller.put(found, checkpoint({"n": step}), described(step, run_id=run_id), {"n": 1})
    newest, middle, oldest = caller.list(config(thread))
    assert newest.parent_config == middle.config
    assert (middle.parent_config, oldest.parent_config) == (oldest.config, None)
    if verb == "retain":
        caller.retain(last=1, thread_ids=[thread])
    elif verb == "prune":
        caller.prune([thread])
    else:
        caller.delete_for_runs([f"{thread}-1"])
    assert caller.get_tuple(config(thread)).parent_config is None
    assert caller.list(config(thread))[0].parent_config is None
    assert caller.get_tuple(config(thread)).checkpoint["channel_values"] == {"n": 2}
    again = caller.put(found, checkpoint({"n": 3}), described(3), {"n": 1})
    assert caller.get_tuple(again).parent_config == found


def test_a_list_knows_parents_beyond_its_page(caller: Caller, thread: str) -> None:
    first = caller.put(config(thread), checkpoint(), described(0), {})
    for step in range(1, 4):
        caller.put(first, checkpoint(), described(step), {})
    assert [one.parent_config for one in caller.list(config(thread), limit=2)] == [first, first]
    assert [one.parent_config for one in caller.list(config(thread), filter={"step": 2})] == [first]
    assert [one.parent_config for one in caller.list(config(thread), filter={"step": 0})] == [None]
