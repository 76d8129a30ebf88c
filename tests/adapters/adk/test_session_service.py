"""`HoldfastSessionService` with and without a run."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("google.adk")

from google.adk.agents import LlmAgent
from google.adk.apps import App
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.adk.runners import Runner
from google.adk.sessions.base_session_service import GetSessionConfig
from google.adk.sessions.session import Session
from google.genai import types

import holdfast
from holdfast.adapters.adk import HoldfastPlugin, HoldfastSessionService
from holdfast.errors import Diverged, InvalidInput
from tests.adapters.adk.conversation import Bank, script, texts

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")

WHO: dict[str, Any] = {"app_name": "shop", "user_id": "ana"}


@pytest.fixture(params=["memory:", "sqlite:", "dir:"])
def service(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[HoldfastSessionService]:
    url = request.param if request.param == "memory:" else f"{request.param}{tmp_path / 'store'}"
    made = HoldfastSessionService(url)
    yield made
    asyncio.run(made.close())


def said(text: str, **state: Any) -> Event:
    delta = {name.replace("__", ":"): value for name, value in state.items()}
    return Event(
        invocation_id="i", author="user", content=types.UserContent(text), actions=EventActions(state_delta=delta)
    )


async def get(service: HoldfastSessionService, session_id: str = "s", **options: Any) -> Session:
    found = await service.get_session(**WHO, session_id=session_id, **options)
    assert found is not None
    return found


def messages(session: Session) -> list[str]:
    return [texts([event]) for event in session.events]


def test_a_session_is_created_read_and_deleted(service: HoldfastSessionService) -> None:
    async def act() -> None:
        assert await service.get_session(**WHO, session_id="s") is None
        made = await service.create_session(**WHO, session_id=" s ", state={"a": 1, "temp:x": 2})
        assert (made.id, made.state, made.events) == ("s", {"a": 1}, [])
        assert await get(service) == made
        with pytest.raises(AlreadyExistsError):
            await service.create_session(**WHO, session_id="s")
        await service.delete_session(**WHO, session_id="s")
        assert await service.get_session(**WHO, session_id="s") is None
        with pytest.raises(SessionNotFoundError):
            await service.append_event(made, said("late"))
        drawn = {(await service.create_session(**WHO)).id for _ in range(2)}
        assert len(drawn) == 2

    asyncio.run(act())


def test_of_two_that_create_one_session_one_succeeds(service: HoldfastSessionService) -> None:
    async def act() -> None:
        made = await asyncio.gather(
            *[service.create_session(**WHO, session_id="s", state={"n": n}) for n in range(4)], return_exceptions=True
        )
        (won,) = [each for each in made if isinstance(each, Session)]
        assert all(isinstance(each, (Session, AlreadyExistsError)) for each in made)
        assert (await get(service)).state == won.state

    asyncio.run(act())


def test_states_of_apps_users_and_sessions_are_kept_apart(service: HoldfastSessionService) -> None:
    async def act() -> None:
        one = await service.create_session(**WHO, session_id="s", state={"app:a": 1, "user:u": 1, "own": 1})
        await service.append_event(one, said("x", app__a=2, user__v=2, own=2, temp__t=2))
        assert one.state == {"app:a": 2, "user:u": 1, "user:v": 2, "own": 2, "temp:t": 2}
        stored = await get(service)
        assert stored.state == {"app:a": 2, "user:u": 1, "user:v": 2, "own": 2}
        assert stored.events[0].actions.state_delta == {"app:a": 2, "user:v": 2, "own": 2}
        other = await service.create_session(**WHO, session_id="t")
        assert other.state == {"app:a": 2, "user:u": 1, "user:v": 2}
        stranger = await service.create_session(app_name="shop", user_id="ben", session_id="s")
        assert stranger.state == {"app:a": 2}
        assert (await service.create_session(app_name="bar", user_id="ana")).state == {}
        assert await service.get_user_state(**WHO) == {"u": 1, "v": 2}
        assert await service.get_user_state(app_name="shop", user_id="cho") == {}

    asyncio.run(act())


def test_an_event_is_read_as_it_was_written(service: HoldfastSessionService) -> None:
    event = Event(
        invocation_id="i",
        author="painter",
        branch="a.b",
        content=types.Content(role="model", parts=[types.Part.from_bytes(data=b"\x00\xff", mime_type="image/png")]),
        actions=EventActions(artifact_delta={"file": 0}, transfer_to_agent="b", escalate=True),
        long_running_tool_ids={"t"},
        turn_complete=True,
        partial=False,
        error_code="E",
        usage_metadata=types.GenerateContentResponseUsageMetadata(prompt_token_count=1),
        custom_metadata={"k": [1, None]},
        timestamp=1700000000.123,
    )

    async def act() -> None:
        session = await service.create_session(**WHO, session_id="s")
        await service.append_event(session, event)
        await service.append_event(session, Event(author="user", partial=True))
        assert await get(service) == session
        assert (await get(service)).events == [event]

    asyncio.run(act())


def test_concurrent_appends_are_all_kept_and_an_equal_one_is_not_added_twice(service: HoldfastSessionService) -> None:
    async def act() -> None:
        await service.create_session(**WHO, session_id="s")
        copies = [await get(service) for _ in range(8)]
        await asyncio.gather(*[service.append_event(each, said(f"{n}")) for n, each in enumerate(copies)])
        again = said("again")
        await service.append_event(copies[0], again)
        await service.append_event(copies[1], again)
        assert sorted(messages(await get(service))) == [*"01234567", "again"]

    asyncio.run(act())


def test_only_the_newest_events_are_read(service: HoldfastSessionService) -> None:
    async def act() -> None:
        session = await service.create_session(**WHO, session_id="s")
        for number in range(1, 6):
            event = said(f"{number}", n=number)
            event.timestamp = float(number)
            await service.append_event(session, event)
        for config, expected in (
            (GetSessionConfig(num_recent_events=0), []),
            (GetSessionConfig(num_recent_events=3), ["3", "4", "5"]),
            (GetSessionConfig(after_timestamp=4.0), ["4", "5"]),
            (GetSessionConfig(after_timestamp=4.0, num_recent_events=1), ["5"]),
            (GetSessionConfig(after_timestamp=50.0), []),
        ):
            found = await get(service, config=config)
            assert (messages(found), found.state["n"]) == (expected, 5)

    asyncio.run(act())


def test_sessions_are_listed_oldest_first_without_events(service: HoldfastSessionService) -> None:
    async def act() -> None:
        for user, session_id in (("ana", "a/b"), ("ana", "c"), ("ana/x", "d"), ("ä%2F", "é")):
            await service.create_session(app_name="shop", user_id=user, session_id=session_id, state={"of": user})
        await service.create_session(app_name="shop/ana", user_id="ana", session_id="no")
        await service.append_event(await get(service, "a/b"), said("newest", user__k=1))
        found = (await service.list_sessions(app_name="shop")).sessions
        assert [(each.user_id, each.id) for each in found] == [
            ("ana", "c"),
            ("ana/x", "d"),
            ("ä%2F", "é"),
            ("ana", "a/b"),
        ]
        assert all(each.events == [] for each in found)
        assert [each.id for each in (await service.list_sessions(**WHO)).sessions] == ["c", "a/b"]
        assert found[0].state == {"of": "ana", "user:k": 1}
        assert (await service.list_sessions(app_name="none")).sessions == []

    asyncio.run(act())


def test_another_service_on_the_store_reads_the_session(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'runs.db'}"

    async def write() -> None:
        service = HoldfastSessionService(url)
        await service.append_event(await service.create_session(**WHO, session_id="s"), said("hello"))
        await service.close()

    asyncio.run(write())
    with holdfast.open(url) as store:
        assert messages(asyncio.run(get(HoldfastSessionService(store)))) == ["hello"]


def test_a_wrong_store_is_refused() -> None:
    with pytest.raises(InvalidInput, match="a store or its URL is needed, not int"):
        HoldfastSessionService(7)  # type: ignore[arg-type]


@pytest.fixture
def app() -> Iterator[holdfast.App]:
    with holdfast.App("memory:") as made:
        yield made


async def chat(app: holdfast.App, model: Any, bank: Bank, text: str) -> str:
    """One message in the session that all runs of a test share."""
    agent = LlmAgent(name="payer", model=model, tools=[bank.ask()])
    service = HoldfastSessionService(app.store)
    runner = Runner(
        app=App(name="shop", root_agent=agent, plugins=[HoldfastPlugin()]),
        session_service=service,
        auto_create_session=True,
    )
    message = types.UserContent(text)
    return texts([event async for event in runner.run_async(user_id="ana", session_id="s", new_message=message)])


def test_a_run_that_waits_adds_each_event_once(app: holdfast.App) -> None:
    bank, model = Bank(), script([("pay", {"order": "A"}), ("pay", {"order": "B"})], "done")

    @app.workflow(name="work")
    async def work(run: holdfast.AsyncRun) -> str:
        return await chat(app, model, bank, "pay")

    app.start("work", run_id="r")
    for gate in app.gates("r"):
        app.answer("r", {"approve": True}, gate=gate.gate)
    assert app.handle("r").result() == "done"
    session = asyncio.run(get(HoldfastSessionService(app.store)))
    kinds = [
        (event.author, len(event.get_function_calls()), len(event.get_function_responses())) for event in session.events
    ]
    assert kinds == [("user", 0, 0), ("payer", 2, 0), ("payer", 0, 2), ("payer", 0, 0)]
    calls = [call.id for event in session.events for call in event.get_function_calls()]
    assert calls == [reply.id for event in session.events for reply in event.get_function_responses()]


def test_a_run_sees_what_runs_before_it_have_said_also_after_a_resume(app: holdfast.App) -> None:
    bank = Bank()
    model = script("hi", [("pay", {"order": "A"})], "done")

    @app.workflow(name="work")
    async def work(run: holdfast.AsyncRun, text: str) -> str:
        return await chat(app, model, bank, text)

    assert app.start("work", "hello", run_id="first").result() == "hi"
    app.start("work", "pay", run_id="r")
    service = HoldfastSessionService(app.store)
    # This is added while the run waits; the run does not see it, because it has read the session before.
    asyncio.run(service.append_event(asyncio.run(get(service)), said("meanwhile")))
    assert app.answer("r", {"approve": True}).result() == "done"
    assert model.calls == [0, 1, 2]
    stored = [text for text in messages(asyncio.run(get(service))) if text]
    assert stored == ["hello", "hi", "pay", "meanwhile", "done"]


def test_turns_of_a_durable_loop_are_told_apart(app: holdfast.App) -> None:
    bank = Bank()
    model = script([("pay", {"order": "A"})], "one", [("pay", {"order": "A"})], "two", ids=True)

    @app.workflow(name="work")
    async def work(run: holdfast.AsyncRun) -> str:
        run.state.setdefault("said", [])
        async for turn in run.loop():
            run.state["said"].append(await chat(app, model, bank, f"pay {turn}"))
            if turn == 2:
                break
        return " ".join(run.state["said"])

    app.start("work", run_id="r")
    assert app.answer("r", {"approve": True}).status() == "waiting"
    assert app.answer("r", {"approve": True}).result() == "one two"
    assert bank.paid == ["A", "A"]
    assert model.calls == [0, 1, 2, 3]
    stored = [text for text in messages(asyncio.run(get(HoldfastSessionService(app.store)))) if text]
    assert stored == ["pay 1", "one", "pay 2", "two"]


def test_calls_of_the_service_inside_a_run_are_recorded(app: holdfast.App) -> None:
    service, seen = HoldfastSessionService(app.store), []

    @app.workflow(name="work")
    async def work(run: holdfast.AsyncRun) -> list[Any]:
        made = await service.create_session(**WHO, state={"user:k": 1})
        listed = [each.id for each in (await service.list_sessions(**WHO)).sessions]
        state = await service.get_user_state(**WHO)
        try:
            await service.create_session(**WHO, session_id=made.id)
        except AlreadyExistsError:
            seen.append(made.id)
        await run.ask("go on?", {"ok": bool})
        await service.delete_session(**WHO, session_id=made.id)
        return [made.id, listed, state]

    app.start("work", run_id="r")
    asyncio.run(service.create_session(**WHO, session_id="later", state={"user:k": 2}))
    made_id, listed, state = app.answer("r", {"ok": True}).result()
    assert (listed, state) == ([made_id], {"k": 1})
    assert seen == [made_id, made_id]
    assert [each.id for each in asyncio.run(service.list_sessions(**WHO)).sessions] == ["later"]


def test_an_append_that_is_repeated_after_a_crash_adds_nothing(app: holdfast.App) -> None:
    service = HoldfastSessionService(app.store)

    async def act() -> None:
        await service.append_event(await service.create_session(**WHO, session_id="s"), said("once", user__n=1))

    asyncio.run(act())
    for run_id in [info.run_id for info in app.store.runs()]:
        last = app.store.journal(run_id)[-1]
        app.store.append(run_id, [{**last.data, "kind": last.kind}])  # what a second process would write
    session = asyncio.run(get(service))
    assert messages(session) == ["once"]
    assert session.state == {"user:n": 1}


def test_a_session_that_was_deleted_while_a_run_waited_stops_the_run(app: holdfast.App) -> None:
    bank, model = Bank(), script([("pay", {"order": "A"})], "done")

    @app.workflow(name="work")
    async def work(run: holdfast.AsyncRun) -> str:
        await HoldfastSessionService(app.store).create_session(**WHO, session_id="s")
        return await chat(app, model, bank, "pay")

    app.start("work", run_id="r")
    asyncio.run(HoldfastSessionService(app.store).delete_session(**WHO, session_id="s"))
    with pytest.raises(Diverged, match="was deleted while a run waited"):
        app.answer("r", {"approve": True})
    assert bank.paid == []
