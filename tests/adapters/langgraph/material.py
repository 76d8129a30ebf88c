"""Checkpoints and graphs for tests."""

from __future__ import annotations

from typing import Annotated, Any, TypedDict, cast

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.base import Checkpoint, CheckpointMetadata
from langgraph.checkpoint.base.id import uuid6
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import _messages_delta_reducer, add_messages


def config(thread: str, namespace: str = "", checkpoint_id: str | None = None) -> RunnableConfig:
    """A config that names a thread, a namespace and perhaps a checkpoint."""
    found: dict[str, Any] = {"thread_id": thread, "checkpoint_ns": namespace}
    if checkpoint_id is not None:
        found["checkpoint_id"] = checkpoint_id
    return {"configurable": found}


def checkpoint(values: dict[str, Any] | None = None, version: Any = 1, **more: Any) -> Checkpoint:
    """A checkpoint with these values, all of one version."""
    values = {} if values is None else values
    made: dict[str, Any] = {
        "v": 4,
        "id": str(uuid6(clock_seq=-1)),
        "ts": "2026-11-16T10:00:00+00:00",
        "channel_values": values,
        "channel_versions": dict.fromkeys(values, version),
        "versions_seen": {"node": dict.fromkeys(values, version)},
        "updated_channels": sorted(values),
        **more,
    }
    return cast(Checkpoint, made)


def described(step: int = 0, **more: Any) -> CheckpointMetadata:
    """Metadata."""
    return cast(CheckpointMetadata, {"source": "loop", "step": step, "parents": {}, **more})


def id_of(found: RunnableConfig) -> str:
    """The checkpoint a config names."""
    return cast(str, found["configurable"]["checkpoint_id"])


class Plain(TypedDict):
    """Messages in an ordinary channel."""

    messages: Annotated[list[AnyMessage], add_messages]


class Delta(TypedDict):
    """Messages in a delta channel."""

    messages: Annotated[list[AnyMessage], DeltaChannel(_messages_delta_reducer, snapshot_frequency=7)]


def chat(saver: Any, state: type = Plain) -> Any:
    """A graph that answers every message."""
    graph: Any = StateGraph(state)
    graph.add_node("agent", lambda state: {"messages": [AIMessage(f"re: {state['messages'][-1].content}")]})
    graph.add_edge(START, "agent")
    graph.add_edge("agent", END)
    return graph.compile(checkpointer=saver)


def said(text: str) -> dict[str, Any]:
    """Return the input of a graph: messages of a user."""
    return {"messages": [HumanMessage(text)]}


def texts(messages: list[AnyMessage]) -> list[Any]:
    """Return the texts of the messages."""
    return [message.content for message in messages]


def delta_described(step: int, **more: Any) -> CheckpointMetadata:
    """Metadata as LangGraph writes it for a checkpoint whose channel "d" is a delta channel without a value."""
    return described(step, counters_since_delta_snapshot={"d": (1, 1)}, **more)
