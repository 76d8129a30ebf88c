"""Google ADK: `SqliteSessionService`; `HoldfastSessionService` and `HoldfastPlugin`."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.apps import App
from google.adk.runners import InMemoryRunner, Runner
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.adk.tools.function_tool import FunctionTool
from google.genai import types
from tests.adapters.adk.conversation import Reply, script

import holdfast
from bench.adapters.material import Turns, approve, start, url_of
from bench.adapters.material import pay as pay_at
from holdfast.adapters.adk import HoldfastPlugin, HoldfastSessionService

NAMES = {"app_name": "shop", "user_id": "ana", "session_id": "s"}
ASKED = "adk_request_confirmation"


async def _say(runner: Any, message: types.Content) -> list[Any]:
    names = {name: NAMES[name] for name in ("user_id", "session_id")}
    return [event async for event in runner.run_async(**names, new_message=message)]


def _service(way: str, place: Path) -> Any:
    if way == "SqliteSessionService":
        return SqliteSessionService(str(place / "sessions.db"))
    return HoldfastSessionService(url_of(place))


def grow(way: str, place: Path, turns: Turns) -> None:
    async def main() -> None:
        service = _service(way, place)
        agent = LlmAgent(name="talk", model=script(*(reply for _, reply in turns)))
        runner = Runner(app=App(name="shop", root_agent=agent), session_service=service, auto_create_session=True)
        for text, _ in turns:
            await _say(runner, types.UserContent(text))
        if way == "HoldfastSessionService":
            await service.close()

    asyncio.run(main())


def _app(place: Path, *plugins: Any) -> App:
    async def pay() -> str:
        """Pay."""
        return await asyncio.to_thread(pay_at, place)

    call: Reply = [("pay", {})]
    agent = LlmAgent(name="payer", model=script(call, "done"), tools=[FunctionTool(pay, require_confirmation=True)])
    return App(name="shop", root_agent=agent, plugins=list(plugins))


def _work(place: Path) -> Any:
    async def work(run: holdfast.AsyncRun) -> None:
        runner = InMemoryRunner(app=_app(place, HoldfastPlugin()))
        await runner.session_service.create_session(**NAMES)
        await _say(runner, types.UserContent("Pay."))

    return work


def pause(way: str, place: Path, turns: Turns) -> None:
    if way == "HoldfastPlugin":
        start(place, _work(place))
        return
    runner = Runner(app=_app(place), session_service=_service(way, place), auto_create_session=True)
    asyncio.run(_say(runner, types.UserContent("Pay.")))


def resume(way: str, place: Path, turns: Turns) -> None:
    if way == "HoldfastPlugin":
        approve(place, _work(place))
        return

    async def main() -> None:
        service = _service(way, place)
        session = await service.get_session(**NAMES)
        (asked,) = [call for event in session.events for call in event.get_function_calls() if call.name == ASKED]
        answer = types.FunctionResponse(id=asked.id, name=ASKED, response={"confirmed": True})
        runner = Runner(app=_app(place), session_service=service)
        await _say(runner, types.UserContent([types.Part(function_response=answer)]))

    asyncio.run(main())
