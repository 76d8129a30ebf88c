"""What was put is what is read: checkpoints, writes, metadata, order, filters."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.serde.types import ERROR, INTERRUPT, RESUME
from langgraph.types import Interrupt, Send

import holdfast
from holdfast import HoldfastError, InvalidInput
from holdfast.adapters.langgraph import HoldfastSaver
from holdfast.adapters.langgraph.record_codec import to_json_value
from tests.adapters.langgraph.material import checkpoint, config, described, id_of
from tests.adapters.langgraph.sync_and_async_caller import Caller

VALUES: dict[str, Any] = {
    "none": None,
    "text": "ä" * 2000,
    "bytes": b"\x00\xff" * 1000,
    "empty": [],
    "numbers": [1, 2.5, True, None],
    "deep": {"a": [{"b": "c" * 900}] * 3},
    "int keys": {1: "x" * 600, 2: "y"},
    "messages": [HumanMessage("hi", id="1"), AIMessage("", tool_calls=[{"name": "f", "args": {"x": 1}, "id": "c"}])]
    * 9,
    "tool": ToolMessage("done", tool_call_id="c", artifact={"rows": [1, 2]}),
    "when": dt.datetime(2026, 11, 16, tzinfo=dt.UTC),
    "id": UUID(int=7),
    "price": Decimal("1.10"),
    "tags": {"a", "b"},
    "send": Send("node", {"x": 1}),
}


def test_values_come_back_equal(caller: Caller, thread: str) -> None:
    put = checkpoint(VALUES)
    stored = caller.put(config(thread), put, described(), put["channel_versions"])
    assert stored == config(thread, "", put["id"])
    for asked in (stored, config(thread), {"configurable": {"thread_id": thread}}):
        found = caller.get_tuple(asked)
        assert found.checkpoint == put
        assert found.config == stored
        assert found.parent_config is None
        assert found.metadata == {"source": "loop", "step": 0, "parents": {}}


def test_what_a_newer_langgraph_adds_is_kept(caller: Caller, thread: str) -> None:
    put = checkpoint({"a": 1}, pending_sends=[Send("n", 1)], something_new={"x": [HumanMessage("m")]})
    found = caller.get_tuple(caller.put(config(thread), put, described(), {"a": 1}))
    assert found.checkpoint == put


def test_what_was_read_can_be_changed_without_harm(caller: Caller, thread: str) -> None:
    messages = [HumanMessage("x" * 100, id=str(n), additional_kwargs={"k": [n]}) for n in range(20)]
    put = checkpoint({"messages": messages})
    caller.put(config(thread), put, described(), {"messages": 1})
    for _ in range(2):
        found = caller.get_tuple(config(thread)).checkpoint
        assert found["channel_values"]["messages"] == messages
        for message in found["channel_values"]["messages"]:
            message.content = "changed"
            message.additional_kwargs["k"].append("changed")
            message.response_metadata["new"] = True
        found["channel_versions"]["messages"] = 99
        found["versions_seen"]["node"]["messages"] = 99
        found["updated_channels"].append("x")
    assert caller.get_tuple(config(thread)).checkpoint == put


@pytest.mark.parametrize("artifact", [Decimal("0.00"), dt.timedelta(0), {"a": []}, [], "", None, ((), [1])])
def test_a_message_comes_back_the_same_however_often_it_is_read(caller: Caller, thread: str, artifact: Any) -> None:
    messages = [ToolMessage("x" * 100, tool_call_id=str(n), artifact=artifact) for n in range(10)]
    caller.put(config(thread), checkpoint({"messages": messages}), described(), {"messages": 1})
    first = caller.get_tuple(config(thread)).checkpoint["channel_values"]["messages"]
    for _ in range(3):
        again = caller.get_tuple(config(thread)).checkpoint["channel_values"]["messages"]
        assert repr(again) == repr(first)
        assert again == first


def test_a_value_changed_in_place_is_stored_as_it_is_now(caller: Caller, thread: str) -> None:
    messages = [HumanMessage("x" * 100, id=str(n)) for n in range(20)]
    first = caller.put(config(thread), checkpoint({"messages": messages}), described(), {"messages": 1})
    messages[3].content = "changed"
    again = checkpoint({"messages": messages}, version=2)
    caller.put(first, again, described(1), {"messages": 2})
    assert caller.get_tuple(config(thread)).checkpoint["channel_values"]["messages"][3].content == "changed"
    assert caller.get_tuple(first).checkpoint["channel_values"]["messages"][3].content == "x" * 100


def test_an_unchanged_channel_keeps_its_value_on_its_own_branch(caller: Caller, thread: str) -> None:
    """Two branches may give one channel the same version and different values."""
    root = caller.put(config(thread), checkpoint({"a": "root"}, version=1), described(), {"a": 1})
    left = caller.put(root, checkpoint({"a": "left"}, version=2), described(1), {"a": 2})
    right = caller.put(root, checkpoint({"a": "right"}, version=2), described(1), {"a": 2})
    for parent, value in ((left, "left"), (right, "right")):
        again = caller.put(parent, checkpoint({"a": value}, version=2), described(2), {})
        assert caller.get_tuple(again).checkpoint["channel_values"] == {"a": value}


def test_the_newest_is_the_one_put_last(caller: Caller, thread: str) -> None:
    """Ids come from the clocks of many machines; the order of the puts does not."""
    late, early = checkpoint({"a": 1}), checkpoint({"a": 2})
    late["id"], early["id"] = early["id"], late["id"]
    assert late["id"] > early["id"]
    first = caller.put(config(thread), late, described(), {"a": 1})
    caller.put(first, early, described(1), {"a": 1})
    assert id_of(caller.get_tuple(config(thread)).config) == early["id"]
    assert [found.checkpoint["id"] for found in caller.list(config(thread))] == [early["id"], late["id"]]


def test_the_same_checkpoint_again_takes_its_place(caller: Caller, thread: str) -> None:
    put = checkpoint({"a": 1})
    caller.put(config(thread), put, described(), {"a": 1})
    caller.put(config(thread), {**put, "channel_values": {"a": 2}}, described(), {"a": 1})
    assert [found.checkpoint["channel_values"] for found in caller.list(config(thread))] == [{"a": 2}]


def test_two_roots_on_one_lane_have_no_parents(caller: Caller, thread: str) -> None:
    for _ in range(2):
        caller.put(config(thread), checkpoint(), described(), {})
    assert [found.parent_config for found in caller.list(config(thread))] == [None, None]


def test_writes_come_in_the_order_of_tasks(caller: Caller, thread: str) -> None:
    at = caller.put(config(thread), checkpoint(), described(), {})
    caller.put_writes(at, [("a", 1), ("b", 2)], "task-1", "~2")
    caller.put_writes(at, [("a", 3)], "task-2", "~1")
    caller.put_writes(at, [("a", 4)], "task-0")
    written = [("task-0", "a", 4), ("task-2", "a", 3), ("task-1", "a", 1), ("task-1", "b", 2)]
    assert caller.get_tuple(at).pending_writes == written
    assert caller.list(config(thread))[0].pending_writes == written


def test_of_writes_put_again_the_first_count_and_of_special_ones_the_last(caller: Caller, thread: str) -> None:
    at = caller.put(config(thread), checkpoint(), described(), {})
    caller.put_writes(at, [("a", 1)], "t")
    caller.put_writes(at, [("a", "other"), ("b", 2)], "t")
    caller.put_writes(at, [("a", "another")], "t")
    caller.put_writes(at, [("a", "third"), ("b", "other"), (RESUME, "no")], "t")
    caller.put_writes(at, [(RESUME, "yes"), (INTERRUPT, [Interrupt("?", id="i")])], "t")
    caller.put_writes(at, [(ERROR, "bad")], "t")
    assert caller.get_tuple(at).pending_writes == [
        ("t", RESUME, "yes"),
        ("t", INTERRUPT, [Interrupt("?", id="i")]),
        ("t", ERROR, "bad"),
        ("t", "a", 1),
        ("t", "b", 2),
    ]


def test_writes_may_come_before_their_checkpoint(caller: Caller, thread: str) -> None:
    put = checkpoint({"a": 1})
    caller.put_writes(config(thread, "", put["id"]), [("a", "x" * 3000)], "t")
    assert caller.get_tuple(config(thread)) is None
    caller.put(config(thread), put, described(), {"a": 1})
    assert caller.get_tuple(config(thread)).pending_writes == [("t", "a", "x" * 3000)]


def test_long_namespaces_are_namespaces_too(caller: Caller, thread: str) -> None:
    names = ["|".join(f"node-{n}:{'0' * 36}" for n in range(depth)) for depth in (1, 11, 30, 31)]
    for name in names:
        caller.put(config(thread, name), checkpoint({"name": name}), described(), {"name": 1})
    for name in names:
        found = caller.list(config(thread, name))
        assert [one.checkpoint["channel_values"]["name"] for one in found] == [name]
        assert found[0].config["configurable"]["checkpoint_ns"] == name
    listed = caller.list({"configurable": {"thread_id": thread}})
    assert {one.config["configurable"]["checkpoint_ns"] for one in listed} == set(names)


def test_list_finds_by_metadata_and_pages(caller: Caller, thread: str) -> None:
    parent, ids = config(thread), []
    for step in range(250):
        put = checkpoint({"n": step}, version=step)
        parent = caller.put(parent, put, described(step, user=f"u{step % 5}"), {"n": step})
        ids.append(put["id"])
    assert [one.checkpoint["id"] for one in caller.list(config(thread))] == ids[::-1]
    mine = caller.list(config(thread), filter={"user": "u3"}, limit=7)
    assert [one.metadata["step"] for one in mine] == [248, 243, 238, 233, 228, 223, 218]
    older = caller.list(config(thread), filter={"user": "u3"}, before=mine[-1].config, limit=2)
    assert [one.metadata["step"] for one in older] == [213, 208]
    assert caller.list(config(thread), filter={"user": "u3", "step": 4}) == []
    assert caller.list(config(thread), limit=0) == []
    one = caller.list(config(thread, "", ids[100]))
    assert [found.metadata["step"] for found in one] == [100]
    # The id of a removed checkpoint still determines which checkpoints are older.
    assert len(caller.list(config(thread), before=config(thread, "", ids[10][:-1] + "~"))) in (10, 11)


def test_list_of_all_threads_has_the_newest_first(folder: Any) -> None:
    with HoldfastSaver(f"sqlite:{folder / 'all.db'}") as saver:
        for step in range(30):
            saver.put(config(f"t{step % 3}"), checkpoint(), described(step, run_id="r1" if step % 2 else "r2"), {})
        saver.store.save("not-a-thread", {}, workflow="other", metadata={"source": "loop"})
        assert [one.metadata["step"] for one in saver.list(None)] == list(range(30))[::-1]
        found = list(saver.list(None, filter={"run_id": "r1"}, limit=3))
        assert [one.metadata["step"] for one in found] == [29, 27, 25]
        assert [one.metadata["step"] for one in saver.list(None, before=found[-1].config, limit=2)] == [24, 23]


@pytest.mark.parametrize(
    "hostile",
    [
        {"' OR 1=1 --": "x"},
        {'"); DROP TABLE runs; --': "x"},
        {"$.source": "loop"},
        {"source": {"$ne": "x"}},
        {"source": "' OR 'a'='a"},
        {"source": ["loop"]},
        {"sourc": "loop"},
        {"source\x00": "loop"},
        {"a.b": 1},
        {"source": None},
        {"": "loop"},
        {"%": "%"},
    ],
)
def test_hostile_filters_find_nothing_and_harm_nothing(saver: HoldfastSaver, thread: str, hostile: Any) -> None:
    saver.put(config(thread), checkpoint({"a": 1}), described(note={"source": "loop", "a.b": 1}), {"a": 1})
    assert list(saver.list(config(thread), filter=hostile)) == []
    assert list(saver.list(None, filter=hostile, limit=3)) == []
    assert len(list(saver.list(config(thread), filter={"source": "loop"}))) == 1


def test_metadata_with_such_keys_is_found_by_them(caller: Caller, thread: str) -> None:
    keys: dict[str, Any] = {
        "' OR 1=1 --": "'",
        "$.a": 1,
        "ä.b[0]": True,
        "nested": {"a": [1, {"b": None}]},
        "float": 0.5,
    }
    caller.put(config(thread), checkpoint(), described(**keys), {})
    for key, value in keys.items():
        assert len(caller.list(config(thread), filter={key: value})) == 1
    assert len(caller.list(config(thread), filter=keys)) == 1
    assert caller.list(config(thread), filter={**keys, "float": 0.25}) == []


def test_metadata_that_no_store_keeps_as_it_is_goes_through_the_serde(caller: Caller, thread: str) -> None:
    sends = [Send("node", {"message": HumanMessage("m")})]
    caller.put(config(thread), checkpoint(), described(user="u", sends=sends), {})
    (found,) = caller.list(config(thread), filter={"user": "u"})
    assert found.metadata == {**described(user="u"), "sends": sends}


def test_long_metadata_is_kept_and_not_searched(caller: Caller, thread: str) -> None:
    """LangGraph copies all text of a config into the metadata, system prompts too."""
    long = {"system_prompt": "x" * 20_000, "k" * 600: "y", "holdfast.serialised": "z"}
    asked = {"configurable": {"thread_id": thread, **long}}
    caller.put(asked, checkpoint(), described(), {})
    (found,) = caller.list(config(thread), filter={"holdfast.serialised": "z"})
    assert found.metadata == {**described(), **long}
    for size in (2_000, 20_000):
        with pytest.raises(InvalidInput, match="bytes"):
            caller.list(config(thread), filter={"system_prompt": "x" * size})
    many = {f"key-{n}": "v" * 900 for n in range(40)}
    caller.put(config(thread), checkpoint(), described(1, **many), {})
    assert caller.get_tuple(config(thread)).metadata == {**described(1), **many}


def test_other_attachments_are_not_writes(caller: Caller, thread: str) -> None:
    at = caller.put(config(thread), checkpoint(), described(), {})
    for key in ("summary:v1", "w:1", "w1:task", "write"):
        caller.saver.store.attach(thread, id_of(at), key, {"text": "…"})
    assert caller.get_tuple(at).pending_writes == []


def test_an_empty_checkpoint_id_means_the_newest(caller: Caller, thread: str) -> None:
    at = caller.put(config(thread), checkpoint(), described(), {})
    assert caller.get_tuple(config(thread, "", "")).config == at


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"configurable": {}}, "thread_id"),
        ({}, "thread_id"),
        (config("a\nb"), "control character"),
        (config("x" * 600), "512"),
        (config("t", "a\x00b" * 300), "control character"),
        (config("t", "\ud800"), "surrogate"),
        (config("t", 7), "must be text"),  # type: ignore[arg-type]
    ],
)
def test_a_config_without_a_usable_thread_is_refused(caller: Caller, wrong: Any, said: str) -> None:
    for call in (
        lambda: caller.get_tuple(wrong),
        lambda: caller.put(wrong, checkpoint(), described(), {}),
        lambda: caller.put_writes(wrong, [("a", 1)], "t"),
    ):
        with pytest.raises(InvalidInput, match=said):
            call()  # type: ignore[no-untyped-call]


def test_writes_need_a_checkpoint(caller: Caller, thread: str) -> None:
    with pytest.raises(InvalidInput, match="checkpoint_id"):
        caller.put_writes(config(thread), [("a", 1)], "t")


@pytest.mark.parametrize("limit", [-1, "3", 1.5, True])
def test_a_wrong_limit_is_refused_at_once(saver: HoldfastSaver, thread: str, limit: Any) -> None:
    with pytest.raises(InvalidInput, match="limit"):
        saver.list(config(thread), limit=limit)


def test_a_run_of_a_workflow_is_not_a_thread(folder: Any) -> None:
    with holdfast.open(f"sqlite:{folder / 'shared.db'}") as store:
        store.save("order-17", {"a": 1}, workflow="refund")
        saver = HoldfastSaver(store)
        for call in (
            lambda: saver.get_tuple(config("order-17")),
            lambda: saver.put(config("order-17"), checkpoint(), described(), {}),
            lambda: saver.put_writes(config("order-17", "", "c"), [("a", 1)], "t"),
            lambda: saver.delete_thread("order-17"),
            lambda: saver.prune(["order-17"]),
            lambda: saver.copy_thread("order-17", "b"),
        ):
            with pytest.raises(HoldfastError, match="refund"):
                call()
        loaded = store.load("order-17")
        assert loaded is not None
        assert loaded.state == {"a": 1}


def test_no_worker_takes_a_thread(saver: HoldfastSaver, thread: str) -> None:
    saver.put(config(thread), checkpoint(), described(), {})
    with saver.claim(thread):
        saver.put(config(thread), checkpoint(), described(), {})
    assert thread not in [claim.run_id for claim in saver.store.claim_ready("worker", limit=100)]


@pytest.mark.parametrize(
    "value", [{"d": (1, 2)}, {"d": [1, (2,)]}, {"d": (1, "a")}, {"d": (1.5, None)}, {}, {1: (2, 3)}]
)
def test_metadata_is_what_json_returns(value: Any) -> None:
    assert to_json_value(value) == json.loads(json.dumps(value))
