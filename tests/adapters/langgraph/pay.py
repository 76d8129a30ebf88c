"""Processes that pay after an approval.

`python -m tests.adapters.langgraph.pay` reads lines of JSON: [URL, THREAD, OUT, HOW, SECONDS]. For each it makes a
process (a fork, since loading LangGraph takes seconds), answers with its id, and the process resumes the waiting
thread, writes a line to OUT for every payment, and last how it went. HOW is "claim", to hold the thread meanwhile,
"aclaim", the same awaiting, or "plain".
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any, TypedDict

from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt

from holdfast.adapters.langgraph import HoldfastSaver


class State(TypedDict):
    """What is paid."""

    amount: int
    paid: bool


def graph(saver: Any, out: Path | None = None, seconds: float = 0.0) -> Any:
    """Asks, then pays."""

    def ask(state: State) -> dict[str, Any]:
        return {"paid": interrupt({"pay": state["amount"]}) and False}

    def pay(state: State) -> dict[str, Any]:
        assert out is not None
        note(out, f"paid {state['amount']}")
        time.sleep(seconds)
        return {"paid": True}

    made: Any = StateGraph(State)
    made.add_node("ask", ask)
    made.add_node("pay", pay)
    made.add_edge(START, "ask")
    made.add_edge("ask", "pay")
    made.add_edge("pay", END)
    return made.compile(checkpointer=saver)


def note(out: Path, line: str) -> None:
    """Append a line in one write."""
    file = os.open(out, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, f"{line}\n".encode())
    os.close(file)


def main(url: str, thread: str, out: Path, how: str, seconds: float) -> None:
    config: Any = {"configurable": {"thread_id": thread}}
    with HoldfastSaver(url) as saver:
        made = graph(saver, out, seconds)
        if how == "plain":
            made.invoke(Command(resume=True), config, durability="sync")
        elif how == "claim":
            with saver.claim(thread, lease=2.0):
                made.invoke(Command(resume=True), config, durability="sync")
        else:

            async def awaiting() -> None:
                async with saver.claim(thread, lease=2.0):
                    await made.ainvoke(Command(resume=True), config, durability="sync")

            asyncio.run(awaiting())


def child(url: str, thread: str, out: str, how: str, seconds: float) -> None:
    try:
        main(url, thread, Path(out), how, seconds)
        note(Path(out), "ok")
    except Exception as error:
        note(Path(out), type(error).__name__)
    finally:
        os._exit(0)


if __name__ == "__main__":
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the children are not waited for; the kernel removes them
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            child(*json.loads(line))
        sys.stdout.write(f"{pid}\n")
        sys.stdout.flush()
