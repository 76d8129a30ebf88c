"""Threads of LangGraph in a golden store: plain and delta channels, interrupts, subgraphs, copies, pruned threads."""

from __future__ import annotations

from typing import Any, TypedDict, cast

from langchain_core.messages import BaseMessage
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, Interrupt, interrupt

from holdfast import Store
from holdfast.adapters.langgraph import HoldfastSaver
from tests.adapters.langgraph.material import Delta, Plain, chat, checkpoint, config, described, said
from tests.golden.contents import compact, to_json

LONG_NAMESPACE = "|".join(f"node_{number}:{number:032x}" for number in range(20))


class Order(TypedDict, total=False):
    """The state of a graph that asks."""

    order: str
    approved: Any
    note: str


def approval(saver: HoldfastSaver) -> Any:
    """A graph that asks within a subgraph, and works beside it."""
    inner: Any = StateGraph(Order)
    inner.add_node("ask", lambda state: {"approved": interrupt({"approve": state["order"]})})
    inner.add_edge(START, "ask")
    inner.add_edge("ask", END)
    outer: Any = StateGraph(Order)
    outer.add_node("gate", inner.compile())
    outer.add_node("beside", lambda state: {"note": f"beside {state['order']}"})
    for node in ("gate", "beside"):
        outer.add_edge(START, node)
        outer.add_edge(node, END)
    return outer.compile(checkpointer=saver)


def write_threads(store: Store) -> None:
    """Every kind of record that the saver writes."""
    saver = HoldfastSaver(store)
    for state, names in ((Plain, ("plain", "plain-pruned")), (Delta, ("delta", "delta-pruned"))):
        graph = chat(saver, state)
        for thread in names:
            for number in range(4):
                graph.invoke(said(f"{thread} {number} " + "words " * 20 * number), config(thread))
    saver.prune(["plain-pruned", "delta-pruned"])
    saver.copy_thread("delta", "delta-copied")
    approval(saver).invoke({"order": "A-17"}, config("interrupted"))
    approval(saver).invoke({"order": "B-18"}, config("approved"))
    approval(saver).invoke(Command(resume={"ok": True}), config("approved"))
    rows = [{"n": number, "text": "text " * 9} for number in range(60)]
    values = {"bytes": b"\x00\xff", "rows": rows, "none": None, "set": {1, 2}, "long": "x" * 9000}
    for namespace in ("", "inner:1", LONG_NAMESPACE):
        made = checkpoint(values, version="0001.5", id=f"1f0c4f7e-0000-6000-8000-{len(namespace):012}")
        metadata = described(7, long="metadata " * 200, odd={"a": (1, 2)})
        saved = saver.put(config("odd", namespace), made, metadata, made["channel_versions"])
        saver.put_writes(saved, [("rows", rows), ("none", None)], "task-1", "path/to")
        saver.put_writes(saved, [("__error__", "it failed")], "task-2")


def read_threads(saver: HoldfastSaver) -> dict[str, Any]:
    """All checkpoints of all threads."""
    found: dict[str, Any] = {}
    for each in saver.list(None):
        found.setdefault(cast(str, each.config["configurable"]["thread_id"]), []).append(_read(each))
    return dict(sorted(found.items()))


def _read(found: CheckpointTuple) -> dict[str, Any]:
    parent = found.parent_config["configurable"] if found.parent_config else None
    return {
        "config": to_json(_plain(found.config["configurable"])),
        "parent": to_json(_plain(parent)),
        "metadata": compact(_plain(found.metadata)),
        "checkpoint": compact(_plain(found.checkpoint)),
        "writes": compact([_plain(list(write)) for write in found.pending_writes or ()]),
    }


def _plain(value: Any) -> Any:
    """A value of LangGraph's as built-in types."""
    if isinstance(value, BaseMessage):
        return {"message": type(value).__name__, "id": value.id, "content": _plain(value.content)}
    if isinstance(value, dict):
        return {str(key): _plain(part) for key, part in value.items()}
    if type(value) in (list, tuple, set):
        return type(value)(_plain(part) for part in value)
    if isinstance(value, Interrupt):
        return {"interrupt": value.id, "value": _plain(value.value)}
    return {"snapshot": _plain(value.value)} if isinstance(value, _DeltaSnapshot) else value
