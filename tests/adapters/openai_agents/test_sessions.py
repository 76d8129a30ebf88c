"""`HoldfastSession`, inside and outside of runs."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("agents")

import agents

import holdfast
from holdfast.adapters.openai_agents import HoldfastSession, run_agent
from tests.adapters.openai_agents.fakes import FakeModel, script


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:{tmp_path / 'runs.db'}"


def say(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def texts(items: list[Any]) -> list[str]:
    return [item["content"] if isinstance(item["content"], str) else item["content"][0]["text"] for item in items]


def test_it_is_a_session_of_the_sdk(url: str) -> None:
    async def use() -> None:
        session = HoldfastSession("ana", url)
        assert isinstance(session, agents.memory.Session)
        agent = agents.Agent(name="a", model=FakeModel(lambda _: "hello"))
        agents.set_tracing_disabled(True)
        await agents.Runner.run(agent, "one", session=session)
        await agents.Runner.run(agent, "two", session=session)
        assert texts(await session.get_items()) == ["one", "hello", "two", "hello"]
        assert texts(await session.get_items(1)) == ["hello"]
        assert await session.get_items(0) == []
        last = await session.pop_item()
        assert last is not None
        assert texts([last]) == ["hello"]
        await session.clear_session()
        assert await session.get_items() == []
        assert await session.pop_item() is None
        session.close()

    asyncio.run(use())


def test_sessions_of_one_store_are_separate_and_last(url: str) -> None:
    async def use() -> None:
        with holdfast.open(url) as store:
            await HoldfastSession("ana", store).add_items([say("a")])
            await HoldfastSession("ben", store).add_items([say("b")])
        with holdfast.open(url) as store:
            limited = HoldfastSession("ana", store, session_settings={"limit": 1})
            await limited.add_items([say("c")])
            assert texts(await limited.get_items()) == ["c"]
            assert texts(await limited.get_items(5)) == ["a", "c"]
            assert texts(await HoldfastSession("ben", store).get_items()) == ["b"]

    asyncio.run(use())


def test_concurrent_adds_are_all_kept(url: str) -> None:
    async def use() -> None:
        sessions = [HoldfastSession("ana", url) for _ in range(3)]
        await asyncio.gather(*[sessions[number % 3].add_items([say(str(number))]) for number in range(30)])
        assert sorted(map(int, texts(await sessions[0].get_items()))) == list(range(30))
        for session in sessions:
            session.close()

    asyncio.run(use())


def test_items_that_cannot_be_stored_are_refused(url: str) -> None:
    async def use() -> None:
        session = HoldfastSession("ana", url)
        with pytest.raises(holdfast.InvalidInput, match="'ana'"):
            await session.add_items([{"role": "user", "content": object()}])
        assert await session.get_items() == []
        session.close()

    asyncio.run(use())


def test_what_is_not_a_store_is_refused() -> None:
    with pytest.raises(holdfast.InvalidInput, match="a store or its URL"):
        HoldfastSession("ana", 7)  # type: ignore[arg-type]


@pytest.mark.parametrize("checkpoint_turns", [1, 10])
def test_a_run_adds_nothing_twice(url: str, checkpoint_turns: int) -> None:
    agents.set_tracing_disabled(True)
    broken = [True]

    def make() -> holdfast.App:
        @agents.function_tool(needs_approval=True)
        def pay(order: str) -> str:
            return f"paid {order}"

        def model(outputs: list[str]) -> Any:
            if len(outputs) == 1 and broken[0]:
                raise ValueError("the model is down")
            return script([("p", "pay", {"order": "A"})], "{0}")(outputs)

        agent = agents.Agent(name="a", model=FakeModel(model), tools=[pay])
        app = holdfast.App(url)

        @app.workflow(name="chat")
        async def chat(run: holdfast.AsyncRun, text: str) -> str:
            session = HoldfastSession("ana", app.store)
            result = await run_agent(run, agent, text, session=session, checkpoint_turns=checkpoint_turns)
            await session.add_items([say("thanks")])
            await run.ask("Go on?", {"ok": bool})
            return str(result.final_output)

        return app

    with make() as app:
        app.start("chat", "please", run_id="r")
    with make() as app:
        assert app.answer("r", {"approve": True}).status() == "failed"
    broken[0] = False
    with make() as app:
        app.retry("r")
    with make() as app:
        assert app.answer("r", {"ok": True}).result() == "paid A"
        items = asyncio.run(HoldfastSession("ana", app.store).get_items())
    kinds = [item.get("type", item.get("role")) for item in items]
    assert kinds == ["user", "function_call", "function_call_output", "message", "user"]
