"""A chat: every turn is one `invoke` with a message of 1 KB, and the graph's only node answers with 1 KB.

The graph is the same for every saver. `messages` is kept by `add_messages`, or in LangGraph's DeltaChannel with its own
settings.
"""

from __future__ import annotations

import random
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, TypedDict
from uuid import UUID

from langgraph.channels.delta import DeltaChannel
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import _messages_delta_reducer, add_messages

from bench import data
from bench.systems.savers import Home
from bench.systems.subject import timed

_messages: Any = import_module("langchain_core.messages")

CONFIG: Final[dict[str, Any]] = {"configurable": {"thread_id": data.RUN}}
_WARM: Final = 10


class PlainState(TypedDict):
    """Messages as most graphs keep them."""

    messages: Annotated[list[Any], add_messages]


class DeltaState(TypedDict):
    """Messages as differences."""

    messages: Annotated[list[Any], DeltaChannel(_messages_delta_reducer)]


class Chat:
    """The graph, and the answers that its node will give."""

    def __init__(self, saver: Any, *, delta: bool) -> None:
        self.coming: list[Any] = []
        graph: Any = StateGraph(DeltaState if delta else PlainState)
        graph.add_node("answer", lambda state: {"messages": [self.coming.pop()]})
        graph.add_edge(START, "answer")
        graph.add_edge("answer", END)
        self.graph: Any = graph.compile(checkpointer=saver)

    def count(self) -> int:
        """How many messages the thread has, as it is stored."""
        return len(self.graph.get_state(CONFIG).values["messages"])


def question(turn: int) -> Any:
    """What the user says in a turn."""
    return _message("HumanMessage", f"question {turn}")


def answer(turn: int) -> Any:
    """What the node answers."""
    return _message("AIMessage", f"answer {turn}")


def _message(kind: str, seed: str) -> Any:
    """Ids are such as LangGraph would give, but the same for every saver."""
    named = str(UUID(int=random.Random(seed).getrandbits(128), version=4))
    return getattr(_messages, kind)(data.text(seed, data.MESSAGE_BYTES), id=named)


class Turns:
    """`saver_turns` and `saver_bytes`: all checkpoints are kept. No `durability` is LangGraph's default."""

    offers: ClassVar[tuple[str, ...]] = ()
    _warm: ClassVar[bool] = False
    """Whether this process has taken turns before, in a database that is gone: the first ones load modules."""

    def __init__(
        self,
        directory: Path,
        total: int,
        *,
        saver: str,
        place: str = "",
        delta: bool = False,
        durability: str | None = None,
    ) -> None:
        if not Turns._warm:
            Turns._warm = True  # before it is, because this makes another one
            with tempfile.TemporaryDirectory(dir=directory) as aside:
                first = Turns(Path(aside), _WARM, saver=saver, place=place, delta=delta, durability=durability)
                first.slice("", 0, _WARM)
                first.close()
        self.home = Home.new(saver, place, directory)
        made, self._close = self.home.open()
        self.chat = Chat(made, delta=delta)
        self._durability, self._total = durability, total

    def slice(self, kind: str, first: int, count: int) -> list[float]:
        turns = range(first, first + count)
        questions = [{"messages": [question(turn)]} for turn in turns]
        self.chat.coming = [answer(turn) for turn in turns][::-1]
        invoke, durability = self.chat.graph.invoke, self._durability
        seconds = timed(lambda given: invoke(given, CONFIG, durability=durability), questions)
        if first + count == self._total:
            assert self.chat.count() == 2 * self._total
        return seconds

    def size(self) -> int | None:
        return self.home.size()

    def close(self) -> None:
        self._close()
        self.home.leave()
