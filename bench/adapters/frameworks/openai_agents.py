"""The OpenAI Agents SDK: `SQLiteSession` and `RunState` in a file; `HoldfastSession` and `run_agent`."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import agents
from tests.adapters.openai_agents.fakes import Calls, FakeModel

import holdfast
from bench.adapters.material import Turns, approve, start, url_of
from bench.adapters.material import pay as pay_at
from holdfast.adapters.openai_agents import HoldfastSession, run_agent

agents.set_tracing_disabled(True)


def grow(way: str, place: Path, turns: Turns) -> None:
    replies = iter([reply for _, reply in turns])
    agent = agents.Agent(name="talk", model=FakeModel(lambda _: next(replies)))

    async def main() -> None:
        session: Any
        if way == "SQLiteSession":
            session = agents.SQLiteSession("chat", place / "chat.db")
        else:
            session = HoldfastSession("chat", url_of(place))
        for text, _ in turns:
            await agents.Runner.run(agent, text, session=session)
        session.close()

    asyncio.run(main())


def _agent(place: Path, turns: Turns) -> agents.Agent[Any]:
    """Looks something up in each turn, then pays."""

    @agents.function_tool
    def look(number: int, text: str) -> str:
        return turns[number][1]

    @agents.function_tool(needs_approval=True)
    def pay() -> str:
        return pay_at(place)

    def say(outputs: list[str]) -> Calls | str:
        done = len(outputs)
        if done < len(turns):
            return [(f"look-{done}", "look", {"number": done, "text": turns[done][0]})]
        return [("pay", "pay", {})] if done == len(turns) else "done"

    return agents.Agent(name="payer", model=FakeModel(say), tools=[look, pay])


def _work(place: Path, turns: Turns) -> Any:
    async def work(run: holdfast.AsyncRun) -> str:
        agent = _agent(place, turns)
        return str((await run_agent(run, agent, "Pay.", max_turns=len(turns) + 9)).final_output)

    return work


def pause(way: str, place: Path, turns: Turns) -> None:
    if way == "run_agent":
        start(place, _work(place, turns))
        return
    result = asyncio.run(agents.Runner.run(_agent(place, turns), "Pay.", max_turns=len(turns) + 9))
    assert len(result.interruptions) == 1
    (place / "state.json").write_text(json.dumps(result.to_state().to_json()), "utf-8")


def resume(way: str, place: Path, turns: Turns) -> None:
    if way == "run_agent":
        approve(place, _work(place, turns))
        return

    async def main() -> None:
        agent = _agent(place, turns)
        saved = json.loads((place / "state.json").read_text("utf-8"))
        state: Any = await agents.RunState.from_json(agent, saved)
        for item in state.get_interruptions():
            state.approve(item)
        result = await agents.Runner.run(agent, state)
        (place / "state.json").write_text(json.dumps(result.to_state().to_json()), "utf-8")

    asyncio.run(main())
