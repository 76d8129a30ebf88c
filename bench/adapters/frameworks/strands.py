"""Strands: `FileSessionManager`; `HoldfastSessionRepository` and `HoldfastPlugin`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from strands import Agent, tool
from strands.hooks import BeforeToolCallEvent
from strands.session.file_session_manager import FileSessionManager
from strands.session.repository_session_manager import RepositorySessionManager
from tests.adapters.strands.story_agent import FakeModel, call, results
from tests.adapters.strands.story_agent import approve as ask

import holdfast
from bench.adapters.material import RUN_ID, Turns, approve, start, url_of
from bench.adapters.material import pay as pay_at
from holdfast.adapters.strands import HoldfastPlugin, HoldfastSessionRepository


def grow(way: str, place: Path, turns: Turns) -> None:
    replies = iter([reply for _, reply in turns])

    def talk(manager: Any) -> None:
        model = FakeModel(lambda _: [{"text": next(replies)}])
        agent = Agent(model, session_manager=manager, callback_handler=None)
        for text, _ in turns:
            agent(text)

    if way == "FileSessionManager":
        talk(_manager(place))
        return
    repository = HoldfastSessionRepository(url_of(place))
    with repository.claim(RUN_ID):
        talk(RepositorySessionManager(RUN_ID, repository))
    repository.close()


def _agent(place: Path, **options: Any) -> Agent:
    @tool
    def pay() -> str:
        """Pay."""
        return pay_at(place)

    model = FakeModel(lambda messages: [{"text": "done"}] if results(messages) else [call("c", "pay")])
    agent = Agent(model, name="payer", tools=[pay], callback_handler=None, **options)
    agent.add_hook(ask, BeforeToolCallEvent)
    return agent


def _work(place: Path) -> Any:
    async def work(run: holdfast.AsyncRun) -> str:
        return str(await _agent(place, plugins=[HoldfastPlugin()]).invoke_async("Pay."))

    return work


def _manager(place: Path) -> FileSessionManager:
    return FileSessionManager(RUN_ID, storage_dir=str(place / "sessions"))


def pause(way: str, place: Path, turns: Turns) -> None:
    if way == "HoldfastPlugin":
        start(place, _work(place))
        return
    result = _agent(place, session_manager=_manager(place))("Pay.")
    (interrupt,) = result.interrupts or []
    (place / "interrupt.txt").write_text(interrupt.id, "utf-8")


def resume(way: str, place: Path, turns: Turns) -> None:
    if way == "HoldfastPlugin":
        approve(place, _work(place))
        return
    answer = {"interruptId": (place / "interrupt.txt").read_text("utf-8"), "response": "y"}
    said: Any = [{"interruptResponse": answer}]
    _agent(place, session_manager=_manager(place))(said)
