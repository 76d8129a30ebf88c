"""The status of threads: completed when nothing is left to run, waiting when a node or a person is."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.channels import EphemeralValue, LastValue
from langgraph.func import entrypoint
from langgraph.graph import END, START, StateGraph
from langgraph.pregel import NodeBuilder, Pregel
from langgraph.types import Command, Send, interrupt

from holdfast.adapters.langgraph import HoldfastSaver
from tests.adapters.langgraph.material import config
from tests.adapters.langgraph.sync_and_async_caller import Caller

DURABILITIES = ("sync", "async", "exit")


class State(TypedDict, total=False):
    """What the graphs here keep."""

    order: str
    log: Annotated[list[str], operator.add]
    approved: Any


def say(text: str) -> Callable[[State], State]:
    """A node that adds a line."""
    return lambda _: {"log": [text]}


def built(saver: HoldfastSaver, *edges: tuple[Any, Any], compiled: Any = None, **nodes: Any) -> Any:
    """A graph of these nodes and edges."""
    graph: Any = StateGraph(State)
    for name, node in nodes.items():
        graph.add_node(name, node)
    for source, target in edges:
        graph.add_edge(source, target)
    return graph.compile(checkpointer=saver, **(compiled or {}))


def line(saver: HoldfastSaver, second: Any, **compiled: Any) -> Any:
    """Two nodes, one after the other."""
    return built(saver, (START, "one"), ("one", "two"), ("two", END), one=say("one"), two=second, compiled=compiled)


def status(caller: Caller, thread: str) -> str:
    """Return the stored status, which must not be completed if LangGraph would continue the thread."""
    (info,) = [info for info in caller.saver.store.runs(workflow="langgraph", prefix=thread) if info.run_id == thread]
    return info.status


@pytest.mark.parametrize("durability", DURABILITIES)
def test_a_thread_is_completed_at_the_end_and_can_be_called_again(caller: Caller, thread: str, durability: str) -> None:
    graph = line(caller.saver, say("two"))
    for number in (1, 2, 3):
        found = caller.run(graph, {"order": "A-17"}, config(thread), durability=durability)
        assert (len(found["log"]), status(caller, thread)) == (2 * number, "completed")


@pytest.mark.parametrize("durability", DURABILITIES)
def test_a_thread_waits_from_its_interrupt_until_it_is_answered(caller: Caller, thread: str, durability: str) -> None:
    graph = line(caller.saver, lambda state: {"approved": interrupt({"approve": state["order"]})})
    for _ in range(2):
        caller.run(graph, {"order": "A-17"}, config(thread), durability=durability)
        assert status(caller, thread) == "waiting"
        caller.run(graph, Command(resume=True), config(thread), durability=durability)
        assert status(caller, thread) == "completed"


@pytest.mark.parametrize("durability", DURABILITIES)
def test_a_thread_whose_node_raised_waits(caller: Caller, thread: str, durability: str) -> None:
    def fail(_: State) -> State:
        raise RuntimeError("down")

    caller.run(line(caller.saver, say("two")), {"order": "A-17"}, config(thread), durability=durability)
    with pytest.raises(RuntimeError):
        caller.run(line(caller.saver, fail), {"order": "A-17"}, config(thread), durability=durability)
    assert status(caller, thread) == "waiting"
    caller.run(line(caller.saver, say("two")), None, config(thread), durability=durability)
    assert status(caller, thread) == "completed"


def test_a_thread_waits_at_a_breakpoint(caller: Caller, thread: str) -> None:
    graph = line(caller.saver, say("two"), interrupt_before=["two"])
    caller.run(graph, {"order": "A-17"}, config(thread))
    assert status(caller, thread) == "waiting"
    caller.run(graph, None, config(thread))
    assert status(caller, thread) == "completed"


@pytest.mark.parametrize("durability", DURABILITIES)
def test_a_thread_waits_for_an_interrupt_of_a_subgraph(caller: Caller, thread: str, durability: str) -> None:
    inner = built(None, (START, "ask"), ask=lambda _: {"approved": interrupt("sure?")})  # type: ignore[arg-type]
    graph = built(caller.saver, (START, "gate"), ("gate", END), gate=inner)
    caller.run(graph, {"order": "A-17"}, config(thread), durability=durability)
    assert status(caller, thread) == "waiting"
    caller.run(graph, Command(resume=True), config(thread), durability=durability)
    assert status(caller, thread) == "completed"


def test_a_thread_waits_until_all_that_a_node_joins_have_run(caller: Caller, thread: str) -> None:
    """The name of a node may contain the separator of names."""
    nodes = {"a": say("a"), "b+c": say("b"), "d": say("d")}
    edges = [(START, "a"), (START, "b+c"), (["a", "b+c"], "d"), ("d", END)]
    graph = built(caller.saver, *edges, **nodes, compiled={"interrupt_before": ["d"]})
    caller.run(graph, {"order": "A-17"}, config(thread))
    assert status(caller, thread) == "waiting"
    caller.run(graph, None, config(thread))
    assert status(caller, thread) == "completed"


def test_a_thread_that_ended_without_all_that_a_node_joins_is_completed(caller: Caller, thread: str) -> None:
    graph = built(caller.saver, (START, "a"), (["a", "b"], "c"), a=say("a"), b=say("b"), c=say("c"))
    caller.run(graph, {"order": "A-17"}, config(thread))
    assert (caller.state(graph, config(thread)).next, status(caller, thread)) == ((), "completed")


def test_a_thread_waits_for_what_was_sent_to_a_node(caller: Caller, thread: str) -> None:
    graph: Any = StateGraph(State)
    graph.add_node("one", say("one"))
    graph.add_node("each", say("each"))
    graph.add_edge(START, "one")
    graph.add_conditional_edges("one", lambda _: [Send("each", {"order": name}) for name in "ab"], ["each"])
    graph = graph.compile(checkpointer=caller.saver, interrupt_before=["each"])
    caller.run(graph, {"order": "A-17"}, config(thread))
    assert status(caller, thread) == "waiting"
    caller.run(graph, None, config(thread))
    assert (caller.state(graph, config(thread)).next, status(caller, thread)) == ((), "completed")


@pytest.mark.parametrize("durability", DURABILITIES)
def test_an_entrypoint_has_the_same_statuses(caller: Caller, thread: str, durability: str) -> None:
    @entrypoint(checkpointer=caller.saver)
    async def work(order: str) -> Any:
        return f"{order} {interrupt('sure?')}"

    @entrypoint(checkpointer=caller.saver)
    def blocking(order: str) -> Any:
        return f"{order} {interrupt('sure?')}"

    graph = work if caller.kind == "awaiting" else blocking
    caller.run(graph, "A-17", config(thread), durability=durability)
    assert status(caller, thread) == "waiting"
    caller.run(graph, Command(resume="yes"), config(thread), durability=durability)
    assert status(caller, thread) == "completed"


def test_a_thread_of_a_graph_whose_triggers_are_not_known_waits(caller: Caller, thread: str) -> None:
    nodes: Any = {
        "one": NodeBuilder().subscribe_only("a").do(lambda text: text * 2).write_to("b"),
        "two": NodeBuilder().subscribe_only("b").do(lambda text: text * 2).write_to("c"),
    }
    channels: Any = {"a": EphemeralValue(str), "b": LastValue(str), "c": EphemeralValue(str)}
    graph: Any = Pregel(
        nodes=nodes, channels=channels, input_channels=["a"], output_channels=["c"], checkpointer=caller.saver
    )
    assert caller.run(graph, {"a": "x"}, config(thread)) == {"c": "xxxx"}
    assert status(caller, thread) == "waiting"


def test_an_update_that_leaves_a_node_to_run_makes_a_completed_thread_wait(saver: HoldfastSaver, thread: str) -> None:
    caller, graph = Caller(saver, "blocking"), line(saver, say("two"))
    graph.invoke({"order": "A-17"}, config(thread))
    graph.update_state(config(thread), {"log": ["again"]}, as_node="one")
    assert status(caller, thread) == "waiting"
    graph.update_state(config(thread), None, as_node=END)
    assert (graph.get_state(config(thread)).next, status(caller, thread)) == ((), "completed")


def test_a_command_that_fails_after_it_sent_a_completed_thread_to_a_node_leaves_it_waiting(
    saver: HoldfastSaver, thread: str
) -> None:
    caller = Caller(saver, "blocking")
    fails = [False]

    def two(_: State) -> State:
        if fails[0]:
            raise RuntimeError("down")
        return {"log": ["two"]}

    graph = line(saver, two)
    for held in (False, True):
        fails[0] = False
        graph.invoke({"order": "A-17"}, config(thread))
        assert status(caller, thread) == "completed"
        fails[0] = True
        with pytest.raises(RuntimeError):
            _called(saver, thread, lambda: graph.invoke(Command(goto="two"), config(thread)), held=held)
        assert status(caller, thread) == "waiting"
        fails[0] = False
        before = graph.get_state(config(thread)).values["log"]
        assert graph.invoke(None, config(thread))["log"] == [*before, "two"]
        assert status(caller, thread) == "completed"


def _called(saver: HoldfastSaver, thread: str, call: Callable[[], Any], *, held: bool) -> None:
    if not held:
        call()
        return
    with saver.claim(thread):
        call()


def test_a_completed_thread_can_be_claimed_and_has_its_status_afterwards(saver: HoldfastSaver, thread: str) -> None:
    caller = Caller(saver, "blocking")
    graph = line(saver, lambda state: {"approved": interrupt(state["order"])})
    for given, after in (({"order": "A-17"}, "waiting"), (Command(resume=True), "completed")) * 2:
        with saver.claim(thread):
            graph.invoke(given, config(thread))
            assert status(caller, thread) == "running"
        assert status(caller, thread) == after


def test_writes_that_arrive_after_the_last_checkpoint_do_not_reopen_a_thread(
    saver: HoldfastSaver, thread: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    late: list[tuple[Any, ...]] = []
    monkeypatch.setattr(saver, "put_writes", lambda *call: late.append(call))
    line(saver, say("two")).invoke({"order": "A-17"}, config(thread))
    monkeypatch.undo()
    for call in late:
        saver.put_writes(*call)
    assert late
    assert status(Caller(saver, "blocking"), thread) == "completed"


def test_a_thread_waits_again_when_the_checkpoints_of_its_last_call_are_removed(caller: Caller, thread: str) -> None:
    graph = line(caller.saver, lambda state: {"approved": interrupt(state["order"])})
    caller.run(graph, {"order": "A-17"}, {**config(thread), "metadata": {"run_id": f"{thread}-first"}})
    caller.run(graph, Command(resume=True), {**config(thread), "metadata": {"run_id": f"{thread}-second"}})
    assert status(caller, thread) == "completed"
    caller.delete_for_runs([f"{thread}-second"])
    assert status(caller, thread) == "waiting"


def test_a_thread_waits_again_when_the_checkpoint_that_closed_it_is_removed(saver: HoldfastSaver, thread: str) -> None:
    graph = line(saver, lambda _: {"log": [interrupt("sure?")]})
    graph.invoke({"log": []}, config(thread))
    graph.update_state(config(thread), None, as_node="__end__")
    closed = graph.get_state(config(thread)).config["configurable"]["checkpoint_id"]
    assert status(Caller(saver, "blocking"), thread) == "completed"
    saver.store.delete_checkpoint(thread, closed)
    assert [each.value for each in graph.get_state(config(thread)).interrupts] == ["sure?"]
    assert status(Caller(saver, "blocking"), thread) == "waiting"
    saver.store.copy(thread, f"{thread}-copy")
    saver.store.import_run(saver.store.export_run(thread), run_id=f"{thread}-imported")
    for name in (f"{thread}-copy", f"{thread}-imported"):
        assert status(Caller(saver, "blocking"), name) == "waiting"
    graph.invoke(Command(resume="yes"), config(thread))
    assert status(Caller(saver, "blocking"), thread) == "completed"


def test_a_thread_stays_completed_when_checkpoints_before_its_end_are_removed(caller: Caller, thread: str) -> None:
    graph = line(caller.saver, say("two"))
    for name in ("first", "second"):
        caller.run(graph, {"order": "A-17"}, {**config(thread), "metadata": {"run_id": f"{thread}-{name}"}})
    caller.delete_for_runs([f"{thread}-second"])
    assert status(caller, thread) == "completed"
    caller.copy_thread(thread, f"{thread}-copy")
    assert status(caller, f"{thread}-copy") == "completed"


def test_no_worker_takes_a_thread_whatever_its_status(saver: HoldfastSaver, thread: str) -> None:
    graph = line(saver, lambda state: {"approved": interrupt(state["order"])})
    calls: tuple[Any, ...] = ({"order": "A-17"}, Command(resume=True))
    for given in calls:
        graph.invoke(given, config(thread))
        assert status(Caller(saver, "blocking"), thread) != "ready"
