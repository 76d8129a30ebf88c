"""Async saves serialise large values outside the event loop."""

from __future__ import annotations

import asyncio
import copy
import threading
from collections import deque
from typing import Any

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.checkpoint.base import empty_checkpoint

from holdfast.adapters.langgraph import HoldfastSaver, put, record_codec
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
            small = name == "cut" and len(args[0]) < 1000  # what a checkpoint has beside its values
            if threading.current_thread() is threading.main_thread() and not small:
                seen.append(name)
            return original(*args)

        monkeypatch.setattr(module, name, watched)

    watch(Compressor, "short_body")
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


class Grown:
    """A value that adds to a dict when its attributes are looked at, as another thread may."""

    def __init__(self, grows: dict[str, Any]) -> None:
        object.__setattr__(self, "grows", grows)

    def __getattribute__(self, name: str) -> Any:
        if name == "__dict__":
            grows = object.__getattribute__(self, "__dict__")["grows"]
            grows[f"new {len(grows)}"] = 1
            return {}
        return object.__getattribute__(self, name)


def test_a_value_may_grow_while_it_is_weighed() -> None:
    value: dict[str, Any] = {}
    value |= {"first": Grown(value), "second": 2}
    assert not is_heavy(value)
    assert len(value) > 2


def test_a_large_save_stores_the_values_of_its_call(monkeypatch: pytest.MonkeyPatch) -> None:
    messages = make_messages(100)
    other = {"deep": [{"text": "x" * 1000, "n": number} for number in range(100)]}
    expected = copy.deepcopy((messages, other))
    changed = threading.Event()
    original = record_codec.writes_of
    monkeypatch.setattr(put, "writes_of", lambda *args: changed.wait() and original(*args))

    async def save() -> None:
        async with HoldfastSaver("memory:") as saver:
            checkpoint = empty_checkpoint()
            checkpoint["channel_values"] = {"messages": messages, "other": other}
            checkpoint["channel_versions"] = {"messages": 1, "other": 1}
            parent = await saver.aput(CONFIG, empty_checkpoint(), {"source": "input", "step": -1}, {})
            put = asyncio.create_task(
                saver.aput(parent, checkpoint, {"source": "loop", "step": 0}, {"messages": 1, "other": 1})
            )
            write = asyncio.create_task(saver.aput_writes(parent, [("messages", messages), ("other", other)], "task"))
            await asyncio.sleep(0)  # both have begun
            for message in messages:  # as a node that runs next
                message.content = "changed"
                message.additional_kwargs["seen"] = True
            messages.append(messages[0])
            other["deep"].clear()
            checkpoint["channel_versions"]["other"] = 2
            changed.set()
            config = await put
            await write
            found = await saver.aget_tuple(config)
            assert found is not None
            assert found.checkpoint["channel_values"] == {"messages": expected[0], "other": expected[1]}
            assert found.checkpoint["channel_versions"] == {"messages": 1, "other": 1}
            before = await saver.aget_tuple(parent)
            assert before is not None
            assert before.pending_writes == [("task", "messages", expected[0]), ("task", "other", expected[1])]

    asyncio.run(save())
