"""AG2: `make_durable`. Its own storages are memory and Redis."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ag2 import Agent, tool
from ag2.middleware import approval_required
from tests.adapters.ag2.story_agent import FakeConfig, call

import holdfast
from bench.adapters.material import Turns, approve, start
from bench.adapters.material import pay as pay_at
from holdfast.adapters.ag2 import make_durable


def grow(way: str, place: Path, turns: Turns) -> None:
    async def work(run: holdfast.AsyncRun) -> None:
        replies = iter([reply for _, reply in turns])
        reply: Any = make_durable(Agent("talk", config=FakeConfig(lambda _: next(replies))))
        for text, _ in turns:
            reply = await reply.ask(text)

    start(place, work)


def _work(place: Path) -> Any:
    @tool(middleware=[approval_required()])
    def pay() -> str:
        """Pay."""
        return pay_at(place)

    async def work(run: holdfast.AsyncRun) -> str:
        config = FakeConfig(lambda results: "done" if results else [call("pay")])
        return str((await make_durable(Agent("payer", config=config, tools=[pay])).ask("Pay.")).body)

    return work


def pause(way: str, place: Path, turns: Turns) -> None:
    start(place, _work(place))


def resume(way: str, place: Path, turns: Turns) -> None:
    approve(place, _work(place))
