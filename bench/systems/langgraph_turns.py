"""A LangGraph graph that takes one turn per superstep, with durability="sync".

`messages` is kept by `add_messages`, which stores the whole list in every checkpoint, or in a DeltaChannel, which
stores what was added. One `stream` takes all turns of a round, so there is one checkpoint per turn; a graph that is
invoked anew for every turn stores about three.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypedDict

from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import _messages_delta_reducer, add_messages

from bench import data
from bench.systems.subject import timed
from bench.systems.with_langgraph import opened

HumanMessage: Any = import_module("langchain_core.messages").HumanMessage


class PlainState(TypedDict, total=False):
    """Messages as most graphs keep them."""

    messages: Annotated[list[Any], add_messages]
    blob: bytes


class DeltaState(TypedDict, total=False):
    """Messages as differences."""

    messages: Annotated[list[Any], DeltaChannel(_messages_delta_reducer)]
    blob: bytes


class Conversation:
    """The graph, its saver and its database."""

    def __init__(self, directory: Path, total: int, *, delta: bool, saver: Any = None) -> None:
        if saver is None:
            self.connection = opened(directory)
            saver = SqliteSaver(self.connection)
        self.config: dict[str, Any] = {"configurable": {"thread_id": data.RUN}, "recursion_limit": total + 10}
        self.coming: list[Any] = []
        self._taken, self._total = 0, total
        graph = StateGraph(DeltaState if delta else PlainState)
        graph.add_node("turn", self._turn)
        graph.add_edge(START, "turn")
        graph.add_conditional_edges("turn", lambda _: "turn" if self._taken < self._total else END)
        self.graph: Any = graph.compile(checkpointer=saver)

    def _turn(self, state: Any) -> dict[str, Any]:
        self._taken += 1
        return {"messages": [self.coming.pop()] if self.coming else []}

    def turns(self, beginning: dict[str, Any]) -> Iterator[Any]:
        """Each step of this iterator is one turn."""
        return iter(self.graph.stream(beginning, self.config, stream_mode="updates", durability="sync"))


def human(message: dict[str, Any]) -> Any:
    """The message as LangGraph's own type."""
    return HumanMessage(message["content"], id=message["id"], additional_kwargs={})


class Turns:
    """`turns`, `edit` and `blob`. An edit is a message with the id of an old one."""

    offers: ClassVar[tuple[str, ...]] = ()

    def __init__(self, directory: Path, total: int, *, delta: bool = False, blob: bool = False, **script: Any) -> None:
        self._script = data.Script(total, **script)
        prepared = bool(self._script.start or blob)
        self._conversation = Conversation(directory, total + prepared, delta=delta)
        beginning: dict[str, Any] = {"messages": [human(message) for message in self._script.beginning()]}
        if blob:
            beginning["blob"] = data.blob()
        self._turns = self._conversation.turns(beginning)
        self._total = total
        if prepared:
            next(self._turns)  # stores what was there before; this turn adds nothing

    def slice(self, kind: str, first: int, count: int) -> list[float]:
        messages = [human(message) for _, message in self._script.changes(first, count)]
        self._conversation.coming = messages[::-1]
        seconds = timed(lambda _: next(self._turns), range(count))
        if first + count == self._total:  # the last checkpoint is put when the stream ends
            seconds[-1] += timed(lambda _: list(self._turns), [0])[0]
        return seconds

    def close(self) -> None:
        self._conversation.connection.close()


class Load:
    """`load`: `get_state` and `get_state_history` of a conversation that was stored turn by turn."""

    offers: ClassVar[tuple[str, ...]] = ("latest", "halfway", "history")

    def __init__(self, directory: Path, total: int, *, delta: bool = False) -> None:
        writer = Turns(directory, total, delta=delta)
        writer.slice("", 0, total)
        writer.close()
        conversation = Conversation(directory, total, delta=delta)
        self._connection, self._graph, self._total = conversation.connection, conversation.graph, total
        latest = conversation.config
        self._configs: dict[str, Any] = {"latest": latest, "history": latest, "halfway": self._at(total // 2, latest)}

    def _at(self, turn: int, latest: Any) -> Any:
        found = self._graph.get_state_history(latest, filter={"step": turn})
        return next(snapshot.config for snapshot in found)

    def slice(self, kind: str, first: int, count: int) -> list[float]:
        if kind == "history":
            return timed(self._history, [kind] * count)
        expected = self._total if kind == "latest" else self._total // 2
        assert len(self._load(kind).values["messages"]) == expected
        return timed(self._load, [kind] * count)

    def _load(self, kind: str) -> Any:
        return self._graph.get_state(self._configs[kind])

    def _history(self, kind: str) -> list[Any]:
        found = list(self._graph.get_state_history(self._configs[kind]))
        assert len(found) >= self._total
        return found

    def close(self) -> None:
        self._connection.close()


class LoadTuple(Load):
    """The same through the saver alone, below the graph: `get_tuple` and `list`."""

    def _load(self, kind: str) -> Any:
        return _Values(self._saver().get_tuple(self._configs[kind]).checkpoint["channel_values"])

    def _history(self, kind: str) -> list[Any]:
        wanted = {"configurable": {"thread_id": data.RUN, "checkpoint_ns": ""}}
        return list(self._saver().list(wanted))

    def _saver(self) -> Any:
        return self._graph.checkpointer


class _Values:
    def __init__(self, values: dict[str, Any]) -> None:
        self.values = values
