"""Graphs whose states and answers are classes of the user's own, and what is seen of them from outside.

Each scenario is given a saver and a way to call graphs, and returns what LangGraph shows of its threads. `python -m
tests.adapters.langgraph.typed_graphs URL PREFIX` runs all of them on LangGraph's saver and on ours, blocking and
awaiting, and fails if they show something else.
"""

from __future__ import annotations

import dataclasses
import enum
import operator
import sys
import warnings
from collections.abc import Callable
from typing import Annotated, Any, TypedDict, cast

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import entrypoint, task
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.prebuilt import create_react_agent
from langgraph.types import Command, Send, interrupt
from pydantic import BaseModel, Field

from holdfast.adapters.langgraph import HoldfastSaver
from tests.adapters.langgraph.material import config
from tests.adapters.langgraph.sync_and_async_caller import Caller

Shown = list[Any]
FAILED = "failed"


class Urgency(enum.Enum):
    """An enum."""

    LOW = "low"
    HIGH = "high"


@dataclasses.dataclass
class Item:
    """A dataclass."""

    name: str
    urgency: Urgency = Urgency.LOW


class Request(BaseModel):
    """The input of a graph."""

    customer: str
    items: list[Item] = Field(default_factory=list)


class Verdict(BaseModel):
    """An answer that was validated."""

    approved: bool
    by: str


class Ticket(BaseModel):
    """The state of a graph as a model."""

    request: Request | None = None
    customer: str = ""
    verdict: Verdict | None = None


class Basket(TypedDict, total=False):
    """A state that holds such values."""

    items: Annotated[list[Item], operator.add]
    urgency: Urgency
    anything: Any
    verdict: Verdict


class AgentState(BaseModel):
    """The state of a prebuilt agent."""

    messages: Annotated[list[AnyMessage], add_messages]
    remaining_steps: int = 20
    customer: Request | None = None


def line(state: Any, *nodes: Callable[..., Any], **how: Any) -> Any:
    """A graph of these nodes, one after the other."""
    graph: Any = StateGraph(state, **how)
    before: str = START
    for node in nodes:
        graph.add_node(node.__name__, node)
        graph.add_edge(before, node.__name__)
        before = node.__name__
    graph.add_edge(before, END)
    return graph


def run_model_as_input(caller: Caller, thread: str) -> Shown:
    def note(state: Request) -> dict[str, Any]:
        return {"request": state, "verdict": None}

    def decide(state: Ticket) -> dict[str, Any]:
        return {"verdict": Verdict.model_validate(interrupt(state.request))}

    graph = line(Ticket, note, decide, input_schema=Request).compile(checkpointer=caller.saver)
    given = Request(customer="ada", items=[Item("lamp", Urgency.HIGH)])
    asked = caller.run(graph, given, config(thread))
    shown = [asked["__interrupt__"][0].value, *_state(caller, graph, thread)]
    shown.append(caller.run(graph, Command(resume={"approved": True, "by": "bob"}), config(thread)))
    return [*shown, *_state(caller, graph, thread)]


class Talker(BaseChatModel):
    """A model that answers without thinking."""

    @property
    def _llm_type(self) -> str:
        return "talker"

    def bind_tools(self, tools: Any, **how: Any) -> Any:
        return self

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **how: Any) -> ChatResult:
        answer = AIMessage(f"answer {len(messages)}", id=f"answer-{len(messages)}")
        return ChatResult(generations=[ChatGeneration(message=answer)])


def run_prebuilt_agent(caller: Caller, thread: str) -> Shown:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # its new home is a package that LangGraph does not need
        graph = create_react_agent(Talker(), [], state_schema=AgentState, checkpointer=caller.saver)
    shown: Shown = []
    for number in range(2):
        said = {"messages": [HumanMessage("hi", id=f"hi-{number}")], "customer": Request(customer="ada")}
        shown += [caller.run(graph, said, config(thread)), *_state(caller, graph, thread)]
    return shown


def run_validated_answer(caller: Caller, thread: str) -> Shown:
    def ask(state: Basket) -> dict[str, Any]:
        verdict = Verdict.model_validate(interrupt({"about": state["items"]}))
        return {"verdict": verdict, "anything": {"all": [verdict]}}

    def note(state: Basket) -> dict[str, Any]:
        return {"anything": type(state["verdict"]).__name__, "urgency": Urgency.HIGH}

    graph = line(Basket, ask, note).compile(checkpointer=caller.saver, interrupt_before=["note"])
    caller.run(graph, {"items": [Item("lamp")]}, config(thread))
    caller.run(graph, Command(resume={"approved": False, "by": "eve"}), config(thread))
    shown = _state(caller, graph, thread)
    return [*shown, caller.run(graph, None, config(thread)), *_state(caller, graph, thread)]


def run_answer_that_is_a_model(caller: Caller, thread: str) -> Shown:
    def ask(state: Basket) -> dict[str, Any]:
        first, second = interrupt("first?"), interrupt("second?")
        return {"anything": [type(first).__name__, type(second).__name__]}

    graph = line(Basket, ask).compile(checkpointer=caller.saver)
    caller.run(graph, {"items": []}, config(thread))
    caller.run(graph, Command(resume=Verdict(approved=True, by="bob")), config(thread))
    return [caller.run(graph, Command(resume=Urgency.HIGH), config(thread)), *_state(caller, graph, thread)]


def run_sibling_of_a_question(caller: Caller, thread: str) -> Shown:
    """Of two parallel nodes one asks; what the other wrote is kept beside the checkpoint and not done again."""
    calls: list[str] = []

    def fill(state: Basket) -> dict[str, Any]:
        calls.append("fill")
        return {"items": [Item("lamp", Urgency.HIGH)], "verdict": Verdict(approved=True, by="bob")}

    def ask(state: Basket) -> dict[str, Any]:
        return {"urgency": Urgency(interrupt("how urgent?"))}

    builder: Any = StateGraph(Basket)
    for node in (fill, ask):
        builder.add_node(node.__name__, node)
        builder.add_edge(START, node.__name__)
        builder.add_edge(node.__name__, END)
    graph = builder.compile(checkpointer=caller.saver)
    shown = [caller.run(graph, {"items": [Item("desk")]}, config(thread))["items"], *_state(caller, graph, thread)]
    return [*shown, caller.run(graph, Command(resume="high"), config(thread)), *_state(caller, graph, thread), calls]


def run_subgraph_and_sends(caller: Caller, thread: str) -> Shown:
    def handle(item: Item) -> dict[str, Any]:
        return {"items": [dataclasses.replace(item, urgency=Urgency.HIGH)]}

    def ask(state: Basket) -> dict[str, Any]:
        return {"verdict": Verdict.model_validate(interrupt(state["items"]))}

    builder: Any = StateGraph(Basket)
    builder.add_node("handle", handle)
    builder.add_node("inner", line(Basket, ask).compile())
    builder.add_conditional_edges(START, lambda state: [Send("handle", item) for item in state["items"]])
    builder.add_edge("handle", "inner")
    builder.add_edge("inner", END)
    graph = builder.compile(checkpointer=caller.saver)
    caller.run(graph, {"items": [Item("lamp"), Item("desk")]}, config(thread))
    shown = _state(caller, graph, thread)
    shown.append(caller.run(graph, Command(resume={"approved": True, "by": "bob"}), config(thread)))
    return [*shown, *_state(caller, graph, thread)]


def run_functional(caller: Caller, thread: str) -> Shown:
    @task
    def make(name: str) -> Item:
        return Item(name, Urgency.HIGH)

    @entrypoint(checkpointer=caller.saver)
    def flow(request: Request) -> dict[str, Any]:
        made = [make(item.name).result() for item in request.items]
        return {"made": made, "verdict": Verdict.model_validate(interrupt(made))}

    @entrypoint(checkpointer=caller.saver)
    async def aflow(request: Request) -> dict[str, Any]:
        made = [await make(item.name) for item in request.items]
        return {"made": made, "verdict": Verdict.model_validate(interrupt(made))}

    graph: Any = flow if caller.kind == "blocking" else aflow
    caller.run(graph, Request(customer="ada", items=[Item("lamp"), Item("desk")]), config(thread))
    return [caller.run(graph, Command(resume={"approved": True, "by": "bob"}), config(thread))]


def _join(left: Any, writes: Any) -> Any:
    return [*(left or []), *(item for write in writes for item in write)]


class Log(TypedDict, total=False):
    """A state whose list is kept as differences."""

    items: Annotated[list[Item], DeltaChannel(_join, snapshot_frequency=50)]


def run_delta_channel(caller: Caller, thread: str) -> Shown:
    """A delta channel; on our saver its ancestors are pruned in between, which leaves a fold."""

    def add(state: Log) -> dict[str, Any]:
        return {"items": [Item(f"number {len(state.get('items') or [])}", Urgency.HIGH)]}

    graph = line(Log, add).compile(checkpointer=caller.saver)
    shown: Shown = []
    for number in range(3):
        shown.append(caller.run(graph, {"items": [Item(f"given {number}")]}, config(thread)))
        if isinstance(caller.saver, HoldfastSaver):
            caller.prune([thread])
    return [*shown, *_state(caller, graph, thread)]


SCENARIOS: dict[str, Callable[[Caller, str], Shown]] = {
    run.__name__.removeprefix("run_"): run
    for run in (
        run_model_as_input, run_prebuilt_agent, run_validated_answer, run_answer_that_is_a_model,
        run_sibling_of_a_question, run_subgraph_and_sends, run_functional, run_delta_channel,
    )
}  # fmt: skip


def _state(caller: Caller, graph: Any, thread: str) -> Shown:
    """A thread's values, what comes next, and what is asked."""
    found = caller.state(graph, config(thread))
    return [
        found.values,
        found.next,
        [(each.name, each.interrupts and each.interrupts[0].value) for each in found.tasks],
    ]


def compare(caller: Caller, scenario: str, thread: str) -> Shown:
    """Run a scenario on LangGraph's saver and on ours; gives what both show, or fails."""
    theirs = Caller(cast(Any, InMemorySaver()), caller.kind)
    expected = _outcome(theirs, scenario, thread)
    theirs.close()
    found = _outcome(caller, scenario, thread)
    assert found == expected, f"{scenario}: {found} is not {expected}"
    return found


def _outcome(caller: Caller, scenario: str, thread: str) -> Shown:
    try:
        return SCENARIOS[scenario](caller, thread)
    except Exception as error:  # where LangGraph is strict, a graph may be given a dict that it does not expect
        return [FAILED, type(error), str(error)]


def main(url: str, prefix: str) -> None:
    """Compare all scenarios, blocking and awaiting, in threads whose names begin so."""
    with HoldfastSaver(url) as saver:
        for kind in ("blocking", "awaiting"):
            caller = Caller(saver, kind)
            for scenario in SCENARIOS:
                compare(caller, scenario, f"{prefix}-{scenario}-{kind}")
            caller.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
