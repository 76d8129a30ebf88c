"""Tracked states through the store: saved like plain ones, at the cost of the change, and never without it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, TypedDict

import pytest

import holdfast
from holdfast.clock import SystemClock
from holdfast.errors import ClaimLost, StorageFull
from holdfast.model.commit import Commit
from holdfast.state.encoder import encode
from holdfast.state.loaded_memo import memo_of_loaded
from holdfast.state.rope import Outline, decode
from holdfast.state.settlement import to_tracked
from holdfast.state.tracked import TrackedDict, TrackedList
from holdfast.state.tracked_encoder import encode_tracked
from holdfast.store.memory import MemoryStore
from holdfast.store.port import Select
from tests.faulty_port import Wire
from tests.state.tracked_saves import count_encoded


class Chat(TypedDict):
    messages: list[dict[str, str]]


def message(number: int) -> dict[str, str]:
    return {"role": "user", "content": f"{number} " * 300}


@pytest.fixture(params=["memory", "sqlite", "dir"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    with holdfast.open("memory:" if request.param == "memory" else f"{request.param}:{tmp_path / 'runs'}") as opened:
        yield opened


def root_of(store: holdfast.Store, run_id: str) -> bytes:
    found = store.port.checkpoint(run_id, Select())
    assert found is not None
    assert found[1] is not None
    return found[1].root


def test_a_tracked_save_stores_what_a_plain_save_stores(store: holdfast.Store) -> None:
    tracked = store.tracked("tracked")
    state: dict[str, Any] = {}
    for turn in range(60):
        for target in (state, tracked.state):
            target.setdefault("messages", []).append(message(turn))
            target["turn"] = turn
            if turn > 30:
                target["messages"][turn // 2]["content"] = f"edited in {turn}"
        saved = tracked.save(step=turn, metadata={"turn": turn})
        plain = store.save("plain", state, step=turn)
        assert root_of(store, "tracked") == root_of(store, "plain")
        assert saved.step == turn
        assert saved.bytes_added <= plain.bytes_added + 100, "the metadata"
    loaded = store.load("tracked")
    assert loaded is not None
    assert loaded.state == state
    assert type(loaded.state) is dict
    assert len(list(store.history("tracked"))) == 60
    assert store.diff("tracked", 58, 59)
    store.fork("tracked", "fork", step=30)
    fork = store.tracked("fork")
    assert len(fork.state["messages"]) == 31
    fork.state["messages"].pop()
    fork.save()
    store.prune("tracked", holdfast.Keep(last=1))
    tracked.state["messages"].append(message(99))
    tracked.save()
    assert not store.verify().problems


def test_a_state_continues_where_another_process_left_it(store: holdfast.Store) -> None:
    first = store.tracked("r")
    first.state["messages"] = [message(number) for number in range(40)]
    first.save(workflow="chat")
    second = store.tracked("r")
    second.state["messages"][3]["content"] = "edited"
    saved = second.save()
    assert saved.bytes_added < 20_000
    first.state["turn"] = 1
    first.save()
    assert store.tracked("r").state == first.state
    assert store.load("r", step=saved.step).state == second.state  # type: ignore[union-attr]
    other = store.tracked("r", lane="other")
    assert other.state == {}
    other.state["x"] = 1
    other.save()
    assert store.load("r", lane="other").state == {"x": 1}  # type: ignore[union-attr]


def test_any_value_can_be_the_state_and_a_list_of_the_caller_stays_its_own(store: holdfast.Store) -> None:
    chat = store.tracked("r", as_type=Chat)
    mine: Chat = {"messages": [message(number) for number in range(40)]}
    chat.state = mine
    chat.save()
    mine["messages"].append(message(41))
    chat.save()
    assert store.load("r").state == mine  # type: ignore[union-attr]
    del mine
    chat.save()
    assert isinstance(chat.state, TrackedDict)
    chat.state["messages"].append(message(42))
    chat.save()
    again = store.tracked("r", as_type=Chat)
    assert isinstance(again.state, TrackedDict)
    assert len(again.state["messages"]) == 42
    with pytest.raises(holdfast.HoldfastError):
        store.tracked("r", as_type=int)
    whole = store.tracked("list", as_type=list[Any])
    whole.state = [message(number) for number in range(40)]
    whole.save()
    whole.state.append(5)
    whole.save()
    assert store.load("list").state == whole.state  # type: ignore[union-attr]


def test_a_claim_saves_its_tracked_state_until_it_is_lost(store: holdfast.Store) -> None:
    store.save("r", {"messages": [message(number) for number in range(40)]})
    claim = store.claim("r", owner="w1", lease=30)
    assert claim is not None
    chat = claim.tracked()
    chat.state["messages"].append("one")
    chat.save()
    claim.release()
    chat.state["messages"].append("two")
    with pytest.raises(ClaimLost):
        chat.save()
    second = store.claim("r", owner="w2", lease=30)
    assert second is not None
    again = second.tracked()
    again.state = chat.state
    again.save()
    assert store.load("r").state["messages"][-2:] == ["one", "two"]  # type: ignore[union-attr]


@pytest.mark.parametrize("arrives", [True, False], ids=["committed", "not committed"])
def test_a_save_that_failed_loses_no_change(arrives: bool) -> None:
    wire = Wire(MemoryStore(SystemClock()))
    store = holdfast.Store(wire)  # type: ignore[arg-type]
    chat = store.tracked("r")
    chat.state["messages"] = [message(number) for number in range(40)]
    chat.save()
    commit = MemoryStore.commit

    def fail(one: Commit) -> None:
        if arrives:
            commit(wire._port, [one])  # type: ignore[arg-type]
        raise StorageFull("the disk is full")

    for number in range(30):
        chat.state["messages"].append(message(number))
        chat.state["messages"][number]["content"] = "edited"
        wire.before = fail
        with pytest.raises(StorageFull):
            chat.save()
        wire.before = None
        if number % 3 == 0:
            chat.save()
            assert store.load("r").state == chat.state  # type: ignore[union-attr]
    store.close()


def test_async_callers_have_tracked_states(tmp_path: Path) -> None:
    async def main() -> None:
        store = holdfast.open(f"sqlite:{tmp_path / 'runs.db'}")
        chat = await store.aio.tracked("r")
        for number in range(40):
            chat.state.setdefault("messages", []).append(message(number))
            await chat.save(step=number)
        claim = await store.aio.claim("r", owner="w")
        assert claim is not None
        held = await claim.tracked(as_type=Chat)
        held.state["messages"].append(message(40))
        await held.save()
        await claim.release()
        chat.state["messages"].append(message(41))
        await asyncio.gather(*[chat.save(checkpoint_id=name) for name in ("one", "two")])
        loaded = await store.aio.load("r")
        assert loaded is not None
        assert loaded.state == chat.state
        await store.aio.close()

    asyncio.run(main())


def test_the_state_of_a_run_is_tracked_across_turns_pauses_forks_and_rollbacks(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'runs.db'}"

    def chat(run: holdfast.Run) -> int:
        for turn in run.loop():
            messages = run.state.setdefault("messages", [])
            assert isinstance(messages, TrackedList)
            messages.append(message(turn))
            if turn in (20, 40):
                messages.append(run.ask("Go on?", str, key=f"gate-{turn}"))
            if turn == 50:
                break
        return len(run.state["messages"])

    with holdfast.App(url) as app:
        handle = app.start(app.workflow(chat), run_id="r")
        assert handle.status() == "waiting"
    with holdfast.App(url) as app:
        app.workflow(chat)
        app.answer("r", "yes")
        assert app.handle("r").status() == "waiting"
        fork = app.fork("r", update={"note": "forked"})
        app.answer("r", "on")
        assert app.handle("r").result() == 52
        loaded = app.store.load("r")
        assert loaded is not None
        assert [part for part in loaded.state["messages"] if isinstance(part, str)] == ["yes", "on"]
        assert fork is not None
        assert not app.store.verify().problems


def test_a_part_of_a_tracked_state_can_be_metadata_or_attachments(store: holdfast.Store) -> None:
    tracked = store.tracked("parts")
    tracked.state.update({"facts": {"team": "billing"}, "files": {"draft": "text"}})
    tracked.save()
    store.save("other", {}, checkpoint_id="first", metadata=tracked.state["facts"])
    store.attach_all("other", "first", tracked.state["files"])
    loaded = store.load("other")
    assert loaded is not None
    assert loaded.metadata == {"team": "billing"}
    assert store.attachments("other", "first") == {"draft": "text"}


def test_a_state_has_the_types_it_is_opened_with(store: holdfast.Store) -> None:
    store.save("floats", {"share": 1})
    floats = store.tracked("floats", as_type=dict[str, float]).state
    assert isinstance(floats, TrackedDict)
    assert type(floats["share"]) is float


@pytest.mark.parametrize("deep", [False, True], ids=["messages", "threads"])
def test_the_first_save_after_a_load_encodes_what_changed(
    store: holdfast.Store, deep: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages = [message(number) for number in range(1500)]
    state: dict[str, Any] = {"messages": messages, "by_id": {f"m{number}": message(number) for number in range(90)}}
    if deep:
        state |= {"threads": [{"log": messages[:90], "title": number, "note": "x" * 9000} for number in range(30)]}
    kept = store.tracked("kept")
    kept.state.update(state)
    kept.save()
    store.save("r", state)
    del state, messages
    for turn in range(1, 4):
        loaded, encoded = store.tracked("r"), []
        for chat in (kept, loaded):
            sizes = count_encoded(monkeypatch)
            chat.state["messages"].append(message(turn))
            chat.state["messages"][turn * 400]["content"] = "edited"
            chat.state["by_id"]["m7"] = turn
            if deep:
                chat.state["threads"][17]["log"].append(message(turn))
            chat.save()
            encoded.append(sum(sizes))
            monkeypatch.undo()
        assert encoded[1] <= encoded[0] + 100, "as much as for a state that was not loaded"
        assert root_of(store, "r") == root_of(store, "kept")
    store.save("plain", loaded.state)
    assert root_of(store, "plain") == root_of(store, "kept")
    assert not store.verify().problems


def test_a_loaded_state_is_saved_after_a_sweep_removed_its_chunks(store: holdfast.Store) -> None:
    store.save("r", {"messages": [message(number) for number in range(60)]})
    chat = store.tracked("r")
    store.save("r", {"messages": []})
    store.prune("r", holdfast.Keep(last=1))
    chat.state["messages"].append(message(60))
    chat.save()
    assert len(store.load("r").state["messages"]) == 61  # type: ignore[union-attr]
    assert not store.verify().problems


def test_a_state_that_was_divided_finer_is_tracked_as_well() -> None:
    state = {"messages": [message(number) for number in range(60)], "note": ["x"] * 40}
    stored = encode(state, split_min=200)
    assert memo_of_loaded(to_tracked(state), stored.root, Outline()) is None
    outline: Outline = {}
    fetch = {name: b"\x00" + plain for name, plain in stored.chunks.items()}
    loaded = to_tracked(decode(stored.root, lambda _: fetch, "it", outline=outline)[0])
    assert encode_tracked(loaded, memo_of_loaded(loaded, stored.root, outline)).root == encode(state).root
