"""Async saves serialise large values outside the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from typing import Any

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.checkpoint.base import empty_checkpoint

from holdfast.adapters.langgraph import HoldfastSaver
from holdfast.adapters.langgraph.put import is_heavy
from holdfast.state.compression import Compressor

CONFIG: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}


def make_messages(count: int) -> list[AnyMessage]:
    return [HumanMessage(f"question {number} " + "x" * 1000) for number in range(count)]


@pytest.fixture
def loop_work(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was serialised or compressed on the thread of the running event loop."""
    seen: list[str] = []

    def watch(module: Any, name: str) -> None:
        original = getattr(module, name)

        def watched(*args: Any) -> Any:
            if threading.current_thread() is threading.main_thread():
                seen.append(name)
            return original(*args)

        monkeypatch.setattr(module, name, watched)

    watch(Compressor, "short_body")
    import holdfast.adapters.langgraph.record_codec as record_codec
    import holdfast.operations.state_commit as state_commit

    watch(record_codec, "cut")
    watch(state_commit, "encode")
    return seen


@pytest.mark.parametrize("shape", ["messages", "texts", "nested", "one text"])
def test_a_large_first_save_is_serialised_outside_the_loop(loop_work: list[str], shape: str) -> None:
    values: dict[str, Any] = {
        "messages": make_messages(100),
        "texts": [f"text {number} " + "x" * 1000 for number in range(100)],
        "nested": {"deep": {"list": [{"text": "x" * 1000, "n": number} for number in range(100)]}},
        "one text": "x" * 100_000,
    }

    async def save() -> None:
        async with HoldfastSaver("memory:") as saver:
            checkpoint = empty_checkpoint()
            checkpoint["channel_values"] = {"messages": values[shape]}
            checkpoint["channel_versions"] = {"messages": 1}
            config = await saver.aput(CONFIG, checkpoint, {"source": "loop", "step": 0}, {"messages": 1})
            await saver.aput_writes(config, [("messages", values[shape])], "task")
            found = await saver.aget_tuple(CONFIG)
            assert found is not None
            assert found.checkpoint["channel_values"] == {"messages": values[shape]}
            assert found.pending_writes == [("task", "messages", values[shape])]

    asyncio.run(save())
    assert loop_work == []


def test_what_is_heavy_is_decided_without_reading_it_all() -> None:
    assert not is_heavy({"messages": make_messages(5), "n": 1})
    assert not is_heavy([("a", None), ("b", 1.5), ("c", object())])
    assert is_heavy({"a": {"b": [("c", {"d" * 300_000, "e"})]}})
    assert is_heavy(deque(range(1000)))
    assert is_heavy([AIMessage("", additional_kwargs={"a": ["x" * 70_000]})])
    endless: list[Any] = []
    endless.append(endless)
    assert is_heavy(endless)
