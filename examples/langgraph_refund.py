"""A LangGraph agent that asks before it refunds, on Holdfast.

    pip install "holdfast[langgraph]"
    python langgraph_refund.py ask A-17 40         # stops at the question; this process ends
    python langgraph_refund.py answer A-17 yes     # another process answers and continues
    python langgraph_refund.py history A-17

The graph is plain LangGraph. Two lines are Holdfast's: the saver, and the claim around the answer. If two people answer
at the same time, one answer is accepted and the other gets an error.
"""

from __future__ import annotations

import sys
from typing import Annotated, TypedDict

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Command, interrupt

from holdfast.adapters.langgraph import HoldfastSaver
from holdfast.errors import RunClaimed


class Case(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]
    amount: int
    approved: bool


def assess(case: Case) -> dict:
    """Where a model would be called."""
    return {"messages": [AIMessage(f"The customer asks for {case['amount']} back. That seems right.")]}


def approve(case: Case) -> dict:
    answer = interrupt({"question": f"Refund {case['amount']}?", "reason": case["messages"][-1].content})
    return {"approved": answer == "yes"}


def refund(case: Case) -> dict:
    print(f"  … paying {case['amount']}")
    return {"messages": [AIMessage("The refund was paid.")]}


def refuse(case: Case) -> dict:
    return {"messages": [AIMessage("No refund this time.")]}


def build(saver: HoldfastSaver):
    graph = StateGraph(Case)
    for node in (assess, approve, refund, refuse):
        graph.add_node(node.__name__, node)
    graph.add_edge(START, "assess")
    graph.add_edge("assess", "approve")
    graph.add_conditional_edges("approve", lambda case: "refund" if case["approved"] else "refuse")
    graph.add_edge("refund", END)
    graph.add_edge("refuse", END)
    return graph.compile(checkpointer=saver)


def main(command: str, order: str, value: str = "") -> int:
    saver = HoldfastSaver("sqlite:refunds.db")
    graph = build(saver)
    config = {"configurable": {"thread_id": order}}
    if command == "ask":
        found = graph.invoke({"messages": [HumanMessage("I want my money back.")], "amount": int(value)}, config)
        print(f"{order} waits: {found['__interrupt__'][0].value['question']}")
    elif command == "answer":
        try:
            with saver.claim(order):
                if not graph.get_state(config).next:
                    print(f"{order} has been answered already")
                    return 1
                found = graph.invoke(Command(resume=value), config)
        except RunClaimed as busy:
            print(f"somebody else is answering {order}: {busy}")
            return 1
        print(f"{order}: {found['messages'][-1].content}")
    else:
        for state in graph.get_state_history(config):
            print(f"  step {state.metadata['step']:>2}  next: {', '.join(state.next) or 'done'}")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
