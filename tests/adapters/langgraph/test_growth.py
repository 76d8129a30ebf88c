"""Bytes and work per turn of a long conversation. `make bench` measures times."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.graph import END, START, StateGraph

from holdfast.adapters.langgraph import HoldfastSaver, StrictSerializer
from holdfast.adapters.langgraph import record_codec as records
from holdfast.adapters.langgraph.get import Reader
from tests.adapters.langgraph.material import Delta, Plain, chat, checkpoint, config, delta_described, described, said

TURNS = 160
KB = 1024


def _text(seed: int) -> str:
    """A kilobyte of made-up words, which shrink to about half."""
    chance = random.Random(seed)
    words = ["".join(chance.choices("etaoinshrdlu", k=chance.randint(2, 8))) for _ in range(90)]
    return " ".join(chance.choices(words, k=400))[:KB]


def _graph(saver: Any) -> Any:
    graph: Any = StateGraph(Plain)
    graph.add_node("agent", lambda state: {"messages": [AIMessage(_text(-len(state["messages"])))]})
    graph.add_edge(START, "agent")
    graph.add_edge("agent", END)
    return graph.compile(checkpointer=saver)


def test_bytes_on_disk_are_at_most_three_times_the_messages(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    sizes = []
    with HoldfastSaver(f"sqlite:{path}") as saver:
        graph = _graph(saver)
        for turn in range(TURNS):
            graph.invoke({"messages": [HumanMessage(_text(turn))]}, config("t"))
            usage = saver.store.port.usage()
            sizes.append(usage.chunk_bytes + usage.root_bytes)
    assert path.stat().st_size <= 3 * TURNS * 2 * KB
    early, late = sizes[TURNS // 2 - 1] - sizes[0], sizes[-1] - sizes[TURNS // 2]
    assert late < 1.3 * early, "the second half must cost what the first did"


@pytest.mark.parametrize("turns", [40, 120])
def test_a_turn_serialises_and_makes_only_new_messages(
    turns: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the same process nothing is fetched again, and no message is built twice."""
    with HoldfastSaver(f"sqlite:{tmp_path / 'agent.db'}") as saver:
        graph = _graph(saver)
        for turn in range(turns):
            graph.invoke({"messages": [HumanMessage(_text(turn))]}, config("t"))
        made, fetched = [], []
        rebuilt, chunks = StrictSerializer._rebuild, saver.store.port.chunks

        def counting(*args: Any) -> Any:
            made.append(1)
            return rebuilt(*args)

        def fetching(family: int, hashes: Any) -> Any:
            fetched.extend(hashes)
            return chunks(family, hashes)

        monkeypatch.setattr(StrictSerializer, "_rebuild", counting)
        monkeypatch.setattr(saver.store.port, "chunks", fetching)
        graph.invoke({"messages": [HumanMessage("one more")]}, config("t"))
        assert len(made) <= 8
        assert len(fetched) <= 4


def test_a_turn_reads_only_new_ancestors_of_a_delta_channel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[int] = []
    read = Reader.read

    def counting(self: Reader, row: Any) -> Any:
        reads[-1] += 1
        return read(self, row)

    monkeypatch.setattr(Reader, "read", counting)
    with HoldfastSaver(f"sqlite:{tmp_path / 'agent.db'}") as saver:
        for turn in range(12):
            reads.append(0)
            found = chat(saver, Delta).invoke(said(f"m{turn}"), config("t"))
            assert len(found["messages"]) == 2 * turn + 2
    assert max(reads) <= 5, "the last turns must read no more than the first ones"


def test_a_kept_history_has_what_others_have_changed_since(saver: HoldfastSaver, thread: str) -> None:
    """Another process may write to an ancestor, or create the thread again with the same ids."""

    def history(step: int) -> list[Any]:
        found = saver.get_delta_channel_history(config=config(thread, checkpoint_id=f"1f0-{step}"), channels=["d"])
        return [write[2] for write in found["d"]["writes"]]

    def grow(text: str, other: HoldfastSaver) -> None:
        parent = other.put(config(thread), checkpoint({"d": 0}, id="1f0-0"), described(0), {"d": 1})
        for step in (1, 2, 3):
            other.put_writes(parent, [("d", f"{text}{step}")], f"t{step}")
            made = checkpoint({}, channel_versions={"d": step + 1}, id=f"1f0-{step}")
            parent = other.put(parent, made, delta_described(step), {"d": step + 1})

    grow("a", saver)
    assert history(2) == ["a1", "a2"]
    assert history(3) == ["a1", "a2", "a3"]
    assert history(2) == ["a1", "a2"]
    other = HoldfastSaver(saver.store)
    other.put_writes(config(thread, checkpoint_id="1f0-1"), [("d", "late")], "t9")
    assert history(3) == ["a1", "a2", "late", "a3"]
    other.put_writes(config(thread, checkpoint_id="1f0-3"), [("d", "own")], "t9")
    assert history(3) == ["a1", "a2", "late", "a3"]
    other.delete_thread(thread)
    grow("b", other)
    assert history(3) == ["b1", "b2", "b3"]


def test_types_are_checked_only_in_new_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    check = StrictSerializer.check

    def counting(self: StrictSerializer, body: bytes) -> None:
        seen.append(len(body))
        check(self, body)

    monkeypatch.setattr(StrictSerializer, "check", counting)
    serde = StrictSerializer()
    messages = [HumanMessage(_text(n), id=str(n)) for n in range(30)]
    before = records.store_value(serde, messages)
    assert len(seen) == 30
    records.store_value(serde, [*messages, HumanMessage("new", id="new")], before)
    assert len(seen) == 31
