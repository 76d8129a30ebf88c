"""Databases of LangGraph's own savers, as sources of migrations."""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypedDict

import psycopg
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Command, Send, interrupt

from holdfast.adapters.langgraph import HoldfastSaver, Migrated
from tests.adapters.langgraph.material import Delta, chat, said
from tests.store.postgres import shared_servers


class Source:
    """A database of one of LangGraph's savers."""

    def __init__(self, kind: str, folder: Path, name: str) -> None:
        self.kind = kind
        self.path = folder / f"{name}.sqlite"
        self.url = f"sqlite:{self.path}"
        if kind == "postgres":
            self.schema = shared_servers.new_schema()
            self.plain = shared_servers.new_url().partition("?schema")[0].partition("&schema")[0]
            with psycopg.connect(self.plain, autocommit=True) as link:
                link.execute(f'CREATE SCHEMA "{self.schema}"')
            self.url = f"{self.plain}{'&' if '?' in self.plain else '?'}schema={self.schema}"

    @contextmanager
    def saver(self) -> Iterator[Any]:
        """LangGraph's saver."""
        if self.kind == "sqlite":
            with SqliteSaver.from_conn_string(str(self.path)) as saver:
                yield saver
            return
        with psycopg.connect(
            self.plain, autocommit=True, prepare_threshold=0, row_factory=psycopg.rows.dict_row
        ) as link:
            link.execute(f'SET search_path = "{self.schema}"')
            postgres = PostgresSaver(link)
            postgres.setup()
            yield postgres

    def execute(self, statement: str, *values: Any) -> None:
        """Execute a statement on the database directly."""
        with self.saver() as saver:
            saver.get_tuple({"configurable": {"thread_id": "-"}})
            if self.kind == "sqlite":
                saver.conn.execute(statement, values)
                saver.conn.commit()
            else:
                saver.conn.execute(statement.replace("?", "%s"), values)

    def file_hashes(self) -> dict[str, str]:
        """Return hashes of the files; nothing for a server."""
        files = self.path.parent.glob(self.path.name + "*") if self.kind == "sqlite" else ()
        return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


@dataclass
class Order:
    """A type that is not allowed."""

    number: int
    note: str


class Mixed(TypedDict, total=False):
    """All kinds of values."""

    messages: Annotated[list[AnyMessage], add_messages]
    total: int
    ratio: float
    name: str
    nothing: None
    raw: bytes
    order: Order
    parts: Annotated[list[str], operator.add]


def mixed(saver: Any) -> Any:
    """A graph that sends to parallel tasks and keeps all kinds of values."""
    graph = StateGraph(Mixed)

    def plan(state: Mixed) -> dict[str, Any]:
        return {
            "total": 2**40, "ratio": 0.1, "name": "größer", "nothing": None, "raw": b"\x00\xff" * 600,
            "order": Order(7, "x" * 700), "messages": [AIMessage("planned " * 90)],
        }  # fmt: skip

    graph.add_node("plan", plan)
    graph.add_node("part", lambda state: {"parts": [state["part"]]})
    graph.add_node("end", lambda state: {"messages": [AIMessage(",".join(state["parts"]))]})
    graph.add_edge(START, "plan")
    graph.add_conditional_edges("plan", lambda state: [Send("part", {"part": f"p{n}"}) for n in range(5)], ["part"])
    graph.add_edge("part", "end")
    graph.add_edge("end", END)
    return graph.compile(checkpointer=saver)


class Asked(TypedDict, total=False):
    """A question and its answer."""

    question: str
    answer: str


def asking(saver: Any) -> Any:
    """A graph whose subgraph waits for an answer."""
    inner = StateGraph(Asked)
    inner.add_node("prepare", lambda state: {"question": f"{state['question']}?"})
    inner.add_node("ask", lambda state: {"answer": interrupt(state["question"])})
    inner.add_edge(START, "prepare")
    inner.add_edge("prepare", "ask")
    outer = StateGraph(Asked)
    outer.add_node("side", lambda state: {})
    outer.add_node("inner", inner.compile())
    outer.add_node("after", lambda state: {"answer": state["answer"].upper()})
    outer.add_edge(START, "inner")
    outer.add_edge(START, "side")
    outer.add_edge("inner", "after")
    return outer.compile(checkpointer=saver)


def of(thread: str) -> Any:
    """A thread's config."""
    return {"configurable": {"thread_id": thread}}


def filled(source: Source, turns: int = 6) -> None:
    """Threads of all kinds: a chat, differences, parallel tasks, one that waits for an answer, one that got it."""
    with source.saver() as saver:
        for turn in range(turns):
            chat(saver).invoke(said(f"{turn} " + "word " * 120), of("chat"))
            chat(saver, Delta).invoke(said(f"{turn} delta"), of("delta"))
        mixed(saver).invoke({"messages": [HumanMessage("go")]}, of("mixed"))
        asking(saver).invoke({"question": "sure"}, of("waiting"))
        asking(saver).invoke({"question": "sure"}, of("answered"))
        asking(saver).invoke(Command(resume="yes"), of("answered"))


def shown(found: CheckpointTuple | None) -> dict[str, Any]:
    """A checkpoint as a saver gives it, to be compared."""
    assert found is not None
    checkpoint: dict[str, Any] = {"updated_channels": None, **found.checkpoint}
    return {
        "config": found.config["configurable"],
        "parent": found.parent_config and found.parent_config["configurable"],
        "checkpoint": checkpoint,
        "metadata": found.metadata,
        "writes": found.pending_writes,
    }


def all_of(saver: Any, *threads: str) -> list[dict[str, Any]]:
    """All checkpoints of these threads, as `list` gives them."""
    return [shown(found) for thread in threads for found in saver.list(of(thread))]


THREADS = ("chat", "delta", "mixed", "waiting", "answered")


def assert_same(source: Source, url: str, *threads: str) -> None:
    """Check that both savers return the same, by `list` and by `get_tuple`."""
    with source.saver() as theirs, HoldfastSaver(url, allow=[Order]) as ours:
        names = threads or THREADS
        expected, found = all_of(theirs, *names), all_of(ours, *names)
        assert [each["config"] for each in found] == [each["config"] for each in expected]
        for mine, other in zip(found, expected, strict=True):
            assert mine == other
        for each in expected:
            assert shown(ours.get_tuple({"configurable": each["config"]})) == each
        for thread in names:
            newest = [saver.get_tuple(of(thread)) for saver in (ours, theirs)]
            assert shown(newest[0]) == shown(newest[1])


def clean(report: Migrated, **expected: Any) -> Migrated:
    """Return the report, after checking that it has no problems and these numbers."""
    assert report.problems == []
    assert report.skipped == []
    for name, value in expected.items():
        assert getattr(report, name) == value, report
    return report


def counted(source: Source) -> tuple[int, int]:
    """How many checkpoints and writes the source has."""
    with source.saver() as saver:
        found = list(saver.list(None))
        return len(found), sum(len(each.pending_writes) for each in found)
