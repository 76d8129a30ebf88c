"""The cache of messages: the same bytes and the same objects as from LangGraph's serde, and no change is lost."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    AnyMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages

from holdfast.adapters.langgraph import HoldfastSaver, StrictSerializer, messages
from holdfast.adapters.langgraph.cache import CachedCheckpoint, CheckpointCache
from holdfast.adapters.langgraph.messages import Codec, Decoded, MessageCache
from holdfast.adapters.langgraph.recent_values import BYTES_MAX, ENTRY, Recent
from holdfast.adapters.langgraph.record_codec import dump_typed, store_value
from tests.adapters.langgraph.sync_and_async_caller import Caller

CONFIG: Any = {"configurable": {"thread_id": "t"}}


@dataclass
class Found:
    """An artifact that is not plain data."""

    page: int


class OwnMessage(HumanMessage):
    """A message class of a user."""

    page: int = 1


class State(TypedDict, total=False):
    messages: Annotated[list[AnyMessage], add_messages]
    turn: int


def make_messages() -> list[Any]:
    """Messages of every kind, plain and not."""
    call = {"name": "search", "args": {"query": "q", "n": 1, "deep": [{"a": None}]}, "id": "c1"}
    return [
        SystemMessage("You help."),
        HumanMessage("hi", name="Ann", id="1"),
        HumanMessage(content=[{"type": "text", "text": "look"}, "at this"], id="2"),
        AIMessage("", tool_calls=[call], additional_kwargs={"cost": 1.5, "cached": True}, id="3"),
        AIMessage("x", usage_metadata={"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}),
        ToolMessage("y" * 9000, tool_call_id="c1", artifact={"rows": [1, 2]}),
        ToolMessage("found", tool_call_id="c1", artifact=Found(3)),
        AIMessageChunk(content="part"),
        HumanMessage("more", colour="red"),
        OwnMessage(content="own", page=2),
        RemoveMessage(id="1"),
        HumanMessage("z" * 2000, id="4"),
    ]


SERDES: list[Any] = [JsonPlusSerializer(), StrictSerializer([Found, OwnMessage])]


@pytest.mark.parametrize("serde", SERDES, ids=["default", "strict"])
@pytest.mark.parametrize("count", range(13))
@pytest.mark.parametrize("wrap", [list, _DeltaSnapshot])
def test_stored_values_are_those_of_the_serde(serde: Any, count: int, wrap: Callable[[Any], Any]) -> None:
    codec = Codec(serde, MessageCache(), Decoded())
    image = None
    for end in (count // 2, count, count):
        value = wrap(make_messages()[:end])
        stored, image = codec.store(value, None, image)
        assert stored == store_value(serde, value)


@pytest.mark.parametrize("serde", SERDES, ids=["default", "strict"])
def test_loaded_messages_are_those_of_the_serde(serde: Any) -> None:
    codec = Codec(serde, MessageCache(), Decoded())
    for value in (make_messages(), make_messages()[:1], _DeltaSnapshot(make_messages())):
        stored = store_value(serde, value)
        expected = serde.loads_typed(serde.dumps_typed(value))
        for _ in range(3):
            loaded = codec.load(stored)
            assert loaded == expected
            if isinstance(loaded, list):
                pairs = list(zip(loaded, expected, strict=True))
                assert [type(one) for one, _ in pairs] == [type(other) for _, other in pairs]
                assert [repr(one) for one, _ in pairs] == [repr(other) for _, other in pairs]
                assert [one.model_fields_set for one, _ in pairs] == [other.model_fields_set for _, other in pairs]


def test_a_long_conversation_is_loaded_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Templates, which a process that reads it once does not need, are made the second time."""
    codec = Codec(JsonPlusSerializer(), MessageCache(), Decoded())
    values = [HumanMessage(f"question {number}", id=str(number)) for number in range(100)]
    stored = store_value(codec.serde, values)
    made: list[int] = []
    template_of = messages.template_of

    def making(value: Any) -> Any:
        made[-1] += 1
        return template_of(value)

    monkeypatch.setattr(messages, "template_of", making)
    for _ in range(4):
        made.append(0)
        loaded: Any = codec.load(stored)
        assert loaded == values
        loaded[0].content = "changed"
    assert made == [0, 100, 0, 0]
    for serde in SERDES:
        mixed = make_messages() * 4
        of_serde = codec._replace(serde=serde).load(store_value(serde, mixed))
        assert of_serde == serde.loads_typed(serde.dumps_typed(mixed))


def test_a_loaded_message_shares_nothing_with_the_next_one() -> None:
    codec = Codec(JsonPlusSerializer(), MessageCache(), Decoded())
    stored = store_value(codec.serde, make_messages())
    first, expected = codec.load(stored), codec.load(stored)
    for message in codec.load(stored):
        message.content = "changed"
        message.additional_kwargs["changed"] = True
        message.__pydantic_extra__["changed"] = True
        message.model_fields_set.clear()
        for call in getattr(message, "tool_calls", []):
            call["args"]["deep"].append("changed")
    assert first == expected == codec.load(stored)
    assert [one.model_fields_set for one in codec.load(stored)] == [one.model_fields_set for one in expected]


CHANGES: dict[str, Callable[[Any], object]] = {
    "content": lambda message: setattr(message, "content", "changed"),
    "name": lambda message: setattr(message, "name", "Bob"),
    "new key": lambda message: message.additional_kwargs.update(new=1),
    "nested": lambda message: message.additional_kwargs["list"].append(2),
    "1 becomes true": lambda message: message.additional_kwargs.update(one=True),
    "1 becomes 1.0": lambda message: message.additional_kwargs.update(one=1.0),
    "order of keys": lambda message: message.additional_kwargs.update(list=message.additional_kwargs.pop("list")),
    "a list becomes a tuple": lambda message: message.additional_kwargs.update(list=(1,)),
    "text becomes a subclass": lambda message: message.additional_kwargs.update(text=type("T", (str,), {})("text")),
    "extra field": lambda message: setattr(message, "colour", "red"),
    "tool call": lambda message: message.tool_calls.append({"name": "n", "args": {}, "id": "i", "type": "tool_call"}),
    "other class": lambda message: setattr(message, "__class__", OwnMessage),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_a_message_that_was_changed_in_place_is_stored_again(change: Callable[[Any], object]) -> None:
    codec = Codec(JsonPlusSerializer(), MessageCache(), Decoded())
    kwargs = {"list": [1], "one": 1, "text": "text"}
    values = [HumanMessage("a"), AIMessage("b", additional_kwargs=kwargs), HumanMessage("c" * 2000)]
    _, image = codec.store(values, None, None)
    before = copy.deepcopy(values)
    change(values[1])
    assert codec.store(values, None, image)[0] == store_value(codec.serde, values)
    assert codec.store(values)[0] == store_value(codec.serde, values)
    assert codec.store(before, None, image)[0] == store_value(codec.serde, before)


@pytest.mark.parametrize("returned", ["all", "only the turn"])
def test_a_node_that_changes_an_old_message_in_place_loses_nothing(returned: str) -> None:
    """Even if it returns other channels only, so that LangGraph does not know of the change."""

    def node(state: State) -> State:
        state["messages"][0].content = f"edited {state['turn']}"
        state["messages"][0].additional_kwargs.setdefault("turns", []).append(state["turn"])
        answer: State = {"turn": state["turn"] + 1}
        if returned == "all":
            answer["messages"] = [AIMessage(f"answer {state['turn']}")]
        return answer

    builder = StateGraph(State)
    builder.add_node("node", node)
    builder.add_edge(START, "node")
    builder.add_edge("node", END)
    with HoldfastSaver("memory:") as saver:
        graph = builder.compile(checkpointer=saver)
        begun: Any = {"turn": 0, "messages": [HumanMessage("x" * 600) for _ in range(20)]}
        for turn in range(3):
            graph.invoke(begun if turn == 0 else {"turn": turn}, CONFIG)
            fresh = HoldfastSaver(saver.store)  # without a cache
            first = builder.compile(checkpointer=fresh).get_state(CONFIG).values["messages"][0]
            assert first.content == f"edited {turn}"
            assert first.additional_kwargs["turns"] == list(range(turn + 1))


def test_unchanged_messages_are_not_serialised_again(monkeypatch: pytest.MonkeyPatch) -> None:
    codec = Codec(JsonPlusSerializer(), MessageCache(), Decoded())
    values: list[Any] = [HumanMessage(f"question {number}", id=str(number)) for number in range(100)]
    _, image = codec.store(values)
    serialised: list[object] = []

    def note(serde: Any, value: object) -> tuple[str, bytes]:
        serialised.append(value)
        return dump_typed(serde, value)

    monkeypatch.setattr("holdfast.adapters.langgraph.messages.dump_typed", note)
    values[7].content = "edited"
    del values[3]
    values.append(AIMessage("new"))
    stored, _ = codec.store(values, None, image)
    assert len(serialised) == 2
    assert stored == store_value(codec.serde, values)


def test_immutable_messages_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    codec = Codec(JsonPlusSerializer(), MessageCache(immutable=True), Decoded())
    values = make_messages()
    expected = store_value(codec.serde, values)
    read: list[object] = []
    body_of = messages._body_of

    def reading(value: Any) -> bytes | None:
        read.append(value)
        return body_of(value)

    monkeypatch.setattr(messages, "_body_of", reading)
    for value in (values, values, list(values)):
        assert codec.store(value)[0] == expected
    assert read == values
    loaded = codec.load(expected)
    assert codec.store(loaded)[0] == expected
    assert codec.store(_DeltaSnapshot(loaded))[0] == store_value(codec.serde, _DeltaSnapshot(values))
    assert read == values


def test_a_message_that_gets_its_id_after_it_was_stored_is_stored_with_it() -> None:
    codec = Codec(JsonPlusSerializer(), MessageCache(immutable=True), Decoded())
    values = [HumanMessage("a"), HumanMessage("b")]
    codec.store(values)
    values[0].id = "1"  # as `add_messages` does
    assert codec.store(values)[0] == store_value(codec.serde, values)


@pytest.mark.parametrize("kind", ["blocking", "awaiting"])
def test_a_change_of_an_immutable_message_is_not_stored(kind: str) -> None:
    """The message stays as it was first seen. A new object in its place is stored."""

    def node(state: State) -> State:
        old = state["messages"][0]
        if state["turn"] == 0:
            old.content = "changed in place"
            return {"turn": 1, "messages": [AIMessage("answer")]}
        return {"turn": 2, "messages": [HumanMessage("replaced", id=old.id)]}

    builder = StateGraph(State)
    builder.add_node("node", node)
    builder.add_edge(START, "node")
    builder.add_edge("node", END)
    with HoldfastSaver("memory:", immutable_messages=True) as saver:
        graph, caller = builder.compile(checkpointer=saver), Caller(saver, kind)
        for turn, begun in enumerate([{"turn": 0, "messages": [HumanMessage("first")]}, {"turn": 1}]):
            caller.run(graph, begun, CONFIG, durability="sync")
            fresh = builder.compile(checkpointer=HoldfastSaver(saver.store)).get_state(CONFIG).values["messages"]
            assert fresh[0].content == ["first", "replaced"][turn]
            assert [message.content for message in fresh[1:]] == ["answer"]
        caller.close()


def test_what_is_not_used_for_long_is_forgotten() -> None:
    recent: Recent[int, str] = Recent(100)
    for number in range(100):
        recent.add(number, "x", 10)
        assert recent.get(0, 10) == "x"
    assert recent.get(50, 10) is None
    assert len(recent.newest) <= 6


def test_a_message_that_changes_while_it_is_stored_gives_no_other_its_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    codec = Codec(JsonPlusSerializer(), MessageCache(), Decoded())
    message = HumanMessage("before", id="1")
    dumps = JsonPlusSerializer.dumps_typed

    def change_and_dump(self: JsonPlusSerializer, value: Any) -> tuple[str, bytes]:
        message.content = "after"  # as another thread does it
        return dumps(self, value)

    with monkeypatch.context() as patched:
        patched.setattr(JsonPlusSerializer, "dumps_typed", change_and_dump)
        _, image = codec.store([message])
    for known in (None, image):
        stored, _ = codec.store([HumanMessage("before", id="1")], None, known)
        assert codec.load(stored) == [HumanMessage("before", id="1")]


class MarkedSerializer(JsonPlusSerializer):
    """The serde of a user: it marks what it returns."""

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        found = super().loads_typed(data)
        return ["marked", *found] if isinstance(found, list) else found


@pytest.mark.parametrize("size", [10, 1000])
@pytest.mark.parametrize("count", [1, 3])
def test_a_serde_of_a_user_reads_every_value_itself(size: int, count: int) -> None:
    codec = Codec(MarkedSerializer(), MessageCache(), Decoded())
    messages = [HumanMessage("x" * size, id=str(number)) for number in range(count)]
    stored, _ = codec.store(messages)
    for _ in range(2):
        assert codec.load(stored) == ["marked", *messages]


def test_the_number_of_cached_threads_is_limited_however_small_they_are() -> None:
    cache = CheckpointCache()
    for number in range(BYTES_MAX // ENTRY + 2):
        cache.note(f"thread {number}", "", CachedCheckpoint("1", b"", {}, {}, 0, {}))
    assert cache.get("thread 0", "") is None
    assert cache.get(f"thread {number}", "") is not None
