"""Pydantic AI: the harness' `SqliteStepStore` and `FileStepStore`; `HoldfastStepStore` and `HoldfastDurability`."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.tools import DeferredToolRequests
from pydantic_ai.usage import UsageLimits
from pydantic_ai_harness.step_persistence import FileStepStore, SqliteStepStore, StepPersistence, continue_run

import holdfast
from bench.adapters.material import RUN_ID, Turns, approve, start, url_of
from bench.adapters.material import pay as pay_at
from holdfast.adapters.pydantic_ai import HoldfastDurability
from holdfast.adapters.pydantic_ai_steps import HoldfastStepStore

UNLIMITED = UsageLimits(request_limit=None)


def _agent(capability: Any, place: Path, turns: Turns, *, pays: bool) -> Agent[None, Any]:
    """Looks something up in each turn, then perhaps pays."""

    def model(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        done = sum(isinstance(part, ToolReturnPart) for message in messages for part in message.parts)
        if done < len(turns):
            return ModelResponse([ToolCallPart("look", {"number": done, "text": turns[done][0]}, f"look-{done}")])
        if pays and done == len(turns):
            return ModelResponse([ToolCallPart("pay", {}, "pay")])
        return ModelResponse([TextPart("done")])

    output: Any = [str, DeferredToolRequests]
    agent = Agent(FunctionModel(model), name="payer", output_type=output, capabilities=[capability])

    @agent.tool_plain
    def look(number: int, text: str) -> str:
        return turns[number][1]

    @agent.tool_plain(requires_approval=True)
    def pay() -> str:
        return pay_at(place)

    return agent


def _store(way: str, place: Path) -> Any:
    if way == "HoldfastStepStore":
        return HoldfastStepStore(url_of(place))
    return SqliteStepStore(database=place / "steps.db") if way == "SqliteStepStore" else FileStepStore(place / "steps")


def _work(place: Path, turns: Turns, *, pays: bool) -> Any:
    async def work(run: holdfast.AsyncRun) -> str:
        agent = _agent(HoldfastDurability(), place, turns, pays=pays)
        return str((await agent.run("Pay.", usage_limits=UNLIMITED)).output)

    return work


def _begin(way: str, place: Path, turns: Turns, *, pays: bool) -> None:
    if way == "HoldfastDurability":
        start(place, _work(place, turns, pays=pays))
        return

    async def main() -> None:
        store = _store(way, place)
        # Without the frontier the harness stores no snapshot of a call that waits for an approval.
        capability: Any = StepPersistence(store=store, run_id=RUN_ID, capture_frontier=pays)
        await _agent(capability, place, turns, pays=pays).run("Pay.", usage_limits=UNLIMITED)
        if way == "HoldfastStepStore":
            store.close()

    asyncio.run(main())


def grow(way: str, place: Path, turns: Turns) -> None:
    _begin(way, place, turns, pays=False)


def pause(way: str, place: Path, turns: Turns) -> None:
    _begin(way, place, turns, pays=True)


def resume(way: str, place: Path, turns: Turns) -> None:
    if way == "HoldfastDurability":
        approve(place, _work(place, turns, pays=True))
        return

    async def main() -> None:
        store = _store(way, place)
        history = await continue_run(store, run_id=RUN_ID, include_interrupted=True)
        agent = _agent(StepPersistence(store=store), place, turns, pays=True)
        calls = [part for part in history[-1].parts if isinstance(part, ToolCallPart)]
        results = DeferredToolRequests(approvals=calls).build_results(approve_all=True)
        await agent.run(message_history=history, deferred_tool_results=results, usage_limits=UNLIMITED)

    asyncio.run(main())
