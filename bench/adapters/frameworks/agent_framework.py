"""Microsoft Agent Framework: `FileCheckpointStorage`, and `HoldfastCheckpointStorage` with a claim."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

from agent_framework import (
    Executor,
    FileCheckpointStorage,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    handler,
    response_handler,
)

from bench.adapters.material import RUN_ID, Turns, pay, url_of
from holdfast.adapters.agent_framework import HoldfastCheckpointStorage

NAME = "work"


class Chat(Executor):
    """A turn in each superstep; then, or at once, a payment that needs an approval."""

    def __init__(self, turns: Turns, place: Path | None) -> None:
        super().__init__("chat")
        self.turns, self.place = turns, place

    @handler
    async def turn(self, number: int, ctx: WorkflowContext[int, str]) -> None:
        if number < len(self.turns):
            ctx.set_state("messages", [*ctx.get_state("messages", []), *self.turns[number]])
            await ctx.send_message(number + 1)
        elif self.place is not None:
            await ctx.request_info("Pay?", bool)

    @response_handler
    async def answer(self, question: str, approved: bool, ctx: WorkflowContext[int, str]) -> None:
        assert self.place is not None
        await ctx.yield_output(pay(self.place))


def _build(turns: Turns, place: Path | None) -> Workflow:
    chat = Chat(turns, place)
    builder = WorkflowBuilder(start_executor=chat, name=NAME, max_iterations=len(turns) + 2)
    return builder.add_edge(chat, chat).build()


@contextlib.asynccontextmanager
async def _open(way: str, place: Path) -> Any:
    """A storage; ours with the claim of the instance."""
    if way == "FileCheckpointStorage":
        yield FileCheckpointStorage(place / "checkpoints")
        return
    ours = HoldfastCheckpointStorage(url_of(place), RUN_ID)
    async with ours.claim():
        yield ours
    await ours.close()


def grow(way: str, place: Path, turns: Turns) -> None:
    asyncio.run(_start(way, place, turns, None))


def pause(way: str, place: Path, turns: Turns) -> None:
    asyncio.run(_start(way, place, turns, place))


async def _start(way: str, place: Path, turns: Turns, bank: Path | None) -> None:
    async with _open(way, place) as storage:
        await _build(turns, bank).run(0, checkpoint_storage=storage)


def resume(way: str, place: Path, turns: Turns) -> None:
    async def main() -> None:
        async with _open(way, place) as storage:
            last = await storage.get_latest(workflow_name=NAME)
            answers = dict.fromkeys(last.pending_request_info_events, True)
            await _build(turns, place).run(
                responses=answers, checkpoint_id=last.checkpoint_id, checkpoint_storage=storage
            )

    asyncio.run(main())
